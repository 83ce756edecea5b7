"""A start from consumer_offsets: the groups are loaded from their records when a checkpoint is lost or can't be read.

As in Kafka after a failover, requests that come before a shard is loaded get the loading errors, and loaded members
get a fresh session. All of it is rows of the log, in one append: the records to load, then every request on the log
that was never answered (so each gets an answer, the loading error, and its client asks again), then the end of the
load. The stream starts there with a new checkpoint, and a replay of the log from there gives the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from coordinator_udf.log_rows import control_rows
from coordinator_udf.offsets_topic.rows import from_columns
from coordinator_udf.settings_file import CoordinatorConfig
from coordinator_udf.streaming.embedded_log import LIVE, EmbeddedLog
from coordinator_udf.streaming.sources import topics_body
from schemas.requests import CONTROL_APIS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Where a checkpoint that doesn't start with the oldest append says where it starts. Spark asks again until the first
#: micro-batch is done.
_START: Final = "muster-start.json"

_CONTROLS: Final = pa.array(CONTROL_APIS)


class RecoveryError(Exception):
    """The groups can't be loaded; the message says why and what to do."""


def starting_append(checkpoint: str) -> int:
    """The append with which a query on this checkpoint began."""
    note = Path(checkpoint) / _START
    return int(json.loads(note.read_text("utf-8"))["append"]) if note.is_file() else 0


def is_begun(checkpoint: str) -> bool:
    """Whether a query ever planned a micro-batch on this checkpoint, or is about to."""
    path = Path(checkpoint)
    return (path / _START).is_file() or any((path / "offsets").glob("[0-9]*"))


def recover(
    spark: SparkSession, log: EmbeddedLog, tables: str, checkpoint: str, config: CoordinatorConfig, *, now_ms: int
) -> int:
    """Puts the load of all groups on the log and lets the checkpoint start there; returns the append's number.

    Args:
        tables: the folder of the tables.
        checkpoint: a new one.
        now_ms: the time at which loaded members' sessions begin; 0 for the log's newest time.

    Raises:
        RecoveryError: the checkpoint is in use.
    """
    if is_begun(checkpoint):
        raise RecoveryError(
            f"there is a checkpoint at {checkpoint}: start without --recover-from-offsets to go on from it, or name a "
            "new --checkpoint to load the groups from consumer_offsets"
        )
    partitions = log.partitions
    unanswered, topics = _waiting(spark, log, tables)
    body = topics_body(config) or topics
    rows: list[dict[str, Any]] = []
    for partition, next_seq in enumerate(_next_seqs(spark, tables, partitions)):
        rows.append(_load_row(partition, {"nextSeq": next_seq}))
    rows += [_load_row(partition, entry) for partition, entry in _records(spark, tables)]
    if body:
        rows += control_rows(partitions=partitions, log_ts=0, api="TopicMetadata", body=json.loads(body))
    rows += unanswered
    rows += control_rows(partitions=partitions, log_ts=now_ms, api="LoadEnd")
    number = log.append(rows)
    note = Path(checkpoint) / _START
    note.parent.mkdir(parents=True, exist_ok=True)
    draft = note.with_suffix(".new")
    draft.write_text(json.dumps({"append": number}), "utf-8")
    draft.rename(note)
    return number


def _load_row(partition: int, entry: dict[str, Any]) -> dict[str, Any]:
    row = control_rows(partitions=1, log_ts=0, api="LoadGroup", body=entry)[0]
    return row | {"partition": partition}


def _records(spark: SparkSession, tables: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The records that make up the groups, in the order of their partition: partition, body of a LoadGroup row.

    The newest of each key; and all that belong to transactions, since it is their markers that count, in order.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    records = _live(spark, tables, "consumer_offsets")
    is_transactional = f.col("producer_id").isNotNull() | (f.col("record_type") == "EndTxnMarker")
    newest = f.row_number().over(Window.partitionBy("partition", "key", "in_txn").orderBy(f.col("offset").desc()))
    kept = (
        records.withColumn("in_txn", is_transactional)
        .withColumn("age", newest)
        .where(f.col("in_txn") | (f.col("age") == 1))
        .drop("in_txn", "age")
        .orderBy("partition", "offset")
    )
    for row in kept.toArrow().to_pylist():
        record = from_columns(row)
        entry = {"offset": row["offset"], "key": record.key, "valueVersion": record.value_version}
        yield row["partition"], entry | {"value": record.value, "producerId": row["producer_id"]}


def _next_seqs(spark: SparkSession, tables: str, partitions: int) -> list[int]:
    """The first `seq` of each partition that no row of the tables has."""
    from pyspark.sql import functions as f

    seqs = [0] * partitions
    for name in ("group_responses", "group_transitions", "rejected_requests"):
        greatest = _live(spark, tables, name).groupBy("partition").agg(f.max("seq").alias("seq")).collect()
        for row in greatest:
            if row["partition"] is not None and row["seq"] is not None and row["partition"] < partitions:
                seqs[row["partition"]] = max(seqs[row["partition"]], row["seq"] + 1)
    return seqs


def _waiting(spark: SparkSession, log: EmbeddedLog, tables: str) -> tuple[list[dict[str, Any]], str]:
    """The rows of requests on the log that have no answer, and the topics that the log told last (a JSON body)."""
    asked: list[dict[str, Any]] = []
    topics = ""
    extent = log.extent()
    for batch in log.read(extent.first, extent.next):
        told = batch.filter(pc.equal(batch.column("api"), "TopicMetadata")).column("body")
        topics = told[-1].as_py() if len(told) else topics
        is_control = pc.is_in(batch.column("api"), value_set=_CONTROLS)
        asked += batch.filter(pc.and_(pc.invert(is_control), pc.is_valid(batch.column("request_id")))).to_pylist()
    if not asked:
        return [], topics
    oldest_ms = min(row["log_ts"] for row in asked)
    responses = _live(spark, tables, "group_responses")
    answered = set(responses.where(responses["ts"] >= oldest_ms).select("request_id").toArrow().column(0).to_pylist())
    rejected = _live(spark, tables, "rejected_requests").select("request_id").toArrow().column(0).to_pylist()
    answered.update(rejected)
    waiting = [row for row in asked if row["request_id"] not in answered]
    newest: dict[tuple[str, int], dict[str, Any]] = {}
    for row in waiting:
        # A request that an earlier recovery put on the log once more is still one request.
        newest[row["request_id"], row["partition"]] = row | {"log_ts": 0}
    return list(newest.values()), topics


def _live(spark: SparkSession, tables: str, name: str) -> DataFrame:
    from pyspark.sql import functions as f

    return spark.read.format("delta").load(f"{tables}/{name}").where(f.col("source") == LIVE)
