"""A broker's own log that begins in the middle tells nothing that it wouldn't tell from its beginning on."""

from __future__ import annotations

import gzip
from collections import defaultdict
from typing import Any, Final

import pytest

from coordinator_udf.replay.inputs.info_log.lines import is_coordinator_line
from coordinator_udf.replay.inputs.info_log.reader import read_info_log
from tests.conftest import shared

#: A rebalance begins with the line on who joins, which may be cut away from its own line.
APART_MS: Final = 50
COLUMNS: Final = (
    "generation", "protocol_type", "leader", "cause_member_id", "cause_client_id", "cause_timer", "members",
)  # fmt: skip
LOGS: Final = (
    "dev/assignors", "dev/broker-restart", "dev/crash", "dev/kip848", "dev/max-poll", "dev/migrate",
    "dev/rolling-strategy", "dev/static-restart", "dev/storm", "dev/subscriptions", "ab/dev/W1-static",
)  # fmt: skip


def bears_out(whole: dict[str, Any], later: dict[str, Any]) -> bool:
    if abs(whole["ts"] - later["ts"]) > APART_MS or later["rule"] not in {whole["rule"], "EPOCH_BUMPED"}:
        return False
    for name in COLUMNS:
        told, known = later.get(name), whole.get(name)
        if name == "members" and told is not None and known is not None:
            # They stand in the order in which they were heard of.
            told, known = set(told), set(known)
        if told is not None and told != known:
            return False
    return True


@pytest.mark.parametrize("name", LOGS)
def test_wherever_it_begins(name: str) -> None:
    text = gzip.decompress(shared("evidence", f"{name}.server.log.gz").read_bytes()).decode()
    lines = [line for line in text.splitlines() if is_coordinator_line(line)]
    whole: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in read_info_log(lines).transitions:
        whole[row["group_id"]].append(row)
    for place in range(1, len(lines), 3):
        for row in read_info_log(lines[place:]).transitions:
            assert any(bears_out(each, row) for each in whole[row["group_id"]]), (place, row)
