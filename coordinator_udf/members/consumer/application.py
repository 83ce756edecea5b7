"""The application's calls as the consumer's own thread runs them (AsyncKafkaConsumer).

A call is a generator: it yields what it waits for, and goes on when that is there or its deadline is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from coordinator_udf.members.config import MemberConfig
from coordinator_udf.members.consumer.application_events import (
    ApplicationEvent,
    ApplyAssignmentEvent,
    AsyncCommitEvent,
    AsyncPollEvent,
    CallbackCompletedEvent,
    CommitOnCloseEvent,
    CompletableEvent,
    LeaveGroupOnCloseEvent,
    SeekEvent,
    StopFindCoordinatorOnCloseEvent,
    SyncCommitEvent,
    UnsubscribeEvent,
)
from coordinator_udf.members.consumer.background_events import (
    BackgroundEvent,
    BackgroundEvents,
    CallbackMethod,
    ErrorEvent,
    PartitionsAssignedEvent,
)
from coordinator_udf.members.consumer.calls import Call, Wait, result_of, result_unless_late
from coordinator_udf.members.consumer.futures import CompletableFuture
from coordinator_udf.members.consumer.group_state import GroupSnapshot
from coordinator_udf.members.consumer.network_client import NetworkClient
from coordinator_udf.members.consumer.network_thread import NetworkThread
from coordinator_udf.members.consumer.offset_commit_request import Offsets
from coordinator_udf.members.exceptions import (
    ClientException,
    as_kafka_exception,
    illegal_argument,
    illegal_state,
    kafka_exception,
    timeout_exception,
)
from coordinator_udf.members.inputs import CallbackError, Membership, TopicPartition
from coordinator_udf.members.metadata import ConsumerMetadata
from coordinator_udf.members.outputs import Callback, CommitDone, Output
from coordinator_udf.members.subscription_state import SubscriptionState
from coordinator_udf.members.timers import Clock, Timer, deadline_after

_UNSUBSCRIBE_IGNORES = frozenset({"GroupAuthorizationException", "TopicAuthorizationException"})


@dataclass(slots=True)
class _RunningCallback:
    done: bool = False
    error: CallbackError | None = None


class Application:
    """One consumer's application thread.

    Attributes:
        is_closed: whether close has been through.
    """

    def __init__(
        self,
        config: MemberConfig,
        clock: Clock,
        *,
        subscriptions: SubscriptionState,
        metadata: ConsumerMetadata,
        network: NetworkClient,
        thread: NetworkThread,
        events: BackgroundEvents,
        snapshot: GroupSnapshot,
        emit: Callable[[Output], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._subscriptions = subscriptions
        self._metadata = metadata
        self._network = network
        self._thread = thread
        self._events = events
        self._snapshot = snapshot
        self._emit = emit
        self._commit_callbacks: list[CommitDone] = []
        self._last_async_commit: CompletableFuture[Any] | None = None
        self._unsubscribing: UnsubscribeEvent | None = None
        self.is_closed = False
        self._callbacks: list[_RunningCallback] = []

    def callback_done(self, error: CallbackError | None) -> None:
        """Takes the end of the callback that runs."""
        callback = self._callbacks.pop()
        callback.error, callback.done = error, True

    # ---- calls

    def poll(self) -> Call:
        """Does what is to be done in the application's thread.

        Raises:
            ClientException: nothing is subscribed to (IllegalStateException), an error of the background, or what a
                callback threw.
        """
        if not self._subscriptions.is_subscribed:
            raise illegal_state("Consumer is not subscribed to any topics or assigned any partitions")
        yield from self._add(AsyncPollEvent())
        self._run_commit_callbacks()
        yield from self._process_background_events()

    def subscribe_pattern(self, event: CompletableEvent, pattern: str) -> Call:
        """Subscribes to what a pattern matches.

        Raises:
            ClientException: the pattern is empty (IllegalArgumentException), or subscribed in another way.
        """
        if not pattern:
            raise illegal_argument("Topic pattern to subscribe to cannot be empty")
        yield from self._add_and_get(event)

    def subscribe(self, event: CompletableEvent, topics: tuple[str, ...]) -> Call:
        """Subscribes to topics by name; to none is to unsubscribe.

        Raises:
            ClientException: a name is blank (IllegalArgumentException), or subscribed in another way.
        """
        if not topics:
            yield from self.unsubscribe()
            return
        if any(not topic.strip() for topic in topics):
            raise illegal_argument("Topic collection to subscribe to cannot contain null or empty topic")
        yield from self._add_and_get(event)

    def seek(self, offsets: Offsets) -> Call:
        """Sets positions, where the partitions are assigned."""
        for partition, offset in offsets.items():
            if self._subscriptions.is_assigned(partition):
                if offset < 0:
                    raise illegal_argument("seek offset must not be a negative number")
                yield from self._add_and_get(SeekEvent(partition, offset))

    def commit_async(self, offsets: Offsets | None) -> Call:
        """Commits; a later call tells what came of it."""
        event = AsyncCommitEvent(offsets)
        yield from self._commit(event)
        self._last_async_commit = event.future.when_complete(self._enqueue_commit_callback)

    def commit_sync(self, offsets: Offsets | None, timeout_ms: int) -> Call:
        """Commits and waits for it.

        Raises:
            ClientException: the commit failed, or took too long (TimeoutException).
        """
        event = SyncCommitEvent(offsets, deadline_ms=deadline_after(self._clock.now_ms, timeout_ms))
        yield from self._commit(event)
        yield from self._await(self._last_async_commit, event.deadline_ms)
        yield from self._await(event.future, event.deadline_ms)
        self._end_async_commit()
        result_of(event.future)

    def unsubscribe(self) -> Call:
        """Gives up the partitions and leaves.

        Raises:
            ClientException: what a callback threw, or an error of the background.
        """
        timer = Timer(self._clock, self._config.default_api_timeout_ms)
        event = UnsubscribeEvent(deadline_ms=timer.deadline_ms)
        self._unsubscribing = event
        yield from self._add(event)
        while True:
            try:
                yield from self._process_background_events(skip_assigned=True)
            except ClientException as error:
                if error.class_name not in _UNSUBSCRIBE_IGNORES:
                    raise
            if event.future.is_done():
                break
            timer.update()
            if timer.is_expired():
                break
            yield from self._wait_for_leave(event)
        self._snapshot.reset()
        if event.future.is_done():
            result_unless_late(event.future)

    def close(self, timeout_ms: int, membership: Membership) -> Call:
        """Commits, runs the callbacks, leaves, and waits for what is under way.

        Raises:
            ClientException: a step failed (KafkaException with the first failure inside); the others were done.
        """
        if timeout_ms < 0:
            raise illegal_argument("The timeout cannot be negative.")
        timer = Timer(self._clock, min(timeout_ms, self._config.request_timeout_ms))
        errors: list[ClientException] = []
        for step in (
            self._commit_on_close(timer),
            self._add(StopFindCoordinatorOnCloseEvent()),
            self._run_callbacks_on_close(),
            self._leave_on_close(timer, membership),
            self._end_async_commit_on_close(),
        ):
            try:
                yield from step
            except ClientException as error:
                errors.append(error)
        yield from self._close_network(timer.remaining_ms())
        self.is_closed = True
        if errors:
            raise kafka_exception("Failed to close kafka consumer", errors[0])

    # ---- steps of close

    def _commit_on_close(self, timer: Timer) -> Call:
        if self._config.enable_auto_commit:
            # A commit that fails doesn't make close fail: Kafka's consumer logs it and goes on.
            with suppress(ClientException):
                yield from self.commit_sync(None, timer.remaining_ms())
            timer.update()
        yield from self._add(CommitOnCloseEvent())

    def _run_callbacks_on_close(self) -> Call:
        dropped = tuple(sorted(self._snapshot.assignment))
        if not dropped:
            return
        revoked = self._snapshot.generation > 0
        method = CallbackMethod.ON_PARTITIONS_REVOKED if revoked else CallbackMethod.ON_PARTITIONS_LOST
        error = yield from self._run_callback(method, dropped)
        if error is not None:
            raise as_kafka_exception(_thrown(error))

    def _leave_on_close(self, timer: Timer, membership: Membership) -> Call:
        deadline_ms = deadline_after(timer.seen_ms, timer.remaining_ms())
        event = LeaveGroupOnCloseEvent(membership, deadline_ms=deadline_ms)
        yield from self._add(event)
        yield from self._await(event.future, deadline_ms)
        yield from self._await(self._last_async_commit, deadline_ms)
        timer.update()
        result_unless_late(event.future)

    def _close_network(self, timeout_ms: int) -> Call:
        """Sends what is left to send and waits for all answers (ConsumerNetworkThread.cleanup)."""
        timer = Timer(self._clock, timeout_ms)
        pending = self._thread.stop()
        while pending:
            self._network.start_poll(timer.remaining_ms())
            version = self._metadata.update_version
            if not self._network.has_arrived() and self._network.poll_timeout_ms > 0:
                deadline_ms = deadline_after(self._clock.now_ms, self._network.poll_timeout_ms)
                yield Wait(partial(self._has_arrived_or_metadata_since, version), deadline_ms)
            self._network.finish_poll(closing=True)
            timer.update()
            pending = not timer.is_expired() and self._network.has_pending()
        self._network.close()

    def _end_async_commit_on_close(self) -> Call:
        self._end_async_commit()
        yield from ()

    def _has_arrived_or_metadata_since(self, version: int) -> bool:
        return self._network.has_arrived() or self._metadata.update_version != version

    # ---- commits

    def _commit(self, event: AsyncCommitEvent | SyncCommitEvent) -> Call:
        self._run_commit_callbacks()
        if event.offsets is not None and not event.offsets:
            event.future.complete(None)
            return
        for partition, offset in (event.offsets or {}).items():
            if offset < 0:
                raise illegal_argument(f"Invalid offset: {offset} of {partition.topic}-{partition.partition}")
        yield from self._add(event)

    def _end_async_commit(self) -> None:
        """Tells what came of the asynchronous commit that was waited for.

        Raises:
            ClientException: it isn't through (TimeoutException).
        """
        if self._last_async_commit is None:
            return
        if not self._last_async_commit.is_done():
            message = "the last asynchronous commit isn't through"
            raise timeout_exception(message, ClientException("TimeoutException"))
        self._last_async_commit = None
        self._run_commit_callbacks()

    def _enqueue_commit_callback(self, _: Any, error: ClientException | None) -> None:
        done = CommitDone() if error is None else CommitDone(error.class_name, error.message)
        self._commit_callbacks.append(done)

    def _run_commit_callbacks(self) -> None:
        while self._commit_callbacks:
            self._emit(self._commit_callbacks.pop(0))
            self._network.progress += 1

    # ---- events from the background

    def _process_background_events(self, *, skip_assigned: bool = False) -> Call:
        """Takes the events that are there; the first error is thrown when all are through."""
        first: ClientException | None = None
        for event in self._events.drain():
            if skip_assigned and isinstance(event, PartitionsAssignedEvent):
                event.future.complete_exceptionally(
                    kafka_exception("Assignment event skipped because consumer is unsubscribing")
                )
                continue
            try:
                yield from self._process_background_event(event)
            except ClientException as error:
                first = first or as_kafka_exception(error)
        if first is not None:
            raise first

    def _process_background_event(self, event: BackgroundEvent) -> Call:
        if isinstance(event, ErrorEvent):
            raise event.error
        if isinstance(event, PartitionsAssignedEvent):
            try:
                yield from self._add_and_get(ApplyAssignmentEvent(event))
            except ClientException as error:
                failed = as_kafka_exception(error, "Failed to apply the new assignment")
                yield from self._add(CallbackCompletedEvent(event.future, failed))
                raise failed from error
            thrown = yield from self._run_callback(CallbackMethod.ON_PARTITIONS_ASSIGNED, event.added)
        else:
            thrown = yield from self._run_callback(event.method, event.partitions)
        failure = None
        if thrown is not None:
            failure = as_kafka_exception(_thrown(thrown), "User rebalance callback throws an error")
        yield from self._add(CallbackCompletedEvent(event.future, failure))
        if failure is not None:
            raise failure

    def _run_callback(
        self, method: CallbackMethod, partitions: tuple[TopicPartition, ...]
    ) -> Generator[Wait, None, CallbackError | None]:
        """Runs a callback of the application. Returns what it threw."""
        callback = _RunningCallback()
        self._callbacks.append(callback)
        self._emit(Callback(method, partitions))
        self._network.progress += 1
        yield Wait(lambda: callback.done, callback=method)
        return callback.error

    # ---- events to the background

    def _add(self, event: ApplicationEvent) -> Call:
        """Gives an event to the background. While the member unsubscribes it also waits for that, but in a callback."""
        self._thread.add(event)
        if self._unsubscribing is not None and not self._callbacks:
            yield from self._wait_for_leave(self._unsubscribing)

    def _wait_for_leave(self, event: UnsubscribeEvent) -> Call:
        """Waits until the member has left, or there is something to do in the application's thread."""
        if not event.future.is_done() and not len(self._events):
            yield Wait(lambda: event.future.is_done() or len(self._events) > 0, event.deadline_ms)
            self._thread.settle()
        if event.future.is_done():
            self._unsubscribing = None

    def _add_and_get(self, event: CompletableEvent) -> Call:
        yield from self._add(event)
        yield from self._await(event.future, event.deadline_ms)
        result_of(event.future)

    def _await(self, future: CompletableFuture[Any] | None, deadline_ms: int) -> Call:
        if future is not None and not future.is_done():
            yield Wait(future.is_done, deadline_ms)
            self._thread.settle()


def _thrown(error: CallbackError) -> ClientException:
    return ClientException(error.class_name, error.message)
