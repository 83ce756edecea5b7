"""A micro-batch unpacks of a shard's state row only what it touches."""

from __future__ import annotations

from unittest.mock import patch

from coordinator_udf.groups.model.timers import DEADLINE, KEY, SEQ
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.batches import process_batch
from coordinator_udf.shard.shard import Shard
from coordinator_udf.shard.state_row.codec import StateRow, decode, encode
from coordinator_udf.shard.state_row.pages import PagedMap
from scripts.benchmarks import workload
from scripts.benchmarks.workload import Columns, Group, Rows
from tests.shard.edge import as_batch, in_order, process_rows

GROUPS = 100
SETTINGS = Settings()


def stable_groups() -> tuple[StateRow, list[Group], Rows]:
    """The state row of a shard whose groups are all stable."""
    shard, rows = Shard(0, SETTINGS), Rows(0)
    groups = workload.make_groups(GROUPS, 3, 1)[0]
    for columns in workload.life(rows, groups):
        process_rows(shard, requests(columns))
    return encode(shard), groups, rows


def requests(columns: Columns) -> list[Request]:
    return [Request._make(values) for values in zip(*columns.values(), strict=True)]


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
    assert set(shard.session_columns.places) == {group.group_id for group in groups[2:]}


def test_a_commit_unpacks_one_group_and_no_sessions() -> None:
    state, groups, rows = stable_groups()
    workload.add_commits(rows, groups[7:8], workload.START_MS + 10_000, 5)
    shard = decode(0, SETTINGS, state)
    process_rows(shard, requests(rows.take()))
    assert unpacked_groups(shard) == {groups[7].group_id}
    assert set(shard.session_columns.places) == {group.group_id for group in groups}


def test_a_commit_begins_the_session_of_a_group_in_columns_anew() -> None:
    state, groups, rows = stable_groups()
    for seconds in (40, 80):
        workload.add_commits(rows, groups[:1], workload.START_MS + seconds * 1_000, seconds)
    shard = decode(0, SETTINGS, state)
    outputs = process_rows(shard, requests(rows.take()))
    gone = {output.group_id for output in outputs if output.kind == "transitions"}
    assert gone == {group.group_id for group in groups[1:]}
    assert groups[0].group_id in shard.session_columns.places


def test_deadlines_put_off_in_one_batch_hold_in_the_next() -> None:
    state, groups, rows = stable_groups()
    beating, silent = groups[:50], groups[50:]
    for seconds in (30, 60):
        workload.add_heartbeats(rows, beating, workload.START_MS + seconds * 1_000, 0)
        shard = decode(0, SETTINGS, state)
        outputs = process_rows(shard, requests(rows.take()))
        state = encode(shard)
    gone = {output.group_id for output in outputs if output.kind == "transitions"}
    assert gone == {group.group_id for group in silent}


def test_heartbeats_together_do_what_they_do_one_by_one() -> None:
    state, groups, rows = stable_groups()
    for seconds in (10, 13, 13, 9):
        workload.add_heartbeats(rows, groups[:20], workload.START_MS + seconds * 1_000, 3_000)
    batch = as_batch(requests(rows.take()))
    said, left = [], []
    for least in (1, 10**9):
        with patch("coordinator_udf.shard.batch_rows.BULK_ROWS", least):
            shard = decode(0, SETTINGS, state)
            outputs = process_batch(shard, "live", batch)
            assert outputs.heartbeats is not None
            assert outputs.heartbeats.rows == batch.num_rows
            said.append(in_order(outputs.outputs()))
            left.append(encode(shard))
    assert said[0] == said[1]
    assert what_is_left(left[0]) == what_is_left(left[1])


def what_is_left(state: StateRow) -> tuple[object, ...]:
    shard = decode(0, SETTINGS, state)
    armed = sorted((entry[DEADLINE], entry[SEQ], entry[KEY]) for entry in shard.ctx.timers.entries())
    return state[1], shard.ctx.next_seq, shard.ctx.now_ms, shard.ctx.timers.next_seq, armed


def test_a_session_that_ends_among_heartbeats_that_stand_together_ends_at_its_time() -> None:
    state, groups, rows = stable_groups()
    silent = groups[7].member_ids[1]
    for seconds in range(10, 130, 3):
        workload.add_heartbeats(rows, groups, workload.START_MS + seconds * 1_000, 3_000)
    batch = as_batch([row for row in requests(rows.take()) if row.member_id != silent])
    shard = decode(0, SETTINGS, state)
    outputs = process_batch(shard, "live", batch)
    expected = process_batch(decode(0, SETTINGS, state), "live", batch, short_way=False).outputs()
    assert outputs.heartbeats is not None
    assert outputs.heartbeats.rows > 0.9 * batch.num_rows
    assert in_order(outputs.outputs()) == in_order(expected)
    gone = expected.transitions.to_pylist()
    joined_ms = workload.START_MS + 6_000
    assert (gone[0]["group_id"], gone[0]["ts"]) == (groups[7].group_id, joined_ms + workload.SESSION_TIMEOUT_MS)


def test_an_id_that_two_groups_have_is_a_member_of_each() -> None:
    shard, rows = Shard(0, SETTINGS), Rows(0)
    groups = workload.make_groups(GROUPS, 3, 1)[0]
    groups[1].member_ids = groups[0].member_ids
    for columns in workload.life(rows, groups):
        process_rows(shard, requests(columns))
    workload.add_heartbeats(rows, groups, workload.START_MS + 10_000, 3_000)
    state, batch = encode(shard), as_batch(requests(rows.take()))
    outputs = process_batch(decode(0, SETTINGS, state), "live", batch).outputs()
    expected = process_batch(decode(0, SETTINGS, state), "live", batch, short_way=False).outputs()
    assert in_order(outputs) == in_order(expected)
    assert set(outputs.responses.column("error_code").to_pylist()) == {0}
