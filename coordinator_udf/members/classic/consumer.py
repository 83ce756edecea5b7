"""The calls of the application, as ClassicKafkaConsumer has them, and what they set going."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coordinator_udf.members.classic.assignors import Assignors
from coordinator_udf.members.classic.commits import Commits
from coordinator_udf.members.classic.context import Context
from coordinator_udf.members.classic.coordinator_requests import CoordinatorRequests
from coordinator_udf.members.classic.discovery import CoordinatorDiscovery
from coordinator_udf.members.classic.flow import Flow
from coordinator_udf.members.classic.heartbeats import HeartbeatLoop
from coordinator_udf.members.classic.join import Joining
from coordinator_udf.members.classic.join_group import JoinGroup
from coordinator_udf.members.classic.leader import Leader
from coordinator_udf.members.classic.leave import Leaving
from coordinator_udf.members.classic.positions import FetchPositions
from coordinator_udf.members.classic.rebalance import Rebalance
from coordinator_udf.members.classic.resync import Resync
from coordinator_udf.members.classic.subscription_changes import SubscriptionChanges
from coordinator_udf.members.classic.subscription_metadata import SubscriptionMetadata
from coordinator_udf.members.classic.sync_group import SyncGroup
from coordinator_udf.members.client_assignors.spec import ClientAssignor
from coordinator_udf.members.exceptions import (
    ClientException,
    illegal_argument,
    illegal_state,
    kafka_exception,
    timeout_exception,
)
from coordinator_udf.members.inputs import Membership, TopicPartition
from coordinator_udf.members.outputs import CommitDone
from coordinator_udf.members.subscription_state import SubscriptionType
from coordinator_udf.members.timers import Timer

_ENFORCED = "rebalance enforced by user"


class ClassicConsumer:
    """One consumer with its coordinator's side.

    Attributes:
        heartbeats: the last heartbeat loop that was begun, perhaps at its end; None before the first join.
    """

    def __init__(self, context: Context, assignors: Sequence[ClientAssignor], *, fetches: bool) -> None:
        self._context = context
        self.discovery = CoordinatorDiscovery(context)
        self._sender = CoordinatorRequests(context, self.discovery)
        self._changes = SubscriptionChanges(context)
        self._commits = Commits(context, self.discovery, self._sender)
        self._leaving = Leaving(context, self.discovery, self._sender)
        self._positions = FetchPositions(context, enabled=fetches)
        self._assignors = Assignors(assignors)
        self._leader = Leader(context, self._changes, self._assignors)
        self._rebalance = Rebalance(context, self._changes, self._assignors, self._leader, self._commits)
        metadata = SubscriptionMetadata(context, self._changes, assignors)
        sync = SyncGroup(context, self.discovery, self._sender)
        join_group = JoinGroup(
            context,
            self.discovery,
            self._sender,
            metadata=metadata,
            leader=self._leader,
            sync=sync,
            enable_heartbeats=self._enable_heartbeats,
        )
        self._joining = Joining(context, self.discovery, join_group, self._rebalance)
        self._resync = Resync(context, self._changes, self._leader, self._rebalance, sync)
        self._running: HeartbeatLoop | None = None
        self.heartbeats: HeartbeatLoop | None = None

    @property
    def is_leader(self) -> bool:
        """Whether the member leads its group."""
        return self._leader.is_leader

    @property
    def is_joining(self) -> bool:
        """Whether the member has begun to join, and no poll of the application has handled yet how that ended."""
        return self._joining.is_pending

    # ---- subscriptions

    def subscribe(self, topics: Sequence[str]) -> Flow[None]:
        """Subscribes to topics by name; to none is to unsubscribe."""
        if not topics:
            yield from self.unsubscribe()
            return
        if any(not topic.strip() for topic in topics):
            raise illegal_argument("Topic collection to subscribe to cannot contain null or empty topic")
        self._check_assignors()
        if self._context.subscriptions.subscribe(topics):
            self._context.metadata.request_update_for_new_topics()

    def subscribe_pattern(self, pattern: str) -> None:
        """Subscribes to the topics that a pattern matches."""
        if not pattern:
            raise illegal_argument("Topic pattern to subscribe to cannot be empty")
        self._check_assignors()
        self._context.subscriptions.subscribe_pattern(pattern)
        self._changes.match_pattern()
        self._context.metadata.request_update_for_new_topics()

    def unsubscribe(self) -> Flow[None]:
        """Gives up partitions and leaves the group."""
        yield from self._leaving.give_up_partitions()
        yield from self._leaving.leave(Membership.DEFAULT, "the consumer unsubscribed from all topics")
        self._context.subscriptions.unsubscribe()

    def enforce_rebalance(self, reason: str | None) -> None:
        """Has the next poll join again."""
        self._context.membership.request_rejoin(reason or _ENFORCED)

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Sets positions of those partitions that are assigned."""
        for partition, offset in offsets.items():
            if offset < 0:
                raise illegal_argument("seek offset must not be a negative number")
            if self._context.subscriptions.is_assigned(partition):
                leader = self._context.metadata.leader_of(partition)
                self._context.subscriptions.seek(partition, offset, leader)

    # ---- poll

    def poll(self) -> Flow[None]:
        """Does what only the application's poll does, without waiting."""
        if self._context.subscriptions.type is SubscriptionType.NONE:
            raise illegal_state("Consumer is not subscribed to any topics or assigned any partitions")
        timer = self._context.timer(0)
        yield from self._poll_coordinator(timer)
        self._throw_failure()
        self._positions.update()
        if self._context.client.has_work():
            yield from self._context.client.poll_no_wakeup()

    def _poll_coordinator(self, timer: Timer) -> Flow[None]:
        self._changes.look_at_metadata()
        self._commits.run_callbacks()
        if self._assignors.protocol is None:
            raise illegal_state(
                "User configured partition.assignment.strategy to empty while trying to subscribe for group protocol "
                "to auto assign partitions"
            )
        self._poll_heartbeats()
        if self.discovery.coordinator is None and not (yield from self.discovery.ensure_ready(timer)):
            return
        if self._context.config.client_extensions and not self._joining.is_pending:
            yield from self._resync.run(self._context.timer(0))
        if self._rebalance.is_rejoin_needed(is_pending=self._joining.is_pending, is_resyncing=self._resync.is_running):
            is_pattern = self._context.subscriptions.type is SubscriptionType.AUTO_PATTERN
            if is_pattern and not (yield from self._refresh_pattern(timer)):
                return
            if not (yield from self._ensure_active_group()):
                return
        if self._commits.takes_auto_commit(timer.seen_ms):
            yield from self._commits.auto_commit()

    def _refresh_pattern(self, timer: Timer) -> Flow[bool]:
        """Matches a pattern against fresh metadata before joining. Returns False while that isn't here."""
        metadata = self._context.metadata
        if metadata.time_to_allow_update_ms(timer.seen_ms) == 0:
            metadata.request_update(reset_equivalent_backoff=True)
        if not (yield from self._context.client.ensure_fresh_metadata(timer)):
            return False
        self._changes.look_at_metadata()
        return True

    def _ensure_active_group(self) -> Flow[bool]:
        timer = self._context.timer(0)
        if self.discovery.coordinator is None and not (yield from self.discovery.ensure_ready(timer)):
            return False
        if self._running is None:
            self._running = HeartbeatLoop(self._context, self.discovery, self._sender, self._leaving)
            self.heartbeats = self._running
        return (yield from self._joining.join_if_needed(timer))

    def _enable_heartbeats(self) -> None:
        if self._running is not None:
            self._running.enable()

    def _poll_heartbeats(self) -> None:
        """Says that the application polls. What ended the heartbeats is thrown once; a later join begins new ones."""
        if self._running is None:
            return
        if self._running.failure is not None:
            failure, self._running = self._running.failure, None
            raise failure
        self._context.heartbeat.polled()

    def _throw_failure(self) -> None:
        """Throws what has ended the heartbeats in this very poll; the next one will throw it too (timeToNextPoll)."""
        failure = None if self._running is None else self._running.failure
        if failure is not None and not self._context.membership.has_not_joined:
            raise failure

    # ---- commits and the end

    def auto_commit_deadline_ms(self) -> int | None:
        """Returns the time from which on a poll commits automatically, or None where none ever does."""
        return self._commits.auto_commit_deadline_ms()

    def commit_async(self, offsets: Mapping[TopicPartition, int] | None) -> Flow[None]:
        """Commits without waiting; a later call says what came of it."""
        wanted = self._context.subscriptions.positions() if offsets is None else offsets
        yield from self._commits.commit_async(wanted, self._commit_done)

    def commit_sync(self, offsets: Mapping[TopicPartition, int] | None, timeout_ms: int) -> Flow[None]:
        """Commits and waits.

        Raises:
            ClientException: the time was over (TimeoutException), or of an error that another attempt would meet again.
        """
        wanted = self._context.subscriptions.positions() if offsets is None else offsets
        if not (yield from self._commits.commit_sync(wanted, self._context.timer(timeout_ms))):
            raise timeout_exception(f"Timeout of {timeout_ms}ms expired before successfully committing offsets")

    def close(self, timeout_ms: int, membership: Membership) -> Flow[None]:
        """Commits, gives up partitions, leaves the group and waits for answers, all within the timeout.

        Raises:
            ClientException: a callback threw (KafkaException with that inside).
        """
        timer = self._context.timer(min(timeout_ms, self._context.config.request_timeout_ms))
        started_ms = self._context.clock.now_ms
        thrown: ClientException | None = None
        try:
            yield from self._close_coordinator(timer, membership)
        except ClientException as error:
            thrown = error
        left_ms = max(0, timeout_ms - (timer.seen_ms - started_ms))
        timer.reset(min(self._context.config.request_timeout_ms, left_ms))
        yield from self._positions.close(timer)
        if thrown is not None:
            raise kafka_exception("Failed to close kafka consumer", thrown)

    def _close_coordinator(self, timer: Timer, membership: Membership) -> Flow[None]:
        try:
            yield from self._commits.close(timer)
        finally:
            if self._running is not None:
                self._running.close()
                self._running = None
        yield from self._leaving.give_up_partitions()
        yield from self._leaving.leave(membership, "the consumer is being closed")
        if self.discovery.coordinator is not None:
            yield from self._context.client.await_pending_requests(self.discovery.coordinator, timer)

    def _commit_done(self, error: ClientException | None) -> None:
        self._context.client.progress += 1
        done = CommitDone() if error is None else CommitDone(error.class_name, error.message)
        self._context.outputs.append(done)

    def _check_assignors(self) -> None:
        if self._assignors.protocol is None:
            raise illegal_state(
                "Must configure at least one partition assigner class name to partition.assignment.strategy "
                "configuration property"
            )
