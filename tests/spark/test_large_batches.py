"""A large micro-batch, of which no row passes through the driver: the same rows as of a small one."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from coordinator_udf.streaming.group_counts import BatchCounts, GroupCounts
from coordinator_udf.streaming.large_batch import LargeBatch
from coordinator_udf.streaming.packing import PACKED_OUTPUTS, Tally, pack_outputs
from coordinator_udf.streaming.sink import SEEN_OF_LARGE
from coordinator_udf.tables.assignment_join import complete_assignments
from coordinator_udf.tables.delta import OutputTables
from coordinator_udf.tables.outputs import OutputRows, Outputs
from coordinator_udf.tables.parquet_files import read_shard
from coordinator_udf.tables.rows import to_tables
from coordinator_udf.tables.stored_assignments import StoredAssignments
from schemas.tables import TABLES
from tests.nightly import some_or_many
from tests.spark.conftest import in_order, read_tables
from tests.streaming.outputs import Row, assignment, outputs, record, response, row

pytestmark = pytest.mark.spark

PARTITIONS = 5
#: Names that JSON, SQL and file names would have to escape.
MEMBERS = ("a", 'm"\\é/x', "@1/a", "consumer-1-0f0e", "b' OR 1=1", "")


class Generated:
    """Makes up what shards say in one micro-batch after the other, with all that refers to something else."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._seqs = [0] * PARTITIONS
        self._offsets = [0] * PARTITIONS
        #: The members of the groups' records that say what assignment each has, by partition and offset.
        self._groups: list[dict[int, list[str]]] = [{} for _ in range(PARTITIONS)]
        self._requests = 0

    def batch(self, rows: int) -> list[Outputs]:
        """What each shard says."""
        said: list[list[Row]] = [[] for _ in range(PARTITIONS)]
        for _ in range(rows):
            partition = self._chance.randrange(PARTITIONS)
            said[partition] += self._one(partition)
        for number in range(self._chance.randrange(4)):
            self._in_parts(said, number)
        return [outputs(*map(self._numbered, of_shard)) for of_shard in said]

    def _numbered(self, said: Row) -> Row:
        partition = said.columns["partition"]
        self._seqs[partition] += 1
        return Row(said.kind, said.columns | {"seq": self._seqs[partition]})

    def _one(self, partition: int) -> list[Row]:
        at: dict[str, Any] = {"partition": partition, "ts": self._chance.randrange(10**6)}
        known = self._groups[partition]
        what = self._chance.choice(["heartbeat", "heartbeat", "commit", "group", "again", "sync", "describe", "other"])
        if what in ("again", "sync", "describe") and not known:
            what = "group"
        if what == "heartbeat":
            code = self._chance.choice([0, 0, 25, 27])
            return [response("Heartbeat", {"errorCode": code}, request_id=self._request(), **at)]
        if what == "commit":
            value = self._chance.choice([None, {"offset": self._chance.randrange(99), "metadata": "é"}])
            return [self._record({"type": "OffsetCommit", "group": "g", "topic": "t", "partition": 1}, value, **at)]
        if what == "group":
            return self._group(at)
        if what == "other":
            return [
                row("rejected", api="X", reason="none", raw="{", **at),
                row("transitions", group_id="g", to_state="Empty", rule="LOADED", members=["a"], **at),
                self._record({"type": "ConsumerGroupMemberMetadata", "groupId": "g"}, {"clientId": "c"}, **at),
            ]
        offset = self._chance.choice(sorted(known))
        if what == "again":
            # A static member came back: the record names assignments that an earlier one has.
            return [self._naming(offset, known[offset], **at)]
        if what == "sync":
            member = self._chance.choice(known[offset])
            body = {"errorCode": 0, "assignment": f"@{offset}/{member}"}
            return [response("SyncGroup", body, assignment_refs=str(offset), request_id=self._request(), **at)]
        several = self._chance.sample(sorted(known), min(len(known), 3))
        groups = [{"members": [{"memberAssignment": f"@{one}/{name}"} for name in known[one]]} for one in several]
        refs = ",".join(map(str, several))
        return [response("DescribeGroups", {"groups": groups}, assignment_refs=refs, request_id=self._request(), **at)]

    def _group(self, at: dict[str, Any]) -> list[Row]:
        offset = self._offsets[at["partition"]]
        members = self._chance.sample(MEMBERS, self._chance.randint(1, len(MEMBERS)))
        said = [self._naming(offset, members, **at)]
        said += [assignment(offset, name, self._chance.randbytes(self._chance.randrange(9)), **at) for name in members]
        self._groups[at["partition"]][offset] = members
        return said

    def _naming(self, offset: int, members: Sequence[str], **at: Any) -> Row:
        value = {
            "protocolType": "consumer",
            "generation": self._chance.randrange(9),
            "members": [{"memberId": name, "assignment": f"@{offset}/{name}"} for name in members],
        }
        return self._record({"type": "GroupMetadata", "group": "g"}, value, assignment_refs=str(offset), **at)

    def _record(self, key: dict[str, Any], value: dict[str, Any] | None, **columns: Any) -> Row:
        partition = columns["partition"]
        offset = self._offsets[partition]
        self._offsets[partition] += 1
        return record(key, value, offset, value_version=None if value is None else 3, **columns)

    def _in_parts(self, said: list[list[Row]], number: int) -> None:
        """A request of all groups, of which every shard answers a part, but of some requests one."""
        request = self._request()
        for partition in range(PARTITIONS - (number == 0)):
            body = {"errorCode": self._chance.choice([0, 14]), "groups": [{"groupId": f"{number}-{partition}"}]}
            said[partition].append(
                response("ListGroups", body, parts=PARTITIONS, partition=partition, ts=number, request_id=request)
            )

    def _request(self) -> str:
        self._requests += 1
        return f"gateway-{self._requests}"


def packed(said: Sequence[Outputs]) -> list[tuple[int, str, bytes]]:
    """What shards say, as their tasks hand it on."""
    values = []
    for partition, of_shard in enumerate(said):
        rows = [
            OutputRows(kind, len(table), {name: table.column(name).combine_chunks() for name in table.column_names})
            for kind, table in of_shard._asdict().items()
            if len(table)
        ]
        values += pack_outputs(partition, Tally(7, partition), rows)
    return values


def of_shard(tables: dict[str, pa.Table], partition: int) -> dict[str, pa.Table]:
    """The rows of one shard, in the order in which a small batch has them."""
    return {name: rows.filter(pc.equal(rows.column("partition"), partition)) for name, rows in tables.items()}


def happened(tables: dict[str, pa.Table]) -> tuple[BatchCounts, Counter[tuple[str, str]], int]:
    """What those who count groups and offsets see."""
    counts = GroupCounts()
    return counts.take(tables), counts.groups(), counts.offsets


@pytest.mark.parametrize("seed", range(some_or_many(1, 4)))
def test_both_ways_write_the_same_rows(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    generated = Generated(chance)
    small, large = OutputTables(str(tmp_path / "small")), OutputTables(str(tmp_path / "large"))
    stored = StoredAssignments(lambda: small.table("consumer_offsets"), cache_bytes=0)
    for number, rows in enumerate((40, 0, 90)):
        said = generated.batch(rows)
        expected = to_tables(complete_assignments(Outputs.joined(said), stored.find))
        small.write(expected, "query", number)
        kept = spark.createDataFrame(packed(said), PACKED_OUTPUTS).repartition(2, "partition")
        with LargeBatch(kept, large.folder) as batch:
            assert batch.requests() == 7 * PARTITIONS
            written = batch.write_files()
        assert {name: written.rows(name) for name in TABLES} == {name: len(expected[name]) for name in TABLES}
        for partition in range(PARTITIONS):
            seen = read_shard(large.folder, written.files, partition, SEEN_OF_LARGE)
            assert happened(seen) == happened(of_shard(expected, partition))
        assert written.tallies == {partition: Tally(7, partition) for partition in range(PARTITIONS)}
        # A batch that ran before and came as far as to the first table.
        some = {name: files if name == "consumer_offsets" else () for name, files in written.files.items()}
        large.write(some, "query", number)
        large.write(written.files, "query", number)
        assert large.write(written.files, "query", number) == 0
    found, wanted = read_tables(tmp_path / "large"), read_tables(tmp_path / "small")
    for name in TABLES:
        assert found[name].to_pylist() == wanted[name].to_pylist(), name
        assert in_order(name, found[name]).num_rows > 0
