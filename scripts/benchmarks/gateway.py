"""`gateway`: the live job behind its gateway, driven over sockets: latency, time to a stable group, capacity."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

from scripts.benchmarks.results import Figure, Outcome
from scripts.benchmarks.running import ROOT, BenchmarkError, Options, median, percentile, say, wait_until
from scripts.benchmarks.wire_client import Connection, Member, paced

RATE = 500
CONNECTIONS = 50
SECONDS = 30
IN_FLIGHT = 16
START_S = 240.0
SIZES = (2, 10, 50, 100)

#: What an Apache Kafka 4.3.1 broker took on two shared cores, ms: first JoinGroup to the last member's assignment.
KAFKA_STABLE_MS = {3_000: {2: 6_012, 10: 6_017, 50: 6_055, 100: 6_054}, 0: {2: 21, 10: 37, 50: 63, 100: 80}}


def run(options: Options) -> Outcome:
    """Two live jobs, one after the other: without the initial rebalance delay, and with Kafka's default of 3 s."""
    outcome = Outcome([])
    sizes = [size for size in SIZES if size <= options.sized(SIZES[-1], 2)]
    with live_job(0) as address:
        asyncio.run(_warm(address))
        outcome.figures += asyncio.run(_latencies(address, options))
        outcome.figures += asyncio.run(_stable(address, 0, sizes, options.repeats))
        outcome.figures.append(asyncio.run(_capacity(address, options.sized(20_000, 500))))
    with live_job(3_000) as address:
        asyncio.run(_warm(address))
        outcome.figures += asyncio.run(_stable(address, 3_000, sizes, min(options.repeats, 3)))
    return outcome


@contextmanager
def live_job(delay_ms: int) -> Iterator[str]:
    """The live job with a gateway; gives its address.

    Raises:
        BenchmarkError: it doesn't start.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as directory:
        root = Path(directory)
        config, log = root / "coordinator.toml", root / "job.log"
        config.write_text(f'group.initial.rebalance.delay.ms = {delay_ms}\n[[topics]]\nname = "t1"\npartitions = 4\n')
        command = [sys.executable, str(ROOT / "jobs" / "coordinator_stream.py"), "--root", str(root / "live")]
        with log.open("wb") as output:
            job = subprocess.Popen(
                [*command, "--config", str(config), "--listen", address], stdout=output, stderr=output
            )
        try:
            wait_until(
                lambda: f"listening on {address}" in log.read_text() or job.poll() is not None, START_S, "the live job"
            )
            if job.poll() is not None:
                raise BenchmarkError(f"the live job ended: {log.read_text()[-1_000:]}")
            yield address
        finally:
            job.terminate()
            job.wait()


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
    """Stable members, each alone in its group."""
    async with _connections(address, groups, prefix) as connections:
        members = [Member(connection, f"{prefix}-{i}") for i, connection in enumerate(connections)]
        await asyncio.gather(*(member.join() for member in members))
        yield members


async def _warm(address: str) -> None:
    """A JVM is slow at first; what it is then is not measured."""
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
    """From the first JoinGroup sent to the assignment of the last member of a generation that has all of them."""
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


async def _capacity(address: str, count: int) -> Figure:
    """Heartbeats a second, each connection with several under way (closed loop)."""
    say("heartbeats, closed loop")
    async with _members(address, CONNECTIONS, "capacity") as members:
        left = iter(range(count))

        async def beat(member: Member) -> None:
            for _ in left:
                await member.heartbeat()

        began = time.perf_counter()
        await asyncio.gather(*(beat(member) for member in members for _ in range(IN_FLIGHT)))
        rate = round(count / (time.perf_counter() - began))
    return Figure(f"heartbeats, {CONNECTIONS} connections x {IN_FLIGHT} under way", rate, "1/s")
