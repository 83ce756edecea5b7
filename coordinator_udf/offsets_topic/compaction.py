"""Compaction of the table consumer_offsets: what Kafka's log cleaner does to ``__consumer_offsets``, on Delta.

Of each source and partition only the rows below a watermark offset are looked at, and what is left of them is worth
the same as before to whoever replays the log from its start: the newest record of each key, the commits of open
transactions, and the markers that end the transactions of commits that stay. So neither rows that are appended
meanwhile nor a batch that a coordinator runs again can need what was removed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.window import Window

from coordinator_udf.tables.packing import pack_files
from coordinator_udf.user_errors import UserError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

log = logging.getLogger(__name__)

T = TypeVar("T")

_SHARD: Final = ("source", "partition")
_PLACE: Final = (*_SHARD, "offset")

#: How many rows go in one commit; their places are held in memory. Half has twice the commits, each of which reads the
#: files that it deletes from.
_ROWS_A_COMMIT: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Removed:
    """What was removed of one partition of one source.

    Attributes:
        source: the coordinator.
        partition: its shard.
        watermark: only rows of lower offsets were looked at.
        rows: how many those were.
        superseded: a newer record of the same key is there.
        tombstones: old enough to go.
        aborted: commits of transactions that were aborted, or whose partition's offset was deleted meanwhile.
        markers: of transactions of which no commit is left.
    """

    source: str
    partition: int
    watermark: int
    rows: int
    superseded: int
    tombstones: int
    aborted: int
    markers: int

    @property
    def total(self) -> int:
        """All rows that were removed."""
        return self.superseded + self.tombstones + self.aborted + self.markers


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """What a compaction looks at, and what it leaves alone.

    Attributes:
        source: this source only; else each.
        partition: this partition only; else each.
        delete_retention_ms: tombstones and markers that are younger stay.
        min_lag_ms: rows that are younger are not looked at, nor any after the first of them. It has to be longer than
            what a coordinator may still have to run again: its answers may need assignments that its own, already
            written records supersede.
    """

    source: str | None = None
    partition: int | None = None
    delete_retention_ms: int
    min_lag_ms: int


class CompactionConflictError(UserError):
    """Others changed the same files each time that the compaction wanted to commit."""


def compact(spark: SparkSession, table: str, wanted: Compaction, *, attempts: int = 5) -> list[Removed]:
    """Removes what the newer records of a consumer_offsets table make superfluous.

    Time is log time: the newest ``ts`` of a source. Appends to the table may go on meanwhile; where another commit
    changed the same files, the compaction starts again on the table as it then is. An append that delta-rs is about to
    commit when rows are deleted fails there with a conflict, and is to be tried again.

    Args:
        spark: a session with Delta's extension.
        table: path of the Delta table consumer_offsets.
        attempts: how often to try where others get in between.

    Raises:
        CompactionConflictError: all attempts failed.
    """
    # What goes is judged by Spark at one version, and is superfluous in every later one.
    return _tried(lambda: _compact_once(spark, table, wanted), table, attempts)


def pack_table(table: str, *, attempts: int = 5) -> tuple[int, int]:
    """Rewrites many small files as few large ones, no row changed. Safe beside a coordinator that does the same.

    Args:
        attempts: how often to try where others get in between.

    Returns:
        How many files went and how many came.

    Raises:
        CompactionConflictError: all attempts failed.
    """
    metrics = _tried(lambda: pack_files(DeltaTable(table)), table, attempts)
    return int(metrics["numFilesRemoved"]), int(metrics["numFilesAdded"])


def _tried(work: Callable[[], T], table: str, attempts: int) -> T:
    """Does what changes a table, again and again while other commits get in between.

    Raises:
        CompactionConflictError: all attempts failed.
    """
    for attempt in range(1, attempts + 1):
        try:
            return work()
        except CommitFailedError as error:
            log.warning("attempt %d of %d: another commit got in between: %s", attempt, attempts, error)
    raise CompactionConflictError(
        f"{table} was changed by others in each of {attempts} attempts; run it again, with more --attempts or when "
        "nothing else deletes from the table or packs it"
    )


def _compact_once(spark: SparkSession, table: str, wanted: Compaction) -> list[Removed]:
    rows = spark.read.format("delta").option("versionAsOf", DeltaTable(table).version()).load(table)
    if wanted.source is not None:
        rows = rows.where(F.col("source") == wanted.source)
    if wanted.partition is not None:
        rows = rows.where(F.col("partition") == wanted.partition)
    scope = _with_fate(_below_watermark(rows, wanted.min_lag_ms)).persist()
    records = _judged_records(scope, wanted.delete_retention_ms).persist()
    try:
        judged = records.unionByName(_judged_markers(scope, records, wanted.delete_retention_ms)).drop("needs")
        removed = list(_summary(judged))
        if any(shard.total for shard in removed):
            _delete(table, judged.where(F.col("verdict") != "keep").select(*_PLACE, "ts").toArrow())
    finally:
        records.unpersist()
        scope.unpersist()
    return removed


def _judged_records(scope: DataFrame, delete_retention_ms: int) -> DataFrame:
    """Returns all records but markers: `source`, `partition`, `offset`, `ts`, `watermark`, `verdict`, `needs` (marker).

    The verdict is ``keep``, or why the row may go: ``superseded``, ``tombstone``, ``aborted``.
    """
    by_key = Window.partitionBy(*_SHARD, "slot")
    by_key_and_producer = Window.partitionBy(*_SHARD, "slot", "producer_id")
    settled = F.col("fate").isin("plain", "committed")
    tombstone_at = F.when(F.col("is_tombstone"), F.col("offset"))
    verdict = _verdict(delete_retention_ms)
    return (
        scope.where("fate <> 'marker'")
        .withColumn("newest", F.max(F.when(settled, F.col("offset"))).over(by_key))
        .withColumn("newest_generation", F.max_by("generation", F.when(settled, F.col("offset"))).over(by_key))
        .withColumn("newest_tombstone", F.max(tombstone_at).over(by_key))
        .withColumn("newest_pending", F.max(F.when(~settled, F.col("offset"))).over(by_key_and_producer))
        .withColumn("verdict", verdict)
        .withColumn("needs", F.when(F.expr("verdict = 'keep' AND fate = 'committed'"), F.col("marker_offset")))
        .select(*_PLACE, "ts", "watermark", "verdict", "needs")
    )


def _judged_markers(scope: DataFrame, records: DataFrame, delete_retention_ms: int) -> DataFrame:
    """Returns the transaction markers, with the columns of `_judged_records` and the verdict ``keep`` or ``marker``.

    A marker stays as long as a commit does that counts because of it.
    """
    needed = records.where("needs IS NOT NULL").select(*_SHARD, F.col("needs").alias("offset")).distinct()
    young = F.col("ts") > F.col("log_time") - delete_retention_ms
    verdict = F.when(F.col("is_needed") | young | _is_last(), "keep").otherwise("marker")
    return (
        scope.where("fate = 'marker'")
        .join(needed.withColumn("is_needed", F.lit(True)), list(_PLACE), "left")
        .select(*_PLACE, "ts", "watermark", verdict.alias("verdict"), F.lit(None).cast("long").alias("needs"))
    )


def _below_watermark(rows: DataFrame, min_lag_ms: int) -> DataFrame:
    """Returns the rows to look at, flat, with their partition's watermark and last offset and their source's log time.

    The commits of legacy keys (version 0) and of today's are of one `slot`: they commit the same partition's offset.
    """
    flat = rows.select(
        *_PLACE,
        "ts",
        "record_type",
        "producer_id",
        F.col("group_metadata.generation").alias("generation"),
        F.regexp_replace("key", '^\\{"type":"LegacyOffsetCommit"', '{"type":"OffsetCommit"').alias("slot"),
        F.get_json_object("other_value", "$.committed").alias("committed"),
        (
            F.col("offset_commit").isNull()
            & F.col("group_metadata").isNull()
            & F.col("other_value").isNull()
            & (F.col("record_type") != "EndTxnMarker")
        ).alias("is_tombstone"),
    )
    times = flat.groupBy("source").agg(F.max("ts").alias("log_time"))
    young = F.when(F.col("ts") > F.col("log_time") - min_lag_ms, F.col("offset"))
    ends = (
        flat.join(F.broadcast(times), "source")
        .groupBy(*_SHARD, "log_time")
        .agg(F.max("offset").alias("last_offset"), F.min(young).alias("first_young"))
        .withColumn("watermark", F.coalesce("first_young", F.col("last_offset") + 1))
    )
    return flat.join(F.broadcast(ends), list(_SHARD)).where(F.col("offset") < F.col("watermark"))


def _with_fate(scope: DataFrame) -> DataFrame:
    """Adds what became of each row: plain, marker, or that of its transaction, with the offset of its marker.

    A tombstone counts at once, in a transaction or not (OffsetMetadataManager.replay).
    """
    is_marker = F.col("record_type") == "EndTxnMarker"
    transactional = is_marker | ((F.coalesce("producer_id", F.lit(-1)) >= 0) & ~F.col("is_tombstone"))
    none = F.lit(None).cast("long")
    plain = scope.where(~transactional).withColumn("fate", F.lit("plain")).withColumn("marker_offset", none)
    # Backwards, so that the last marker seen is the first one after the commit.
    backwards = (
        Window.partitionBy(*_SHARD, "producer_id").orderBy(F.desc("offset")).rowsBetween(Window.unboundedPreceding, 0)
    )
    marker = F.when(is_marker, F.struct("offset", "committed"))
    ended = (
        scope.where(transactional)
        .withColumn("end", F.last(marker, ignorenulls=True).over(backwards))
        .withColumn(
            "fate",
            F.when(is_marker, "marker")
            .when(F.col("end").isNull(), "pending")
            .when(F.col("end.committed") == "true", "committed")
            .otherwise("aborted"),
        )
        .withColumn("marker_offset", F.col("end.offset"))
        .drop("end")
    )
    return plain.unionByName(ended)


def _is_last() -> Column:
    # The partition's next offset is told by its last row.
    return F.col("offset") == F.col("last_offset")


def _verdict(delete_retention_ms: int) -> Column:
    """Returns whether a record that is no marker stays."""
    offset, fate = F.col("offset"), F.col("fate")
    old = F.col("ts") <= F.col("log_time") - delete_retention_ms
    # A coordinator remembers an assignment by the record that first held it; records of the same generation that came
    # later (a static member that came back) hold it again.
    of_current_generation = (F.col("record_type") == "GroupMetadata") & (
        F.col("generation") == F.col("newest_generation")
    )
    # Pending commits die with a tombstone of their key, or give way to the same transaction's next commit of it.
    dead = F.coalesce(offset < F.col("newest_tombstone"), F.lit(False))
    return (
        F.when(_is_last(), "keep")
        .when(fate == "aborted", "aborted")
        .when(
            fate == "pending",
            F.when(dead, "aborted").when(offset == F.col("newest_pending"), "keep").otherwise("superseded"),
        )
        .when(F.col("is_tombstone") & (offset == F.col("newest")), F.when(old, "tombstone").otherwise("keep"))
        .when((offset == F.col("newest")) | of_current_generation, "keep")
        .otherwise("superseded")
    )


def _summary(judged: DataFrame) -> Iterator[Removed]:
    def count(verdict: str) -> Column:
        return F.count_if(F.col("verdict") == verdict).alias(verdict)

    counted = judged.groupBy(*_SHARD, "watermark").agg(
        F.count("*").alias("rows"), count("superseded"), count("tombstone"), count("aborted"), count("marker")
    )
    for row in counted.orderBy(*_SHARD).collect():
        yield Removed(
            row["source"],
            row["partition"],
            row["watermark"],
            row["rows"],
            row["superseded"],
            row["tombstone"],
            row["aborted"],
            row["marker"],
        )


def _delete(table: str, doomed: pa.Table) -> None:
    """Deletes rows by their places, the lowest offsets first: so what an interruption leaves is a valid log as well.

    delta-rs does it, since Delta on Spark takes any append meanwhile for a conflict. delta-rs looks at the statistics
    of the files that came, and what is appended now is later than all that goes.
    """
    doomed = doomed.sort_by("offset")
    same = " AND ".join(f"kept.{name} = doomed.{name}" for name in _PLACE)
    for start in range(0, len(doomed), _ROWS_A_COMMIT):
        rows = doomed.slice(start, _ROWS_A_COMMIT)
        newest_ts = pc.max(rows.column("ts")).as_py()
        merge = DeltaTable(table).merge(
            rows.select(list(_PLACE)),
            predicate=f"{same} AND kept.ts <= {newest_ts}",
            source_alias="doomed",
            target_alias="kept",
        )
        merge.when_matched_delete().execute()
