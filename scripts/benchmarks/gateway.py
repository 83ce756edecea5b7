"""`gateway`: the live job behind its gateway, driven over sockets: latency, time to a stable group, load."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import msgspec

from scripts.benchmarks import gateway_load, passage
from scripts.benchmarks.gateway_job import live_job, own_gateway, started_job
from scripts.benchmarks.results import Figure, Outcome
from scripts.benchmarks.running import BenchmarkError, Options, median, percentile, say
from scripts.benchmarks.wire_client import Connection, Member, paced

RATE = 500
CONNECTIONS = 50
SECONDS = 30
SIZES = (2, 10, 50, 100)

#: What an Apache Kafka 4.3.1 broker took on two shared cores, ms: first JoinGroup to the last member's assignment.
KAFKA_STABLE_MS = {3_000: {2: 6_012, 10: 6_017, 50: 6_055, 100: 6_054}, 0: {2: 21, 10: 37, 50: 63, 100: 80}}


def run(options: Options) -> Outcome:
    """Measures two live jobs, one after the other: without initial rebalance delay, and with Kafka's 3 s."""
    outcome = Outcome([])
    sizes = [size for size in SIZES if size <= options.sized(SIZES[-1], 2)]
    with live_job(0) as address:
        asyncio.run(_warm(address))
        outcome.figures += asyncio.run(_latencies(address, options))
        outcome.figures += asyncio.run(_stable(address, 0, sizes, options.repeats))
    outcome.figures += through_a_process(options, None)
    if options.kafka_log is not None:
        outcome.figures += through_a_process(options, options.kafka_log)
        outcome.figures += passage.figures(options, options.kafka_log)
    outcome.figures += gateway_load.figures(options)
    with live_job(3_000) as address:
        asyncio.run(_warm(address))
        outcome.figures += asyncio.run(_stable(address, 3_000, sizes, min(options.repeats, 3)))
    return outcome


def through_a_process(options: Options, kafka_log: str | None) -> list[Figure]:
    """Measures one live job: latency and capacity through a gateway process, without TLS and with it.

    Args:
        kafka_log: the topic that is its log; None for an embedded log.
    """
    log = "an embedded log" if kafka_log is None else "a topic as the log"
    figures = []
    with started_job(0, kafka_log) as job:
        for tls in (False, True):
            with own_gateway(job, tls=tls) as address:
                asyncio.run(_warm(address))
                found = asyncio.run(_latencies(address, options))
                through = "a gateway process with TLS" if tls else "a gateway process"
                found += asyncio.run(gateway_load.capacity(address, options.sized(1_000, 20), options, through))
            what = f"{log}, TLS" if tls else log
            figures += [msgspec.structs.replace(figure, name=f"{what}: {figure.name}") for figure in found]
    return figures


@asynccontextmanager
async def _connections(address: str, count: int, prefix: str) -> AsyncIterator[list[Connection]]:
    connections = [await Connection.to(address, f"{prefix}-{i}") for i in range(count)]
    try:
        yield connections
    finally:
        for connection in connections:
            connection.close()


@asynccontextmanager
async def _members(address: str, groups: int, prefix: str) -> AsyncIterator[list[Member]]:
    """Gives stable members, each alone in its group."""
    async with _connections(address, groups, prefix) as connections:
        members = [Member(connection, f"{prefix}-{i}") for i, connection in enumerate(connections)]
        await asyncio.gather(*(member.join() for member in members))
        yield members


async def _warm(address: str) -> None:
    """Warms the JVM up, whose first seconds are not measured."""
    say("warming up")
    async with _members(address, CONNECTIONS, "warm") as members:
        await paced(100, 1_500, lambda i: members[i % len(members)].heartbeat())


async def _latencies(address: str, options: Options) -> list[Figure]:
    async with _members(address, CONNECTIONS, "latency") as members:
        figures = await _paced_latencies(members, options.sized(RATE * SECONDS, 200))
    say("JoinGroup of single members, without delay")
    taken = []
    for number in range(options.sized(30, 3)):
        began = time.perf_counter()
        async with _members(address, 1, f"single-{number}"):
            taken.append(time.perf_counter() - began)
    return [*figures, *_quantiles("first JoinGroup to assignment, one member, delay 0", taken)]


async def _paced_latencies(members: list[Member], count: int) -> list[Figure]:
    errors = 0

    async def act(method: Callable[[Member], Awaitable[int]], number: int) -> None:
        nonlocal errors
        errors += bool(await method(members[number % len(members)]))

    figures = []
    for name, rate, total, method in (
        ("Heartbeat", RATE, count, Member.heartbeat),
        ("OffsetCommit", 100, count // 5, Member.commit),
    ):
        say(f"{name}, {rate}/s")
        figures += _quantiles(f"{name} at {rate}/s", await paced(rate, total, partial(act, method)))
    if errors:
        raise BenchmarkError(f"{errors} heartbeats or commits of stable members were answered with an error")
    return figures


def _quantiles(name: str, seconds: list[float]) -> list[Figure]:
    return [
        Figure(f"{name}, p{round(share * 100)}", round(percentile(seconds, share) * 1_000), "ms", "lower")
        for share in (0.5, 0.99)
    ]


async def _stable(address: str, delay_ms: int, sizes: list[int], repeats: int) -> list[Figure]:
    figures = []
    for size in sizes:
        say(f"{size} members to stable, delay {delay_ms} ms")
        taken = [await _to_stable(address, size, f"stable-{delay_ms}-{size}-{run_}") for run_ in range(repeats)]
        ours = round(median(taken) * 1_000)
        kafkas = KAFKA_STABLE_MS[delay_ms][size]
        name = f"{size} members to stable, delay {delay_ms} ms"
        figures.append(Figure(name, ours, "ms", "lower"))
        figures.append(Figure(f"{name}, times a Kafka broker's {kafkas} ms", round(ours / kafkas, 2), "x", "lower"))
    return figures


async def _to_stable(address: str, size: int, group: str) -> float:
    """Measures from the first JoinGroup to the assignment of the last member of a generation that has all."""
    async with _connections(address, size, group) as connections:
        members = [Member(connection, group) for connection in connections]
        began = time.perf_counter()

        async def stay(member: Member) -> None:
            await member.join()
            while max(m.size for m in members) < size or any(m.generation != member.generation for m in members):
                if await member.heartbeat():
                    await member.join()
                await asyncio.sleep(0.1)

        await asyncio.gather(*(stay(member) for member in members))
        return max(member.stable_at for member in members) - began
