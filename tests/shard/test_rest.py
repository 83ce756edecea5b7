"""A micro-batch unpacks of a shard's state row only what it touches."""

from __future__ import annotations

from unittest.mock import patch

import pyarrow as pa

from coordinator_udf.protocol.rows import Request
from coordinator_udf.protocol.settings import Settings
from coordinator_udf.shard import Shard
from coordinator_udf.shard_batches import process_batch
from coordinator_udf.shard_codec import StateRow, decode, encode
from coordinator_udf.shard_pages import PagedMap
from coordinator_udf.shard_rows import process_columns, process_rows
from schemas.requests import request_log_arrow
from scripts.benchmarks import workload
from scripts.benchmarks.workload import Columns, Group, Rows

GROUPS = 100
SETTINGS = Settings()


def stable_groups() -> tuple[StateRow, list[Group], Rows]:
    """The state row of a shard whose groups are all stable."""
    shard, rows = Shard(0, SETTINGS), Rows(0)
    groups = workload.make_groups(GROUPS, 3, 1)[0]
    for columns in workload.life(rows, groups):
        process_columns(shard, "live", columns)
    return encode(shard), groups, rows


def requests(columns: Columns) -> list[Request]:
    return [Request._make(values) for values in zip(*columns.values(), strict=True)]


def as_batch(rows: list[Request]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"source": "live", **row._asdict()} for row in rows], request_log_arrow())


def unpacked_groups(shard: Shard) -> set[str]:
    groups = shard.store.groups
    assert isinstance(groups, PagedMap)
    return {group.group_id for group in groups.unpacked()}


def test_heartbeats_unpack_the_sessions_of_their_groups_and_no_group() -> None:
    state, groups, rows = stable_groups()
    workload.add_heartbeats(rows, groups[:2], workload.START_MS + 10_000, 0)
    shard = decode(0, SETTINGS, state)
    process_rows(shard, requests(rows.take()))
    assert unpacked_groups(shard) == set()
    assert set(shard.ctx.timers.resting) == {group.group_id for group in groups[2:]}


def test_a_commit_unpacks_one_group() -> None:
    state, groups, rows = stable_groups()
    workload.add_commits(rows, groups[7:8], workload.START_MS + 10_000, 5)
    shard = decode(0, SETTINGS, state)
    process_rows(shard, requests(rows.take()))
    assert unpacked_groups(shard) == {groups[7].group_id}
    assert set(shard.ctx.timers.resting) == {group.group_id for group in groups} - {groups[7].group_id}


def test_deadlines_put_off_in_one_batch_hold_in_the_next() -> None:
    state, groups, rows = stable_groups()
    beating, silent = groups[:50], groups[50:]
    for seconds in (30, 60):
        workload.add_heartbeats(rows, beating, workload.START_MS + seconds * 1_000, 0)
        shard = decode(0, SETTINGS, state)
        outputs = process_rows(shard, requests(rows.take()))
        state = encode(shard)
    gone = {output.group_id for output in outputs if output.kind == "transition"}
    assert gone == {group.group_id for group in silent}


def test_heartbeats_together_do_what_they_do_one_by_one() -> None:
    state, groups, rows = stable_groups()
    for seconds in (10, 13, 13, 9):
        workload.add_heartbeats(rows, groups[:20], workload.START_MS + seconds * 1_000, 3_000)
    batch = as_batch(requests(rows.take()))
    said, left = [], []
    for least in (1, 10**9):
        with patch("coordinator_udf.shard_batches.BULK_ROWS", least):
            shard = decode(0, SETTINGS, state)
            said.append(process_batch(shard, "live", batch))
            left.append(encode(shard))
    assert len(said[0].heartbeats) == batch.num_rows
    assert said[0].heartbeats.equals(said[1].heartbeats)
    assert left[0] == left[1]
