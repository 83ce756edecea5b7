"""One group member in a process of its own, made of an unmodified client library. Run by fleet.py.

It says what happens to it as JSON lines on its standard output, takes orders as JSON lines on its standard input, and
writes the library's own log to standard error. Run as a script: python member.py '{"client": "kafka-python", ...}'.
"""

from __future__ import annotations

import asyncio
import json
import logging
import queue
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

Place = tuple[str, int]


def say(event: str, **details: Any) -> None:
    print(json.dumps({"event": event, **details}), flush=True)


def orders() -> queue.Queue[dict[str, Any]]:
    """The orders as they come; at the end of the input, one to close."""
    waiting: queue.Queue[dict[str, Any]] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            waiting.put(json.loads(line))
        waiting.put({"do": "close"})

    threading.Thread(target=read, daemon=True).start()
    return waiting


@contextmanager
def refusals() -> Iterator[None]:
    """Says what the library raised of a commit: the member lives on, and who ordered it decides what that means."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  each library has its own
        say("refused", error=repr(error))


class Reporter:
    """Says the assignment whenever it is another one."""

    def __init__(self) -> None:
        self._said: list[Place] | None = None

    def report(self, assignment: Iterable[Place]) -> None:
        now = sorted(assignment)
        if now != self._said:
            self._said = now
            say("assigned", partitions=now)


def python_options(config: dict[str, Any]) -> dict[str, Any]:
    """What kafka-python and aiokafka, which took its names, are told alike."""
    return {
        "bootstrap_servers": config["address"],
        "group_id": config["group"],
        "client_id": config["name"],
        "group_instance_id": config.get("instance"),
        "session_timeout_ms": config["session_ms"],
        "heartbeat_interval_ms": config["heartbeat_ms"],
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
    }


def kafka_python(config: dict[str, Any], todo: queue.Queue[dict[str, Any]]) -> None:
    from kafka import KafkaConsumer, TopicPartition
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from kafka.errors import KafkaConnectionError
    from kafka.structs import OffsetAndMetadata

    strategies = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }
    consumer = KafkaConsumer(
        *config["topics"],
        partition_assignment_strategy=[strategies[config["strategy"]]],
        **python_options(config),
    )
    reporter = Reporter()
    while True:
        try:
            consumer.poll(timeout_ms=100)
        except KafkaConnectionError:
            # Now and then it says so of a coordinator that isn't there yet; whoever polls again is back with it.
            time.sleep(0.1)
        reporter.report((place.topic, place.partition) for place in consumer.assignment())
        for order in taken(todo):
            place = TopicPartition(*order.get("place", ("", 0)))
            if order["do"] == "close":
                logging.getLogger("root").info("closing")
                consumer.close()
                return
            if order["do"] == "commit":
                with refusals():
                    consumer.commit({place: OffsetAndMetadata(order["offset"], order.get("metadata", ""), -1)})
                    say("committed", place=order["place"], offset=order["offset"])
            else:
                found = consumer.committed(place)
                say("found", place=order["place"], offset=found, position=consumer.position(place))


def confluent(config: dict[str, Any], todo: queue.Queue[dict[str, Any]]) -> None:
    from confluent_kafka import Consumer, TopicPartition

    settings = {
        "bootstrap.servers": config["address"],
        "group.id": config["group"],
        "client.id": config["name"],
        "session.timeout.ms": config["session_ms"],
        "heartbeat.interval.ms": config["heartbeat_ms"],
        "partition.assignment.strategy": config["strategy"],
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "error_cb": lambda error: logging.getLogger("librdkafka").error("error callback: %s", error),
    }
    if config.get("instance"):
        settings["group.instance.id"] = config["instance"]
    if config.get("protocol") == "consumer":
        # The coordinator assigns, and says how often it wants to hear.
        for name in ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"):
            del settings[name]
        settings |= {"group.protocol": "consumer", "group.remote.assignor": config["strategy"]}
    consumer = Consumer(settings, logger=logging.getLogger("librdkafka"))
    consumer.subscribe(config["topics"])
    reporter = Reporter()
    while True:
        message = consumer.poll(0.1)
        if message is not None and message.error() is not None:
            logging.getLogger("librdkafka").error("poll: %s", message.error())
        reporter.report((place.topic, place.partition) for place in consumer.assignment())
        for order in taken(todo):
            if order["do"] == "close":
                logging.getLogger("root").info("closing")
                consumer.close()
                return
            topic, partition = order["place"]
            if order["do"] == "commit":
                place = TopicPartition(topic, partition, order["offset"], metadata=order.get("metadata", ""))
                with refusals():
                    (done,) = consumer.commit(offsets=[place], asynchronous=False)
                    if done.error is not None:
                        raise RuntimeError(f"commit: {done.error}")
                    say("committed", place=order["place"], offset=order["offset"])
            else:
                (found,) = consumer.committed([TopicPartition(topic, partition)], timeout=100)
                (at,) = consumer.position([TopicPartition(topic, partition)])
                # librdkafka has a position only when it has consumed something.
                say("found", place=order["place"], offset=found.offset, position=at.offset if at.offset >= 0 else None)


def aiokafka(config: dict[str, Any], todo: queue.Queue[dict[str, Any]]) -> None:
    asyncio.run(_aiokafka(config, todo))


async def _aiokafka(config: dict[str, Any], todo: queue.Queue[dict[str, Any]]) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    strategies = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }
    consumer = AIOKafkaConsumer(
        *config["topics"],
        partition_assignment_strategy=[strategies[config["strategy"]]],
        **python_options(config),
    )
    await consumer.start()
    reporter = Reporter()
    while True:
        await consumer.getmany(timeout_ms=100)
        reporter.report((place.topic, place.partition) for place in consumer.assignment())
        for order in taken(todo):
            place = TopicPartition(*order.get("place", ("", 0)))
            if order["do"] == "close":
                logging.getLogger("root").info("closing")
                await consumer.stop()
                return
            if order["do"] == "commit":
                with refusals():
                    await consumer.commit({place: (order["offset"], order.get("metadata", ""))})
                    say("committed", place=order["place"], offset=order["offset"])
            else:
                found = await consumer.committed(place)
                say("found", place=order["place"], offset=found, position=await consumer.position(place))


def taken(todo: queue.Queue[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    while not todo.empty():
        found.append(todo.get_nowait())
    return found


LIBRARIES = {"kafka-python": kafka_python, "confluent": confluent, "aiokafka": aiokafka}


def main() -> None:
    config = json.loads(sys.argv[1])
    logging.basicConfig(
        stream=sys.stderr, level=config.get("log", "INFO"), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    LIBRARIES[config["client"]](config, orders())
    say("closed")


if __name__ == "__main__":
    main()
