"""A member's parts and how they hang together (RequestManagers.supplier, and AsyncKafkaConsumer's constructor)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coordinator_udf.members.backoff import ExponentialBackoff
from coordinator_udf.members.client_assignors.spec import ClientAssignor
from coordinator_udf.members.config import MemberConfig
from coordinator_udf.members.consumer.application import Application
from coordinator_udf.members.consumer.application_events import ApplicationEventProcessor
from coordinator_udf.members.consumer.assignment_manager import AssignmentManager
from coordinator_udf.members.consumer.background_events import BackgroundEvents
from coordinator_udf.members.consumer.commit_request_manager import AutoCommit, CommitRequestManager
from coordinator_udf.members.consumer.computation_request_manager import PREPARE, ComputationRequestManager
from coordinator_udf.members.consumer.coordinator_request_manager import CoordinatorRequestManager
from coordinator_udf.members.consumer.fetch_request_manager import FetchRequestManager
from coordinator_udf.members.consumer.group_state import GroupSnapshot, GroupState
from coordinator_udf.members.consumer.heartbeat_request import HeartbeatRequest
from coordinator_udf.members.consumer.heartbeat_request_manager import HeartbeatRequestManager
from coordinator_udf.members.consumer.local_assignors import LocalAssignors
from coordinator_udf.members.consumer.membership_manager import MembershipManager
from coordinator_udf.members.consumer.network_client import NetworkClient
from coordinator_udf.members.consumer.network_thread import NetworkThread
from coordinator_udf.members.consumer.offset_commit_request import MemberInfo
from coordinator_udf.members.consumer.reconciler import Reconciler
from coordinator_udf.members.consumer.request_state import HeartbeatRequestState, RequestState
from coordinator_udf.members.consumer.states import MemberState
from coordinator_udf.members.exceptions import ClientException
from coordinator_udf.members.machine import Jitter, Lateness
from coordinator_udf.members.metadata import ConsumerMetadata
from coordinator_udf.members.outputs import ErrorRaised, Output, Transition
from coordinator_udf.members.subscription_state import SubscriptionState
from coordinator_udf.members.timers import Clock, deadline_after


def error_raised(op: str, error: ClientException) -> ErrorRaised:
    """Returns the output that tells of what a call threw."""
    cause = error.cause
    return ErrorRaised(
        op,
        error.class_name,
        error.message,
        None if cause is None else cause.class_name,
        None if cause is None else cause.message,
    )


class Parts:
    """What a member's machine works with.

    Attributes:
        group: its state, id and epoch.
        subscriptions: what it is subscribed to, and what is assigned of it.
        assignments: the assignment in effect and the one that is to be, by topic ids.
        computation: how far it is with computing the group's assignment.
        coordinators: who its coordinator is.
        metadata: what it knows of the cluster.
        network: its requests.
        thread: its background.
        application: its application's thread.
    """

    def __init__(
        self,
        config: MemberConfig,
        clock: Clock,
        jitter: Jitter,
        member_id: str,
        emit: Callable[[Output], None],
        *,
        assignors: Sequence[ClientAssignor],
        fetches: bool,
        lateness: Lateness,
    ) -> None:
        """Makes the parts of a member that starts at the clock's time; ``emit`` takes its outputs."""
        self._config = config
        self._clock = clock
        self._jitter = jitter
        self._lateness = lateness
        self._emit = emit
        self._events = BackgroundEvents()
        self._snapshot = GroupSnapshot()
        self.subscriptions = SubscriptionState()
        self.metadata = ConsumerMetadata(config, self.subscriptions, jitter)
        self.network = NetworkClient(
            clock,
            metadata=self.metadata,
            max_versions=config.max_versions,
            request_timeout_ms=config.request_timeout_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            emit=emit,
        )
        self.group = GroupState(config.group_id, member_id, self._on_transition, config.group_instance_id)
        self.coordinators = CoordinatorRequestManager(config.group_id, self._backoff())
        self.assignments = AssignmentManager(self.subscriptions, self.metadata)
        # A broker without the mode isn't told of them; who is asked of nothing has everything.
        can_compute = not config.max_versions or PREPARE in config.max_versions
        self._assignors = LocalAssignors(assignors if can_compute else (), self.group, emit)
        self.computation = ComputationRequestManager(
            self.group,
            assignors=self._assignors,
            coordinators=self.coordinators,
            events=self._events,
            state=RequestState(self._backoff()),
        )
        commits = self._make_commits()
        self.commits = commits
        self.group.epoch_listeners += [
            lambda epoch: commits.on_member_epoch(epoch, member_id),
            self._snapshot.on_member_epoch,
        ]
        fetching = FetchRequestManager(self.subscriptions, self.metadata, enabled=fetches)
        self.thread = self._make_thread(commits, fetching)
        self.application = self._make_application()

    def _on_transition(self, state: MemberState) -> None:
        self.network.progress += 1
        self._emit(Transition(state))

    def _on_background_error(self, error: ClientException) -> None:
        self._emit(error_raised("background", error))

    def _backoff(self) -> ExponentialBackoff:
        return ExponentialBackoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms, self._jitter)

    def _make_application(self) -> Application:
        return Application(
            self._config,
            self._clock,
            subscriptions=self.subscriptions,
            metadata=self.metadata,
            network=self.network,
            thread=self.thread,
            events=self._events,
            snapshot=self._snapshot,
            emit=self._emit,
        )

    def _make_commits(self) -> CommitRequestManager:
        config = self._config
        interval_ms = config.auto_commit_interval_ms
        return CommitRequestManager(
            self._clock,
            member=MemberInfo(config.group_id, config.group_instance_id),
            subscriptions=self.subscriptions,
            metadata=self.metadata,
            coordinators=self.coordinators,
            backoff=self._backoff,
            retry_backoff_ms=config.retry_backoff_ms,
            auto_commit=AutoCommit(self._clock, interval_ms) if config.enable_auto_commit else None,
        )

    def _make_thread(self, commits: CommitRequestManager, fetching: FetchRequestManager) -> NetworkThread:
        clock, config = self._clock, self._config
        reconciler = Reconciler(
            self.group,
            assignments=self.assignments,
            subscriptions=self.subscriptions,
            commits=commits,
            events=self._events,
            rebalance_deadline_ms=lambda: deadline_after(clock.now_ms, config.max_poll_interval_ms),
            tell_assignors=lambda partitions: self._assignors.on_assignment(partitions, self.computation.metadata),
        )
        membership = MembershipManager(
            self.group,
            subscriptions=self.subscriptions,
            assignments=self.assignments,
            reconciler=reconciler,
            events=self._events,
            on_assignment=self._snapshot.on_assignment,
        )
        heartbeats = self._make_heartbeats(membership)
        processor = ApplicationEventProcessor(
            self.subscriptions,
            metadata=self.metadata,
            coordinators=self.coordinators,
            commits=commits,
            heartbeats=heartbeats,
            membership=membership,
            reconciler=reconciler,
            fetches=fetching,
        )
        return NetworkThread(
            clock,
            network=self.network,
            metadata=self.metadata,
            coordinators=self.coordinators,
            commits=commits,
            heartbeats=heartbeats,
            computation=self.computation,
            membership=membership,
            fetches=fetching,
            processor=processor,
            events=self._events,
            on_error=self._on_background_error,
        )

    def _make_heartbeats(self, membership: MembershipManager) -> HeartbeatRequestManager:
        config = self._config
        return HeartbeatRequestManager(
            self._clock,
            max_poll_interval_ms=config.max_poll_interval_ms,
            state=HeartbeatRequestState(self._clock, 0, self._backoff(), self._lateness),
            request=HeartbeatRequest(
                self.group,
                subscriptions=self.subscriptions,
                assignments=self.assignments,
                rebalance_timeout_ms=config.max_poll_interval_ms,
                server_assignor=config.group_remote_assignor,
                rack_id=config.client_rack or None,
                local_assignors=self._assignors,
            ),
            membership=membership,
            coordinators=self.coordinators,
            events=self._events,
            computation=self.computation,
            is_static=self.group.is_static,
        )
