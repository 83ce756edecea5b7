"""Frames that no client sends, at a locked gateway: before anybody has authenticated, and after.

``python -m tests.gateway.security.fuzz --frames 1000000`` says what came of them and how much memory it took.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import socket
import tempfile
from base64 import b64encode
from collections import Counter
from pathlib import Path

from coordinator_udf.gateway.apis.cluster import Node
from coordinator_udf.gateway.group_configs import GroupConfigStore
from coordinator_udf.gateway.partition_ends import PartitionEnds
from coordinator_udf.gateway.security.authorizer import Authorizer, AuthorizingHandler
from coordinator_udf.gateway.security.load import Security
from coordinator_udf.gateway.server.connection import Connection
from coordinator_udf.gateway.server.dispatch import Dispatcher
from coordinator_udf.gateway.server.group_commit import GroupCommit
from coordinator_udf.gateway.server.interfaces import Handler, Shared
from coordinator_udf.gateway.server.limits import ByteBudget
from coordinator_udf.gateway.server.pending_requests import PendingRequests
from coordinator_udf.gateway.settings import GatewaySettings
from coordinator_udf.gateway.topic_store import TopicStore
from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.protocol.wire import request_bytes
from tests.gateway.in_process import PARTITIONS
from tests.gateway.security.locked import MECHANISMS, Locked
from tests.gateway.security.tokens import Provider
from tests.gateway.test_fuzz import KNOWN, NASTY, frame, handle_frames, peak_kib

_AT_ONCE = 50
_TOKENS = (
    b"",
    b"\0\0",
    b"\0alice\0",
    b"alice\0alice",
    b"n,,n=alice,r=" + b"a" * 24,
    b"n,,n=nobody,r=b",
    b"y,,n=alice,r=c",
    b"p=tls-unique,,n=alice,r=d",
    b"n,,m=x,n=alice,r=e",
    b"c=biws,r=x,p=" + b64encode(b"p" * 64),
    b"c=biws,r=,p=",
    b"n,a=admin,n=alice,r=f",
    b"\xff\xfe",
    b"n,,\x01auth=Bearer eyJhbGciOiJub25lIn0.e30.\x01\x01",
    b"n,a=admin,\x01auth=Bearer eyJhbGciOiJSUzI1NiIsImtpZCI6Im9uZS1yc2EifQ.e30.AAAA\x01\x01",
    b"n,,\x01auth=Bearer " + b"W1tb" * 4_000 + b".e30.AAAA\x01\x01",
    b"\x01",
)


def stranger_frame(rng: random.Random) -> bytes:
    """A frame of somebody who wants to get in without a password, its length first."""
    kind = rng.random()
    if kind < 0.15:
        data = frame(rng)
        return len(data).to_bytes(4) + data
    if kind < 0.25:
        return rng.choice(NASTY) + rng.randbytes(rng.randrange(20))
    if kind < 0.55:
        mechanism = rng.choice([*MECHANISMS, "OAUTHBEARER", "scram-sha-512", "", "x" * 300])
        data = request_bytes("SaslHandshake", rng.choice([0, 1, 1, 1]), 1, "fuzz", {"mechanism": mechanism})
    else:
        token = bytearray(rng.choice(_TOKENS))
        for _ in range(rng.choice([0, 0, 1, 3])):
            place = rng.randrange(len(token) + 1)
            token[place : place + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
        if rng.random() < 0.02:
            # A whole check of a password: costs milliseconds.
            token = bytearray(b"\0alice\0" + rng.randbytes(4).hex().encode())
        body = {"authBytes": b64encode(token).decode()}
        data = request_bytes("SaslAuthenticate", rng.choice([0, 1, 2]), 1, "fuzz", body)
    if rng.random() < 0.2:
        damaged = bytearray(data)
        damaged[rng.randrange(4, len(data))] = rng.randrange(256)
        return bytes(damaged)
    return data


class Target:
    """A locked gateway's parts in this loop, before a log that nobody answers."""

    def __init__(self, directory: Path) -> None:
        locked = Locked(directory)
        rules = locked.rules("alice READ GROUP g", "alice READ TOPIC t1")
        tokens = Provider(directory / "keys.json").settings
        security = locked.security("SASL_PLAINTEXT", tokens + rules, (*MECHANISMS, "OAUTHBEARER"))
        self.security = security
        self.log = EmbeddedLog.create(directory / "log.db", PARTITIONS)
        self.settings = GatewaySettings()
        self.commit = GroupCommit(self.log, linger_ms=1, rows_max=5_000, requests_max=64)
        self.pending = PendingRequests(self.commit, self.log.partitions, self.settings)
        store = TopicStore(self.log, KNOWN)
        handler: Handler = Dispatcher(
            self.pending, Node(1, "h", 9092, "c"), store, PartitionEnds(), group_configs=GroupConfigStore(self.log)
        )
        self.handler = AuthorizingHandler(handler, Authorizer(security.acls, lambda: store.catalog))
        self.budget = ByteBudget(self.settings.queued_bytes_max)
        self.closed: Counter[str] = Counter()

    def shared(self, security: Security | None) -> Shared:
        in_flight = asyncio.Semaphore(self.settings.max_in_flight)
        admission = None if security is None else security.admission
        return Shared(
            self.settings,
            self.handler,
            self.budget,
            in_flight,
            lambda why: self.closed.update([" ".join(why.split()[:5])]),
            admission,
        )


async def before(target: Target, frames: int, rng: random.Random) -> int:
    """Sends frames by connections that never authenticate; returns how many of these got in."""
    shared = target.shared(target.security)
    inside = sent = 0
    while sent < frames:
        connections = []
        for _ in range(_AT_ONCE):
            ours, theirs = socket.socketpair()
            reader, writer = await asyncio.open_connection(sock=ours)
            some = rng.randrange(1, 20)
            sent += some
            theirs.sendall(b"".join(stranger_frame(rng) for _ in range(some)))
            theirs.shutdown(socket.SHUT_WR)
            connections.append((Connection(shared, reader, writer), theirs))
        await asyncio.gather(*(connection.run() for connection, _ in connections))
        for connection, theirs in connections:
            inside += connection.principal is not None
            theirs.close()
    return inside


async def after(target: Target, frames: int, rng: random.Random) -> Counter[str]:
    """Handles frames of somebody who has few rights."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    connection = Connection(target.shared(None), reader, writer)
    connection.principal = "User:alice"
    committing = asyncio.create_task(target.commit.run())
    outcomes = await handle_frames(connection, target.budget, frames, rng, target.pending)
    committing.cancel()
    writer.close()
    theirs.close()
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description="Fuzzes a locked gateway.")
    parser.add_argument("--frames", type=int, default=1_000_000, help="how many, half of them before authentication")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    # Each connection that is closed has its line.
    logging.disable(logging.WARNING)

    async def run() -> None:
        rng = random.Random(asked.seed)
        with tempfile.TemporaryDirectory() as directory:
            target = Target(Path(directory))
            start = peak_kib()
            inside = await before(target, asked.frames // 2, rng)
            print(f"before authentication: {asked.frames // 2:,} frames, {inside} got in, {dict(target.closed)}")
            outcomes = await after(target, asked.frames - asked.frames // 2, rng)
            print(f"after: {dict(outcomes)}; memory grew by {(peak_kib() - start) / 1024:.0f} MiB at its peak")

    asyncio.run(run())


if __name__ == "__main__":
    main()
