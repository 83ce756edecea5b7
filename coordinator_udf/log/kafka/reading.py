"""Reads a topic of requests as it is now, in batch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from coordinator_udf.log.kafka import client
from coordinator_udf.log.kafka.client import BrokerError
from coordinator_udf.log.kafka.place import KafkaPlace
from coordinator_udf.log.kafka.records import to_rows

if TYPE_CHECKING:
    from confluent_kafka import Consumer

#: How many records are made rows at a time: as many as own_log's SLICE_ROWS.
_ROWS: Final = 50_000
#: How many records are asked for at a time, and how long is waited for them, in seconds: fewer come only where the
#: topic ends.
_CONSUME: Final = 10_000
_CONSUME_S: Final = 1.0
#: How long brokers may say nothing before it is given up, in seconds: twice Java's request.timeout.ms; an election
#: takes the 9 s of broker.session.timeout.ms and more.
_PATIENCE_S: Final = 60.0

_Record = tuple[int, int, int, bytes | None]


def read_partition(place: KafkaPlace, partition: int) -> Iterator[pa.Table]:
    """Yields the rows of a partition in order, as far as they go now.

    Raises:
        BrokerError: the brokers don't answer.
    """
    from confluent_kafka import OFFSET_BEGINNING, TopicPartition

    consumer = client.consumer(place)
    try:
        consumer.assign([TopicPartition(place.topic, partition, OFFSET_BEGINNING)])
        for records in _gathered(consumer, place):
            yield pa.Table.from_batches([to_rows(records)])
    finally:
        consumer.close()


def _gathered(consumer: Consumer, place: KafkaPlace) -> Iterator[list[_Record]]:
    from confluent_kafka import KafkaError

    gathered: list[_Record] = []
    is_over = False
    heard_at = time.monotonic()
    while not is_over:
        for record in consumer.consume(_CONSUME, _CONSUME_S):
            error = record.error()
            if error is None:
                heard_at = time.monotonic()
                at = record.partition() or 0, record.offset() or 0
                gathered.append((*at, record.timestamp()[1], record.value()))
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - so it is called
                is_over = True
        if not is_over and time.monotonic() - heard_at > _PATIENCE_S:
            raise BrokerError(f"the brokers of {place} have said nothing for {_PATIENCE_S:g} s")
        if len(gathered) >= _ROWS or (is_over and gathered):
            yield gathered
            gathered = []
