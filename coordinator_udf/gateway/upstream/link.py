"""The way of one client's requests to a broker of the cluster, and of the answers back, as bytes."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from coordinator_udf.gateway.upstream.settings import UpstreamSettings, open_streams

_LENGTH: Final = struct.Struct(">i")

#: How much of an answer is in memory at once, twice where a client takes it slower than it comes.
_CHUNK: Final = 256 * 1024

#: The most bytes of an answer that is held as a whole, as it is rewritten: those that name brokers. Metadata takes some
#: tens of bytes a partition, so even half is that of millions; the bound is for a peer that isn't Kafka.
_REWRITTEN_MAX: Final = 256 * 1024 * 1024


class LinkLost(ConnectionError):
    """The broker can't be reached, or closed the connection while it owed an answer."""


class UpstreamLink:
    """A connection to a broker for one connection of a client; it is opened when it is first needed.

    Requests keep their bytes, so correlation ids, too: the broker answers in their order, and so does the gateway.

    Args:
        targets: returns the addresses to try, the best first.
    """

    def __init__(self, settings: UpstreamSettings, targets: Callable[[], Sequence[tuple[str, int]]]) -> None:
        self._settings = settings
        self._targets = targets
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._owed = 0
        #: Whether what was sent last gets no answer, so that a broker says by closing that something is wrong with it.
        self._is_last_unanswered = False

    async def send(self, frame: bytes, *, is_answered: bool) -> None:
        """Sends a request; waits while the broker doesn't read.

        Args:
            frame: the request without its length.

        Raises:
            LinkLost: the broker can't be reached, or refused what it was sent before and wasn't to answer, as who isn't
                the leader any more does (KafkaApis.handleProduceRequest). The client is to look for the leader then.
        """
        if self._streams is not None and not self._owed and self._streams[0].at_eof():
            if self._is_last_unanswered:
                raise LinkLost("the broker closed its connection after a request that it wasn't to answer")
            # Brokers close what was silent for long.
            self.close()
        if self._streams is None:
            self._streams = await self._open()
        writer = self._streams[1]
        self._owed += is_answered
        self._is_last_unanswered = not is_answered
        try:
            writer.writelines((_LENGTH.pack(len(frame)), frame))
            await writer.drain()
        except OSError as error:
            raise LinkLost(f"the broker closed its connection: {error}") from error

    async def pass_answer(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Passes the next answer on piece by piece, its length first.

        Raises:
            LinkLost: the broker closed the connection.
        """
        reader, size = await self._next()
        await write(_LENGTH.pack(size))
        while size:
            data = await reader.read(min(size, _CHUNK))
            if not data:
                raise LinkLost("the broker closed its connection within an answer")
            size -= len(data)
            await write(data)
        self._owed -= 1

    async def whole_answer(self) -> bytes:
        """Returns the next answer without its length.

        Raises:
            LinkLost: the broker closed the connection, or the answer is too large.
        """
        reader, size = await self._next()
        if size > _REWRITTEN_MAX:
            raise LinkLost(f"the broker's answer has {size} bytes, expected at most {_REWRITTEN_MAX}")
        try:
            frame = await reader.readexactly(size)
        except (asyncio.IncompleteReadError, OSError) as error:
            raise LinkLost(f"the broker closed its connection within an answer: {error}") from error
        self._owed -= 1
        return frame

    def close(self) -> None:
        """Closes the connection to the broker."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _next(self) -> tuple[asyncio.StreamReader, int]:
        assert self._streams is not None
        reader = self._streams[0]
        try:
            (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        except (asyncio.IncompleteReadError, OSError) as error:
            raise LinkLost(f"the broker closed its connection, owing an answer: {error}") from error
        return reader, int(size)

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        failures = []
        for host, port in self._targets():
            try:
                return await open_streams(self._settings, host, port, _CHUNK)
            except ConnectionError as error:
                failures.append(str(error))
        raise LinkLost("; ".join(failures) or "no broker is known")
