#!/usr/bin/env python3
"""A small fleet of members, each a process: they join a group, one leaves, the rest follow.

``python scripts/demo/fleet.py --address 127.0.0.1:9092 --topics orders,payments``
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from multiprocessing.synchronize import Event
from typing import Annotated

import typer


@dataclass(frozen=True)
class Membership:
    """What the members of a fleet have in common."""

    address: str
    group: str
    topics: tuple[str, ...]
    session_timeout_ms: int


class Kind(StrEnum):
    """What members are made of: kafka-python, or this project's own members of either protocol."""

    kafka_python = "kafka-python"
    classic = "classic"
    consumer = "consumer"


def coordinate(name: str, membership: Membership, protocol: str, joined: Event, stop: Event) -> None:
    """Runs one of this project's own members: it tells its partitions, and leaves when told to."""
    from coordinator_udf.members.driver.member import DrivenMember
    from coordinator_udf.members.driver.transport import BrokerTransport
    from coordinator_udf.members.inputs import TopicPartition

    owned: set[TopicPartition] = set()

    def listen(method: str, partitions: Sequence[TopicPartition]) -> None:
        if method == "onPartitionsAssigned":
            owned.update(partitions)
            joined.set()
            typer.echo(f"{name}: {', '.join(f'{p.topic}-{p.partition}' for p in sorted(owned)) or 'no partitions'}")
        else:
            owned.difference_update(partitions)

    async def run() -> None:
        host, _, port = membership.address.rpartition(":")
        properties: dict[str, object] = {"group.id": membership.group, "group.protocol": protocol}
        if protocol == "classic":
            properties |= {
                "session.timeout.ms": membership.session_timeout_ms,
                "heartbeat.interval.ms": max(membership.session_timeout_ms // 10, 500),
            }
        member = DrivenMember(properties, BrokerTransport([(host, int(port))], name), listen)
        await member.start(membership.topics)
        while not stop.is_set():
            await asyncio.sleep(0.1)
        await member.close()

    asyncio.run(run())
    typer.echo(f"{name}: left")


def consume(name: str, membership: Membership, joined: Event, stop: Event) -> None:
    """Runs one member of kafka-python: it polls, commits, tells its partitions, and leaves when told to.

    ``joined`` is set once the group has given it its first assignment, which may have no partitions.
    """
    from kafka import ConsumerRebalanceListener, KafkaConsumer

    class Joined(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: object) -> None:
            pass

        def on_partitions_assigned(self, assigned: object) -> None:
            joined.set()

    consumer = KafkaConsumer(
        bootstrap_servers=membership.address,
        group_id=membership.group,
        client_id=name,
        session_timeout_ms=membership.session_timeout_ms,
        heartbeat_interval_ms=max(membership.session_timeout_ms // 10, 500),
        auto_commit_interval_ms=2_000,
        auto_offset_reset="earliest",
    )
    consumer.subscribe(membership.topics, listener=Joined())
    said: list[str] | None = None
    while not stop.is_set():
        consumer.poll(timeout_ms=200)
        now = sorted(f"{place.topic}-{place.partition}" for place in consumer.assignment())
        if now != said:
            said = now
            typer.echo(f"{name}: {', '.join(now) or 'no partitions'}")
    consumer.close()
    typer.echo(f"{name}: left")


def main(
    *,
    address: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where the coordinator listens.")],
    topics: Annotated[str, typer.Option(help="Topics of its settings file, with commas between.")],
    group: Annotated[str, typer.Option(help="The group to join.")] = "fleet",
    members: Annotated[int, typer.Option(min=1, help="How many.")] = 3,
    seconds: Annotated[float, typer.Option(help="How long each act lasts: all joined, and without one.")] = 15.0,
    session_timeout: Annotated[int, typer.Option(metavar="MS", help="Of the members.")] = 30_000,
    member: Annotated[
        Kind, typer.Option(help="What members are made of; classic and consumer are our own.")
    ] = Kind.kafka_python,
) -> None:
    """Let a few consumers join a group, let one of them leave, and then the others."""
    context = multiprocessing.get_context("spawn")
    membership = Membership(address, group, tuple(topics.split(",")), session_timeout)
    fleet = []
    for number in range(members):
        joined, stop = context.Event(), context.Event()
        name = f"consumer-{number + 1}"
        if member is Kind.kafka_python:
            process = context.Process(target=consume, args=(name, membership, joined, stop), daemon=True)
        else:
            arguments = name, membership, member.value, joined, stop
            process = context.Process(target=coordinate, args=arguments, daemon=True)
        process.start()
        fleet.append((name, process, joined, stop))
    failed = False
    for name, _, joined, _ in fleet:
        if not joined.wait(60):
            typer.echo(f"{name}: has no assignment after 60 s; is a coordinator listening on {address}?", err=True)
            failed = True
    time.sleep(seconds)
    for number, (name, process, _, stop) in enumerate(reversed(fleet)):
        stop.set()
        process.join(60)
        if process.exitcode != 0:
            typer.echo(f"{name}: ended with {process.exitcode}, expected 0", err=True)
            failed = True
        if number == 0 and members > 1:
            time.sleep(seconds)
    raise typer.Exit(1 if failed else 0)


if __name__ == "__main__":
    # kafka-python says on its own log what it does; here only what it says of errors is wanted.
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    typer.run(main)
