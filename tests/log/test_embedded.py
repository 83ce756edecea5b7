from __future__ import annotations

import multiprocessing
import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from coordinator_udf.log.clock import LogClock
from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.log.file import LogError
from coordinator_udf.log.partition_bytes import from_bytes
from coordinator_udf.log.rows import control_rows
from coordinator_udf.protocol.errors import BadRequest
from schemas.requests import REQUEST_COLUMNS
from tests.shard.edge import rows_of


def heartbeat(group: str, log_ts: int, partitions: int, request_id: str = "c/1") -> list[dict[str, object]]:
    body = {"groupId": group, "generationId": 1, "memberId": "m"}
    return rows_of("Heartbeat", 4, body, log_ts, request_id, partitions=partitions)


def column(log: EmbeddedLog, name: str) -> list[object]:
    return [value for batch in log.read(log.extent().first, log.end()) for value in batch.column(name).to_pylist()]


def fake_clock(wall: list[int], steady: list[int], skew: int | None = 5_000, boot: str = "one") -> LogClock:
    return LogClock(skew, wall=lambda: wall[0], steady=lambda: steady[0], boot=lambda: boot)


@pytest.fixture
def log(tmp_path: Path) -> EmbeddedLog:
    return EmbeddedLog.create(tmp_path / "request-log.db", partitions=4)


def test_rows_come_back_as_they_went_in_with_dense_offsets(log: EmbeddedLog) -> None:
    assert log.append(control_rows(partitions=4, log_ts=10, api="Tick")) == 0
    assert log.append(heartbeat("g", 20, 4) + heartbeat("g", 21, 4)) == 1
    batches = list(log.read(0, 2))
    assert [batch.num_rows for batch in batches] == [4, 2]
    assert tuple(batches[1].schema.names) == REQUEST_COLUMNS
    partition = batches[1].column("partition")[0].as_py()
    assert batches[1].column("partition").to_pylist() == [partition] * 2
    assert batches[1].column("offset").to_pylist() == [1, 2]
    assert batches[1].column("log_ts").to_pylist() == [20, 21]
    assert batches[1].column("source").to_pylist() == ["live", "live"]
    assert batches[1].column("body").to_pylist() == [None, None]


def test_another_opener_sees_and_continues_the_log(log: EmbeddedLog) -> None:
    log.append(heartbeat("g", 1, 4))
    other = EmbeddedLog.open(log.path)
    assert other.partitions == 4
    assert other.append(heartbeat("g", 2, 4)) == 1
    assert column(log, "offset") == [0, 1]


def times(log: EmbeddedLog) -> list[int]:
    """The times of the requests."""
    rows = pa.Table.from_batches(log.read(0, log.end())).to_pylist()
    return [row["log_ts"] for row in rows if row["api"] != "Downtime"]


def test_who_appends_after_a_gap_says_what_the_gap_was(tmp_path: Path) -> None:
    wall, steady = [1_000_000], [0]
    log = EmbeddedLog.create(tmp_path / "log.db", 2, clock=fake_clock(wall, steady))
    log.append(heartbeat("g", log.now_ms(), 2))
    for passed_ms in (3_000, 60_000):
        wall[0], steady[0] = wall[0] + passed_ms, steady[0] + passed_ms
        number = log.append(heartbeat("g", log.now_ms(), 2))
    rows = pa.Table.from_batches(log.read(0, log.end())).to_pylist()
    said = [row for row in rows if row["api"] == "Downtime"]
    assert [row["partition"] for row in said] == [0, 1]
    assert {row["body"] for row in said} == {'{"fromMs":1003000,"untilMs":1063000,"heardWithinMs":6000}'}
    # A partition without rows has no time yet.
    assert sorted(row["log_ts"] for row in said) == [0, 1_003_000]
    assert number == 3
    assert rows[-1]["log_ts"] == 1_063_000
    # Who opens the log after a gap had nobody connected.
    wall[0], steady[0] = wall[0] + 20_000, steady[0] + 20_000
    again = EmbeddedLog.open(log.path, clock=fake_clock(wall, steady))
    again.append(heartbeat("g", 0, 2))
    again.append(heartbeat("g", again.now_ms(), 2))
    rows = pa.Table.from_batches(log.read(number + 1, log.end())).to_pylist()
    assert {row["body"] for row in rows if row["api"] == "Downtime"} == {
        '{"fromMs":1063000,"untilMs":1083000,"graceMs":20000}'
    }
    end = log.end()
    log.downtime_after_ms = None
    wall[0], steady[0] = wall[0] + 60_000, steady[0] + 60_000
    log.append(heartbeat("g", log.now_ms(), 2))
    assert log.end() == end + 1


def _append_many(path: Path, count: int) -> None:
    log = EmbeddedLog.open(path)
    for i in range(count):
        log.append(heartbeat("g", i, 4) + heartbeat("h", i, 4))


def test_processes_and_threads_append_at_once(log: EmbeddedLog) -> None:
    context = multiprocessing.get_context("fork")
    workers: list[threading.Thread | multiprocessing.process.BaseProcess] = [
        context.Process(target=_append_many, args=(log.path, 30)) for _ in range(3)
    ]
    workers += [threading.Thread(target=_append_many, args=(log.path, 30)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert log.end() == 150
    assert log.extent().rows == 300
    rows = pa.Table.from_batches(log.read(0, 150)).to_pylist()
    for partition in range(4):
        mine = [row for row in rows if row["partition"] == partition]
        assert [row["offset"] for row in mine] == list(range(len(mine)))
        assert [row["log_ts"] for row in mine] == sorted(row["log_ts"] for row in mine)


def test_time_never_goes_back_within_a_partition(log: EmbeddedLog) -> None:
    log.append(heartbeat("g", 100, 4) + heartbeat("g", 90, 4))
    log.append(heartbeat("g", 50, 4))
    log.append(heartbeat("g", 101, 4))
    assert column(log, "log_ts") == [100, 100, 100, 101]


def test_a_clock_that_runs_ahead_is_bounded_in_all_and_not_each_time(tmp_path: Path) -> None:
    wall, steady = [1_000_000], [500]
    path = tmp_path / "log.db"
    right = EmbeddedLog.create(path, 1, clock=fake_clock(wall, steady))
    right.append(heartbeat("g", 1_000_000, 1))
    hour_ahead = EmbeddedLog.open(path, clock=fake_clock([4_600_000], steady))
    for _ in range(3):
        hour_ahead.append(heartbeat("g", hour_ahead.now_ms(), 1))
    assert times(right) == [1_000_000, 1_005_000, 1_005_000, 1_005_000]
    # The right clock goes on; until it has made up the skew, the log stands still.
    wall[0], steady[0] = 1_002_000, 2_500
    right.append(heartbeat("g", right.now_ms(), 1))
    wall[0], steady[0] = 1_008_000, 8_500
    right.append(heartbeat("g", right.now_ms(), 1))
    assert times(right)[-2:] == [1_005_000, 1_008_000]


def test_a_stepped_clock_is_bounded_but_time_without_appends_counts(tmp_path: Path) -> None:
    wall, steady = [1_000_000], [0]
    log = EmbeddedLog.create(tmp_path / "log.db", 1, clock=fake_clock(wall, steady))
    log.append(heartbeat("g", log.now_ms(), 1))
    wall[0], steady[0] = 4_600_000, 3_600_000  # an hour in which nobody appended
    log.append(heartbeat("g", log.now_ms(), 1))
    wall[0] = 90_000_000  # a step of a day
    log.append(heartbeat("g", log.now_ms(), 1))
    assert times(log) == [1_000_000, 4_600_000, 4_605_000]


def test_a_reboot_sets_the_clock_anew(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    EmbeddedLog.create(path, 1, clock=fake_clock([1_000_000], [900_000])).append(heartbeat("g", 1_000_000, 1))
    log = EmbeddedLog.open(path, clock=fake_clock([9_000_000], [10], boot="two"))
    log.append(heartbeat("g", 9_000_000, 1))
    assert times(log) == [1_000_000, 9_000_000]


def test_a_log_of_recorded_requests_has_no_bound(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    EmbeddedLog.create(path, 1, clock_skew_max_ms=None).append(heartbeat("g", 99_999_999_999_999, 1))
    assert column(EmbeddedLog.open(path), "log_ts") == [99_999_999_999_999]


def test_trimmed_appends_are_gone_and_numbers_and_offsets_go_on(log: EmbeddedLog) -> None:
    for i in range(10):
        log.append(heartbeat("g", i, 4))
    assert log.trim(7) == 7
    assert log.extent() == (7, 10, 10)
    assert column(log, "offset") == [7, 8, 9]
    with pytest.raises(LogError, match=r"append 6 is not in .* holds 7 to 9"):
        list(log.read(6, 10))
    assert log.trim(100) == 3
    assert log.append(heartbeat("g", 11, 4)) == 10
    assert column(log, "offset") == [10]


def test_space_is_given_back_in_few_writes_for_each_of_which_appenders_wait(log: EmbeddedLog) -> None:
    (row,) = heartbeat("g", 1, 4)
    log.append([row | {"body": os.urandom(400).hex()} for _ in range(6_000)])
    with closing(sqlite3.connect(log.path)) as other:
        pages = other.execute("PRAGMA page_count").fetchone()[0]
        said: list[str] = []
        log._file.connection.set_trace_callback(said.append)
        log.trim(1)
        (left,) = other.execute("PRAGMA page_count").fetchone()
    given = pages - left
    assert given > 500
    assert len([line for line in said if "incremental_vacuum" in line]) <= given // 500 + 1


def test_reading_beyond_the_end_is_refused(log: EmbeddedLog) -> None:
    log.append(heartbeat("g", 1, 4))
    with pytest.raises(LogError, match="append 1 is not in"):
        list(log.read(0, 2))


def test_a_bound_by_rows_never_splits_an_append(log: EmbeddedLog) -> None:
    for size in (3, 5, 1, 1):
        log.append(heartbeat("g", 1, 4) * size)
    assert [log.end_within(0, 4, rows) for rows in (1, 3, 7, 8, 9, 100)] == [1, 1, 1, 2, 3, 4]
    assert log.end_within(1, 4, 1) == 2
    assert log.end_within(4, 4, 1) == 4


def test_an_append_that_cannot_be_is_refused_whole(log: EmbeddedLog) -> None:
    with pytest.raises(BadRequest, match="partition is 4, expected 0 to 3"):
        log.append([*heartbeat("g", 1, 4), *control_rows(partitions=5, log_ts=1, api="Tick")])
    with pytest.raises(BadRequest, match="lacking 'api'"):
        log.append([{"partition": 0, "log_ts": 1, "request_id": "r"}])
    with pytest.raises(BadRequest, match="expected the column types"):
        log.append([{**heartbeat("g", 1, 4)[0], "log_ts": "yesterday"}])
    with pytest.raises(BadRequest, match="log_ts is None"):
        log.append([{**heartbeat("g", 1, 4)[0], "log_ts": None}])
    with pytest.raises(BadRequest, match="at least one row"):
        log.append([])
    assert log.extent() == (0, 0, 0)


def test_what_is_no_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="there is no request log at"):
        EmbeddedLog.open(tmp_path / "none.db")
    (tmp_path / "text.db").write_text("this is not a database" * 9)
    with pytest.raises(LogError, match="is not a request log"):
        EmbeddedLog.open(tmp_path / "text.db")
    EmbeddedLog.create(tmp_path / "log.db")
    with pytest.raises(LogError, match="exists already"):
        EmbeddedLog.create(tmp_path / "log.db")
    with pytest.raises(LogError, match="expected 1 to 10000"):
        EmbeddedLog.create(tmp_path / "other.db", 0)
    assert sorted(path.name for path in tmp_path.iterdir() if "new" in path.name) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("format = 1", "has format 1, expected 2: use the release that wrote it"),
        ("columns = 'source string'", "has the columns source string; expected source string, .*: use the release"),
    ],
)
def test_a_log_of_another_release_is_refused(log: EmbeddedLog, change: str, said: str) -> None:
    log.append(heartbeat("g", 1, 4))
    log.close()
    with sqlite3.connect(log.path) as connection:
        connection.execute(f"UPDATE log SET {change}")
    with pytest.raises(LogError, match=said):
        EmbeddedLog.open(log.path)


def test_the_rows_of_a_partition_are_handed_on_as_they_lie(log: EmbeddedLog) -> None:
    appended = [heartbeat(f"g{number}", 1, 4) + heartbeat(f"g{number + 1}", 1, 4) for number in range(20)]
    for rows in appended:
        log.append(rows)
    packed: dict[int, list[bytes]] = {}
    for append in log.read_packed(0, 20):
        for partition, held in append.items():
            packed.setdefault(partition, []).append(held)
    read = pa.Table.from_batches(log.read(0, 20))
    for partition, values in packed.items():
        mine = read.filter(pa.compute.equal(read.column("partition"), partition))
        found = from_bytes([b"".join(values)])
        assert found.combine_chunks().equals(mine.combine_chunks())
        assert found.column("offset").to_pylist() == list(range(len(mine)))
