"""What unmodified clients of each library read of a topic; each runs until it has as many records as are wanted."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.waiting import PATIENCE_S, wait

#: Reads this many records of a topic as a member of a group, commits, and leaves: address, topic, group, how many.
Read = Callable[[str, str, str, int], set[bytes]]


def kafka_python(address: str, topic: str, group: str, wanted: int, **more: Any) -> set[bytes]:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **more,
    )
    found: set[bytes] = set()
    end = time.monotonic() + PATIENCE_S
    while len(found) < wanted and time.monotonic() < end:
        for records in consumer.poll(timeout_ms=200).values():
            found |= {record.value for record in records}
    consumer.commit()
    consumer.close()
    return found


def confluent(address: str, topic: str, group: str, wanted: int, **more: Any) -> set[bytes]:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **more,
        }
    )
    consumer.subscribe([topic])
    found: set[bytes] = set()
    end = time.monotonic() + PATIENCE_S
    while len(found) < wanted and time.monotonic() < end:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            found.add(message.value() or b"")
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def confluent_consumer_protocol(address: str, topic: str, group: str, wanted: int, **more: Any) -> set[bytes]:
    return confluent(address, topic, group, wanted, **{"group.protocol": "consumer", **more})


def aiokafka(address: str, topic: str, group: str, wanted: int, **more: Any) -> set[bytes]:
    return asyncio.run(_aiokafka(address, topic, group, wanted, **more))


async def _aiokafka(address: str, topic: str, group: str, wanted: int, **more: Any) -> set[bytes]:
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **more,
    )
    await consumer.start()
    found: set[bytes] = set()
    end = time.monotonic() + PATIENCE_S
    while len(found) < wanted and time.monotonic() < end:
        for records in (await consumer.getmany(timeout_ms=200)).values():
            found |= {record.value for record in records}
    await consumer.commit()
    await consumer.stop()
    return found


PYTHON: dict[str, Read] = {
    "kafka-python": kafka_python,
    "confluent": confluent,
    "confluent, KIP-848": confluent_consumer_protocol,
    "aiokafka": aiokafka,
}


def java(
    command: Sequence[str], address: str, topic: str, group: str, wanted: int, *, properties: Sequence[str]
) -> set[bytes]:
    """What Kafka's console consumer reads."""
    settings = [word for setting in properties for word in ("--command-property", setting)]
    done = subprocess.run(
        [
            *(*command, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", address),
            *("--topic", topic, "--group", group, "--from-beginning", "--max-messages", str(wanted)),
            *("--timeout-ms", str(int(PATIENCE_S * 1000)), *settings),
        ],
        capture_output=True,
        timeout=PATIENCE_S * 2,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return set(done.stdout.splitlines())


def wait_for_assignment(consumer: Any) -> None:
    """Polls a consumer of confluent-kafka until it has partitions."""

    def is_assigned() -> Any:
        consumer.poll(0.1)
        return consumer.assignment()

    wait(is_assigned, "it has partitions")
