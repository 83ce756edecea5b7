"""One client connection: frames in, answers out in the order of the requests, and nothing beyond its limits."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from coordinator_udf.gateway.codec import (
    MalformedFrame,
    RequestHeader,
    decode,
    read_request_header,
    request_message,
    response_bytes,
)
from coordinator_udf.gateway.server.limits import ByteBudget, Held
from coordinator_udf.gateway.settings import GatewaySettings
from coordinator_udf.gateway.versions import is_served

_log = logging.getLogger(__name__)

_LENGTH: Final = struct.Struct(">i")

#: A frame up to this size is read without asking the budget: every connection may hold one.
FREE_FRAME_BYTES: Final = 16 * 1024


class Closed(Exception):
    """The connection is to be closed, for this reason; ``quietly`` where the client did nothing wrong."""

    def __init__(self, reason: str, *, quietly: bool = False) -> None:
        super().__init__(reason)
        self.quietly = quietly


class Started(NamedTuple):
    """A request under way.

    Attributes:
        answer: the body, in due time.
        version: the version in which it is to be written.
        in_turn: the next request is not looked at before the answer is there. Kafka does so with every request of a
            connection; for those that wait for others it makes a difference to what comes behind.
    """

    answer: asyncio.Future[Mapping[str, Any]]
    version: int
    in_turn: bool


class Handler(Protocol):
    """What starts a request: it returns at once, and the answer comes later."""

    def __call__(self, header: RequestHeader, body: Mapping[str, Any], host: str, held: Held) -> Started:
        """Starts one request.

        Args:
            host: the client's address as Kafka writes it: a slash first.
            held: the bytes of the request, to be released when they are needed no more.
        """


@dataclass(frozen=True, slots=True)
class Shared:
    """What all connections of a gateway share."""

    settings: GatewaySettings
    handler: Handler
    budget: ByteBudget
    in_flight: asyncio.Semaphore
    on_close: Callable[[str], None]


class _Outgoing(NamedTuple):
    header: RequestHeader
    started: Started


class Connection:
    """Reads in one task and writes in another, so that a slow answer doesn't keep requests from coming in."""

    def __init__(self, shared: Shared, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._shared = shared
        self._settings = shared.settings
        self._reader = reader
        self._writer = writer
        peer = writer.get_extra_info("peername") or ("unknown", 0)
        self.peer = f"{peer[0]}:{peer[1]}"
        # As Java writes an address without a name.
        self._host = f"/{peer[0]}"
        self._answers: asyncio.Queue[_Outgoing] = asyncio.Queue()
        self._slots = asyncio.Semaphore(self._settings.max_in_flight_per_connection)
        self._unanswered = 0

    async def run(self) -> None:
        """Serves the connection until either side closes it; never raises but when it is cancelled."""
        reason = "the gateway stops"
        quietly = True
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read_requests())
                tasks.create_task(self._write_answers())
        except* Closed as group:
            closed = group.exceptions[0]
            reason, quietly = str(closed), isinstance(closed, Closed) and closed.quietly
        except* OSError as group:
            reason = f"the network failed: {group.exceptions[0]}"
        except* Exception as group:  # noqa: BLE001  a fault of ours ends this connection, not the others
            reason, quietly = f"an error of the gateway: {group.exceptions[0]!r}", False
            _log.exception("connection %s met an error of the gateway", self.peer)
        finally:
            self._give_up()
            self._shared.on_close(reason)
            _log.log(logging.DEBUG if quietly else logging.WARNING, "connection %s closed: %s", self.peer, reason)
            self._writer.transport.abort() if not quietly else self._writer.close()

    def _give_up(self) -> None:
        """Lets go of what will not be answered any more."""
        while not self._answers.empty():
            self._answers.get_nowait().started.answer.cancel()
        for _ in range(self._unanswered):
            self._shared.in_flight.release()
        self._unanswered = 0

    async def _read_requests(self) -> None:
        in_turn: asyncio.Future[Mapping[str, Any]] | None = None
        while True:
            # The length first, as it is here that a client is seen to go; the rest stays with TCP until its turn.
            size = await self._read_length()
            if in_turn is not None:
                await asyncio.wait([in_turn])
            await self._slots.acquire()
            await self._shared.in_flight.acquire()
            self._unanswered += 1
            budgeted = size if size > FREE_FRAME_BYTES else 0
            if budgeted:
                await self._shared.budget.take(budgeted)
            held = Held(self._shared.budget, budgeted)
            try:
                header, started = self._start(await self._read_exactly(size), held)
            except BaseException:
                held.release()
                raise
            self._answers.put_nowait(_Outgoing(header, started))
            in_turn = started.answer if started.in_turn else None

    def _start(self, frame: bytes, held: Held) -> tuple[RequestHeader, Started]:
        try:
            header = read_request_header(frame)
        except MalformedFrame as error:
            raise Closed(f"malformed request header: {error}") from None
        if not is_served(header.api, header.api_version):
            if header.api != "ApiVersions":
                raise Closed(f"api key {header.api_key} v{header.api_version} is not served; see ApiVersions")
            body: dict[str, Any] = {}
        else:
            try:
                body = decode(request_message(header.api or "", header.api_version), frame, header.body_at)
            except MalformedFrame as error:
                raise Closed(f"malformed {header.api} v{header.api_version}: {error}") from None
        return header, self._shared.handler(header, body, self._host, held)

    async def _read_length(self) -> int:
        while True:
            try:
                async with asyncio.timeout(self._settings.idle_timeout_ms / 1000):
                    first = await self._reader.read(1)
                break
            except TimeoutError:
                if self._unanswered == 0:
                    raise Closed("idle for too long", quietly=True) from None
        if not first:
            raise Closed("the client closed it", quietly=True)
        (size,) = _LENGTH.unpack(first + await self._read_exactly(_LENGTH.size - 1))
        if not 0 < size <= self._settings.max_request_bytes:
            raise Closed(f"a frame announces {size} bytes, expected 1 to {self._settings.max_request_bytes}")
        return int(size)

    async def _read_exactly(self, size: int) -> bytes:
        try:
            async with asyncio.timeout(self._settings.frame_timeout_ms / 1000):
                return await self._reader.readexactly(size)
        except asyncio.IncompleteReadError as error:
            raise Closed(f"it ended after {len(error.partial)} of {size} bytes of a frame", quietly=True) from None
        except TimeoutError:
            raise Closed(f"{size} bytes of a frame did not come within {self._settings.frame_timeout_ms} ms") from None

    async def _write_answers(self) -> None:
        while True:
            header, started = await self._answers.get()
            body = await started.answer
            self._writer.write(response_bytes(header.api or "", started.version, header.correlation_id, body))
            try:
                async with asyncio.timeout(self._settings.write_timeout_ms / 1000):
                    await self._writer.drain()
            except TimeoutError:
                raise Closed(f"it takes no answers for {self._settings.write_timeout_ms} ms") from None
            self._unanswered -= 1
            self._slots.release()
            self._shared.in_flight.release()
