"""A member of a group in real time: a machine, a transport, and an application's calls and callbacks.

It coordinates and consumes nothing: its application is told which partitions it has, and says how far it is with them.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, Self

from coordinator_udf.members import inputs
from coordinator_udf.members.classic.member import ClassicMember
from coordinator_udf.members.config import MemberConfig
from coordinator_udf.members.consumer.member import ConsumerMember
from coordinator_udf.members.driver.transport import Transport, committed_offsets
from coordinator_udf.members.driver.untold_errors import UntoldErrors
from coordinator_udf.members.exceptions import ClientException
from coordinator_udf.members.inputs import Input, TopicPartition
from coordinator_udf.members.machine import MemberMachine
from coordinator_udf.members.outputs import (
    Callback,
    ClassicStateChange,
    CommitDone,
    ConsumerStateChange,
    ErrorRaised,
    Hangup,
    MetadataRequest,
    OperationDone,
    Output,
    Request,
    StateChange,
)
from coordinator_udf.protocol.wire import EncodeError

_log: Final = logging.getLogger(__name__)

#: Is told of each rebalance callback: its method (onPartitionsAssigned, ...Revoked, ...Lost) and the partitions.
Listener = Callable[[str, Sequence[TopicPartition]], Awaitable[None] | None]
#: Gives the positions at which partitions begin that were just assigned.
Positions = Callable[[Sequence[TopicPartition]], Awaitable[Mapping[TopicPartition, int]]]

#: A machine's time never goes back, also where somebody sets the clock.
_CLOCK_OFFSET_NS = time.time_ns() - time.monotonic_ns()
#: How often the application that is driven polls, in seconds, as in the loop of Kafka's documentation
#: (`poll(Duration.ofMillis(100))`): as late as that what happens in a poll (callbacks, commits) may be.
_POLL_S = 0.1
#: An application that is blocked in poll gets so many polls at one moment at most: each goes on where the one before
#: had to stop (a callback, a request, an answer). The bound is for a member that would never come to rest.
_POLLS_AT_ONCE = 10
#: Errors of these calls are told to nobody in Kafka's client, which only logs them.
_BACKGROUND = frozenset({"network", "background"})
#: What an application says by calls of its own, and which of these last until they are answered.
_CALLS = (inputs.Seek, inputs.CommitSync, inputs.Close)
_LASTING = {inputs.CommitSync: "commitSync", inputs.Close: "close"}
#: Of what was thrown the newest are kept.
_MOST_ERRORS = 100
#: Whose callback runs in this context.
_callback_of: ContextVar[DrivenMember | None] = ContextVar("_callback_of", default=None)


class MemberError(Exception):
    """What a call of the application threw: the class of Kafka's exception, and its message."""

    def __init__(self, error: ErrorRaised) -> None:
        super().__init__(f"{error.class_name}: {error.message or 'no message'}")
        self.class_name = error.class_name


class DrivenMember:
    """A member that polls by itself as long as it runs. All of it happens in one event loop."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        transport: Transport,
        listener: Listener | None = None,
        positions: Positions | None = None,
        *,
        polls_on: bool = True,
    ) -> None:
        """Makes a member that has sent nothing.

        Args:
            properties: Kafka's consumer properties; ``group.id`` has to be among them.
            positions: gives where partitions begin that were just assigned; by default where they were committed.
            polls_on: whether it polls on after poll threw; if not, it does once `take_error` has nothing more to tell.

        Raises:
            BadRequest: a property is missing or can't be.
        """
        self._properties = dict(properties)
        self.config = MemberConfig.parse(self._properties)
        self._transport = transport
        self._listener = listener
        self._positions = positions
        self._machine: MemberMachine | None = None
        self._events: asyncio.Queue[Input] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls: list[tuple[str, asyncio.Future[None]]] = []
        #: The call that the machine is in, if it is in one.
        self._in_call: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_in_callback = False
        self._held: deque[Input] = deque()
        self._is_over = False
        self.state: StateChange | None = None
        #: What polls and calls threw, the newest last.
        self.errors: list[ErrorRaised] = []
        self._thrown = 0
        self._polls_on = polls_on
        self._untold = UntoldErrors()

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that the member has now."""
        return () if self.state is None else self.state.assignment

    async def start(self, topics: Sequence[str]) -> Self:
        """Subscribes to topics and begins to poll.

        Raises:
            UserError: nobody is there to be asked.
        """
        versions = await self._transport.start()
        self.config = MemberConfig.parse({**self._properties, "maxVersions": dict(versions)})
        self._machine = make_machine(self.config)
        self._take(inputs.Tick())
        self._take(inputs.Subscribe(tuple(topics)))
        self._task = asyncio.create_task(self._run())
        return self

    def take_error(self) -> MemberError | None:
        """Returns what poll threw, each once; None where it threw nothing since, and the member polls on from then."""
        error = self._untold.take()
        return None if error is None else MemberError(error)

    def consumed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Says how far the application is: the next offsets of its partitions."""
        self._events.put_nowait(inputs.Seek(dict(offsets)))

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None, timeout_ms: int = 30_000) -> None:
        """Commits offsets (None: what was consumed) and waits for it. A listener can't: its member waits for it.

        Raises:
            MemberError: it failed, as Kafka's commitSync does, or is called by the member's listener.
        """
        await self._call("commitSync", inputs.CommitSync(timeout_ms, offsets))

    async def close(self, timeout_ms: int = 30_000) -> None:
        """Leaves the group as Kafka's close does, and drops all connections.

        Raises:
            MemberError: a callback failed, or the leave.
        """
        if self._task is None:
            return
        try:
            await self._call("close", inputs.Close(timeout_ms))
        finally:
            await self.abandon()

    async def abandon(self) -> None:
        """Ends as a process that is killed: the group isn't told."""
        self._is_over = True
        try:
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait({self._task})
                if not self._task.cancelled():
                    self._task.result()
        finally:
            for task in list(self._tasks):
                task.cancel()
            await self._transport.close()

    async def _call(self, op: str, event: Input) -> None:
        if self._is_over or self._task is None:
            raise MemberError(ErrorRaised(op, "IllegalStateException", "the member is closed or was never started"))
        if _callback_of.get() is self:
            said = "a listener can't wait for its own member, which waits for it; let it return first"
            raise MemberError(ErrorRaised(op, "IllegalStateException", said))
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._calls.append((op, done))
        self._events.put_nowait(event)
        await done

    # ---- the loop

    async def _run(self) -> None:
        try:
            await self._go_on()
        except Exception as error:  # noqa: BLE001  whoever waits for a call is to hear of it
            _log.exception("the member ends, for its machine failed")
            self._is_over = True
            for op, done in self._calls:
                if not done.done():
                    done.set_exception(MemberError(ErrorRaised(op, type(error).__name__, str(error))))
            self._calls.clear()

    async def _go_on(self) -> None:
        next_poll = 0.0
        # A cancellation alone doesn't end it: wait_for of Python 3.11 keeps it to itself where an event has just come.
        while not self._is_over:
            now = time.monotonic()
            if now >= next_poll and not self._is_blocked():
                self._take(inputs.Poll())
                next_poll = now + _POLL_S
            try:
                event = await asyncio.wait_for(self._events.get(), self._sleep_s(next_poll - now))
            except TimeoutError:
                event = inputs.Tick()
            self._take_in_turn(event)
            thrown = self._thrown
            for _ in range(_POLLS_AT_ONCE):
                # An application that catches what poll throws polls again with the next turn of its loop.
                if self._is_blocked() or not self._take(inputs.Poll()) or self._thrown > thrown:
                    break

    def _is_blocked(self) -> bool:
        return self._is_in_callback or bool(self._calls) or self._is_over or self._untold.has_thrown

    def _sleep_s(self, until_poll_s: float) -> float:
        deadline = None if self._machine is None else self._machine.next_deadline_ms()
        until_s = _POLL_S if self._is_blocked() else max(until_poll_s, 0.0)
        return until_s if deadline is None else min(until_s, max(deadline - _now_ms(), 1) / 1000)

    def _take_in_turn(self, event: Input) -> None:
        """Gives the machine an input, but what the application says in a callback or a call only when that has ended.

        An application is in one call at a time, and a callback is part of one. The positions at which partitions
        begin, too, are set in a callback: what the application says meanwhile must not be overwritten by them.
        """
        if isinstance(event, _CALLS):
            self._held.append(event)
        else:
            self._take(event)
        while self._held and not self._is_in_callback and self._in_call is None:
            said = self._held.popleft()
            self._in_call = _LASTING.get(type(said))
            self._take(said)

    def _take(self, event: Input) -> bool:
        """Gives the machine an input; returns whether it did anything."""
        if self._machine is None:
            return False
        if isinstance(event, inputs.CallbackDone):
            # Not before: the application must not poll while the machine waits for the end of the callback.
            self._is_in_callback = False
        found = self._machine.handle(_now_ms(), event)
        for output in found:
            self._do(output)
        return bool(found)

    def _do(self, output: Output) -> None:
        match output:
            case Request():
                self._spawn(self._send(output))
            case MetadataRequest():
                self._spawn(self._ask_metadata(output))
            case Hangup(node):
                self._transport.hang_up(node)
            case Callback():
                self._is_in_callback = True
                self._spawn(self._call_back(output))
            case ClassicStateChange() | ConsumerStateChange():
                self.state = output
            case OperationDone(op):
                self._is_over = self._is_over or op == "close"
                self._finish(op, None)
            case ErrorRaised(op) if op in _BACKGROUND:
                pass
            case ErrorRaised(op):
                self._throw(output)
                self._finish(op, MemberError(output))
            case CommitDone():
                pass
            case _:
                pass

    def _throw(self, error: ErrorRaised) -> None:
        self._thrown += 1
        self.errors.append(error)
        if error.op == "poll" and not self._polls_on:
            self._untold.add(error)
        del self.errors[:-_MOST_ERRORS]

    def _finish(self, op: str, error: MemberError | None) -> None:
        if op == self._in_call:
            self._in_call = None
        for place, (name, done) in enumerate(self._calls):
            if name == op:
                del self._calls[place]
                if not done.done():
                    done.set_result(None) if error is None else done.set_exception(error)
                return

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, request: Request) -> None:
        try:
            body = await asyncio.wait_for(self._transport.send(request), request.timeout_ms / 1000)
        except Exception as error:  # noqa: BLE001  a request without an answer or an end would be waited for for ever
            if not isinstance(error, ConnectionError | TimeoutError | EncodeError):
                _log.warning("%s could not be sent, which is taken for a lost connection", request.api, exc_info=error)
            self._transport.hang_up(request.to)
            self._events.put_nowait(inputs.Disconnect(request.to))
        else:
            self._events.put_nowait(inputs.Response(request.req, body))

    async def _ask_metadata(self, asked: MetadataRequest) -> None:
        while True:
            try:
                view = await asyncio.wait_for(self._transport.metadata(asked), self.config.request_timeout_ms / 1000)
            except (ConnectionError, TimeoutError):
                await asyncio.sleep(self.config.retry_backoff_ms / 1000)
            else:
                self._events.put_nowait(inputs.Metadata(view))
                return

    async def _begin(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Returns where partitions begin: as the application says, else where they were committed.

        Raises:
            ConnectionError, TimeoutError: the coordinator isn't known, or doesn't answer.
            ClientException: it doesn't tell.
        """
        if self._positions is not None:
            return await self._positions(partitions)
        if not partitions:
            return {}
        coordinator = None if self.state is None else self.state.coordinator
        if coordinator is None:
            raise ConnectionError("the coordinator isn't known")
        asked = committed_offsets(self._transport, self.config, coordinator, partitions)
        return await asyncio.wait_for(asked, self.config.request_timeout_ms / 1000)

    async def _set_positions(self, partitions: Sequence[TopicPartition]) -> None:
        """Says where partitions begin, at 0 where nothing was committed; asks again while the coordinator can't tell.

        Where it never does, within max.poll.interval.ms or at all, they have no position, and nothing of them is
        committed: they would be begun anew by that.
        """
        until = time.monotonic() + self.config.max_poll_interval_ms / 1000
        while True:
            try:
                found = await self._begin(partitions)
            except (ConnectionError, TimeoutError, ClientException) as error:
                is_fatal = isinstance(error, ClientException) and not error.retriable
                if is_fatal or time.monotonic() > until:
                    name = error.class_name if isinstance(error, ClientException) else type(error).__name__
                    said = f"where {len(partitions)} partitions begin that were just assigned isn't told: {error}"
                    self._throw(ErrorRaised("poll", name, said))
                    return
                await asyncio.sleep(self.config.retry_backoff_ms / 1000)
            else:
                self._take(inputs.Seek({partition: found.get(partition, 0) for partition in partitions}))
                return

    async def _call_back(self, callback: Callback) -> None:
        error: inputs.CallbackError | None = None
        _callback_of.set(self)
        try:
            if callback.method == "onPartitionsAssigned":
                await self._set_positions(callback.partitions)
            if self._listener is not None:
                running = self._listener(callback.method, callback.partitions)
                if running is not None:
                    await running
        except Exception as raised:  # noqa: BLE001  the application's own error goes where Kafka's does
            error = inputs.CallbackError(type(raised).__name__, str(raised))
        self._events.put_nowait(inputs.CallbackDone(callback.method, error))


def make_machine(config: MemberConfig) -> MemberMachine:
    """Makes the machine of the protocol that the settings name, with ids and backoffs drawn at random."""

    def jitter() -> float:
        return random.uniform(0.8, 1.2)

    if config.group_protocol == "consumer":
        return ConsumerMember(config, jitter, member_id=random_uuid(), fetches=False)
    return ClassicMember(config, jitter, fetches=False)


def random_uuid() -> str:
    """Returns an id as Kafka's Uuid.randomUuid() does, in url-safe base64, never with a leading dash."""
    while True:
        text = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def _now_ms() -> int:
    return (_CLOCK_OFFSET_NS + time.monotonic_ns()) // 1_000_000
