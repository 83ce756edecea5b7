"""Joining the group in a poll: coordinator, onJoinPrepare, JoinGroup with SyncGroup, onJoinComplete.

Source: AbstractCoordinator.joinGroupIfNeeded.
"""

from __future__ import annotations

from coordinator_udf.members.classic.context import Context
from coordinator_udf.members.classic.discovery import CoordinatorDiscovery
from coordinator_udf.members.classic.flow import Flow, sleep
from coordinator_udf.members.classic.join_group import JoinGroup
from coordinator_udf.members.classic.rebalance import Rebalance
from coordinator_udf.members.classic.request_future import RequestFuture
from coordinator_udf.members.classic.states import MemberState
from coordinator_udf.members.exceptions import ClientException
from coordinator_udf.members.timers import Timer

#: What a member answers by joining again in the same call.
_REJOIN_AT_ONCE = frozenset(
    {
        "UnknownMemberIdException",
        "IllegalGenerationException",
        "RebalanceInProgressException",
        "MemberIdRequiredException",
    }
)


class Joining:
    """Sees to it that the member is in the group."""

    def __init__(
        self, context: Context, discovery: CoordinatorDiscovery, join_group: JoinGroup, rebalance: Rebalance
    ) -> None:
        self._context = context
        self._discovery = discovery
        self._join_group = join_group
        self._rebalance = rebalance
        self._pending: RequestFuture[bytes] | None = None

    @property
    def is_pending(self) -> bool:
        """Whether a join is under way, or its end isn't handled."""
        return self._pending is not None

    def join_if_needed(self, timer: Timer) -> Flow[bool]:
        """Joins as long as the member has to. Returns False if the timer was over before.

        Raises:
            ClientException: of an error that another attempt would meet again, or of a callback.
        """
        while self._rebalance.is_rejoin_needed(is_pending=self.is_pending):
            if self._discovery.coordinator is None and not (yield from self._discovery.ensure_ready(timer)):
                return False
            if self._context.membership.needs_join_prepare and not (yield from self._prepare(timer)):
                return False
            pending = yield from self._initiate()
            if not (yield from self._context.client.poll_for(pending, timer)):
                return False
            if pending.exception is None:
                yield from self._complete(pending.value)
            elif not self._takes_failure(pending.exception):
                if timer.is_expired():
                    return False
                yield from sleep(timer, self._context.clock, self._context.config.retry_backoff_ms)
        return True

    def _prepare(self, timer: Timer) -> Flow[bool]:
        membership = self._context.membership
        # Before the callback, which may throw: it isn't called again then.
        membership.needs_join_prepare = False
        if not (yield from self._rebalance.prepare(timer, membership.generation)):
            membership.needs_join_prepare = True
            return False
        return True

    def _initiate(self) -> Flow[RequestFuture[bytes]]:
        if self._pending is None:
            self._context.membership.join_sent()
            # The answer is handled in a later poll, so nothing comes between.
            self._pending = yield from self._join_group.send()
        return self._pending

    def _complete(self, assignment: bytes) -> Flow[None]:
        membership = self._context.membership
        if not membership.generation.is_reset and membership.state is MemberState.STABLE:
            # If this throws before it is through, the join stays, and the next poll tries the same assignment again.
            yield from self._rebalance.complete(membership.generation, assignment)
            self._pending = None
            membership.needs_join_prepare = True
        else:
            membership.overtaken()
            self._pending = None

    def _takes_failure(self, error: ClientException) -> bool:
        """Asks for another join. Returns whether it is to be at once.

        Raises:
            ClientException: the error, if another attempt would meet it again.
        """
        self._pending = None
        if error.class_name != "MemberIdRequiredException":
            self._context.membership.request_rejoin(f"rebalance failed due to {error.class_name}")
        if error.class_name in _REJOIN_AT_ONCE:
            return True
        if not error.retriable:
            raise error
        return False
