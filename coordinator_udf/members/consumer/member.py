"""A member of the consumer protocol (KIP-848), as a state machine: inputs in, outputs out, time as an argument.

It behaves as Kafka's AsyncKafkaConsumer with the thread behind it. The parts have Kafka's names, one file each:

- `group_state`, `states`: state, id and epoch, and every way from one state to another;
- `membership_manager`: joins, is fenced, leaves; `assignment_manager`, `reconciler`: how an assignment takes effect;
- `heartbeat_request_manager`, `coordinator_request_manager`, `commit_request_manager`: what is sent, and when;
- `computation_request_manager`, `computation_states`, `local_assignors`: how it computes its group's assignment, where
  the coordinator has members do it (KIP-848's client-side mode, which Kafka has left out);
- `application`, `application_events`, `background_events`: the two threads' sides and the queues between them;
- `network_thread`, `network_client`: the loop that runs all of it; `parts`: how it hangs together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator_udf.members.client_assignors import make_assignors
from coordinator_udf.members.client_assignors.spec import ClientAssignor
from coordinator_udf.members.config import MemberConfig
from coordinator_udf.members.consumer.application import Application
from coordinator_udf.members.consumer.application_events import (
    TopicPatternSubscriptionChangeEvent,
    TopicRe2JPatternSubscriptionChangeEvent,
    TopicSubscriptionChangeEvent,
)
from coordinator_udf.members.consumer.assignment_manager import LocalAssignment, TopicIdPartitions
from coordinator_udf.members.consumer.calls import Call, Wait
from coordinator_udf.members.consumer.parts import Parts, error_raised
from coordinator_udf.members.exceptions import ClientException, illegal_state
from coordinator_udf.members.inputs import (
    CallbackDone,
    Close,
    CommitAsync,
    CommitSync,
    Consumed,
    Disconnect,
    EnforceRebalance,
    Input,
    Metadata,
    Operation,
    Poll,
    Response,
    Seek,
    Subscribe,
    SubscribePattern,
    SubscribeRegex,
    Tick,
    Unsubscribe,
)
from coordinator_udf.members.machine import Jitter, Lateness
from coordinator_udf.members.metadata import ConsumerMetadata
from coordinator_udf.members.outputs import ConsumerStateChange, OperationDone, Output
from coordinator_udf.members.timers import FOREVER_MS, Clock

_NAMES: dict[type, str] = {
    Poll: "poll",
    Subscribe: "subscribe",
    SubscribePattern: "subscribePattern",
    SubscribeRegex: "subscribeRegex",
    Unsubscribe: "unsubscribe",
    EnforceRebalance: "enforceRebalance",
    Seek: "consume",
    CommitAsync: "commitAsync",
    CommitSync: "commitSync",
    Close: "close",
}
#: Calls whose end is told.
_WAITING = frozenset({"unsubscribe", "commitSync", "close"})


class UnexpectedInput(Exception):
    """An input that can't come now: the end of a callback that doesn't run, or a time before the last one."""


@dataclass(slots=True)
class _RunningCall:
    """A call of the application, and what it waits for."""

    call: Call
    wait: Wait | None = None

    def waits_for_callback(self) -> bool:
        return self.wait is not None and self.wait.callback is not None


class ConsumerMember:
    """One member. See `coordinator_udf.members.machine.MemberMachine` for how it is driven."""

    def __init__(
        self,
        config: MemberConfig,
        jitter: Jitter,
        *,
        member_id: str,
        assignors: Sequence[ClientAssignor] | None = None,
        fetches: bool = True,
        lateness: Lateness = lambda _: 0,
    ) -> None:
        """Makes a member that starts with its first input.

        Args:
            member_id: drawn at random by whoever makes the member, and its own for good.
            assignors: its own, for groups whose members compute the assignment; by default those that the settings
                name.
            fetches: whether the application fetches from brokers, so that close waits for the end of its sessions.
            lateness: how late its thread is for each heartbeat, on a machine that is busy.
        """
        self._config = config
        self._jitter = jitter
        self._member_id = member_id
        self._assignors = make_assignors(config.group_local_assignors) if assignors is None else assignors
        self._fetches = fetches
        self._lateness = lateness
        self._clock = Clock()
        self._made: Parts | None = None
        self._outputs: list[Output] = []
        self._calls: list[_RunningCall] = []
        self._reported: ConsumerStateChange | None = None
        #: The assignments that were last sorted to be told, and how: most of the time they stay as they are.
        self._sorted_of: tuple[LocalAssignment, LocalAssignment] | None = None
        self._sorted: tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]] = {}, {}
        self._closed = False

    # ---- driving

    @property
    def metadata(self) -> ConsumerMetadata | None:
        """What it knows of the cluster; None before its first input."""
        return None if self._made is None else self._made.metadata

    @property
    def is_joining(self) -> bool:
        """False: no member of KIP-848 waits for its application to join."""
        return False

    def handle(self, now_ms: int, event: Input) -> list[Output]:
        """Takes one input and returns all that the member does at this moment, in order.

        Raises:
            UnexpectedInput: the time is before the last input's, or no such callback runs.
            BadRequest: an answer lacks what the member needs of it; its request stays in flight.
        """
        if now_ms < self._clock.now_ms:
            raise UnexpectedInput(f"the time is {now_ms}, after {self._clock.now_ms}")
        outputs: list[Output] = []
        self._outputs = outputs
        self._end_late_waits(now_ms)
        self._clock.now_ms = now_ms
        if self._made is None:
            self._made = Parts(
                self._config,
                self._clock,
                self._jitter,
                self._member_id,
                self._emit,
                assignors=self._assignors,
                fetches=self._fetches,
                lateness=self._lateness,
            )
        self._dispatch(self._made, event)
        self._go_on()
        return outputs

    def next_deadline_ms(self) -> int | None:
        """Returns the time at which the member wants a `Tick`, or None once it is closed."""
        if self._closed:
            return None
        if self._made is None:
            return self._clock.now_ms
        call_ms = self.call_deadline_ms()
        if not self._made.thread.is_running and self._state_now(self._made) == self._reported:
            # Only the closing call goes on; the thread's deadlines still have a change of state told.
            return call_ms
        thread_ms = self._made.thread.next_deadline_ms()
        if self._calls and self._made.thread.goes_round() and self._state_now(self._made) != self._reported:
            # Nothing comes of such a round but that it tells of what a call changed that isn't over.
            thread_ms = min(thread_ms, self._clock.now_ms + 1)
        return thread_ms if call_ms is None else min(thread_ms, call_ms)

    def call_deadline_ms(self) -> int | None:
        """Returns the time at which the call that the application is blocked in goes on by itself, or None."""
        wait = self._calls[-1].wait if self._calls else None
        return None if wait is None or wait.deadline_ms == FOREVER_MS else wait.deadline_ms

    def poll_deadline_ms(self) -> int | None:
        """Returns the time from which on a poll commits automatically; None where none does, or none yet."""
        return None if self._closed or self._made is None else self._made.commits.auto_commit_deadline_ms()

    def _emit(self, output: Output) -> None:
        self._outputs.append(output)

    # ---- inputs

    def _dispatch(self, parts: Parts, event: Input) -> None:
        match event:
            case Poll():
                self._start_call(parts, event)
            case CallbackDone(method, error):
                if not self._calls or not self._runs_callback(method):
                    raise UnexpectedInput(f"{method} is done, but doesn't run")
                parts.application.callback_done(error)
            case Tick():
                self._settle_and_report(parts)
            case Response(req, body):
                if not self._closed and parts.network.respond(req, body):
                    self._settle_and_report(parts)
            case Disconnect(node):
                if not self._closed and parts.network.disconnect(node):
                    self._settle_and_report(parts)
            case Consumed(offsets):
                parts.subscriptions.consume(offsets)
            case Metadata():
                if not self._closed and parts.network.update_metadata(event):
                    self._settle_and_report(parts)
            case _:
                self._start_call(parts, event)

    def _runs_callback(self, method: str) -> bool:
        wait = self._calls[-1].wait
        return wait is not None and wait.callback == method

    def _settle_and_report(self, parts: Parts) -> None:
        if not self._closed:
            parts.thread.settle()
            self._report(parts)

    # ---- the application's calls

    def _start_call(self, parts: Parts, event: Poll | Operation) -> None:
        """Begins a call; inside of a callback it is one of that call's thread, else the thread must be free."""
        op = _NAMES[type(event)]
        nested = bool(self._calls)
        if self._closed:
            if op == "close":
                self._emit(OperationDone(op))
            else:
                self._emit(error_raised(op, illegal_state("This consumer has already been closed.")))
        elif nested and not self._calls[-1].waits_for_callback():
            message = "KafkaConsumer is not safe for multi-threaded access."
            self._emit(error_raised(op, ClientException("ConcurrentModificationException", message)))
        else:
            call = self._run(parts, op, _call(parts.application, event), nested=nested)
            self._calls.append(_RunningCall(call))
            self._advance()

    def _run(self, parts: Parts, op: str, call: Call, *, nested: bool) -> Call:
        try:
            yield from call
        except ClientException as error:
            self._emit(error_raised(op, error))
        else:
            if op in _WAITING:
                self._emit(OperationDone(op))
        self._closed = parts.application.is_closed
        if not nested:
            self._settle_and_report(parts)

    def _advance(self) -> None:
        """Lets the last call go on, to what it waits for next or to its end."""
        running = self._calls[-1]
        try:
            running.wait = next(running.call)
        except StopIteration:
            self._calls.pop()

    def _go_on(self) -> None:
        """Lets calls go on whose wait is over, or that have no time to wait."""
        while self._calls:
            wait = self._calls[-1].wait
            if wait is not None and not wait.done() and self._clock.now_ms < wait.deadline_ms:
                return
            self._advance()

    def _end_late_waits(self, now_ms: int) -> None:
        """Lets calls go on at their deadlines, up to now."""
        while True:
            deadline_ms = self.call_deadline_ms()
            if deadline_ms is None or deadline_ms > now_ms:
                return
            self._clock.now_ms = deadline_ms
            self._go_on()

    # ---- what is true now

    def _report(self, parts: Parts) -> None:
        now = self._state_now(parts)
        if now != self._reported:
            self._reported = now
            self._emit(now)

    def _state_now(self, parts: Parts) -> ConsumerStateChange:
        of = parts.assignments.current, parts.assignments.target
        if self._sorted_of is None or of[0] is not self._sorted_of[0] or of[1] is not self._sorted_of[1]:
            self._sorted_of = of
            self._sorted = _sorted(of[0].partitions), _sorted(parts.assignments.awaiting_reconciliation())
        return ConsumerStateChange(
            parts.group.state,
            parts.group.member_epoch,
            parts.group.member_id,
            parts.coordinators.coordinator,
            *self._sorted,
            parts.subscriptions.in_order,
        )


def _sorted(partitions: TopicIdPartitions) -> dict[str, tuple[int, ...]]:
    return {topic_id: tuple(sorted(numbers)) for topic_id, numbers in sorted(partitions.items())}


def _call(application: Application, event: Poll | Operation) -> Call:
    """Returns the call that an input stands for."""
    match event:
        case Poll():
            return application.poll()
        case Subscribe(topics):
            return application.subscribe(TopicSubscriptionChangeEvent(topics), topics)
        case SubscribePattern(pattern):
            return application.subscribe_pattern(TopicPatternSubscriptionChangeEvent(pattern), pattern)
        case SubscribeRegex(pattern):
            return application.subscribe_pattern(TopicRe2JPatternSubscriptionChangeEvent(pattern), pattern)
        case Unsubscribe():
            return application.unsubscribe()
        case EnforceRebalance():
            # Kafka's consumer of this protocol logs that it can't.
            return _nothing()
        case Seek(offsets):
            return application.seek(offsets)
        case CommitAsync(offsets):
            return application.commit_async(offsets)
        case CommitSync(timeout_ms, offsets):
            return application.commit_sync(offsets, timeout_ms)
        case Close(timeout_ms, membership):
            return application.close(timeout_ms, membership)


def _nothing() -> Call:
    yield from ()
