"""A member that reads records and commits them, in a process of its own: it tells of each as JSON lines, until killed.

Run by the nemesis: python reader.py '{"client": "confluent", "address": ..., "group": ..., "topic": ..., ...}'. What a
line tells has happened: records that the member was handed, and commits that were acknowledged.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from typing import Any

#: How long a poll waits for records, in seconds.
_POLL_S = 0.2


def tell(event: str, **details: Any) -> None:
    print(json.dumps({"event": event, **details}), flush=True)


def confluent(config: dict[str, Any]) -> None:
    from confluent_kafka import Consumer, KafkaException

    settings = {
        "bootstrap.servers": config["address"],
        "group.id": config["group"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": config["ca"],
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": config["user"],
        "sasl.password": config["password"],
        "log_level": 0,
    }
    if config.get("protocol") == "consumer":
        settings["group.protocol"] = "consumer"
    else:
        settings |= {"session.timeout.ms": config["session_ms"], "heartbeat.interval.ms": 3_000}
    consumer = Consumer(settings)
    consumer.subscribe([config["topic"]])
    while True:
        records = [record for record in consumer.consume(100, _POLL_S) if record.error() is None]
        if not records:
            continue
        tell("read", records=[[record.partition(), record.offset()] for record in records])
        try:
            done = consumer.commit(asynchronous=False) or []
        except KafkaException as error:
            tell("refused", error=str(error))
        else:
            tell("committed", offsets=[[at.partition, at.offset] for at in done if at.error is None and at.offset >= 0])


def kafka_python(config: dict[str, Any]) -> None:
    from kafka import KafkaConsumer
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

    consumer = KafkaConsumer(
        config["topic"],
        bootstrap_servers=config["address"].split(","),
        group_id=config["group"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=config["session_ms"],
        security_protocol="SASL_SSL",
        ssl_cafile=config["ca"],
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username=config["user"],
        sasl_plain_password=config["password"],
    )
    while True:
        found = consumer.poll(timeout_ms=_POLL_S * 1_000)
        if not found:
            continue
        tell("read", records=[[at.partition, record.offset] for at, records in found.items() for record in records])
        offsets = {at: records[-1].offset + 1 for at, records in found.items()}
        try:
            consumer.commit({at: OffsetAndMetadata(offset, "", -1) for at, offset in offsets.items()})
        except KafkaError as error:
            tell("refused", error=repr(error))
        else:
            tell("committed", offsets=[[at.partition, offset] for at, offset in offsets.items()])


async def _aiokafka(config: dict[str, Any]) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.errors import KafkaError

    consumer = AIOKafkaConsumer(
        config["topic"],
        bootstrap_servers=config["address"],
        group_id=config["group"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=config["session_ms"],
        security_protocol="SASL_SSL",
        ssl_context=ssl.create_default_context(cafile=config["ca"]),
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username=config["user"],
        sasl_plain_password=config["password"],
    )
    await consumer.start()
    while True:
        found = await consumer.getmany(timeout_ms=int(_POLL_S * 1_000))
        if not found:
            continue
        tell("read", records=[[at.partition, record.offset] for at, records in found.items() for record in records])
        offsets = {at: records[-1].offset + 1 for at, records in found.items()}
        try:
            await consumer.commit(offsets)
        except KafkaError as error:
            tell("refused", error=repr(error))
        else:
            tell("committed", offsets=[[at.partition, offset] for at, offset in offsets.items()])


def aiokafka(config: dict[str, Any]) -> None:
    asyncio.run(_aiokafka(config))


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    {"confluent": confluent, "kafka-python": kafka_python, "aiokafka": aiokafka}[given["client"]](given)
