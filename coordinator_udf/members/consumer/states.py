"""The states of a member of the consumer protocol and every way from one to another.

All transitions are in `TRANSITIONS`; what isn't there can't happen and raises Java's IllegalStateException, as Kafka's
member does. The documentation's table is drawn from it (docs/kip-848-member.md). Source: Kafka's MemberState, and the
places in AbstractMembershipManager that call transitionTo.
"""

from __future__ import annotations

from enum import StrEnum

from coordinator_udf.members.exceptions import illegal_state


class MemberState(StrEnum):
    """The ten states."""

    #: Not subscribed: never was, or has left. It may commit offsets; it sends no heartbeats.
    UNSUBSCRIBED = "UNSUBSCRIBED"
    #: Wants to join, with heartbeats of epoch 0 that hold all fields, until an answer brings an assignment.
    JOINING = "JOINING"
    #: Has an assignment that isn't in effect yet: waits for metadata, commits, revokes, assigns. Heartbeats go on.
    RECONCILING = "RECONCILING"
    #: The assignment is in effect; the heartbeat that says so is due at once.
    ACKNOWLEDGING = "ACKNOWLEDGING"
    #: All that was received is in effect. Heartbeats on the interval.
    STABLE = "STABLE"
    #: The coordinator doesn't know the member (or this epoch of it). It gives up its partitions and joins again.
    FENCED = "FENCED"
    #: Leaves: the callback that gives up its partitions runs. Heartbeats go on.
    PREPARE_LEAVING = "PREPARE_LEAVING"
    #: The heartbeat that says so, of epoch -1 or -2, is due at once.
    LEAVING = "LEAVING"
    #: A heartbeat failed for good. The end.
    FATAL = "FATAL"
    #: Has left, for its application didn't poll within max.poll.interval.ms. Its next poll rejoins.
    STALE = "STALE"


class MemberEvent(StrEnum):
    """What moves a member."""

    #: A poll after a subscription.
    SUBSCRIBED = "SUBSCRIBED"
    #: An answer brought an assignment other than the one in effect.
    ASSIGNMENT_RECEIVED = "ASSIGNMENT_RECEIVED"
    #: An answer brought the assignment that is in effect.
    ASSIGNMENT_IN_EFFECT = "ASSIGNMENT_IN_EFFECT"
    #: The reconciliation is through: commit, revocation, assignment and their callbacks.
    RECONCILED = "RECONCILED"
    #: The heartbeat that acknowledges is made, and all that was received is in effect.
    ACKNOWLEDGED = "ACKNOWLEDGED"
    #: The heartbeat that acknowledges is made; there is more to reconcile.
    ACKNOWLEDGED_IN_PART = "ACKNOWLEDGED_IN_PART"
    #: FENCED_MEMBER_EPOCH or UNKNOWN_MEMBER_ID.
    MEMBER_FENCED = "MEMBER_FENCED"
    #: The fenced member has given up its partitions.
    LOST_ASSIGNMENT_RELEASED = "LOST_ASSIGNMENT_RELEASED"
    #: unsubscribe or close was called.
    LEAVE_CALLED = "LEAVE_CALLED"
    #: max.poll.interval.ms is over.
    POLL_TIMER_EXPIRED = "POLL_TIMER_EXPIRED"
    #: The leaving member has given up its partitions, or keeps them until it is stale.
    READY_TO_LEAVE = "READY_TO_LEAVE"
    #: The heartbeat that leaves is made.
    LEAVE_SENT = "LEAVE_SENT"
    #: The heartbeat that leaves is made, for the application didn't poll.
    LEAVE_SENT_BY_POLL_TIMER = "LEAVE_SENT_BY_POLL_TIMER"
    #: Leaving without a heartbeat: the coordinator is unknown, or has fenced the member.
    LEFT_UNSENT = "LEFT_UNSENT"
    #: The stale member's application polls again, and its partitions are given up.
    POLLED_AGAIN = "POLLED_AGAIN"
    #: A heartbeat failed with an error that nothing mends.
    FATAL_ERROR = "FATAL_ERROR"


_S = MemberState
_E = MemberEvent
_IN_GROUP = (_S.JOINING, _S.STABLE, _S.RECONCILING, _S.ACKNOWLEDGING)

#: Where an event leads, and from where it may come.
_WAYS: dict[MemberEvent, tuple[MemberState, tuple[MemberState, ...]]] = {
    _E.SUBSCRIBED: (_S.JOINING, (_S.UNSUBSCRIBED,)),
    _E.ASSIGNMENT_RECEIVED: (_S.RECONCILING, _IN_GROUP),
    _E.ASSIGNMENT_IN_EFFECT: (_S.STABLE, (_S.JOINING, _S.RECONCILING)),
    _E.RECONCILED: (_S.ACKNOWLEDGING, (_S.RECONCILING,)),
    _E.ACKNOWLEDGED: (_S.STABLE, (_S.ACKNOWLEDGING,)),
    _E.ACKNOWLEDGED_IN_PART: (_S.RECONCILING, (_S.ACKNOWLEDGING,)),
    _E.MEMBER_FENCED: (_S.FENCED, (*_IN_GROUP, _S.FENCED)),
    _E.LOST_ASSIGNMENT_RELEASED: (_S.JOINING, (_S.FENCED,)),
    _E.LEAVE_CALLED: (_S.PREPARE_LEAVING, _IN_GROUP),
    _E.POLL_TIMER_EXPIRED: (_S.PREPARE_LEAVING, (*_IN_GROUP, _S.PREPARE_LEAVING)),
    _E.READY_TO_LEAVE: (_S.LEAVING, (_S.PREPARE_LEAVING,)),
    _E.LEAVE_SENT: (_S.UNSUBSCRIBED, (_S.LEAVING,)),
    _E.LEAVE_SENT_BY_POLL_TIMER: (_S.STALE, (_S.LEAVING,)),
    _E.LEFT_UNSENT: (_S.UNSUBSCRIBED, (_S.LEAVING, _S.FENCED)),
    _E.POLLED_AGAIN: (_S.JOINING, (_S.STALE, _S.JOINING)),
    _E.FATAL_ERROR: (_S.FATAL, (*_IN_GROUP, _S.PREPARE_LEAVING, _S.LEAVING, _S.UNSUBSCRIBED, _S.FATAL)),
}

TRANSITIONS: dict[tuple[MemberState, MemberEvent], MemberState] = {
    (source, event): target for event, (target, sources) in _WAYS.items() for source in sources
}

#: In these the member sends no heartbeats.
WITHOUT_HEARTBEATS = frozenset({_S.UNSUBSCRIBED, _S.FATAL, _S.STALE, _S.FENCED})
#: In these it is no member of the group.
NOT_IN_GROUP = WITHOUT_HEARTBEATS
#: In these the next heartbeat doesn't wait for the interval.
HEARTBEAT_NOW = frozenset({_S.ACKNOWLEDGING, _S.LEAVING, _S.JOINING})
#: In these an answer's assignment counts.
TAKES_ASSIGNMENT = frozenset(_IN_GROUP)
#: In these it is about to leave.
LEAVING = frozenset({_S.PREPARE_LEAVING, _S.LEAVING})


def next_state(state: MemberState, event: MemberEvent) -> MemberState:
    """Returns the state after an event.

    Raises:
        ClientException: `TRANSITIONS` has no such row (IllegalStateException).
    """
    target = TRANSITIONS.get((state, event))
    if target is None:
        raise illegal_state(f"Invalid state transition from {state} by {event}")
    return target
