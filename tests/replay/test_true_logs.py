"""Logs made with their truth at hand: an order that explains them is found, and none where an answer is changed."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from coordinator_udf.replay.tasks.run_and_compare import run_and_compare
from tests.replay.test_explain_soundness import changed
from tests.replay.true_clients import Plan
from tests.replay.true_log import TrueLog, make, read_true

#: Groups of a log, as names and kinds of members.
GROUPS = (
    (("c", "classic"),),
    (("k", "consumer"),),
    (("m", "mixed"),),
    (("c", "classic"), ("k", "consumer"), ("m", "mixed")),
)
#: How late a request may reach the shard (ms).
WIDTHS_MS = (1, 10, 50, 200)
#: How late an answer may be ready (ms).
WRITTEN_MS = (1, 50)
SEEDS = range(100, 120)


def log_of(seed: int) -> TrueLog:
    plan = Plan(
        groups=GROUPS[seed // len(WIDTHS_MS) % len(GROUPS)], width_ms=WIDTHS_MS[seed % len(WIDTHS_MS)],
        written_ms=WRITTEN_MS[seed % len(WRITTEN_MS)], members=2 + seed % 2, pause_ms=400, lasts_ms=6_000,
    )  # fmt: skip
    return make(seed, plan)


def unexplained(path: Path) -> list[str]:
    """Returns the ids of the requests whose answers nothing explains."""
    source = read_true(path)
    assert not source.rejections
    _, verdict = run_and_compare(source)
    return [difference.request_id or "" for difference in verdict.differences if difference.undecided is None]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_log_with_a_true_order_is_explained(seed: int, tmp_path: Path) -> None:
    told = log_of(seed)
    assert len(told.truth) > 10
    assert unexplained(told.log.write(tmp_path / "log")) == []


@pytest.mark.parametrize("seed", SEEDS[::2])
def test_a_changed_answer_is_told_and_nothing_else(seed: int, tmp_path: Path) -> None:
    """No number of an assigned partition is changed: what a log shows of a topic counts as there."""
    told = log_of(seed)
    path = told.log.write(tmp_path / "log")
    lines = path.read_text().splitlines()
    draw = random.Random(seed)
    while True:
        at = draw.randrange(len(lines))
        start, end = lines[at].index("{"), lines[at].rindex("}") + 1
        entry = json.loads(lines[at][start:end])
        if not entry["response"].get("assignment") and changed(entry["response"], draw):
            break
    lines[at] = lines[at][:start] + json.dumps(entry) + lines[at][end:]
    path.write_text("\n".join(lines) + "\n")
    assert unexplained(path) == [told.request_ids[at]]
