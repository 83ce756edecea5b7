"""The topic of answers as the stream writes it: of a small micro-batch from the driver, of a large one by Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.types import StructType

from coordinator_udf.log.kafka.answers import ANSWER_COLUMNS, PATIENCE_S, AnswersWriter, answer_records
from coordinator_udf.log.kafka.client import RECORD_BYTES_MAX
from coordinator_udf.log.kafka.place import KafkaPlace
from schemas.tables import GROUP_RESPONSES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A record as Spark's Kafka sink takes it.
_RECORD: Final = "partition int, key binary, value binary"
_ARROW: Final = pa.schema([("partition", pa.int32()), ("key", pa.binary()), ("value", pa.binary())])


class AnswersTopic:
    """Tells gateways what they asked, by the topic of answers.

    Args:
        partitions: of the topic.
    """

    def __init__(self, place: KafkaPlace, partitions: int) -> None:
        self._place = place
        self._partitions = partitions
        self._writer = AnswersWriter(place, partitions)

    def write(self, answers: pa.Table) -> None:
        """Sends rows of group_responses; they are in the topic on return.

        Raises:
            BrokerError: they may not be, for minutes; the micro-batch has to run again.
        """
        self._writer.write(answers)

    def write_files(self, spark: SparkSession, files: Sequence[str]) -> None:
        """Has executors send the rows of files of group_responses; they are in the topic on return.

        Raises:
            PySparkException: they may not be, for minutes; the micro-batch has to run again.
        """
        schema = StructType([GROUP_RESPONSES[name] for name in ANSWER_COLUMNS])
        answers = spark.read.schema(schema).parquet(*files)
        records = answers.mapInArrow(partial(_records, self._partitions), _RECORD)
        records.write.format("kafka").options(**self._options()).save()

    def _options(self) -> dict[str, str]:
        patience_ms = str(int(PATIENCE_S * 1_000))
        producer = {
            "bootstrap.servers": self._place.bootstrap,
            "acks": "all",
            "enable.idempotence": "true",
            "compression.type": "lz4",
            "max.request.size": str(RECORD_BYTES_MAX),
            "delivery.timeout.ms": patience_ms,
            "max.block.ms": patience_ms,
            **self._place.security.of_java(),
        }
        return {"topic": self._place.answers, **{f"kafka.{name}": value for name, value in producer.items()}}


def _records(partitions: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        # One by one: some are of many megabytes.
        for record in answer_records(pa.Table.from_batches([batch]), partitions):
            yield pa.record_batch([[value] for value in record], schema=_ARROW)
