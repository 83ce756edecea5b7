"""What a member gives up before it joins, and what it takes after.

Source: ConsumerCoordinator.onJoinPrepare and onJoinComplete.
"""

from __future__ import annotations

from coordinator_udf.members.classic.assignors import Assignors
from coordinator_udf.members.classic.callbacks import callback_exception, is_kafka_exception
from coordinator_udf.members.classic.commits import Commits
from coordinator_udf.members.classic.context import Context
from coordinator_udf.members.classic.flow import Flow, sleep
from coordinator_udf.members.classic.leader import Leader
from coordinator_udf.members.classic.membership import Generation
from coordinator_udf.members.classic.request_future import RequestFuture
from coordinator_udf.members.classic.subscription_changes import SubscriptionChanges
from coordinator_udf.members.client_assignors.spec import Assignment, ClientAssignor, GroupMetadata, RebalanceProtocol
from coordinator_udf.members.client_assignors.wire import read_assignment
from coordinator_udf.members.exceptions import ClientException, illegal_state
from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.members.outputs import OnAssignment
from coordinator_udf.members.subscription_state import SubscriptionType
from coordinator_udf.members.timers import Timer

#: An assignment begins with its version.
_LEAST_ASSIGNMENT_BYTES = 2
#: The reason of a member that joins again because its assignment took something from it.
TO_REVOKE = "need to revoke partitions and re-join"


class Rebalance:
    """Revokes, loses and takes partitions, with the application's callbacks."""

    def __init__(
        self, context: Context, changes: SubscriptionChanges, assignors: Assignors, leader: Leader, commits: Commits
    ) -> None:
        self._context = context
        self._changes = changes
        self._assignors = assignors
        self._leader = leader
        self._commits = commits
        self._prepare_timer: Timer | None = None
        self._commit: RequestFuture[None] | None = None

    @property
    def is_eager(self) -> bool:
        """Whether the member gives up all partitions before it is given others."""
        return self._assignors.protocol is RebalanceProtocol.EAGER

    def is_rejoin_needed(self, *, is_pending: bool, is_resyncing: bool = False) -> bool:
        """Tells whether the member has to join, for whichever reason."""
        if not self._context.subscriptions.is_subscribed:
            return False
        asked = self._changes.ask_for_rejoin(is_resyncing=is_resyncing)
        return asked or self._context.membership.rejoin_needed or is_pending

    # ---- before a SyncGroup in a stable group

    def commit_before_resync(self, timer: Timer) -> Flow[bool]:
        """Commits if that is automatic. Returns False while the commit isn't through."""
        if not (yield from self._commit_before(timer)):
            return False
        self._prepare_timer = None
        self._commit = None
        return True

    def give_up_for_resync(self) -> Flow[None]:
        """Revokes all partitions.

        Raises:
            ClientException: the callback threw (KafkaException).
        """
        subscriptions = self._context.subscriptions
        thrown = yield from self._context.callbacks.revoked(subscriptions.assigned_partitions())
        subscriptions.assign_from_subscribed(())
        if thrown is not None:
            raise callback_exception(thrown)

    # ---- before JoinGroup

    def prepare(self, timer: Timer, generation: Generation) -> Flow[bool]:
        """Commits if that is automatic, then gives up partitions. Returns False while the commit isn't through.

        Raises:
            ClientException: a callback threw (KafkaException).
        """
        if not (yield from self._commit_before(timer)):
            return False
        thrown = yield from self._give_up(generation)
        self._leader.is_leader = False
        self._context.subscriptions.group_subscription = frozenset()
        self._prepare_timer = None
        self._commit = None
        timer.update()
        if thrown is not None:
            raise callback_exception(thrown)
        return True

    def _commit_before(self, timer: Timer) -> Flow[bool]:
        """Commits all positions; tried again until it succeeds, fails for good, or max.poll.interval.ms is over."""
        config, subscriptions = self._context.config, self._context.subscriptions
        if self._prepare_timer is None:
            self._prepare_timer = self._context.timer(config.max_poll_interval_ms)
        else:
            self._prepare_timer.update()
        prepare_timer = self._prepare_timer
        if config.enable_auto_commit and self._commit is None:
            if self._assignors.protocol is RebalanceProtocol.EAGER:
                subscriptions.mark_pending_revocation(subscriptions.assigned_partitions())
            self._commit = yield from self._commits.auto_commit()
        commit = self._commit
        if commit is None:
            return True
        poll_timer = timer if timer.remaining_ms() < prepare_timer.remaining_ms() else prepare_timer
        yield from self._context.client.poll_for(commit, poll_timer)
        prepare_timer.update()
        is_through = prepare_timer.is_expired() or (commit.is_done and not commit.failed_retriably)
        if commit.is_done:
            self._commit = None
        if not is_through:
            pause_ms = min(poll_timer.remaining_ms(), config.retry_backoff_ms)
            yield from sleep(poll_timer, self._context.clock, pause_ms)
            timer.update()
        return is_through

    def _give_up(self, generation: Generation) -> Flow[ClientException | None]:
        """Takes away what can't be kept. Returns what the callback threw."""
        subscriptions, callbacks = self._context.subscriptions, self._context.callbacks
        owned = subscriptions.assigned_partitions()
        thrown: ClientException | None = None
        if generation.is_out:
            if owned:
                thrown = yield from callbacks.lost(owned)
                subscriptions.assign_from_subscribed(())
        elif self._assignors.protocol is RebalanceProtocol.COOPERATIVE:
            revoked = {partition for partition in owned if partition.topic not in subscriptions.topics}
            if revoked:
                thrown = yield from callbacks.revoked(revoked)
                subscriptions.assign_from_subscribed(owned - revoked)
        else:
            thrown = yield from callbacks.revoked(owned)
            subscriptions.assign_from_subscribed(())
        return thrown

    # ---- after SyncGroup

    def complete(self, generation: Generation, data: bytes) -> Flow[None]:
        """Takes an assignment.

        Raises:
            ClientException: it can't be read, the assignor isn't one of the member's, or a callback threw.
        """
        if not self._leader.is_leader:
            self._changes.assigned_by_other()
        assignor = self._assignors.named(generation.protocol_name)
        owned = self._context.subscriptions.assigned_partitions()
        if len(data) < _LEAST_ASSIGNMENT_BYTES:
            raise illegal_state(
                "There are insufficient bytes available to read assignment from the sync-group response "
                f"(actual byte size {len(data)})"
            )
        assignment = read_assignment(data)
        assigned = set(assignment.partitions)
        if not self._matches_subscription(assigned):
            self._context.membership.request_rejoin("received assignment does not match the current subscription")
            return
        thrown: ClientException | None = None
        if self._assignors.protocol is RebalanceProtocol.COOPERATIVE and owned - assigned:
            thrown = yield from self._context.callbacks.revoked(owned - assigned)
            self._context.membership.request_rejoin(TO_REVOKE)
        self._changes.take_assigned_topics(assigned)
        thrown = _first(thrown, self._tell_assignor(assignor, assignment, generation))
        self._commits.restart_auto_commit()
        self._context.subscriptions.assign_from_subscribed(sorted(assigned))
        thrown = _first(thrown, (yield from self._context.callbacks.assigned(assigned - owned)))
        if thrown is not None:
            raise thrown if is_kafka_exception(thrown) else callback_exception(thrown)

    def _matches_subscription(self, assigned: set[TopicPartition]) -> bool:
        subscriptions = self._context.subscriptions
        if subscriptions.type is SubscriptionType.AUTO_PATTERN:
            return all(subscriptions.matches_pattern(partition.topic) for partition in assigned)
        return all(partition.topic in subscriptions.topics for partition in assigned)

    def _tell_assignor(
        self, assignor: ClientAssignor, assignment: Assignment, generation: Generation
    ) -> ClientException | None:
        told = OnAssignment(assignor.name, generation.generation_id, generation.member_id, tuple(assignment.partitions))
        self._context.outputs.append(told)
        config = self._context.config
        group = GroupMetadata(config.group_id, generation.generation_id, generation.member_id, config.group_instance_id)
        try:
            assignor.on_assignment(assignment, group)
        except ClientException as error:
            return error
        except Exception as error:  # noqa: BLE001  the application's own (ConsumerCoordinator.invokeOnAssignment)
            return ClientException(type(error).__name__, str(error))
        return None


def _first(earlier: ClientException | None, later: ClientException | None) -> ClientException | None:
    return later if earlier is None else earlier
