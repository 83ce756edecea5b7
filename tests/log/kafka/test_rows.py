"""Rows of the request log as records of a topic, and where time stood still in it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_udf.log.kafka.downtime import began_rows, with_downtime
from coordinator_udf.log.kafka.records import to_rows, to_value
from coordinator_udf.log.rows import control_rows, request_rows
from schemas.requests import LIVE, REQUEST_COLUMNS

JOIN = {"groupId": "g", "memberId": "m", "sessionTimeoutMs": 10_000, "protocols": [{"name": "r", "metadata": "AA=="}]}


def a_request(**more: Any) -> dict[str, Any]:
    (row,) = request_rows(
        partitions=4,
        log_ts=5,
        request_id="r-1",
        api="JoinGroup",
        api_version=9,
        client_id="c",
        client_host="/h",
        body=JOIN,
        proposed_member_id="p",
    )
    return row | more


def test_a_row_comes_back_with_the_place_and_time_of_its_record() -> None:
    row = a_request()
    (read,) = to_rows([(2, 77, 1_000, to_value(row))]).to_pylist()
    assert read == row | {"source": LIVE, "partition": 2, "offset": 77, "log_ts": 1_000}
    assert tuple(read) == REQUEST_COLUMNS


def test_no_time_passes_by_a_row_that_says_so() -> None:
    (row,) = control_rows(partitions=1, log_ts=0, api="TopicMetadata", body={"topics": []})
    assert to_rows([(0, 1, 1_000, to_value(row))]).to_pylist()[0]["log_ts"] == 0


@pytest.mark.parametrize(
    "value",
    [
        None, b"", b"\xff\xfe", b"{broken", b'{"api": 7}', b"[]", b'{"api_version": 1e99}',
        # Python 3.11 opens a thousand lists in lists, 3.13 ten times as many.
        pytest.param(b'{"x": ' + 100_000 * b"[" + 100_000 * b"]" + b"}", id="deep"),
    ],
)  # fmt: skip
def test_a_value_that_is_no_row_becomes_one_that_is_rejected(value: bytes | None) -> None:
    (row,) = to_rows([(3, 9, 50, value)]).to_pylist()
    assert (row["partition"], row["offset"], row["log_ts"]) == (3, 9, 50)
    assert row["api"].startswith("none, the record's value can't be read")


def ticks(*times: int) -> pa.Table:
    rows = [control_rows(partitions=1, log_ts=time, api="Tick")[0] for time in times]
    return as_table(rows, times)


def as_table(rows: list[dict[str, Any]], times: tuple[int, ...]) -> pa.Table:
    records = [(0, offset, time, to_value(row)) for offset, (row, time) in enumerate(zip(rows, times, strict=True))]
    return pa.Table.from_batches([to_rows(records)])


def test_a_gap_says_that_nobody_could_append() -> None:
    rows = with_downtime(ticks(10_000, 11_000, 20_000, 20_500), 9_000).to_pylist()
    assert [row["api"] for row in rows] == ["Tick", "Tick", "Downtime", "Tick", "Tick"]
    assert rows[2]["body"] == '{"fromMs":11000,"untilMs":20000,"heardWithinMs":6000}'
    assert (rows[2]["offset"], rows[2]["log_ts"]) == (2, 0)


def test_after_a_gap_that_an_appender_begins_clients_have_time_to_come_back() -> None:
    rows = [*began_rows(1, 1), *control_rows(partitions=1, log_ts=1, api="Tick")]
    (said, *_) = with_downtime(as_table(rows, (60_000, 60_001)), 10_000).to_pylist()
    assert (said["api"], said["body"]) == ("Downtime", '{"fromMs":10000,"untilMs":60000,"graceMs":30000}')


def test_a_partition_begins_with_its_first_row_and_a_clock_that_goes_back_makes_no_gap() -> None:
    table = ticks(10_000, 4_000, 12_000)
    assert with_downtime(table, 0) is table


@given(st.lists(st.integers(1, 60_000), max_size=30), st.data())
def test_gaps_are_the_same_however_the_rows_are_cut(times: list[int], data: st.DataObject) -> None:
    whole = with_downtime(ticks(*times), 0).to_pylist() if times else []
    found: list[dict[str, Any]] = []
    now, at = 0, 0
    while at < len(times):
        end = data.draw(st.integers(at + 1, len(times)))
        piece = ticks(*times).slice(at, end - at)
        found += with_downtime(piece, now).to_pylist()
        now, at = max(now, *times[at:end]), end
    assert found == whole
