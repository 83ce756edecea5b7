"""The classic member machine: inputs in, outputs out, and what goes on in the background after each input."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coordinator_udf.members import inputs
from coordinator_udf.members.backoff import ExponentialBackoff
from coordinator_udf.members.classic.callbacks import RebalanceCallbacks
from coordinator_udf.members.classic.consumer import ClassicConsumer
from coordinator_udf.members.classic.context import Context
from coordinator_udf.members.classic.flow import CallStack, Flow
from coordinator_udf.members.classic.heartbeat_timers import HeartbeatTimers
from coordinator_udf.members.classic.membership import Generation, Membership
from coordinator_udf.members.classic.network_client import NetworkClient
from coordinator_udf.members.classic.states import MemberState
from coordinator_udf.members.client_assignors import make_assignors
from coordinator_udf.members.client_assignors.spec import ClientAssignor
from coordinator_udf.members.config import MemberConfig
from coordinator_udf.members.exceptions import ClientException
from coordinator_udf.members.machine import Jitter, Lateness
from coordinator_udf.members.metadata import ConsumerMetadata
from coordinator_udf.members.outputs import ClassicStateChange, ErrorRaised, OperationDone, Output
from coordinator_udf.members.subscription_state import SubscriptionState
from coordinator_udf.members.timers import FOREVER_MS, Clock

#: As often as a machine looks after an input whether there is still something to do at this moment; what is left then
#: is done at its next input. All recordings of Kafka's members come to rest before; it bounds one that would not.
_MAX_ROUNDS = 100


#: What a ClassicStateChange tells, with the generation in one.
_State = tuple[MemberState, Generation, str | None, bool, str, bool, bool, tuple[inputs.TopicPartition, ...]]


class ClassicMember:
    """A member of the classic protocol (see `coordinator_udf.members.machine.MemberMachine`)."""

    def __init__(
        self,
        config: MemberConfig,
        jitter: Jitter,
        *,
        assignors: Sequence[ClientAssignor] | None = None,
        fetches: bool = True,
        lateness: Lateness = lambda _: 0,
    ) -> None:
        """Makes a member that has done nothing.

        Args:
            assignors: by default those that the settings name.
            fetches: whether the application fetches from brokers, so that close waits for the end of its sessions.
            lateness: how late the thread of heartbeats is for each, on a machine that is busy.

        Raises:
            ClientException: the assignors have no rebalance protocol in common (IllegalArgumentException).
        """
        self._clock = Clock()
        outputs: list[Output] = []
        subscriptions = SubscriptionState()
        metadata = ConsumerMetadata(config, subscriptions, jitter)
        client = NetworkClient(config, self._clock, metadata, outputs)
        self._context = Context(
            config,
            self._clock,
            outputs,
            subscriptions,
            metadata,
            client,
            Membership(),
            HeartbeatTimers(config, self._clock, jitter, lateness),
            RebalanceCallbacks(client, outputs),
            ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, jitter),
        )
        chosen = make_assignors(config.partition_assignment_strategy) if assignors is None else assignors
        self._consumer = ClassicConsumer(self._context, chosen, fetches=fetches)
        self._calls = CallStack(self._clock)
        self._is_settling = False
        self._is_in_call = False
        self._is_closed = False
        self._last_state: _State | None = None

    # ---- the machine

    @property
    def metadata(self) -> ConsumerMetadata:
        """What it knows of the cluster."""
        return self._context.metadata

    @property
    def is_joining(self) -> bool:
        """Whether it has begun to join, and the application hasn't been told yet of how that ended."""
        return self._consumer.is_joining

    def handle(self, now_ms: int, event: inputs.Input) -> list[Output]:
        """Takes one input and returns all that the member does at this moment, in order.

        Raises:
            CallInProgress: a call of the application came while it is in another one.
            ClientException: a callback's end came that isn't running (IllegalStateException).
        """
        if self._is_closed:
            return []
        if now_ms > self._clock.now_ms:
            self._clock.now_ms = now_ms
        self._take(event)
        self._calls.run()
        outputs = self._context.outputs
        if not outputs:
            return []
        done = outputs[:]
        outputs.clear()
        return done

    def next_deadline_ms(self) -> int | None:
        """Returns when the member wants a `Tick`, or None."""
        if self._is_closed:
            return None
        loop = self._consumer.heartbeats
        first_ms = FOREVER_MS if loop is None else loop.deadline_ms()
        metadata_ms = self._context.client.metadata_deadline_ms
        if self._is_settling:
            first_ms = self._held_up(first_ms)
        if metadata_ms is not None:
            if self._is_settling or self._context.client.depth:
                metadata_ms = self._held_up(metadata_ms)
            if metadata_ms < first_ms:
                first_ms = metadata_ms
        call_ms = self._calls.deadline_ms
        if call_ms is not None and call_ms < first_ms:
            first_ms = call_ms
        return None if first_ms == FOREVER_MS else max(first_ms, self._clock.now_ms)

    def call_deadline_ms(self) -> int | None:
        """Returns when the call that the application is blocked in goes on by itself, or None."""
        return None if self._is_closed else self._calls.deadline_ms

    def poll_deadline_ms(self) -> int | None:
        """Returns the time from which on a poll commits automatically, or None where none ever does."""
        return self._consumer.auto_commit_deadline_ms()

    def _held_up(self, deadline_ms: int) -> int:
        """Returns what is due while a call holds the network up waits for that; there is only a state to report."""
        now_ms = self._clock.now_ms
        if deadline_ms > now_ms:
            return deadline_ms
        return now_ms if self._state() != self._last_state else FOREVER_MS

    def _take(self, event: inputs.Input) -> None:
        client = self._context.client
        match event:
            case inputs.Poll():
                self._begin(event)
            case inputs.Tick():
                if not self._calls.is_due():
                    self._calls.begin(self._settle_and_report())
            case inputs.Response(req, body):
                if client.respond(req, body):
                    self._calls.begin(self._settle_and_report())
            case inputs.Disconnect(node):
                if client.lose(node):
                    self._calls.begin(self._settle_and_report())
            case inputs.Consumed(offsets):
                self._context.subscriptions.consume(offsets)
            case inputs.Metadata():
                if client.give_metadata(event):
                    self._calls.begin(self._settle_and_report())
            case inputs.CallbackDone():
                self._context.callbacks.done(event)
            case inputs.Seek(offsets) if self._context.callbacks.running is not None:
                self._consumer.seek(offsets)
            case _:
                self._begin(event)

    # ---- calls of the application

    def _begin(self, event: inputs.Poll | inputs.Operation) -> None:
        if self._is_in_call and self._context.callbacks.running is None:
            raise CallInProgress(f"{event!r} came while the application is in another call")
        name, call = self._call(event)
        self._calls.begin(self._in_call(name, call))

    def _call(self, event: inputs.Poll | inputs.Operation) -> tuple[str, Flow[None]]:
        consumer = self._consumer
        match event:
            case inputs.Poll():
                return "poll", consumer.poll()
            case inputs.Subscribe(topics):
                return "subscribe", consumer.subscribe(topics)
            case inputs.SubscribePattern(pattern):
                return "subscribePattern", _at_once(lambda: consumer.subscribe_pattern(pattern))
            case inputs.SubscribeRegex():
                return "subscribeRegex", _at_once(_refuse_regex)
            case inputs.Unsubscribe():
                return "unsubscribe", consumer.unsubscribe()
            case inputs.EnforceRebalance(reason):
                return "enforceRebalance", _at_once(lambda: consumer.enforce_rebalance(reason))
            case inputs.Seek(positions):
                return "consume", _at_once(lambda: consumer.seek(positions))
            case inputs.CommitAsync(offsets):
                return "commitAsync", consumer.commit_async(offsets)
            case inputs.CommitSync(timeout_ms, offsets):
                return "commitSync", consumer.commit_sync(offsets, timeout_ms)
            case inputs.Close(timeout_ms, membership):
                return "close", consumer.close(timeout_ms, membership)

    def _in_call(self, name: str, call: Flow[None]) -> Flow[None]:
        outer, self._is_in_call = self._is_in_call, True
        try:
            yield from call
        except ClientException as error:
            self._raise(name, error)
        else:
            if name in _SAID_WHEN_DONE:
                self._context.outputs.append(OperationDone(name))
        self._is_in_call = outer
        if name == "close":
            self._is_closed = True
        elif not self._is_settling and self._has_work():
            yield from self._settle_and_report()
        else:
            self._report()

    def _raise(self, op: str, error: ClientException) -> None:
        cause = error.cause
        self._context.outputs.append(
            ErrorRaised(
                op,
                error.class_name,
                error.message,
                None if cause is None else cause.class_name,
                None if cause is None else cause.message,
            )
        )

    # ---- the background

    def _settle_and_report(self) -> Flow[None]:
        if not self._is_settling:
            self._is_settling = True
            yield from self._settle()
            self._is_settling = False
        self._report()

    def _has_work(self) -> bool:
        """Tells whether there is anything to do without the application: to look costs less than a generator."""
        client, heartbeats = self._context.client, self._consumer.heartbeats
        return (client.depth == 0 and client.has_work()) or (heartbeats is not None and heartbeats.has_work())

    def _settle(self) -> Flow[None]:
        """Does all that can be done now without the application: network and heartbeats, until all is quiet."""
        client = self._context.client
        for _ in range(_MAX_ROUNDS):
            before = client.progress
            # Looking whether there is work costs less than a generator that finds none.
            if client.depth == 0 and client.has_work():
                try:
                    yield from client.poll_no_wakeup()
                except ClientException as error:
                    self._raise("network", error)
            has_more = False
            heartbeats = self._consumer.heartbeats
            if heartbeats is not None and heartbeats.has_work():
                has_more = yield from heartbeats.step()
                if client.depth == 0 and client.has_work():
                    yield from client.poll_no_wakeup()
            if client.progress == before and not has_more:
                return

    def _report(self) -> None:
        state = self._state()
        if state != self._last_state:
            self._last_state = state
            name, generation, coordinator, rejoin_needed, reason, is_leader, is_beating, assignment = state
            self._context.outputs.append(
                ClassicStateChange(
                    name, *generation, coordinator, rejoin_needed, reason, is_leader, is_beating, assignment
                )
            )

    def _state(self) -> _State:
        membership, consumer, loop = self._context.membership, self._consumer, self._consumer.heartbeats
        return (
            membership.state,
            membership.generation,
            consumer.discovery.coordinator,
            membership.rejoin_needed,
            membership.rejoin_reason,
            consumer.is_leader,
            loop is not None and loop.is_enabled,
            self._context.subscriptions.in_order,
        )


class CallInProgress(Exception):
    """The application is in one call at a time (Java's ConcurrentModificationException)."""


#: Calls that wait, and say when they are through.
_SAID_WHEN_DONE = frozenset({"commitSync", "unsubscribe", "close"})


def _at_once(call: Callable[[], None]) -> Flow[None]:
    call()
    yield from ()


def _refuse_regex() -> None:
    raise ClientException(
        "UnsupportedOperationException",
        "Subscribe to RE2/J pattern is not supported when using the classic protocol defined in config group.protocol",
    )
