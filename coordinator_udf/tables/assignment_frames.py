"""Joins assignments back to what refers to them where outputs lie on a cluster: assignment_join by DataFrames."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from coordinator_udf.protocol.placeholders import placeholders_in
from coordinator_udf.tables.assignment_join import RecordAt, assignments_in, filled, merge_answers
from coordinator_udf.tables.outputs import SCHEMAS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: What the join needs to know of an assignment: which record of which shard has it, whose it is, and the bytes.
_ASSIGNMENT = ("source", "partition", "record_offset", "member_id", "payload")


def join_assignments(rows: DataFrame, assignments: DataFrame, stored: DataFrame | None) -> DataFrame:
    """Does `complete_assignments` as a join of DataFrames, for one kind's rows; merges no parts (`merge_parts_of`).

    Args:
        rows: columns of schemas.outputs.RESPONSES or RECORDS.
        assignments: columns of schemas.outputs.ASSIGNMENTS, or those of them that `written_again` has.
        stored: consumer_offsets, for what refers to records of earlier outputs; None if nothing does.

    Returns:
        The same columns. Evaluating it raises MissingAssignmentError as there.
    """
    from pyspark.sql import functions as f

    row = ["source", "partition", "seq"]
    brought = assignments.select("source", "partition", f.col("record_offset").alias("at"), "member_id", "payload")
    referring = rows.where(f.col("assignment_refs").isNotNull())
    needed = referring.select(*row, f.explode(_placeholders_udf()(f.col("body"))).alias("needed")).select(
        *row, f.col("needed.record_offset").alias("at"), f.col("needed.member_id").alias("member_id")
    )
    known = brought if stored is None else brought.unionByName(_stored_assignments(stored))
    # A record that is in the outputs and in the table is the same in both.
    known = known.dropDuplicates(["source", "partition", "at", "member_id"])
    found = (
        needed.join(known, ["source", "partition", "at", "member_id"])
        .groupBy(*row)
        .agg(f.collect_list(f.struct("at", "member_id", "payload")).alias("found"))
    )
    return (
        rows.join(found, row, "left")
        .withColumn("body", _filled_column(*(f.col(name) for name in (*row[:2], "body", "assignment_refs", "found"))))
        .withColumn("assignment_refs", f.lit(None).cast("string"))
        .select(*rows.columns)
    )


def _stored_assignments(consumer_offsets: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return (
        consumer_offsets.where(f.col("record_type") == "GroupMetadata")
        .select("source", "partition", f.col("offset").alias("at"), f.explode("group_metadata.members").alias("member"))
        .select("source", "partition", "at", "member.member_id", f.col("member.assignment").alias("payload"))
    )


def _placeholders_udf() -> Callable[[Column], Column]:
    from pyspark.sql import functions as f

    @f.udf(returnType="array<struct<record_offset:bigint,member_id:string>>")
    def placeholders(body: str | None) -> Sequence[tuple[int, str]]:
        return list(placeholders_in(body or ""))

    return placeholders


def _filled_column(source: Column, partition: Column, body: Column, refs: Column, found: Column) -> Column:
    from pyspark.sql import Row
    from pyspark.sql import functions as f

    @f.udf(returnType="string")
    def fill(source: str, partition: int, body: str | None, found: Sequence[Row] | None) -> str | None:
        known: defaultdict[RecordAt, dict[str, bytes]] = defaultdict(dict)
        for at, member_id, payload in found or ():
            known[source, partition, at][member_id] = bytes(payload or b"")
        return filled(source, partition, body, known)

    return f.when(refs.isNotNull(), fill(source, partition, body, found)).otherwise(body)


def written_again(completed: DataFrame) -> DataFrame:
    """Returns the assignments in GroupMetadata records that name those of earlier records, once they have the bytes.

    Args:
        completed: columns of schemas.outputs.RECORDS, joined.

    Returns:
        Columns of schemas.outputs.ASSIGNMENTS: shard, record, member and bytes.
    """
    from pyspark.sql import functions as f

    @f.udf(returnType="map<string,binary>")
    def members(body: str | None) -> dict[str, bytes]:
        return assignments_in(body)

    return (
        completed.where("record_type = 'GroupMetadata' AND body IS NOT NULL")
        .select("source", "partition", "offset", f.explode(members(f.col("body"))).alias("member_id", "payload"))
        .withColumnRenamed("offset", "record_offset")
        .select(*_ASSIGNMENT)
    )


def merge_parts_of(responses: DataFrame) -> DataFrame:
    """Does `merge_answers` on a DataFrame's rows; the parts of a request meet in one task.

    Args:
        responses: columns of schemas.outputs.RESPONSES.
    """

    def merge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from merge_answers(pa.Table.from_batches(batches, SCHEMAS["responses"])).to_batches()

    return responses.repartition("source", "request_id").mapInArrow(merge, responses.schema)
