"""The states of a classic member and every way from one to another.

All transitions are in `TRANSITIONS`; what isn't there can't happen and raises `IllegalTransition`. The documentation's
table is drawn from it. Source: AbstractCoordinator.MemberState and the places that set it.
"""

from __future__ import annotations

from enum import StrEnum


class MemberState(StrEnum):
    """The four states, under Kafka's names, and one of an extension."""

    #: No part of a group.
    UNJOINED = "UNJOINED"
    #: JoinGroup is sent, and not answered.
    PREPARING_REBALANCE = "PREPARING_REBALANCE"
    #: JoinGroup is answered, and the assignment isn't here.
    COMPLETING_REBALANCE = "COMPLETING_REBALANCE"
    #: The assignment is here.
    STABLE = "STABLE"
    #: In its generation as before, and about to ask, or asking, for the assignment that replaces the one that is here.
    RESYNCING = "RESYNCING"


class MemberEvent(StrEnum):
    """What moves a member."""

    #: The application's poll sends JoinGroup, for whichever reason a rejoin is needed.
    JOIN_SENT = "JOIN_SENT"
    #: A good answer to JoinGroup.
    JOIN_ANSWERED = "JOIN_ANSWERED"
    #: A good answer to SyncGroup.
    SYNC_ANSWERED = "SYNC_ANSWERED"
    #: The answer to a heartbeat says that there is a new assignment (an extension).
    RESYNC_TOLD = "RESYNC_TOLD"
    #: The leader has another assignment for its generation.
    RESYNC_BEGUN = "RESYNC_BEGUN"
    #: Nothing came of it: the member is about to join again.
    RESYNC_FAILED = "RESYNC_FAILED"
    #: An answer to JoinGroup, SyncGroup, Heartbeat or OffsetCommit says that member id or generation is no longer
    #: known, or has been fenced.
    GENERATION_LOST = "GENERATION_LOST"
    #: The member leaves: closed, unsubscribed, or max.poll.interval.ms is over.
    LEFT = "LEFT"
    #: An assignment came, but what came after it has taken the generation away before the application polled.
    REBALANCE_OVERTAKEN = "REBALANCE_OVERTAKEN"


_S = MemberState
_E = MemberEvent

TRANSITIONS: dict[tuple[MemberState, MemberEvent], MemberState] = {
    **{(state, _E.JOIN_SENT): _S.PREPARING_REBALANCE for state in _S},
    (_S.PREPARING_REBALANCE, _E.JOIN_ANSWERED): _S.COMPLETING_REBALANCE,
    (_S.COMPLETING_REBALANCE, _E.SYNC_ANSWERED): _S.STABLE,
    **{(state, _E.RESYNC_TOLD): _S.RESYNCING for state in (_S.STABLE, _S.RESYNCING)},
    **{(state, _E.RESYNC_BEGUN): _S.RESYNCING for state in (_S.STABLE, _S.RESYNCING)},
    (_S.RESYNCING, _E.SYNC_ANSWERED): _S.STABLE,
    (_S.RESYNCING, _E.RESYNC_FAILED): _S.STABLE,
    **{(state, _E.GENERATION_LOST): _S.UNJOINED for state in _S},
    **{(state, _E.LEFT): _S.UNJOINED for state in _S},
    **{(state, _E.REBALANCE_OVERTAKEN): _S.UNJOINED for state in _S},
}

#: The states in which the coordinator doesn't count on heartbeats (MemberState.hasNotJoinedGroup).
NOT_JOINED = frozenset({_S.UNJOINED, _S.PREPARING_REBALANCE})
#: The states in which the member has an assignment of its generation.
STEADY = frozenset({_S.STABLE, _S.RESYNCING})
#: The states of a rebalance that is under way.
REBALANCING = frozenset({_S.PREPARING_REBALANCE, _S.COMPLETING_REBALANCE})


class IllegalTransition(Exception):
    """An event in a state that doesn't know it: a late answer, which its handler refuses."""

    def __init__(self, state: MemberState, event: MemberEvent) -> None:
        super().__init__(f"a member in state {state} can't take the event {event}")


def next_state(state: MemberState, event: MemberEvent) -> MemberState:
    """Returns the state after an event.

    Raises:
        IllegalTransition: `TRANSITIONS` has no such row.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(state, event) from None
