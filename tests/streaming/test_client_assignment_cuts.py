"""The scenarios of the client-side mode through the function that Spark calls for a shard, cut where it may be cut."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import msgspec
import pytest

from schemas.requests import LIVE
from tests.groups.harness import G
from tests.groups.played_scenarios import play_all
from tests.streaming.test_function_cuts import replayed, streamed

pytestmark = pytest.mark.slow


def test_any_cut_answers_as_the_scenario_says() -> None:
    source, answers = play_all()
    shards: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in source.rows:
        shards[row["partition"]].append({**row, "source": LIVE})
    assert len(shards) > 50
    pick = random.Random(1)
    seen = 0
    for rows in shards.values():
        log = source.settings, rows
        ends = sorted(pick.sample(range(1, len(rows)), min(3, len(rows) - 1)))
        said = streamed(log, ends)
        assert said == replayed(log)
        for output in said:
            if output.kind == "responses" and output.request_id in answers:
                name = output.request_id.partition("/")[0]
                assert output.body is not None
                if '"@' in output.body:
                    # The bytes of a classic group's assignment are put in later.
                    continue
                as_played = msgspec.json.decode(output.body.replace(name, G))
                assert as_played == msgspec.json.decode(answers[output.request_id]), output.request_id
                seen += 1
    assert seen > 1_000
