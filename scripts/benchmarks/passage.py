"""What a gateway in front of a cluster lets through (benchmark `gateway`): MB/s of a consumer, beside a direct one."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.log.kafka.place import parse_place
from scripts.benchmarks.gateway_job import gateway_process
from scripts.benchmarks.results import Figure
from scripts.benchmarks.running import BenchmarkError, Options, median, say
from scripts.benchmarks.wire_client import TLS

_PARTITIONS: Final = 4
_RECORD_BYTES: Final = 10_000
_RECORDS: Final = 50_000
#: How many records a consumer is asked for at a time.
_AT_ONCE: Final = 1_000
#: How long a consumer may take for all, and brokers for a step, in seconds.
_PATIENCE_S: Final = 120.0


def figures(options: Options, kafka_log: str) -> list[Figure]:
    """Returns a consumer's rates from the log's broker, through a gateway, and through one with TLS.

    Raises:
        BenchmarkError: the broker can't be used.
    """
    bootstrap = parse_place(kafka_log).bootstrap
    records = options.sized(_RECORDS, 1_000)
    rates: dict[str, list[float]] = {}
    try:
        with _filled(bootstrap, records) as topic, tempfile.TemporaryDirectory(prefix="muster-bench-") as directory:
            for tls in (False, True):
                with _gateway(Path(directory), bootstrap, tls=tls) as address:
                    through = "through a gateway with TLS" if tls else "through a gateway"
                    for _ in range(options.repeats):
                        # In turn, so that either has the same neighbours.
                        rates.setdefault("directly", []).append(_consumed(bootstrap, topic, records))
                        rates.setdefault(through, []).append(_consumed(address, topic, records))
    except KafkaException as error:
        raise BenchmarkError(f"the broker {bootstrap} can't be used: {error}") from error
    return [Figure(f"Fetch, a consumer {way}", round(median(found)), "MB/s") for way, found in rates.items()]


@contextmanager
def _filled(bootstrap: str, records: int) -> Iterator[str]:
    """Gives a topic of a cluster with records, for as long as the context lasts."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topic = f"muster-bench-{uuid4().hex[:8]}"
    admin.create_topics([NewTopic(topic, _PARTITIONS, 1)])[topic].result(_PATIENCE_S)
    try:
        say(f"{records * _RECORD_BYTES / 1e6:.0f} MB for consumers")
        producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.kbytes": 2**20, "log_level": 0})
        for number in range(records):
            producer.produce(topic, b"x" * _RECORD_BYTES, partition=number % _PARTITIONS)
        if producer.flush(_PATIENCE_S):
            raise BenchmarkError(f"the broker {bootstrap} didn't take {records} records in {_PATIENCE_S:.0f} s")
        yield topic
    finally:
        admin.delete_topics([topic])[topic].result(_PATIENCE_S)


@contextmanager
def _gateway(directory: Path, bootstrap: str, *, tls: bool) -> Iterator[str]:
    """Runs a gateway in front of the cluster. Nobody coordinates behind it, for nobody asks for a group."""
    log = directory / ("log-tls" if tls else "log")
    EmbeddedLog.create(log, 1).close()
    arguments = ["--log", str(log), "--tables", str(directory / "tables"), "--upstream", bootstrap]
    with gateway_process(directory, arguments, tls=tls) as address:
        yield address


def _consumed(address: str, topic: str, records: int) -> float:
    """Measures a consumer's MB/s, from its connecting to the last record."""
    secure = {"security.protocol": "ssl", "enable.ssl.certificate.verification": False}
    began = time.perf_counter()
    consumer = Consumer(
        {
            "bootstrap.servers": address.removeprefix(TLS),
            "group.id": "muster-bench",
            "enable.auto.commit": False,
            **(secure if address.startswith(TLS) else {}),
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(_PARTITIONS)])
        left = records
        while left:
            if time.perf_counter() - began > _PATIENCE_S:
                raise BenchmarkError(f"a consumer got {records - left} of {records} records in {_PATIENCE_S:.0f} s")
            left -= sum(record.error() is None for record in consumer.consume(min(left, _AT_ONCE), 1.0))
        return records * _RECORD_BYTES / 1e6 / (time.perf_counter() - began)
    finally:
        consumer.close()
