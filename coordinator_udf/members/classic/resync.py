"""A new assignment in the member's generation, without a join round: an extension (docs/client-extensions.md).

The leader begins one when topics' metadata has changed and the subscriptions haven't; the others hear of it in the
answer to a heartbeat. All of it happens in the application's poll, as joining does.
"""

from __future__ import annotations

import base64
from typing import Any

from coordinator_udf.members.classic.context import Context
from coordinator_udf.members.classic.flow import Flow
from coordinator_udf.members.classic.leader import Leader, NewAssignment
from coordinator_udf.members.classic.rebalance import Rebalance
from coordinator_udf.members.classic.request_future import RequestFuture
from coordinator_udf.members.classic.states import STEADY, MemberState
from coordinator_udf.members.classic.subscription_changes import SubscriptionChanges
from coordinator_udf.members.classic.sync_group import SyncGroup
from coordinator_udf.members.exceptions import ClientException
from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.members.timers import Timer

#: What a member answers by joining again.
_REJOIN = frozenset({"UnknownMemberIdException", "IllegalGenerationException", "RebalanceInProgressException"})


class Resync:
    """Takes part in resyncs, as the leader or as another member."""

    def __init__(
        self, context: Context, changes: SubscriptionChanges, leader: Leader, rebalance: Rebalance, sync: SyncGroup
    ) -> None:
        self._context = context
        self._changes = changes
        self._leader = leader
        self._rebalance = rebalance
        self._sync = sync
        self._proposal: NewAssignment | None = None
        self._pending: RequestFuture[bytes] | None = None
        self._is_prepared = False
        self._moves = False
        self._asked_only = False
        self._gave_up: frozenset[TopicPartition] | None = None

    @property
    def is_running(self) -> bool:
        """Whether a resync is under way; metadata that comes then is for the next one."""
        return self._proposal is not None or self._pending is not None

    def run(self, timer: Timer) -> Flow[None]:
        """Does what can be done now, without waiting. What it can't do it leaves to a rejoin, which it asks for.

        Raises:
            ClientException: of a callback, or of an error that another attempt would meet again.
        """
        membership = self._context.membership
        if membership.state not in STEADY or membership.rejoin_needed or self._changes.has_subscription_changed():
            self._end()
            return
        if self._pending is None:
            if not (yield from self._is_wanted()):
                return
            if not (yield from self._prepare(timer)):
                return
            if membership.state not in STEADY:
                # Gone with what came in while a callback ran.
                self._end()
                return
            self._pending = yield from self._send()
        if not (yield from self._context.client.poll_for(self._pending, timer)):
            return
        if self._pending.exception is None:
            yield from self._complete(self._pending.value)
        else:
            self._take_failure(self._pending.exception)

    def _is_wanted(self) -> Flow[bool]:
        membership = self._context.membership
        if self._proposal is None and self._leader.can_assign_again and self._changes.has_metadata_changed():
            assigned = yield from self._leader.assign_again()
            if assigned is None:
                membership.request_rejoin_if_necessary("cached metadata has changed")
                return False
            if assigned.members and membership.state in STEADY:
                self._proposal = assigned
                membership.resync_begun()
        return membership.state is MemberState.RESYNCING

    def _prepare(self, timer: Timer) -> Flow[bool]:
        """Commits, and gives up what must not be kept meanwhile. Returns False while the commit isn't through."""
        if not self._is_prepared and not self._has_newest():
            if not (yield from self._rebalance.commit_before_resync(timer)):
                return False
            self._is_prepared = True
            told = self._context.membership.resync_told
            self._moves = (
                self._proposal.moves if self._proposal is not None else told is not None and told.give_up_first
            )
            if self._moves or self._rebalance.is_eager:
                self._gave_up = frozenset(self._context.subscriptions.assigned_partitions())
                yield from self._rebalance.give_up_for_resync()
        return True

    def _has_newest(self) -> bool:
        """Returns whether the member has the newest assignment unknown to the coordinator (after a failover, say)."""
        membership = self._context.membership
        told = membership.resync_told
        return (
            self._proposal is None
            and told is not None
            and told.epoch == membership.resync_epoch
            and not told.give_up_first
        )

    def _send(self) -> Flow[RequestFuture[bytes]]:
        self._asked_only = not self._is_prepared
        extensions: dict[str, Any] = {}
        if self._gave_up is not None:
            extensions["ownsNothing"] = True
        assignments: list[dict[str, str]] = []
        if self._proposal is not None:
            extensions["resync"] = 2 if self._proposal.moves else 1
            assignments = [
                {"memberId": member, "assignment": base64.b64encode(data).decode()}
                for member, data in self._proposal.members.items()
            ]
        return (yield from self._sync.send(assignments, extensions))

    def _complete(self, assignment: bytes) -> Flow[None]:
        """Takes the new assignment. If that throws before it is through, the next poll tries it again."""
        membership = self._context.membership
        is_gone = membership.generation.is_reset or membership.state not in STEADY
        if is_gone or self._asked_only:
            self._end()
            return
        if self._proposal is not None and not membership.has_resynced:
            self._end()
            membership.request_rejoin("the coordinator has not taken a new assignment of the generation")
            return
        gave_up, moves = self._gave_up, self._moves
        yield from self._rebalance.complete(membership.generation, assignment)
        self._end()
        if gave_up is not None and not moves and self._is_without(gave_up):
            membership.request_rejoin("need to re-join for partitions that were kept back")

    def _is_without(self, before: frozenset[TopicPartition]) -> bool:
        """Returns whether the member has lost partitions that still exist."""
        topics = self._context.metadata.topics
        lost = before - self._context.subscriptions.assigned_partitions()
        return any(topic in topics and number < topics[topic].partitions for topic, number in lost)

    def _take_failure(self, error: ClientException) -> None:
        """Tries again later, or asks for a rejoin.

        Raises:
            ClientException: the error, if another attempt would meet it again.
        """
        self._pending = None
        if error.retriable and error.class_name not in _REJOIN:
            return
        self._end()
        self._context.membership.request_rejoin_if_necessary(f"resync failed due to {error.class_name}")
        if error.class_name not in _REJOIN:
            raise error

    def _end(self) -> None:
        self._context.membership.resync_over()
        self._proposal = None
        self._pending = None
        self._is_prepared = False
        self._moves = False
        self._gave_up = None
