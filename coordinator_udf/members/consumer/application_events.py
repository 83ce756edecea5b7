"""What the application's thread wants of the background (ApplicationEvent, ApplicationEventProcessor)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from coordinator_udf.members.consumer.background_events import PartitionsAssignedEvent
from coordinator_udf.members.consumer.commit_request_manager import CommitRequestManager
from coordinator_udf.members.consumer.coordinator_request_manager import CoordinatorRequestManager
from coordinator_udf.members.consumer.fetch_request_manager import FetchRequestManager
from coordinator_udf.members.consumer.futures import CompletableFuture
from coordinator_udf.members.consumer.heartbeat_request_manager import HeartbeatRequestManager
from coordinator_udf.members.consumer.membership_manager import MembershipManager
from coordinator_udf.members.consumer.offset_commit_request import Offsets
from coordinator_udf.members.consumer.reconciler import Reconciler
from coordinator_udf.members.exceptions import ClientException
from coordinator_udf.members.inputs import Membership, TopicPartition
from coordinator_udf.members.metadata import ConsumerMetadata
from coordinator_udf.members.subscription_state import SubscriptionState, SubscriptionType
from coordinator_udf.members.timers import FOREVER_MS


@dataclass(frozen=True, slots=True)
class AsyncPollEvent:
    """The application polls."""


@dataclass(frozen=True, slots=True)
class CommitOnCloseEvent:
    """Commits wait for no backoff any more."""


@dataclass(frozen=True, slots=True)
class StopFindCoordinatorOnCloseEvent:
    """No coordinator is looked for any more."""


@dataclass(frozen=True, slots=True)
class CallbackCompletedEvent:
    """A rebalance callback is through, perhaps with an error."""

    future: CompletableFuture[None]
    error: ClientException | None


@dataclass(frozen=True, slots=True)
class CompletableEvent:
    """An event with an end. Past its deadline it ends with TimeoutException."""

    future: CompletableFuture[Any] = field(default_factory=CompletableFuture, kw_only=True)
    deadline_ms: int = field(default=FOREVER_MS, kw_only=True)


@dataclass(frozen=True, slots=True)
class TopicSubscriptionChangeEvent(CompletableEvent):
    """Subscribe to topics by name."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicPatternSubscriptionChangeEvent(CompletableEvent):
    """Subscribe to what a pattern of the member's own matches."""

    pattern: str


@dataclass(frozen=True, slots=True)
class TopicRe2JPatternSubscriptionChangeEvent(CompletableEvent):
    """Subscribe to what the broker matches."""

    pattern: str


@dataclass(frozen=True, slots=True)
class UnsubscribeEvent(CompletableEvent):
    """Give up the subscription and leave."""


@dataclass(frozen=True, slots=True)
class AsyncCommitEvent(CompletableEvent):
    """Commit once; None: all positions."""

    offsets: Offsets | None


@dataclass(frozen=True, slots=True)
class SyncCommitEvent(CompletableEvent):
    """Commit until the deadline; None: all positions."""

    offsets: Offsets | None


@dataclass(frozen=True, slots=True)
class LeaveGroupOnCloseEvent(CompletableEvent):
    """Leave, as close asks for."""

    membership: Membership


@dataclass(frozen=True, slots=True)
class ApplyAssignmentEvent(CompletableEvent):
    """Put an assignment into effect."""

    event: PartitionsAssignedEvent


@dataclass(frozen=True, slots=True)
class SeekEvent(CompletableEvent):
    """Set a position."""

    partition: TopicPartition
    offset: int


ApplicationEvent = (
    AsyncPollEvent | CommitOnCloseEvent | StopFindCoordinatorOnCloseEvent | CallbackCompletedEvent | CompletableEvent
)


class ApplicationEventProcessor:
    """Does what the application's events ask for."""

    def __init__(
        self,
        subscriptions: SubscriptionState,
        *,
        metadata: ConsumerMetadata,
        coordinators: CoordinatorRequestManager,
        commits: CommitRequestManager,
        heartbeats: HeartbeatRequestManager,
        membership: MembershipManager,
        reconciler: Reconciler,
        fetches: FetchRequestManager,
    ) -> None:
        self._subscriptions = subscriptions
        self._metadata = metadata
        self._coordinators = coordinators
        self._commits = commits
        self._heartbeats = heartbeats
        self._membership = membership
        self._reconciler = reconciler
        self._fetches = fetches
        self._metadata_version = metadata.update_version

    def process(self, event: ApplicationEvent) -> None:
        """Does what an event asks for; what it throws is in its future, if it has one.

        Raises:
            ClientException: an event without a future failed.
        """
        if not isinstance(event, CompletableEvent):
            self._process_plain(event)
            return
        try:
            self._process_completable(event)
        except ClientException as error:
            event.future.complete_exceptionally(error)

    def _process_plain(self, event: ApplicationEvent) -> None:
        match event:
            case AsyncPollEvent():
                self._poll()
            case CommitOnCloseEvent():
                self._commits.signal_close()
            case StopFindCoordinatorOnCloseEvent():
                self._coordinators.signal_close()
            case CallbackCompletedEvent(future, None):
                future.complete(None)
            case CallbackCompletedEvent(future, ClientException() as error):
                future.complete_exceptionally(error)

    def _process_completable(self, event: CompletableEvent) -> None:
        match event:
            case UnsubscribeEvent():
                _relay(self._membership.leave_group(), event.future)
            case LeaveGroupOnCloseEvent(membership=membership):
                _relay(self._membership.leave_group_on_close(membership), event.future)
            case AsyncCommitEvent(offsets=offsets):
                _relay(self._commits.commit_async(self._or_positions(offsets)), event.future)
            case SyncCommitEvent(offsets=offsets, deadline_ms=deadline_ms):
                _relay(self._commits.commit_sync(self._or_positions(offsets), deadline_ms), event.future)
            case _:
                self._change(event)
                event.future.complete(None)

    def _change(self, event: CompletableEvent) -> None:
        match event:
            case TopicSubscriptionChangeEvent(topics=topics):
                if self._subscriptions.subscribe(topics):
                    self._metadata_version = self._metadata.request_update_for_new_topics()
                self._membership.on_subscription_updated()
            case TopicPatternSubscriptionChangeEvent(pattern=pattern):
                self._subscriptions.subscribe_pattern(pattern)
                self._metadata.request_update_for_new_topics()
                self._update_pattern_subscription()
            case TopicRe2JPatternSubscriptionChangeEvent(pattern=pattern):
                self._subscriptions.subscribe_regex(pattern)
                self._membership.on_subscription_updated()
            case ApplyAssignmentEvent(event=assigned):
                self._membership.apply_assignment(assigned.assigned, assigned.added)
            case SeekEvent(partition=partition, offset=offset):
                self._subscriptions.seek(partition, offset, self._metadata.leader_of(partition))

    def _poll(self) -> None:
        self._reconciler.maybe_reconcile(can_commit=True)
        self._commits.update_timer_and_maybe_commit()
        self._maybe_update_pattern_subscription()
        self._membership.on_consumer_poll()
        self._heartbeats.reset_poll_timer()
        self._fetches.create_fetch_requests()

    def _or_positions(self, offsets: Offsets | None) -> Offsets:
        return self._subscriptions.positions() if offsets is None else offsets

    def _maybe_update_pattern_subscription(self) -> None:
        if self._subscriptions.type is not SubscriptionType.AUTO_PATTERN:
            return
        if self._metadata_version < self._metadata.update_version:
            self._metadata_version = self._metadata.update_version
            self._update_pattern_subscription()

    def _update_pattern_subscription(self) -> None:
        matched = [topic for topic in self._metadata.topics if self._subscriptions.matches_pattern(topic)]
        if self._subscriptions.subscribe_from_pattern(matched):
            self._metadata_version = self._metadata.request_update_for_new_topics()
        self._membership.on_subscription_updated()


def _relay(done: CompletableFuture[Any], future: CompletableFuture[Any]) -> None:
    """Completes an event's future with another."""

    def complete(value: Any, error: ClientException | None) -> None:
        if error is not None:
            future.complete_exceptionally(error)
        else:
            future.complete(value)

    done.when_complete(complete)
