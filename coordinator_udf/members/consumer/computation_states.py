"""How far a member is that computes its group's assignment (KIP-848's client-side mode), beside its `MemberState`.

All transitions are in `TRANSITIONS`; what isn't there can't happen and raises Java's IllegalStateException. The
documentation's table is drawn from it (docs/client-side-assignment.md). Source: KIP-848; Kafka's client
has nothing of it.
"""

from __future__ import annotations

from enum import StrEnum

from coordinator_udf.members.exceptions import illegal_state


class ComputationState(StrEnum):
    """The five states."""

    #: Nothing is to be computed.
    IDLE = "IDLE"
    #: Was told to compute; ConsumerGroupPrepareAssignment is to be sent.
    TOLD = "TOLD"
    #: ConsumerGroupPrepareAssignment is on its way; with its answer the assignor runs.
    PREPARING = "PREPARING"
    #: ConsumerGroupInstallAssignment, with what the assignor gave, is on its way.
    INSTALLING = "INSTALLING"
    #: The coordinator knows the member by another epoch: waits for the heartbeat that brings it.
    WAITING_FOR_EPOCH = "WAITING_FOR_EPOCH"


class ComputationEvent(StrEnum):
    """What moves a computation."""

    #: The answer to a heartbeat says that the member is to compute.
    TOLD = "TOLD"
    #: The answer to a heartbeat doesn't say it.
    NOT_TOLD = "NOT_TOLD"
    #: ConsumerGroupPrepareAssignment was sent.
    PREPARE_SENT = "PREPARE_SENT"
    #: The group's state is here, and the assignor has run or has failed: ConsumerGroupInstallAssignment is sent.
    COMPUTED = "COMPUTED"
    #: The assignment, or the assignor's error, was installed.
    INSTALLED = "INSTALLED"
    #: STALE_MEMBER_EPOCH.
    EPOCH_IS_STALE = "EPOCH_IS_STALE"
    #: The request failed in a way that another attempt may mend.
    ATTEMPT_FAILED = "ATTEMPT_FAILED"
    #: UNKNOWN_MEMBER_ID, INVALID_ASSIGNMENT or another error that says that it isn't this member's to do.
    REFUSED = "REFUSED"
    #: The member is not, or not for long, in the group.
    LEFT_GROUP = "LEFT_GROUP"


_S = ComputationState
_E = ComputationEvent
_UNDER_WAY = (_S.PREPARING, _S.INSTALLING)

#: Where an event leads, and from where it may come.
_WAYS: dict[ComputationEvent, tuple[tuple[ComputationState, tuple[ComputationState, ...]], ...]] = {
    _E.TOLD: (
        (_S.TOLD, (_S.IDLE, _S.TOLD, _S.WAITING_FOR_EPOCH)),
        # What is under way goes on.
        (_S.PREPARING, (_S.PREPARING,)),
        (_S.INSTALLING, (_S.INSTALLING,)),
    ),
    _E.NOT_TOLD: (
        (_S.IDLE, (_S.IDLE, _S.TOLD, _S.WAITING_FOR_EPOCH)),
        # The coordinator says whether it still wants it.
        (_S.PREPARING, (_S.PREPARING,)),
        (_S.INSTALLING, (_S.INSTALLING,)),
    ),
    _E.PREPARE_SENT: ((_S.PREPARING, (_S.TOLD,)),),
    _E.COMPUTED: ((_S.INSTALLING, (_S.PREPARING,)),),
    _E.INSTALLED: ((_S.IDLE, (_S.INSTALLING,)),),
    _E.EPOCH_IS_STALE: ((_S.WAITING_FOR_EPOCH, _UNDER_WAY),),
    _E.ATTEMPT_FAILED: ((_S.TOLD, _UNDER_WAY),),
    _E.REFUSED: ((_S.IDLE, _UNDER_WAY),),
    _E.LEFT_GROUP: ((_S.IDLE, tuple(_S)),),
}

TRANSITIONS: dict[tuple[ComputationState, ComputationEvent], ComputationState] = {
    (source, event): target for event, ways in _WAYS.items() for target, sources in ways for source in sources
}


def next_state(state: ComputationState, event: ComputationEvent) -> ComputationState:
    """Returns the state after an event.

    Raises:
        ClientException: `TRANSITIONS` has no such row (IllegalStateException).
    """
    target = TRANSITIONS.get((state, event))
    if target is None:
        raise illegal_state(f"Invalid transition of a computation from {state} by {event}")
    return target
