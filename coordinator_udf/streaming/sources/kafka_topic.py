"""A Kafka topic as a streaming source of packed requests, by Spark's own source of Kafka topics."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from coordinator_udf.log.kafka.place import KafkaPlace
from coordinator_udf.log.kafka.records import to_rows
from coordinator_udf.streaming.packing import PACKED_REQUESTS, pack_requests

#: The columns of a record that make a row.
_RECORD: Final = ("partition", "offset", "unix_millis(timestamp) AS timestamp_ms", "value")

#: How often brokers are asked again where a topic ends before the query fails, and after which pause: as long as
#: answers wait for a broker.
_RETRIES: Final = 300
_RETRY_MS: Final = 1_000

#: How long a broker may keep a fetch that finds nothing, in milliseconds: hardly at all. Tasks read what is known to be
#: there. But a consumer that gives records asks for the next at once, and what Spark asks for after that (where the
#: partition begins and ends) waits on the same connection until the broker has answered, by default for half a second,
#: in each partition, one after the other.
_FETCH_WAIT_MS: Final = 1

#: How many tasks read the partitions' records of a micro-batch, which are few.
_TASKS: Final = 2


def kafka_requests(
    spark: SparkSession, place: KafkaPlace, partitions: int, *, starting: Mapping[int, int], max_rows: int
) -> DataFrame:
    """Returns the topic as a stream, where there is no checkpoint from some offsets on, or from its oldest record.

    Its partitions are those that it was made with. What was deleted before it was read fails the query: nothing that a
    gateway was told is in the log may get lost.
    """
    records = (
        spark.readStream.format("kafka")
        .options(**_options(place, range(partitions)))
        .option("startingOffsets", json.dumps({place.topic: starting}) if starting else "earliest")
        .option("failOnDataLoss", "true")
        .option("maxOffsetsPerTrigger", max_rows)
        .load()
    )
    return records.selectExpr(*_RECORD).coalesce(_TASKS).mapInArrow(_packed, PACKED_REQUESTS)


def _options(place: KafkaPlace, partitions: Iterable[int]) -> dict[str, str]:
    clients = {
        "bootstrap.servers": place.bootstrap,
        "isolation.level": "read_committed",
        "fetch.max.wait.ms": str(_FETCH_WAIT_MS),
        **place.security.of_java(),
    }
    return {
        **{f"kafka.{name}": value for name, value in clients.items()},
        "assign": json.dumps({place.topic: list(partitions)}),
        "groupIdPrefix": "muster",
        "fetchOffset.numRetries": str(_RETRIES),
        "fetchOffset.retryIntervalMs": str(_RETRY_MS),
    }


def newest_topics(spark: SparkSession, place: KafkaPlace) -> str:
    """Returns the topics that the log told last (a JSON body); empty if it never told any."""
    told = (
        spark.read.format("kafka")
        .options(**_options(place, [0]))
        .load()
        .selectExpr("offset", "from_json(CAST(value AS STRING), 'api STRING, body STRING') AS row")
        .where("row.api = 'TopicMetadata'")
        .selectExpr("max_by(row.body, offset) AS body")
    )
    return told.collect()[0]["body"] or ""


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return pack_requests(
        to_rows(zip(*(column.to_pylist() for column in batch.columns), strict=True)) for batch in batches
    )


def rows_behind(end_offsets: str, latest_offsets: str | None) -> int | None:
    """Returns how many records there are after those that a micro-batch took; None where the source doesn't say.

    Args:
        end_offsets: where the micro-batch ended, as the query's progress tells it.
        latest_offsets: where the topic ended then.
    """
    end, latest = _by_partition(end_offsets), _by_partition(latest_offsets)
    if not latest:
        return None
    return sum(offset - end.get(partition, 0) for partition, offset in latest.items())


def _by_partition(offsets: str | None) -> dict[str, int]:
    # The first micro-batch of a start has JSON's null.
    topics: dict[str, Any] = json.loads(offsets or "null") or {}
    return {partition: int(offset) for topic in topics.values() for partition, offset in topic.items()}
