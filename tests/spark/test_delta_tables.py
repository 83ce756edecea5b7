"""The tables' exactly-once writes, by delta-rs and by Spark alike, and what keeps them fast."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyspark.sql import SparkSession

from coordinator_udf.tables import delta
from coordinator_udf.tables.assignment_frames import join_assignments
from coordinator_udf.tables.assignment_join import complete_assignments
from coordinator_udf.tables.delta import COMPACT_AFTER_COMMITS, OutputTables, compact
from coordinator_udf.tables.parquet_files import TableFile, TableFiles
from coordinator_udf.tables.rows import to_tables
from coordinator_udf.tables.stored_assignments import StoredAssignments
from schemas.outputs import ASSIGNMENTS, RECORDS, RESPONSES
from schemas.tables import TABLES
from tests.streaming.outputs import assignment, outputs, record, response, row
from tests.waiting import wait

pytestmark = pytest.mark.spark


def batch(number: int) -> dict[str, pa.Table]:
    members = {"members": [{"memberId": "m", "assignment": f"@{number}/m"}]}
    said = outputs(
        record({"type": "GroupMetadata", "group": "g"}, members, number, assignment_refs=str(number)),
        assignment(number, "m", bytes([number % 256])),
        response("Heartbeat", {"errorCode": 0}, request_id=f"{number}"),
    )
    return to_tables(complete_assignments(said, lambda records: {}))


def request_ids(tables: OutputTables) -> list[str]:
    return sorted(tables.table("group_responses").to_pyarrow_table().column("request_id").to_pylist(), key=int)


def test_a_batch_counts_once(tmp_path: Path) -> None:
    tables = OutputTables(str(tmp_path))
    assert tables.write(batch(0), "query", 0) == 2
    assert tables.write(batch(1), "query", 1) == 2
    again = OutputTables(str(tmp_path))
    for _ in range(2):
        assert again.write(batch(1), "query", 1) == 0
    assert again.write(batch(2), "query", 2) == 2
    assert request_ids(tables) == ["0", "1", "2"]
    assert again.write(batch(3), "another query", 0) == 2, "another query has numbers of its own"


def test_every_commit_of_every_table_names_its_batch(tmp_path: Path) -> None:
    said = outputs(
        record({"type": "GroupMetadata", "group": "g"}, None, 0),
        response("Heartbeat", {"errorCode": 0}, request_id="0"),
        row("rejected", api="X", reason="none", raw="{}"),
        row("transitions", group_id="g", to_state="Empty", generation=0, rule="LOADED"),
    )
    rows = to_tables(complete_assignments(said, lambda records: {}))
    for _ in range(2):
        OutputTables(str(tmp_path)).write(rows, "query", 7)
    for name in TABLES:
        commits = sorted((tmp_path / name / "_delta_log").glob("*.json"))[1:]
        actions = [[json.loads(line) for line in commit.read_text().splitlines()] for commit in commits]
        named = [{a["txn"]["appId"]: a["txn"]["version"] for a in commit if "txn" in a} for commit in actions]
        assert named == [{f"query-{name}": 7}], f"{name} has each batch once, and its commit says which it is"
        assert OutputTables(str(tmp_path)).table(name).count() == 1


def test_a_batch_that_died_between_two_tables_is_completed(tmp_path: Path) -> None:
    tables = OutputTables(str(tmp_path))
    tables._append("consumer_offsets", batch(0)["consumer_offsets"], "query", 0)
    assert tables.write(batch(0), "query", 0) == 1
    assert tables.table("consumer_offsets").count() == tables.table("group_responses").count() == 1


def test_spark_reads_what_was_written(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(2):
        OutputTables(str(tmp_path)).write(batch(number), "query", number)
    rows = spark.read.format("delta").load(str(tmp_path / "consumer_offsets")).orderBy("offset").collect()
    assert [bytes(row.group_metadata.members[0].assignment) for row in rows] == [b"\x00", b"\x01"]


def test_small_files_are_packed_and_rows_stay(tmp_path: Path) -> None:
    tables = OutputTables(str(tmp_path))
    count = COMPACT_AFTER_COMMITS + 5
    for number in range(count):
        tables.write(batch(number), "query", number)
        tables.close()
    assert len(tables.table("group_responses").file_uris()) <= 6
    assert request_ids(tables) == [str(number) for number in range(count)]
    assert OutputTables(str(tmp_path)).newest_batch("group_responses", "query") == count - 1


def test_a_second_writer_of_the_same_batch_is_refused(tmp_path: Path) -> None:
    tables, other = OutputTables(str(tmp_path)), OutputTables(str(tmp_path))
    for writer in (tables, other):
        assert writer.write(batch(0), "query", 0) == (2 if writer is tables else 0)
    tables.write(batch(1), "query", 1)
    with pytest.raises(CommitFailedError):
        other.write(batch(1), "query", 1)
    assert request_ids(tables) == ["0", "1"]


def test_short_lives_are_packed_like_long_ones(tmp_path: Path) -> None:
    lives = 8
    for life in range(lives):
        tables = OutputTables(str(tmp_path))
        for number in range(COMPACT_AFTER_COMMITS // lives + 1):
            tables.write(batch(number), f"query {life}", number)
        tables.close()
    assert len(tables.table("group_responses").file_uris()) <= lives + 1


def test_what_compaction_replaced_is_deleted_after_its_retention(tmp_path: Path) -> None:
    tables = OutputTables(str(tmp_path))

    def keep(name: str, retention: str) -> None:
        tables.table("group_responses").alter.set_table_properties({name: f"interval {retention}"})

    keep("delta.deletedFileRetentionDuration", "1 hours")
    keep("delta.logRetentionDuration", "0 days")
    for number in range(20):
        tables.write(batch(number), "query", number)
    folder = tmp_path / "group_responses"
    compact(DeltaTable(str(folder)), vacuum=True)
    assert len(list(folder.glob("*.parquet"))) == 21, "somebody may read them yet"
    keep("delta.deletedFileRetentionDuration", "1 seconds")
    # What tasks wrote of a large batch whose driver was killed before it committed that.
    TableFiles(str(tmp_path)).write({"group_responses": batch(20)["group_responses"]})
    time.sleep(1.5)
    compact(DeltaTable(str(folder)), vacuum=True)
    assert len(list(folder.glob("*.parquet"))) == 1
    assert len(list((folder / "_delta_log").glob("*.json"))) < 10
    assert OutputTables(str(tmp_path)).write(batch(19), "query", 19) == 0, "which batches are there is not forgotten"
    assert request_ids(tables) == [str(number) for number in range(20)]


def test_files_that_wait_for_their_commit_are_not_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "COMPACT_AFTER_COMMITS", 2)
    monkeypatch.setattr(delta, "_THOROUGH_AFTER_COMPACTIONS", 1)
    tables = OutputTables(str(tmp_path))
    folder = tmp_path / "group_responses"
    tables.table(folder.name).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 1 seconds"})
    with tables.keeping_new_files():
        waiting, forgotten = (files_with(tmp_path, batch(2)["group_responses"]) for _ in range(2))
        time.sleep(1.5)
        for number in range(2):
            tables.write(batch(number), "query", number)
        wait((folder / "_delta_log" / "_last_checkpoint").exists, "the table is compacted", timeout_s=120)
        tables.write(batch(2) | {folder.name: waiting}, "query", 2)
    tables.close()
    assert not (folder / forgotten[0].name).exists(), "what is in no table when nothing waits any more"
    assert request_ids(OutputTables(str(tmp_path))) == ["0", "1", "2"]


def files_with(folder: Path, rows: pa.Table) -> list[TableFile]:
    files = TableFiles(str(folder))
    files.write({"group_responses": rows})
    return files.close()


def test_stored_assignments_are_found_in_memory_and_in_the_table(tmp_path: Path) -> None:
    tables = OutputTables(str(tmp_path))
    for number in range(3):
        tables.write(batch(number), "query", number)
    stored = StoredAssignments(lambda: tables.table("consumer_offsets"), cache_bytes=100)
    wanted = [("live", 0, 1), ("live", 0, 2), ("live", 1, 1), ("other", 0, 1), ("live", 0, 99)]
    assert stored.find(wanted) == {("live", 0, 1): {"m": b"\x01"}, ("live", 0, 2): {"m": b"\x02"}}
    stored.remember(outputs(assignment(7, "m", b"new")).assignments)
    assert stored.find([("live", 0, 7)]) == {("live", 0, 7): {"m": b"new"}}
    stored.remember(outputs(assignment(8, "m", b"x" * 200)).assignments)
    assert stored.find([("live", 0, 8), ("live", 0, 7)]) == {}, "what is too much for the memory is dropped"


def test_the_join_of_dataframes_gives_what_the_arrow_join_gives(spark: SparkSession, tmp_path: Path) -> None:
    tables = OutputTables(str(tmp_path))
    for number in range(3):
        tables.write(batch(number), "query", number)
    odd = 'm"\\é'
    members: list[dict[str, Any]] = [{"memberId": odd, "assignment": f"@9/{odd}"}, {"memberId": "b", "assignment": ""}]
    said = outputs(
        record({"type": "GroupMetadata", "group": "g"}, {"members": members}, 9, assignment_refs="9"),
        assignment(9, odd, b"\x01\x02"),
        response("SyncGroup", {"errorCode": 0, "assignment": f"@9/{odd}"}, assignment_refs="9", request_id="1"),
        response("SyncGroup", {"errorCode": 0, "assignment": "@2/m"}, assignment_refs="2", request_id="2"),
        response("DescribeGroups", {"groups": [{"memberAssignment": "@1/m"}]}, assignment_refs="1", request_id="3"),
        response("Heartbeat", {"errorCode": 0}, request_id="4"),
    )
    stored = StoredAssignments(lambda: tables.table("consumer_offsets"))
    expected = complete_assignments(said, stored.find)
    brought = spark.createDataFrame(said.assignments, ASSIGNMENTS)
    table = spark.read.format("delta").load(str(tmp_path / "consumer_offsets"))
    for kind, rows, completed in (
        (RESPONSES, said.responses, expected.responses),
        (RECORDS, said.records, expected.records),
    ):
        joined = join_assignments(spark.createDataFrame(rows, kind), brought, table)
        assert joined.orderBy("seq").toArrow().to_pylist() == completed.to_pylist()


def test_the_join_of_dataframes_names_what_is_missing(spark: SparkSession) -> None:
    said = outputs(response("SyncGroup", {"assignment": "@5/m"}, assignment_refs="5"))
    with pytest.raises(Exception, match="record at offset 5 of partition 0 of live"):
        join_assignments(
            spark.createDataFrame(said.responses, RESPONSES), spark.createDataFrame(said.assignments, ASSIGNMENTS), None
        ).collect()
