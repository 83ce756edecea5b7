"""The view `offsets`: what counts of commits, transactions and tombstones."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from coordinator_udf.sql.in_process import ViewsInProcess
from tests.sql.conftest import Ask, Rows, write_table


def commit(at: int, offset: int | None, producer_id: int | None = None, **columns: Any) -> dict[str, Any]:
    value = {
        "offset": offset,
        "leader_epoch": 4,
        "metadata": "x",
        "commit_timestamp": 1_000 * at,
        "expire_timestamp": -1,
    }
    return {
        "offset": at,
        "ts": at,
        "record_type": "OffsetCommit",
        "group_id": "g",
        "topic": "t",
        "topic_partition": 0,
        "offset_commit": None if offset is None else value,
        "producer_id": producer_id,
        "key": "{}",
        "request_id": f"r{at}",
        **columns,
    }


def marker(at: int, producer_id: int, committed: bool, **columns: Any) -> dict[str, Any]:
    return {
        "offset": at,
        "ts": at,
        "record_type": "EndTxnMarker",
        "other_value": '{"committed": true}' if committed else '{"committed": false}',
        "producer_id": producer_id,
        "key": "{}",
        **columns,
    }


CASES: dict[str, tuple[list[dict[str, Any]], int | None]] = {
    "the newest commit counts": ([commit(0, 10), commit(1, 7)], 7),
    "a tombstone ends it": ([commit(0, 10), commit(1, None)], None),
    "a commit after a tombstone counts": ([commit(0, 10), commit(1, None), commit(2, 3)], 3),
    "an open transaction doesn't count": ([commit(0, 10), commit(1, 20, 7)], 10),
    "a committed transaction counts": ([commit(0, 10), commit(1, 20, 7), marker(2, 7, True)], 20),
    "an aborted transaction doesn't count": ([commit(0, 10), commit(1, 20, 7), marker(2, 7, False)], 10),
    "only the next marker of the same producer decides": (
        [commit(0, 20, 7), marker(1, 8, True), marker(2, 7, False), marker(3, 7, True)],
        None,
    ),
    "a producer's second transaction is another one": (
        [commit(0, 20, 7), marker(1, 7, True), commit(2, 30, 7), marker(3, 7, False)],
        20,
    ),
    "the order of the commits wins, not that of the markers": (
        [commit(0, 20, 7), commit(1, 30), marker(2, 7, True)],
        30,
    ),
    "a tombstone ends an open transaction's commit too": (
        [commit(0, 20, 7), commit(1, None), marker(2, 7, True)],
        None,
    ),
    "a marker in another partition of the log says nothing": (
        [commit(0, 20, 7), marker(1, 7, True, partition=3)],
        None,
    ),
    "no producer may be written as -1": ([commit(0, 10, -1)], 10),
}


ALL_CASES: Rows = [{**row, "source": case} for case, (records, _) in CASES.items() for row in records]


def assert_as_expected(rows: list[dict[str, Any]]) -> None:
    found = {row["source"]: row["offset"] for row in rows}
    assert {case: found.get(case) for case in CASES} == {case: expected for case, (_, expected) in CASES.items()}


@pytest.mark.spark
def test_what_counts(ask: Callable[..., Ask]) -> None:
    assert_as_expected(ask(consumer_offsets=ALL_CASES)("SELECT * FROM offsets"))


def test_what_counts_without_spark(tmp_path: Path) -> None:
    write_table(tmp_path, "consumer_offsets", ALL_CASES)
    views = ViewsInProcess(str(tmp_path))
    views.make(["offsets"])
    assert_as_expected(views.ask("SELECT * FROM offsets"))


@pytest.mark.spark
def test_a_row_tells_where_it_is_from(ask: Callable[..., Ask]) -> None:
    expiring = commit(5, 8, topic_partition=2)
    expiring["offset_commit"]["expire_timestamp"] = 90_000
    rows = ask(consumer_offsets=[expiring, commit(6, 9, topic_partition=2, group_id="h")])(
        "SELECT * FROM offsets WHERE group_id = 'g'"
    )
    assert rows == [
        {
            "source": "live",
            "group_id": "g",
            "topic": "t",
            "partition": 2,
            "offset": 8,
            "leader_epoch": 4,
            "metadata": "x",
            "committed_at": datetime(1970, 1, 1, 0, 0, 5),
            "expires_at": datetime(1970, 1, 1, 0, 1, 30),
            "request_id": "r5",
        }
    ]
