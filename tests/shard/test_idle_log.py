"""After a long time without rows the looks for expired offsets are made up for, and no more of them than needed."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from coordinator_udf.groups.offsets.expiry import expire_offsets
from coordinator_udf.log.rows import control_rows, request_rows
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.batch_rows import LAST_TIME_MS
from coordinator_udf.shard.shard import Shard
from tests.shard.edge import Output, process_rows

START_MS = 1_700_000_000_000
DAY_MS = 86_400_000
SETTINGS = Settings(offsets_retention_minutes=60, offsets_retention_check_interval_ms=600_000)


def _tick(ts: int) -> list[dict[str, Any]]:
    return control_rows(partitions=1, log_ts=ts, api="Tick")


def _commit(ts: int, group: str) -> list[dict[str, Any]]:
    part = {"partitionIndex": 0, "committedOffset": 1, "committedMetadata": ""}
    body = {
        "groupId": group,
        "generationIdOrMemberEpoch": -1,
        "memberId": "",
        "topics": [{"name": "t", "partitions": [part]}],
    }
    return request_rows(
        partitions=1, log_ts=ts, request_id=f"{group}-{ts}", api="OffsetCommit", api_version=8, client_id=None,
        client_host=None, body=body,
    )  # fmt: skip


def _run(rows: list[dict[str, Any]]) -> list[Output]:
    return process_rows(Shard(0, SETTINGS), [Request(offset=i, **row) for i, row in enumerate(rows)])


@pytest.mark.parametrize("days", [1, 365, 36_500])
def test_a_year_without_rows_takes_as_few_looks_as_a_day(days: int) -> None:
    rows = [row for i in range(300) for row in _commit(START_MS + i, f"g{i}")]
    with patch("coordinator_udf.shard.shard.expire_offsets", wraps=expire_offsets) as look:
        outputs = _run([*rows, *_tick(START_MS + days * DAY_MS)])
    # The first, two when the offsets expire, the last; with a look every ten minutes a day alone has 144.
    assert look.call_count == 4
    assert sum(output.record_type == "GroupMetadata" for output in outputs) == 300


def test_what_expires_meanwhile_expires_when_it_would_have_with_rows_in_between() -> None:
    rows = [*_commit(START_MS, "a"), *_commit(START_MS + 1_700_000, "b"), *_commit(START_MS + 5_999_999, "c")]
    ticks = [row for ts in range(START_MS + 6_000_000, START_MS + DAY_MS, 250_000) for row in _tick(ts)]
    last = _tick(START_MS + DAY_MS)
    assert _run([*rows, *last]) == _run([*rows, *ticks, *last])


def test_offsets_whose_group_is_gone_do_not_stop_the_looks() -> None:
    """As in Kafka, a JoinGroup of a stranger makes an empty consumer group forgotten, and leaves its offsets there."""
    shard = Shard(0, SETTINGS)
    process_rows(shard, [Request(offset=0, **row) for row in _commit(START_MS, "a")])
    del shard.store.groups["a"]
    outputs = process_rows(shard, [Request(offset=1, **row) for row in _tick(START_MS + 365 * DAY_MS)])
    assert outputs == []


@pytest.mark.parametrize("ts", [-1, LAST_TIME_MS + 1, 2**63 - 1])
def test_a_time_that_no_table_can_hold_is_refused(ts: int) -> None:
    (rejected,) = _run(_tick(ts))
    assert rejected.kind == "rejected"
    assert f"log_ts is {ts}, expected milliseconds since the epoch" in rejected.reason


def test_the_last_time_of_all_is_reached() -> None:
    outputs = _run([*_commit(START_MS, "a"), *_tick(LAST_TIME_MS)])
    assert [output.ts for output in outputs if output.kind == "records"] == [START_MS] + [START_MS + 3_600_000] * 2
