"""Frames that no client sends: the gateway lives, and its memory stays bounded."""

from __future__ import annotations

import asyncio
import random
import resource
import socket
import struct
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from coordinator_udf.gateway.apis.cluster import Node
from coordinator_udf.gateway.group_configs import GroupConfigStore
from coordinator_udf.gateway.partition_ends import PartitionEnds
from coordinator_udf.gateway.server.connection import Connection
from coordinator_udf.gateway.server.dispatch import Dispatcher
from coordinator_udf.gateway.server.group_commit import GroupCommit
from coordinator_udf.gateway.server.interfaces import Closed, Shared
from coordinator_udf.gateway.server.limits import ByteBudget, HeldBytes
from coordinator_udf.gateway.server.pending_requests import PendingRequests
from coordinator_udf.gateway.settings import GatewaySettings
from coordinator_udf.gateway.topic_store import TopicStore
from coordinator_udf.gateway.versions import ADVERTISED, is_served
from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.protocol.wire import request_bytes
from coordinator_udf.protocol.wire.schema import KEYS_BY_NAME, Message, request_message
from tests.gateway.in_process import PARTITIONS, Front, topics
from tests.gateway.wire import Wire

SEED = 20_240_607
FRAMES = 100_000
KNOWN = topics(t1=4)
GROWTH_MAX_KIB = 300 * 1024

#: Lengths and numbers that a parser may stumble over.
NASTY = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x00\x00\x00",
    b"\xff\xff",
    b"\x00",
    b"\x80\x80\x80\x80\x80\x80",
    b"\xc3\x28",
)


def values(message: Message, rng: random.Random) -> dict[str, Any]:
    """A body of the right shape with whatever in it."""
    return {field.name: _value(field, rng) for field in message.fields if field.tag is None}


def _value(field: Any, rng: random.Random) -> Any:
    if field.nullable and field.kind != "uuid" and rng.random() < 0.2:
        return None
    if field.is_array:
        return [_one(field, rng) for _ in range(rng.randrange(3))]
    return _one(field, rng)


def _one(field: Any, rng: random.Random) -> Any:
    if field.struct is not None:
        return values(field.struct, rng)
    if field.kind == "string":
        return rng.choice(["", "g", "t1", "member-1", "consumer", "range", "é" * 9, "\x00", "x" * 300])
    if field.kind == "bool":
        return rng.random() < 0.5
    if field.kind in {"bytes", "records"}:
        return rng.choice(["", "AAAA", "AAEAAAABAAJ0MQAAAAA="])
    if field.kind == "uuid":
        return rng.choice(["AAAAAAAAAAAAAAAAAAAAAA", KNOWN[0].id])
    if field.kind == "error_code":
        return 0
    bits = 8 if field.kind == "int8" else 16 if "16" in field.kind else 32
    signed = 0 if field.kind == "uint16" else 1
    limit = 2 ** (bits - signed)
    return rng.choice([0, 1, -signed, rng.randrange(limit), limit - 1, -limit * signed])


def frame(rng: random.Random) -> bytes:
    """A frame without its length: a request of a real shape, as it is or damaged, or nothing but noise."""
    if rng.random() < 0.1:
        return rng.randbytes(rng.randrange(1, 200))
    api = rng.choice(sorted(ADVERTISED))
    first, last = ADVERTISED[api]
    version = rng.choice([version for version in range(first, last + 1) if is_served(api, version)])
    good = request_bytes(api, version, rng.randrange(2**31), "fuzz", values(request_message(api, version), rng))[4:]
    data = bytearray(good)
    for _ in range(rng.choice([0, 1, 1, 2, 5])):
        place = rng.randrange(len(data) + 1)
        match rng.randrange(4):
            case 0:
                data[place:place] = rng.choice(NASTY)
            case 1:
                del data[place : place + rng.randrange(1, 8)]
            case 2:
                nasty = rng.choice(NASTY)
                data[place : place + len(nasty)] = nasty
            case _:
                data[place : place + 1] = bytes([rng.randrange(256)])
    return bytes(data) or b"\x00"


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.slow
def test_a_hundred_thousand_frames_through_the_handler(tmp_path: Path) -> None:
    log = EmbeddedLog.create(tmp_path / "log.db", PARTITIONS)
    outcomes = asyncio.run(_handle(log, FRAMES))
    log.close()
    assert sum(outcomes.values()) == FRAMES
    assert set(outcomes) == {"closed", "started"}
    assert min(outcomes.values()) > FRAMES / 10, outcomes


async def _handle(log: EmbeddedLog, frames: int) -> Counter[str]:
    rng = random.Random(SEED)
    settings = GatewaySettings()
    commit = GroupCommit(log, linger_ms=1, rows_max=5_000, requests_max=64)
    pending = PendingRequests(commit, log.partitions, settings)
    dispatcher = Dispatcher(
        pending, Node(1, "h", 9092, "c"), TopicStore(log, KNOWN), PartitionEnds(), group_configs=GroupConfigStore(log)
    )
    budget = ByteBudget(settings.queued_bytes_max)
    shared = Shared(settings, dispatcher, budget, asyncio.Semaphore(settings.max_in_flight), lambda _: None)
    reader, writer = await _loose_ends()
    connection = Connection(shared, reader, writer)
    committing = asyncio.create_task(commit.run())
    before = peak_kib()
    outcomes = await handle_frames(connection, budget, frames, rng, pending)
    committing.cancel()
    writer.close()
    assert peak_kib() - before < GROWTH_MAX_KIB
    return outcomes


async def handle_frames(
    connection: Connection, budget: ByteBudget, frames: int, rng: random.Random, pending: PendingRequests
) -> Counter[str]:
    """Has so many frames handled, and their answers made or given up; how many were started and how many closed."""
    outcomes: Counter[str] = Counter()
    for number in range(frames):
        try:
            started = connection._start(frame(rng), HeldBytes(budget, 0)).started
        except Closed:
            outcomes["closed"] += 1
            continue
        outcomes["started"] += 1
        if started.answer.done():
            started.answer.result()()
        else:
            started.answer.cancel()
        if number % 2_000 == 0:
            await asyncio.sleep(0.01)
            assert len(pending) < 2_000
    await asyncio.sleep(0.5)
    return outcomes


async def _loose_ends() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    here, there = socket.socketpair()
    there.close()
    return await asyncio.open_connection(sock=here)


@pytest.mark.slow
def test_thousands_of_frames_through_a_socket_and_a_shard(tmp_path: Path) -> None:
    rng = random.Random(SEED + 1)
    settings = GatewaySettings(port=0, frame_timeout_ms=500, max_request_bytes=64 * 1024)
    with Front(tmp_path / "log.db", KNOWN, gateway=settings) as front:
        before = peak_kib()
        for _ in range(400):
            _send(front.gateway.port, [frame(rng) for _ in range(rng.randrange(5, 20))], rng)
        assert peak_kib() - before < GROWTH_MAX_KIB
        assert front.coordinator.failure is None
        with Wire(front.gateway.port) as wire:
            body = {"groupId": "g", "generationId": 1, "memberId": "m", "groupInstanceId": None}
            assert wire.ask("Heartbeat", 4, body)["errorCode"] == 25
        assert front.coordinator.rejected == 0


def _send(port: int, frames: Sequence[bytes], rng: random.Random) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        try:
            for data in frames:
                length = rng.choice([len(data)] * 30 + [len(data) + 1, -1, 2**31 - 1])
                connection.sendall(struct.pack(">i", length) + data)
        except (BrokenPipeError, ConnectionResetError):
            return  # it was told off, as it should be


assert KEYS_BY_NAME.keys() >= ADVERTISED.keys()
