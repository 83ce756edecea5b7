"""The way back: answers in a topic, keyed by the gateway that asked.

A gateway's name is what its request ids begin with, new each time that it starts: a gateway that is gone took its
clients' connections along, and whoever comes next has nothing to be told. So it reads from where the topic ends when it
starts, and only the partition in which its answers are.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa

from coordinator_udf.log.kafka import client
from coordinator_udf.log.kafka.client import DELIVERY_TIMEOUT_MS, RECORD_BYTES_MAX, BrokerError
from coordinator_udf.log.kafka.place import KafkaPlace

#: About how many bytes of answers a record holds: half of a broker's default message.max.bytes (1,048,588), which
#: single answers alone may need to have raised.
_RECORD_BYTES: Final = 512 * 1024
#: How many records are read at a time, and how long is waited for the first, in seconds: as late as that a stop is
#: heard; answers are told when they come.
_READ_RECORDS: Final = 1_000
_READ_S: Final = 0.25
#: How long it may take to learn where the topic ends, in seconds: as Java's request.timeout.ms.
_START_S: Final = 30.0
#: For how long answers are sent again where brokers can't be reached, in seconds: as long as Spark's source is patient.
PATIENCE_S: Final = 300.0

_log: Final = logging.getLogger(__name__)

#: Request id, partition of the request, body.
_Answer = tuple[str, int, str | None]
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[_Answer]).decode
_NONE: Final = _encode([])
#: What a gateway is told of a row of group_responses.
ANSWER_COLUMNS: Final = ("request_id", "partition", "body")


def gateway_of(request_id: str) -> str:
    """Returns the name of the gateway that gave a request its id."""
    return request_id.rpartition("-")[0]


def answers_partition(gateway: str, partitions: int) -> int:
    """Returns the partition in which a gateway's answers are."""
    return zlib.crc32(gateway.encode()) % partitions


class AnswerRecord(NamedTuple):
    """A record of the topic: some answers to one gateway."""

    partition: int
    key: bytes
    value: bytes


def answer_records(table: pa.Table, partitions: int) -> Iterator[AnswerRecord]:
    """Yields the records by which gateways are told answers, those to one of them in the order of the rows.

    Args:
        table: rows of group_responses, at least the columns request_id, partition and body.
        partitions: of the topic.
    """
    by_gateway: defaultdict[str, list[_Answer]] = defaultdict(list)
    columns = (table.column(name).to_pylist() for name in ANSWER_COLUMNS)
    for request_id, partition, body in zip(*columns, strict=True):
        if request_id is not None and (gateway := gateway_of(request_id)):
            by_gateway[gateway].append((request_id, partition, body))
    for gateway, answers in by_gateway.items():
        for value in _records(answers):
            yield AnswerRecord(answers_partition(gateway, partitions), gateway.encode(), value)


class AnswersWriter:
    """Sends answers to the gateways that asked.

    Args:
        partitions: of the topic.
    """

    def __init__(self, place: KafkaPlace, partitions: int) -> None:
        self._place = place
        self._partitions = partitions
        self._producer = client.producer(place)

    def write(self, table: pa.Table) -> None:
        """Sends the answers of a micro-batch; they are in the topic on return.

        Args:
            table: rows of group_responses.

        Raises:
            BrokerError: they may not be, for minutes; the micro-batch has to run again.
        """
        records = list(answer_records(table, self._partitions))
        until = time.monotonic() + PATIENCE_S
        while (error := self._send(records)) is not None:
            told = f"answers can't be sent to {self._place.answers}: {error}"
            if time.monotonic() > until:
                raise BrokerError(told)
            _log.warning("%s; trying again", told)
            self._producer = client.producer(self._place)

    def _send(self, records: Iterable[AnswerRecord]) -> str | None:
        """Sends all; what went wrong, if anything."""
        errors: list[str] = []
        try:
            for record in records:
                self._producer.produce(
                    self._place.answers,
                    partition=record.partition,
                    key=record.key,
                    value=record.value,
                    on_delivery=lambda error, _: errors.append(error.str()) if error is not None else None,
                )
        except (BufferError, client.exception()) as error:
            errors.append(str(error))
        left = self._producer.flush(2 * DELIVERY_TIMEOUT_MS / 1_000)
        return errors[0] if errors else "no report of the producer" if left else None


def _records(answers: list[_Answer]) -> Iterator[bytes]:
    piece: list[_Answer] = []
    size = 0
    for request_id, partition, body in answers:
        told, length = body, 0 if body is None else len(body.encode())
        if length > RECORD_BYTES_MAX - _RECORD_BYTES:
            # Without a body it says that the request failed.
            _log.error("the answer to %s has %d bytes, more than a record may have; it fails", request_id, length)
            told, length = None, 0
        if piece and size + length > _RECORD_BYTES:
            yield _encode(piece)
            piece, size = [], 0
        piece.append((request_id, partition, told))
        size += len(request_id) + length
    if piece:
        yield _encode(piece)


class AnswersReader:
    """Reads the answers to one gateway, from where the topic ended when it was made.

    Args:
        partitions: of the topic.
        gateway: its name.

    Raises:
        BrokerError: no broker can be asked where the topic ends.
    """

    def __init__(self, place: KafkaPlace, partitions: int, gateway: str) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        self._key = gateway.encode()
        self._consumer = client.consumer(place)
        at = TopicPartition(place.answers, answers_partition(gateway, partitions))
        try:
            _, at.offset = self._consumer.get_watermark_offsets(at, timeout=_START_S)
        except KafkaException as error:
            raise BrokerError(f"it can't be told where {place.answers} ends: {error.args[0].str()}") from error
        self._consumer.assign([at])

    def read(self) -> list[pa.Table]:
        """Returns the answers that came since the last call, or come now; columns request_id, partition and body."""
        found: list[_Answer] = []
        # Asked for many, the client waits for as many until the time is over.
        first = self._consumer.consume(1, _READ_S)
        for record in [*first, *self._consumer.consume(_READ_RECORDS, 0)]:
            # After an error the consumer goes on by itself, once there is a broker.
            if record.error() is None and record.key() == self._key:
                found += _decode(record.value() or _NONE)
        if not found:
            return []
        return [pa.table(dict(zip(ANSWER_COLUMNS, map(list, zip(*found, strict=True)), strict=True)))]

    def close(self) -> None:
        """Ends the consumer."""
        self._consumer.close()
