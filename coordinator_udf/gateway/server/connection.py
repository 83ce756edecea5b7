"""One client connection: frames in, answers out in the order of the requests, and nothing beyond its limits."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from functools import partial
from typing import Final, NamedTuple

from coordinator_udf.gateway.server.interfaces import (
    Closed,
    Incoming,
    MakeBody,
    Passage,
    Passed,
    Session,
    Shared,
    Started,
    Stranger,
    ToldBody,
)
from coordinator_udf.gateway.server.limits import HeldBytes
from coordinator_udf.gateway.settings import plain_address
from coordinator_udf.protocol.wire import (
    MalformedFrame,
    RequestHeader,
    decode,
    kafkas,
    read_request_header,
    request_message,
    response_bytes,
    told_response_bytes,
)
from coordinator_udf.protocol.wire.schema import KEYS_BY_NAME

_log = logging.getLogger(__name__)

_LENGTH: Final = struct.Struct(">i")
_API_KEY: Final = struct.Struct(">h")
_FETCH: Final = KEYS_BY_NAME["Fetch"]

#: The most answers of one write: as many as a connection may have requests under way by default
#: (max_in_flight_per_connection), so more never wait. With half as many the largest bursts take two writes.
_TOGETHER_MAX: Final = 64

#: A frame up to this size is read without asking the budget: every connection may hold one, so max_connections (10,000)
#: of them hold 160 MiB; with half 80 and with double 320. Larger ones, commits of hundreds of partitions say, wait for
#: the budget.
FREE_FRAME_BYTES: Final = 16 * 1024


class _Outgoing(NamedTuple):
    incoming: Incoming
    started: Started
    throttle_ms: int = 0


class Connection:
    """Reads in one task and writes in another, so that a slow answer doesn't keep requests from coming in."""

    def __init__(
        self,
        shared: Shared,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        passage: Passage | None = None,
    ) -> None:
        self._shared = shared
        self._passage = passage
        self._settings = shared.settings
        self._reader = reader
        self._writer = writer
        peer = writer.get_extra_info("peername") or ("unknown", 0)
        host = plain_address(peer[0])
        self.peer = f"{host}:{peer[1]}"
        # As Java writes an address without a name.
        self._host = f"/{host}"
        self._answers: deque[_Outgoing | Passed] = deque()
        self._more_answers = asyncio.Event()
        self._slots = asyncio.Semaphore(self._settings.max_in_flight_per_connection)
        self._unanswered = 0
        self._lane = object()
        self.principal: str | None = None
        self._session: Session | None = None
        #: What has come beyond the frame that is handled.
        self._buffer = b""
        self._idle_since: float | None = None
        self._idle_timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Serves the connection until either side closes it; never raises but when it is cancelled."""
        reason = "the gateway stops"
        quietly = True
        self._watch_idleness()
        try:
            if self._shared.admission is not None:
                stranger = Stranger(self.peer, self._reader, self._writer, self._write, self._answer_at_once)
                self._session = await self._shared.admission.admit(stranger)
                self._enter(self._session.principal)
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
            if self._idle_timer is not None:
                self._idle_timer.cancel()
            if self.principal is not None and self._shared.allowance is not None:
                self._shared.allowance.leave(self.principal)
            self._give_up()
            self._shared.on_close(reason)
            _log.log(logging.DEBUG if quietly else logging.WARNING, "connection %s closed: %s", self.peer, reason)
            self._writer.transport.abort() if not quietly else self._writer.close()

    def _give_up(self) -> None:
        """Lets go of what will not be answered any more."""
        while self._answers:
            outgoing = self._answers.popleft()
            if isinstance(outgoing, _Outgoing):
                outgoing.started.answer.cancel()
                outgoing.incoming.held.release()
        if self._passage is not None:
            self._passage.close()
        for _ in range(self._unanswered):
            self._shared.in_flight.release()
        self._unanswered = 0

    async def _read_requests(self) -> None:
        in_turn: Started | None = None
        while True:
            # The length first, as it is here that a client is seen to go; the rest stays with TCP until its turn.
            size = await self._read_length()
            if in_turn is not None:
                await self._wait_for(in_turn, size)
            await self._slots.acquire()
            await self._shared.in_flight.acquire()
            self._unanswered += 1
            budgeted = size if size > FREE_FRAME_BYTES else 0
            if budgeted:
                await self._shared.budget.take(budgeted)
            held = HeldBytes(self._shared.budget, budgeted)
            try:
                outgoing = await self._take(await self._read_exactly(size), held)
            except BaseException:
                held.release()
                raise
            in_turn = None
            if isinstance(outgoing, _Outgoing) and outgoing.started.in_turn:
                in_turn = outgoing.started
            throttle_ms = self._throttle_ms()
            if isinstance(outgoing, Passed) and outgoing.answer is None:
                self._note_answered()
            else:
                if throttle_ms and isinstance(outgoing, _Outgoing):
                    outgoing = outgoing._replace(throttle_ms=throttle_ms)
                self._answers.append(outgoing)
                self._more_answers.set()
            if throttle_ms:
                # It is told to wait; if it doesn't, TCP makes it.
                await asyncio.sleep(throttle_ms / 1_000)
            if self._buffer:
                # What is in the buffer is read without a pause; the others shall have their turn nonetheless.
                await asyncio.sleep(0)

    async def _wait_for(self, earlier: Started, size: int) -> None:
        """Waits for the answer of a request, whose client has sent the next one, of ``size`` bytes.

        A client with one connection for all (kafkajs) commits behind its Fetch, which here never gets a record: it
        would wait in vain. A Fetch behind a Fetch has to wait, or the client would send the next at once, and so on.
        """
        if earlier.cut_short is not None and size >= _API_KEY.size and not earlier.answer.done():
            start = await self._read_exactly(_API_KEY.size)
            self._buffer = start + self._buffer
            if _API_KEY.unpack(start) != (_FETCH,):
                earlier.cut_short()
        await asyncio.wait([earlier.answer])

    def _enter(self, principal: str) -> None:
        allowance = self._shared.allowance
        if allowance is not None and not allowance.enter(principal):
            raise Closed(f"too many connections of {principal}")
        self.principal = principal

    def _throttle_ms(self) -> int:
        if self.principal is None or self._shared.allowance is None:
            return 0
        return self._shared.allowance.throttle_ms(self.principal)

    async def _take(self, frame: bytes, held: HeldBytes) -> _Outgoing | Passed:
        if self._session is not None and self._session.concerns(frame):
            answered = await self._session.answer(frame)
            held.release()
            return answered
        if self._passage is not None:
            try:
                passed = await self._passage.pass_on(_header(frame), frame, self.principal, self._host)
            except MalformedFrame as error:
                raise Closed(f"malformed request to the cluster: {error}") from None
            if passed is not None:
                held.release()
                return passed
        return self._start(frame, held)

    def _start(self, frame: bytes, held: HeldBytes) -> _Outgoing:
        header = _header(frame)
        read: MakeBody = dict
        if self._shared.handler.is_served(header.api, header.api_version):
            message = request_message(header.api or "", header.api_version)
            read = partial(
                decode, message if self._settings.reads_extensions else kafkas(message), frame, header.body_at
            )
        elif header.api != "ApiVersions":
            raise Closed(f"api key {header.api_key} v{header.api_version} is not served; see ApiVersions")
        try:
            incoming = Incoming(header, read(), read, self._host, held, self._lane, self.principal)
        except MalformedFrame as error:
            raise Closed(f"malformed {header.api} v{header.api_version}: {error}") from None
        started = self._shared.handler(incoming)
        return _Outgoing(incoming._replace(body={}), started)

    async def _read_length(self) -> int:
        if not self._buffer:
            self._buffer = await self._read_first()
        (size,) = _LENGTH.unpack(await self._read_exactly(_LENGTH.size))
        if not 0 < size <= self._settings.max_request_bytes:
            raise Closed(f"a frame announces {size} bytes, expected 1 to {self._settings.max_request_bytes}")
        return int(size)

    async def _read_first(self) -> bytes:
        """Returns what comes next, and whatever came with it."""
        self._idle_since = asyncio.get_running_loop().time()
        try:
            data = await self._reader.read(FREE_FRAME_BYTES)
        finally:
            self._idle_since = None
        if not data:
            raise Closed("the client closed it", quietly=True)
        return data

    async def _read_exactly(self, size: int) -> bytes:
        buffer = self._buffer
        missing = size - len(buffer)
        if missing <= 0:
            self._buffer = buffer[size:]
            return buffer[:size]
        self._buffer = b""
        try:
            async with asyncio.timeout(self._settings.frame_timeout_ms / 1000):
                return buffer + await self._reader.readexactly(missing)
        except asyncio.IncompleteReadError as error:
            there = len(buffer) + len(error.partial)
            raise Closed(f"it ended after {there} of {size} bytes of a frame", quietly=True) from None
        except TimeoutError:
            raise Closed(f"{size} bytes of a frame did not come within {self._settings.frame_timeout_ms} ms") from None

    def _watch_idleness(self) -> None:
        """Ends a connection that is idle for too long; one timer, for one a request costs as much as its reading."""
        loop = asyncio.get_running_loop()
        idle_timeout_s = self._settings.idle_timeout_ms / 1000
        idle_s = 0.0 if self._idle_since is None or self._unanswered else loop.time() - self._idle_since
        if idle_s >= idle_timeout_s:
            self._reader.set_exception(Closed("idle for too long", quietly=True))
            return
        self._idle_timer = loop.call_later(idle_timeout_s - idle_s, self._watch_idleness)

    async def _write_answers(self) -> None:
        while True:
            while not self._answers:
                self._more_answers.clear()
                await self._more_answers.wait()
            outgoing = self._answers.popleft()
            if isinstance(outgoing, Passed):
                if outgoing.answer is not None:
                    await outgoing.answer(self._write)
                self._note_answered()
            else:
                await self._write_together(await self._answer(*outgoing))

    async def _write_together(self, data: bytes) -> None:
        """Writes an answer, and in one go those behind it that are there too: most answers come many at a time."""
        parts = [data]
        try:
            while len(parts) < _TOGETHER_MAX and self._answers:
                following = self._answers[0]
                if isinstance(following, Passed) or not following.started.answer.done():
                    break
                self._answers.popleft()
                parts.append(await self._answer(*following))
        finally:
            # What comes before an answer that can't be made is said.
            await self._write(b"".join(parts))
            for _ in parts:
                self._note_answered()

    async def _answer(self, incoming: Incoming, started: Started, throttle_ms: int = 0) -> bytes:
        try:
            make_body = await started.answer
            header = incoming.header
            if isinstance(make_body, ToldBody) and not throttle_ms:
                return told_response_bytes(header.api or "", started.version, header.correlation_id, make_body.text)
            body = make_body()
            if throttle_ms and "throttleTimeMs" in body:
                body = {**body, "throttleTimeMs": throttle_ms}
            return response_bytes(header.api or "", started.version, header.correlation_id, body)
        finally:
            incoming.held.release()

    async def _answer_at_once(self, frame: bytes) -> bytes:
        return await self._answer(*self._start(frame, HeldBytes(self._shared.budget, 0)))

    async def _write(self, data: bytes) -> None:
        if self._writer.transport.is_closing():
            raise Closed("the client closed it", quietly=True)
        self._writer.write(data)
        if self._writer.transport.get_write_buffer_size():
            try:
                async with asyncio.timeout(self._settings.write_timeout_ms / 1000):
                    await self._writer.drain()
            except TimeoutError:
                raise Closed(f"it takes no answers for {self._settings.write_timeout_ms} ms") from None
        if len(data) > FREE_FRAME_BYTES:
            await asyncio.sleep(0)

    def _note_answered(self) -> None:
        self._unanswered -= 1
        self._slots.release()
        self._shared.in_flight.release()


def _header(frame: bytes) -> RequestHeader:
    try:
        return read_request_header(frame)
    except MalformedFrame as error:
        raise Closed(f"malformed request header: {error}") from None
