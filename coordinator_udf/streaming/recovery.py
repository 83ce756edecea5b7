"""A start from consumer_offsets: the groups are loaded from their records when a checkpoint is lost or can't be read.

As in Kafka after a failover, requests that come before a shard is loaded get the loading errors, and loaded members
get a fresh session. All of it is rows of the log: the beginning of the load in every partition, the records to load,
every request on the log that was never answered (so each gets an answer, the loading error, and its client asks again),
the end of the load. The stream starts there with a new checkpoint, and a replay of the log from there gives the same.

These are many appends, for neither the driver nor a micro-batch could hold all of consumer_offsets. But the log gets
all of them or none: a query that goes on from another checkpoint must never see half a load. The new checkpoint is told
last where to start. Whoever dies before that begins anew, and nobody reads the load that may be on the log already;
whoever dies after it is gone on from.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from coordinator_udf import stopping
from coordinator_udf.log.dataframe import request_log
from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.log.group_configs import group_config_rows
from coordinator_udf.log.rows import are_controls, control_rows
from coordinator_udf.offsets_topic.rows import from_columns
from coordinator_udf.settings.file import CoordinatorConfig
from coordinator_udf.streaming.checkpoint import RecoveryStart, committed_append, is_begun, read_start, write_start
from coordinator_udf.streaming.checkpoint_files import CheckpointFiles
from coordinator_udf.streaming.sources.requests import topics_body
from coordinator_udf.tables.delta import next_numbers
from coordinator_udf.user_errors import UserError
from schemas.requests import CONTROL_APIS, LIVE, request_log_arrow

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: About the most rows that are loaded, or put on the log once more, in one append, and the most bytes, but for one row
#: that has more. The driver holds no more at a time, far less than it may collect (spark.driver.maxResultSize).
PORTION_ROWS: Final = 5_000
PORTION_BYTES: Final = 16 * 1024 * 1024

_WEIGHT: Final = "weight"
_PORTION: Final = "portion"

#: For how long a client may wait for an answer, in log time. Who asked longer ago isn't there any more, and the history
#: of a log has no end. Joins wait for a rebalance timeout (max.poll.interval.ms, 5 min by default): half and double
#: look through less and more of the history.
WAIT_MAX_MS: Final = 24 * 60 * 60 * 1000

_GIVEN: Final = pa.schema([field for field in request_log_arrow() if field.name not in ("source", "offset")])

_log: Final = logging.getLogger(__name__)


class RecoveryError(UserError):
    """The groups can't be loaded; the message says why and what to do."""


def recover(
    spark: SparkSession,
    log: EmbeddedLog,
    tables: str,
    checkpoint: CheckpointFiles,
    config: CoordinatorConfig,
    *,
    now_ms: int,
) -> int:
    """Puts the load of all groups on the log and lets the checkpoint start there; returns the append's number.

    Args:
        tables: the folder of the tables.
        checkpoint: a new one.
        now_ms: the time at which loaded members' sessions begin; 0 for the log's newest time.

    Raises:
        RecoveryError: the checkpoint is in use, for more than a recovery that wasn't done.
    """
    start = read_start(checkpoint)
    if start is not None and (committed_append(checkpoint) or 0) <= start.load_end:
        _log.warning("the recovery that was begun on the checkpoint %s is gone on with", checkpoint.place)
        return start.append
    if is_begun(checkpoint):
        raise RecoveryError(
            f"there is a checkpoint at {checkpoint.place}: start without --recover-from-offsets to go on from it, or "
            "name a new --checkpoint to load the groups from consumer_offsets"
        )
    snapshot = log.snapshot()
    before = request_log(spark, log.path, snapshot).where(f"source = '{LIVE}'")
    oldest_ms = (log.newest_log_ts() or 0) - WAIT_MAX_MS
    seqs = next_seqs(tables, log.partitions)
    body = topics_body(config) or _topics(before)
    controls: dict[str, Any] = {"partitions": log.partitions}
    group_configs = group_config_rows(log.partitions, 0, log.group_configs())
    with stopping.temporary_directory("muster-recovery-") as scratch:
        # The log is locked for as long as it takes to read these, and not for what Spark takes to find them.
        records = Staged(Path(scratch) / "records", newest_records(spark, tables), load_rows)
        unanswered = Staged(Path(scratch) / "unanswered", _unanswered(spark, before, tables, oldest_ms), _asked_again)

        def load() -> Iterator[pa.RecordBatch]:
            yield _as_append(load_row(partition, {"nextSeq": seq}) for partition, seq in enumerate(seqs))
            yield from records.read()
            if body:
                yield _as_append(control_rows(**controls, log_ts=0, api="TopicMetadata", body=json.loads(body)))
            if group_configs:
                yield _as_append(group_configs)
            yield from unanswered.read()
            yield from _appended_since(log.path, snapshot.next)
            yield _as_append(control_rows(**controls, log_ts=now_ms, api="LoadEnd"))

        appends = log.append_all(dict(zip(append.schema.names, append.columns, strict=True)) for append in load())
    write_start(checkpoint, RecoveryStart(appends[0], appends[-1]))
    return appends[0]


def load_row(partition: int, entry: dict[str, Any]) -> dict[str, Any]:
    """Returns a LoadGroup row of a partition."""
    row = control_rows(partitions=1, log_ts=0, api="LoadGroup", body=entry)[0]
    return row | {"partition": partition}


class Staged:
    """Rows for the log, in the order of their partition and offset, in a file as portions.

    Args:
        path: the file.
        rows: where they are made of.
        as_requests: makes rows of the log of rows of the DataFrame, on the workers.
    """

    def __init__(
        self,
        path: Path,
        rows: DataFrame,
        as_requests: Callable[[list[dict[str, Any]]], Iterable[dict[str, Any]]],
    ) -> None:
        from pyspark import StorageLevel

        def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                portion = _as_append(as_requests(batch.to_pylist())).serialize().to_pybytes()
                yield pa.record_batch([pa.array([portion])], names=["portion"])

        self._path = path
        weighed = rows.withColumn(_WEIGHT, _weight(rows)).persist(StorageLevel.DISK_ONLY)
        try:
            ordered = _in_portions(weighed).drop(_WEIGHT, _PORTION)
            with pa.ipc.new_stream(path, _GIVEN) as writer:
                for row in ordered.mapInArrow(pack, "portion binary").toLocalIterator():
                    writer.write_batch(pa.ipc.read_record_batch(row["portion"], _GIVEN))
        finally:
            weighed.unpersist()

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yields the portions."""
        with pa.OSFile(str(self._path)) as file, pa.ipc.open_stream(file) as reader:
            yield from reader


def _weight(rows: DataFrame) -> Column:
    """Returns what a row takes of a portion, which is full by many rows or by large ones."""
    from pyspark.sql import functions as f

    return f.octet_length(f.to_json(f.struct(*rows.columns))) + PORTION_BYTES // PORTION_ROWS


def _in_portions(weighed: DataFrame) -> DataFrame:
    """Returns rows as partitions that are portions, in the order of the log's partitions and offsets.

    Spark's ranges are of about equally many rows, as a sample shows them: large rows that lie together would be one.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    weights = weighed.groupBy("partition").agg(f.sum(_WEIGHT).alias("weight")).orderBy("partition").collect()
    # The driver takes a partition at a time; those without rows go before all.
    before = [0, *accumulate(row["weight"] for row in weights)]
    begins = f.lit(0)
    for row, weight in zip(weights, before, strict=False):
        begins = f.when(f.col("partition") == row["partition"], f.lit(weight)).otherwise(begins)
    so_far = f.sum(_WEIGHT).over(Window.partitionBy("partition").orderBy("offset"))
    portion = f.floor((begins + so_far - f.col(_WEIGHT)) / PORTION_BYTES).cast("int")
    portions = before[-1] // PORTION_BYTES + 1
    return (
        weighed.withColumn(_PORTION, portion)
        .repartitionById(portions, _PORTION)
        .sortWithinPartitions("partition", "offset")
    )


def _as_append(rows: Iterable[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=_GIVEN)


def _appended_since(path: Path, number: int) -> Iterator[pa.RecordBatch]:
    """Yields the requests that came since, once more; read while nobody can append."""
    log = EmbeddedLog.open(path)
    try:
        for append in log.read(number, log.end()):
            is_control = are_controls(append.column("api"))
            asked = append.filter(pc.and_(pc.invert(is_control), pc.is_valid(append.column("request_id"))))
            if asked.num_rows:
                yield _as_append(_asked_again(asked.to_pylist()))
    finally:
        log.close()


def load_rows(records: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields rows of consumer_offsets as LoadGroup rows."""
    for row in records:
        record = from_columns(row)
        entry = {"offset": row["offset"], "key": record.key, "valueVersion": record.value_version}
        yield load_row(row["partition"], entry | {"value": record.value, "producerId": row["producer_id"]})


def _asked_again(requests: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in requests:
        yield {name: row[name] for name in _GIVEN.names} | {"log_ts": 0}


def newest_records(spark: SparkSession, tables: str) -> DataFrame:
    """Returns the records that make up the groups: the newest of each key, and all that belong to transactions.

    For of those it is the markers that count, in order.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    records = _live(spark, tables, "consumer_offsets")
    is_transactional = f.col("producer_id").isNotNull() | (f.col("record_type") == "EndTxnMarker")
    newest = f.row_number().over(Window.partitionBy("partition", "key", "in_txn").orderBy(f.col("offset").desc()))
    return (
        records.withColumn("in_txn", is_transactional)
        .withColumn("age", newest)
        .where(f.col("in_txn") | (f.col("age") == 1))
        .drop("in_txn", "age")
    )


def next_seqs(tables: str, partitions: int) -> list[int]:
    """Returns the first `seq` of each partition that no row of the tables has."""
    seqs = [0] * partitions
    # Not by Spark: a first look at three tables takes it half a minute.
    for name in ("group_responses", "group_transitions", "rejected_requests"):
        for partition, seq in enumerate(next_numbers(f"{tables.rstrip('/')}/{name}", "seq")[:partitions]):
            seqs[partition] = max(seqs[partition], seq)
    return seqs


def _topics(before: DataFrame) -> str:
    """Returns the topics that the log told last (a JSON body); empty if it never told any."""
    from pyspark.sql import functions as f

    told = before.where("partition = 0 AND api = 'TopicMetadata'").agg(f.max_by("body", "offset").alias("body"))
    return told.collect()[0]["body"] or ""


def _unanswered(spark: SparkSession, before: DataFrame, tables: str, oldest_ms: int) -> DataFrame:
    """Returns the unanswered requests from a time on, each once: an earlier recovery may have repeated some."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    is_control = f.coalesce(f.col("api").isin(*CONTROL_APIS), f.lit(False))
    asked = before.where(~is_control & f.col("request_id").isNotNull() & (f.col("log_ts") >= oldest_ms))
    answers = _live(spark, tables, "group_responses").where(f.col("ts") >= oldest_ms).select("request_id")
    rejected = _live(spark, tables, "rejected_requests").select("request_id")
    newest = f.row_number().over(Window.partitionBy("request_id", "partition").orderBy(f.col("offset").desc()))
    return (
        asked.join(answers.union(rejected), "request_id", "left_anti")
        .withColumn("age", newest)
        .where("age = 1")
        .drop("age")
    )


def _live(spark: SparkSession, tables: str, name: str) -> DataFrame:
    from pyspark.sql import functions as f

    return spark.read.format("delta").load(f"{tables}/{name}").where(f.col("source") == LIVE)
