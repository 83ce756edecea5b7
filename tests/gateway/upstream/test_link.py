"""The way to a broker that closes its connections. A server that counts what it is sent stands for the broker."""

from __future__ import annotations

import asyncio
import struct

import pytest

from coordinator_udf.gateway.upstream.link import LinkLost, UpstreamLink
from coordinator_udf.gateway.upstream.settings import UpstreamSettings


class ClosingBroker:
    """Reads one request of a connection, answers it if that is wanted, and closes the connection."""

    def __init__(self, *, answers: bool) -> None:
        self._answers = answers
        self.got: list[bytes] = []
        self.closed = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        self.got.append(await reader.readexactly(size))
        if self._answers:
            writer.write(struct.pack(">i", 2) + b"ok")
            await writer.drain()
        writer.close()
        await writer.wait_closed()
        self.closed.set()


async def two_requests(broker: ClosingBroker, *, is_answered: bool) -> None:
    """Sends a request, and another one when the broker has closed the connection."""
    async with await asyncio.start_server(broker, "127.0.0.1", 0) as server:
        address = server.sockets[0].getsockname()[:2]
        link = UpstreamLink(UpstreamSettings(bootstrap=(address,), first_broker_port=None), lambda: [address])
        try:
            await link.send(b"first", is_answered=is_answered)
            if is_answered:
                assert await link.whole_answer() == b"ok"
            await asyncio.wait_for(broker.closed.wait(), 10)
            await asyncio.sleep(0.2)
            await link.send(b"second", is_answered=is_answered)
            if is_answered:
                assert await link.whole_answer() == b"ok"
        finally:
            link.close()


def test_a_connection_that_was_closed_for_being_idle_is_made_again() -> None:
    async def run() -> list[bytes]:
        broker = ClosingBroker(answers=True)
        await two_requests(broker, is_answered=True)
        return broker.got

    assert asyncio.run(run()) == [b"first", b"second"]


def test_a_client_hears_that_what_gets_no_answer_was_refused() -> None:
    """A broker that isn't the leader any more closes the connection of a producer that wants no answers."""

    async def run() -> list[bytes]:
        broker = ClosingBroker(answers=False)
        with pytest.raises(LinkLost, match="wasn't to answer"):
            await two_requests(broker, is_answered=False)
        return broker.got

    assert asyncio.run(run()) == [b"first"]
