"""What a gateway bears (benchmark `gateway`): heartbeats by open loop, a pause of the driver, and a kill."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from scripts.benchmarks.gateway_job import LiveJob, started_job
from scripts.benchmarks.open_loop import Sent, send
from scripts.benchmarks.results import Figure
from scripts.benchmarks.running import BenchmarkError, Options, percentile, say
from scripts.benchmarks.wire_client import Connection, Member

GROUPS = 1_000
CONNECTIONS = 250
RATES = (500, 1_000, 2_000, 3_000, 4_000, 6_000, 8_000, 10_000, 12_500, 15_000)
SECONDS = 12
#: Of a rate's answers those of the first seconds don't count: the batches find their length.
_SETTLE_S = 4
P99_MAX_S = 1.5
PAUSE_S = 60
_PAUSED_RATE = 200
_WELL_S = 3.0
_RECONNECT_S = 0.05
#: What is answered while the coordinator loads, or takes longer than requests wait.
_NOT_YET = frozenset((14, 15, 16))

#: What an Apache Kafka 4.3.1 broker took from its start to all of 1,000 groups answering, after a kill, ms.
KAFKA_SERVING_MS = 19_375

#: What it answered a second at the most, to a closed loop of 64 connections x 16 requests, beside other work.
KAFKA_HEARTBEATS = 50_400


def figures(options: Options) -> list[Figure]:
    """Measures one live job: capacity through its own gateway, a pause, a kill."""
    groups = options.sized(GROUPS, 20)
    found = []
    with started_job(0) as job:
        found += asyncio.run(capacity(job.address, groups, options, "the driver's gateway"))
        found += asyncio.run(_pause(job, groups, options))
        found += asyncio.run(_kill(job, groups))
    return found


@asynccontextmanager
async def _members(address: str, groups: int, prefix: str) -> AsyncIterator[list[Member]]:
    """Gives stable members, each alone in its group, of which many share a connection to join by."""
    count = min(50, groups)
    connections = [await Connection.to(address, f"{prefix}-{i}") for i in range(count)]
    members = [Member(connections[i % count], f"{prefix}-{i}", 600_000) for i in range(groups)]
    try:
        # One after the other of each connection: nothing passes a JoinGroup that waits.
        for first in range(0, groups, count):
            await asyncio.gather(*(member.join() for member in members[first : first + count]))
        yield members
    finally:
        for connection in connections:
            connection.close()


async def capacity(address: str, groups: int, options: Options, through: str) -> list[Figure]:
    """Returns the greatest rate at which 99 of 100 heartbeats are answered in time."""
    best, sender_share = 0, 0.0
    async with _members(address, groups, f"open-{through.replace(' ', '-')}") as members:
        for rate in RATES:
            seconds = options.sized(SECONDS, 6)
            sent = await send(address, members, rate, seconds, connections=CONNECTIONS)
            late = _p99_s(sent, rate)
            say(f"{rate} heartbeats/s through {through}: p99 {late:.2f} s, {sent.errors} errors, {sent.lost} lost")
            if late > P99_MAX_S or sent.errors or sent.lost:
                break
            best, sender_share = rate, sent.cpu_s / seconds
    name = f"heartbeats through {through}, open loop, p99 below {P99_MAX_S} s"
    return [
        Figure(name, best, "1/s"),
        Figure(f"{name}, times a Kafka broker's {KAFKA_HEARTBEATS} (closed loop)", best / KAFKA_HEARTBEATS, "x"),
        Figure(f"the sender's part of a core at that rate, {through}", sender_share, "cores", "lower"),
    ]


def _p99_s(sent: Sent, rate: float) -> float:
    settled = sent.seconds[int(min(_SETTLE_S * rate, len(sent.seconds) / 2)) :]
    return percentile(settled, 0.99) if settled else float("inf")


async def _pause(job: LiveJob, groups: int, options: Options) -> list[Figure]:
    """Measures from the end of a pause of the driver until answers come in time again and go on so."""
    pause_s = options.sized(PAUSE_S, 5)
    say(f"the driver stands still for {pause_s} s")
    async with _members(job.address, groups, "paused") as members:
        load = asyncio.create_task(send(job.address, members, _PAUSED_RATE, pause_s + 40, connections=CONNECTIONS))
        await asyncio.sleep(2)
        job.signal(signal.SIGSTOP)
        await asyncio.sleep(pause_s)
        job.signal(signal.SIGCONT)
        resumed = time.perf_counter()
        sent = await load
    late = [at for at, seconds in zip(sent.at, sent.seconds, strict=True) if at > resumed and seconds > P99_MAX_S]
    if not any(at > resumed + _WELL_S for at in sent.at):
        raise BenchmarkError("nothing was answered after the pause")
    well_s = max(late, default=resumed) - resumed
    pause = f"a pause of {pause_s} s"
    return [
        Figure(f"from the end of {pause} to answers within {P99_MAX_S} s", round(well_s, 1), "s", "lower"),
        Figure(f"heartbeats answered with an error around {pause}", sent.errors, "requests", "lower"),
    ]


async def _kill(job: LiveJob, groups: int) -> list[Figure]:
    """Measures from kill -9 to the port, and to an answer to each of the groups."""
    say("the job is killed and started again")
    async with _members(job.address, groups, "killed") as members:
        killed = time.perf_counter()
        job.end()
        starting = asyncio.create_task(asyncio.to_thread(job.start))
        (await _connected(job.address, "first")).close()
        listening_s = time.perf_counter() - killed
        codes = await asyncio.gather(*(_first_answer(job.address, part) for part in _parts(members, 50)))
        serving_s = time.perf_counter() - killed
        cpu_s = job.cpu_s()
        await starting
    wrong = [code for part in codes for code in part if code]
    if wrong:
        raise BenchmarkError(f"{len(wrong)} of {groups} groups answered with an error, the first {wrong[0]}")
    return [
        Figure("kill -9 to clients let in", round(listening_s, 1), "s", "lower"),
        Figure(f"kill -9 to {groups} groups answering", round(serving_s, 1), "s", "lower"),
        Figure("the same in CPU time of the job", round(cpu_s, 1), "s", "lower"),
        Figure(
            "kill -9 to all answering, times a Kafka broker's",
            round(serving_s * 1_000 / KAFKA_SERVING_MS, 2),
            "x",
            "lower",
        ),
    ]


def _parts(members: list[Member], count: int) -> list[list[Member]]:
    return [members[start::count] for start in range(min(count, len(members)))]


async def _first_answer(address: str, members: list[Member]) -> list[int]:
    """Returns the error code of each member's first commit that the coordinator answers, over a new connection.

    A commit, since a coordinator that loads takes heartbeats on trust.
    """
    connection = await _connected(address, members[0].group)
    codes: dict[str, int] = {}
    try:
        while waiting := [member for member in members if member.group not in codes]:
            answers = await asyncio.gather(
                *(connection.ask("OffsetCommit", 8, member.commit_body()) for member in waiting)
            )
            for member, answer in zip(waiting, answers, strict=True):
                code = answer["topics"][0]["partitions"][0]["errorCode"]
                if code not in _NOT_YET:
                    codes[member.group] = code
        return list(codes.values())
    finally:
        connection.close()


async def _connected(address: str, client_id: str) -> Connection:
    """Returns a connection, as soon as there is one to be had."""
    while True:
        try:
            return await Connection.to(address, client_id)
        except OSError:
            await asyncio.sleep(_RECONNECT_S)
