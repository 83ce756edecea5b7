"""Recorded logs handled row by row, with the short way of heartbeats, and in arrays: the same outputs, all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from coordinator_udf.protocol.log_row import Request
from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import ReplaySource
from coordinator_udf.replay.tasks.in_process import FAILOVER
from coordinator_udf.shard.shard import Shard
from tests.conftest import ROOT, SAMPLE_LOG, shared
from tests.shard.edge import Output, process_rows

SAMPLES = sorted((ROOT / "tests" / "data" / "traces").glob("*.jsonl.gz"))

#: Makes outputs of some rows, ordered by ``seq``.
Way = Callable[[Shard, list[Request]], list[Output]]


def row_by_row(shard: Shard, rows: list[Request]) -> list[Output]:
    return process_rows(shard, rows, short_way=False)


def one_by_one(shard: Shard, rows: list[Request]) -> list[Output]:
    return process_rows(shard, rows)


def in_arrays(shard: Shard, rows: list[Request]) -> list[Output]:
    # So that any two heartbeats are looked at together.
    with patch("coordinator_udf.shard.batch_rows.BULK_ROWS", 2):
        return process_rows(shard, rows)


def outputs(source: ReplaySource, way: Way, at_once: int) -> list[Output]:
    """What all shards of a source say if they are handed so many rows at a time."""
    shards: dict[int, list[Request]] = defaultdict(list)
    for row in source.rows:
        shards[row["partition"]].append(Request(*(row[name] for name in Request._fields)))
    said = []
    for partition, rows in sorted(shards.items()):
        shard = Shard(partition, source.settings, keep_log=any(row.api == FAILOVER for row in rows))
        for start in range(0, len(rows), at_once):
            said += way(shard, rows[start : start + at_once])
    return said


def check(path: Path) -> None:
    source = read_source(path, path.name, ReplayOptions())
    expected = outputs(source, row_by_row, 1_000)
    assert len(expected) > 10
    assert outputs(source, one_by_one, 1_000) == expected
    for at_once in (40, 1_000):
        assert outputs(source, in_arrays, at_once) == expected, f"{path.name}, {at_once} rows at a time"


@pytest.mark.parametrize("path", [*SAMPLES, SAMPLE_LOG], ids=lambda path: path.name.partition(".")[0])
def test_a_recorded_log_is_answered_the_same_in_every_way(path: Path) -> None:
    check(path)


def test_all_traces_are_answered_the_same_in_every_way() -> None:
    for path in sorted(shared("oracle", "traces").glob("*.jsonl.gz")):
        check(path)
