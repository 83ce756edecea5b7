"""Heartbeats at a fixed rate, whatever becomes of them: written ahead as bytes, so that the sender is not the limit."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from coordinator_udf.protocol.wire import request_bytes
from scripts.benchmarks.wire_client import Member, endpoint

#: How often requests are written; those of one step are due together.
_STEP_S = 0.01
_ERROR_AT = 12
#: How long answers are waited for after the last request.
_WAIT_S = 5.0


@dataclass
class Sent:
    """What was sent, and what came of it.

    Attributes:
        seconds: of each answer, from when its request was due.
        errors: answers with an error code.
        at: when each answer came, by `time.perf_counter`.
        lost: requests without an answer.
        cpu_s: the sender's own CPU time, which it takes from those whom it asks.
    """

    seconds: list[float] = field(default_factory=list)
    errors: int = 0
    at: list[float] = field(default_factory=list)
    lost: int = 0
    cpu_s: float = 0.0


class _Sender(asyncio.Protocol):
    """One connection. Answers come in the order of the requests."""

    def __init__(self, sent: Sent) -> None:
        self._sent = sent
        self._buffer = b""
        self.due: list[float] = []
        self.answered = 0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self._buffer += data
        at = 0
        while len(self._buffer) - at >= 4:
            (size,) = struct.unpack_from(">i", self._buffer, at)
            if len(self._buffer) - at < 4 + size:
                break
            # Heartbeat v3: the length, the correlation id, the throttle time, the error.
            self._sent.errors += self._buffer[at + _ERROR_AT : at + _ERROR_AT + 2] != b"\0\0"
            self._sent.seconds.append(now - self.due[self.answered])
            self._sent.at.append(now)
            self.answered += 1
            at += 4 + size
        self._buffer = self._buffer[at:]


async def send(address: str, members: Sequence[Member], rate: float, seconds: float, *, connections: int) -> Sent:
    """Sends heartbeats of the members, one after the other, at a rate.

    Args:
        connections: over how many connections.
    """
    place = endpoint(address)
    loop = asyncio.get_running_loop()
    sent = Sent()
    senders = [
        (await loop.create_connection(lambda: _Sender(sent), place.host, place.port, ssl=place.tls))[1]
        for _ in range(connections)
    ]
    frames = [request_bytes("Heartbeat", 3, 1, "bench", member.identity()) for member in members]
    started, cpu_s = time.perf_counter(), time.process_time()
    count = 0
    while (now := time.perf_counter() - started) < seconds:
        for number in range(count, max(count, int(now * rate))):
            sender = senders[number % connections]
            assert sender.transport is not None
            sender.transport.write(frames[number % len(frames)])
            sender.due.append(started + number / rate)
        count = max(count, int(now * rate))
        await asyncio.sleep(_STEP_S)
    deadline = time.perf_counter() + _WAIT_S
    while len(sent.seconds) < count and time.perf_counter() < deadline:
        await asyncio.sleep(0.05)
    sent.lost = count - len(sent.seconds)
    sent.cpu_s = time.process_time() - cpu_s
    for sender in senders:
        assert sender.transport is not None
        sender.transport.abort()
    return sent
