"""Appends of which a topic's readers see all or none: Kafka's transactions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from coordinator_udf.log.kafka import client
from coordinator_udf.log.kafka.client import BrokerError
from coordinator_udf.log.kafka.place import KafkaPlace
from coordinator_udf.log.kafka.records import to_key, to_value

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

#: How long brokers may take for one step of a transaction, in seconds: as Java's max.block.ms.
_STEP_S: Final = 60.0
#: How long the transaction may take in all, in milliseconds: as long as brokers allow by default.
_TRANSACTION_MS: Final = 900_000


def append_all_or_none(place: KafkaPlace, rows: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """Appends rows in one transaction; returns for each partition that has some the offset of the first.

    A transaction of the kind that was begun before and not ended is aborted. What others append meanwhile is read when
    this one has ended.

    Raises:
        BrokerError: the brokers refuse or can't be reached; nothing is appended.
    """
    producer = client.producer(
        place, {"transactional.id": f"muster-{place.topic}", "transaction.timeout.ms": _TRANSACTION_MS}
    )
    firsts: dict[int, int] = {}
    errors: list[str] = []

    def note(error: KafkaError | None, record: Message) -> None:
        if error is not None:
            errors.append(error.str())
        else:
            partition, offset = record.partition() or 0, record.offset() or 0
            firsts[partition] = min(firsts.get(partition, offset), offset)

    try:
        producer.init_transactions(_STEP_S)
        producer.begin_transaction()
        for row in rows:
            _produce(producer, place.topic, row, note)
        producer.flush(_STEP_S)
        if errors:
            producer.abort_transaction(_STEP_S)
            raise BrokerError(f"{place} can't be appended to: {errors[0]}")
        producer.commit_transaction(_STEP_S)
    except client.exception() as error:
        raise BrokerError(f"{place} can't be appended to: {error}") from error
    return firsts


def _produce(producer: Any, topic: str, row: Mapping[str, Any], note: Any) -> None:
    partition = row["partition"]
    while True:
        try:
            producer.produce(topic, partition=partition, key=to_key(partition), value=to_value(row), on_delivery=note)
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return
