"""The states of a classic group and every way from one to another.

All transitions are in `TRANSITIONS`; what isn't there can't happen and raises `IllegalTransition`. The documentation's
table is drawn from it (scripts/draw_states). Source: Kafka's ClassicGroupState and the places that call transitionTo.
"""

from __future__ import annotations

from enum import StrEnum


class ClassicGroupState(StrEnum):
    """The five states. The values are what DescribeGroups and ListGroups say."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


#: The states by name, for what every request asks: Python 3.11 takes longer to find a member in its class.
EMPTY, PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE, DEAD = ClassicGroupState


class GroupEvent(StrEnum):
    """What moves a group. The value stands as ``rule`` in group_transitions."""

    #: A request or a record made a group that wasn't there.
    CREATED = "CREATED"
    #: The group was read back from the offsets table.
    LOADED = "LOADED"
    #: A new member joined.
    MEMBER_ADDED = "MEMBER_ADDED"
    #: A member joined again with other metadata.
    MEMBER_UPDATED = "MEMBER_UPDATED"
    #: The leader joined again, which always asks for a new assignment.
    LEADER_REJOINED = "LEADER_REJOINED"
    #: A static member came back under a new member id before the assignment was there.
    STATIC_MEMBER_REPLACED = "STATIC_MEMBER_REPLACED"
    #: A static member came back and the vote for the protocol would now end differently.
    STATIC_PROTOCOL_CHANGED = "STATIC_PROTOCOL_CHANGED"
    #: Members left by LeaveGroup.
    MEMBER_LEFT = "MEMBER_LEFT"
    #: A member's session expired.
    SESSION_EXPIRED = "SESSION_EXPIRED"
    #: Somebody who was given a member id didn't join with it in time; the group doesn't change.
    PENDING_MEMBER_EXPIRED = "PENDING_MEMBER_EXPIRED"
    #: Members didn't send their SyncGroup within the rebalance timeout.
    SYNC_EXPIRED = "SYNC_EXPIRED"
    #: The group with its assignments could not be stored.
    STORE_FAILED = "STORE_FAILED"
    #: Records were too large, and Kafka went back to what its log held, in which nothing was of this group.
    REVERTED = "REVERTED"
    #: The group was loaded with more members than group.max.size allows.
    OVER_CAPACITY = "OVER_CAPACITY"
    #: The last member that the join phase waited for has joined, or is gone.
    ALL_JOINED = "ALL_JOINED"
    #: The join phase ended by its timer (the rebalance timeout, or the initial delay).
    JOIN_EXPIRED = "JOIN_EXPIRED"
    #: The join phase ended and nobody was there.
    EMPTIED = "EMPTIED"
    #: The leader's assignment was stored.
    LEADER_SYNCED = "LEADER_SYNCED"
    #: The leader said that it can't compute an assignment, and who waits for one was told (an extension).
    LEADER_SYNC_FAILED = "LEADER_SYNC_FAILED"
    #: The leader that couldn't compute an assignment didn't join again within the rebalance timeout.
    SYNC_FAILURE_EXPIRED = "SYNC_FAILURE_EXPIRED"
    #: The leader replaced the assignment of the generation, and it was stored (an extension).
    LEADER_RESYNCED = "LEADER_RESYNCED"
    #: All members have the assignment that replaced the one before.
    RESYNC_COMPLETED = "RESYNC_COMPLETED"
    #: The leader wanted to replace the assignment of a generation of which not all members understand that.
    RESYNC_REFUSED = "RESYNC_REFUSED"
    #: A member joined, or asked for an assignment that it must not have yet, while others were still to be told theirs.
    RESYNC_ABORTED = "RESYNC_ABORTED"
    #: A classic group became a consumer group, for a member of the consumer protocol joined.
    UPGRADED = "UPGRADED"
    #: A consumer group became a classic group, for the last member of the consumer protocol left.
    DOWNGRADED = "DOWNGRADED"
    #: A member of a consumer group came closer to its target assignment.
    RECONCILED = "RECONCILED"
    #: A topic to which members of a consumer group are subscribed came, went or grew.
    TOPICS_CHANGED = "TOPICS_CHANGED"
    #: A regular expression was matched against the topics that there are.
    REGEX_RESOLVED = "REGEX_RESOLVED"
    #: A member of a consumer group didn't give up its partitions within the rebalance timeout.
    REBALANCE_EXPIRED = "REBALANCE_EXPIRED"
    #: A member of a consumer group was told to compute its assignment.
    ASSIGNMENT_ASKED = "ASSIGNMENT_ASKED"
    #: The assignment that a member computed was stored.
    ASSIGNMENT_INSTALLED = "ASSIGNMENT_INSTALLED"
    #: A member's assignor failed.
    ASSIGNMENT_FAILED = "ASSIGNMENT_FAILED"
    #: An assignment that a member computed was refused.
    ASSIGNMENT_REFUSED = "ASSIGNMENT_REFUSED"
    #: A member didn't compute the assignment within its rebalance timeout.
    ASSIGNMENT_LATE = "ASSIGNMENT_LATE"
    #: DeleteGroups, or the conversion to another kind of group.
    DELETED = "DELETED"
    #: All offsets of an empty group expired.
    OFFSETS_EXPIRED = "OFFSETS_EXPIRED"
    #: The shard went elsewhere.
    UNLOADED = "UNLOADED"


_S = ClassicGroupState
_E = GroupEvent

TRANSITIONS: dict[tuple[ClassicGroupState, GroupEvent], ClassicGroupState] = {
    (_S.EMPTY, _E.MEMBER_ADDED): _S.PREPARING_REBALANCE,
    (_S.PREPARING_REBALANCE, _E.ALL_JOINED): _S.COMPLETING_REBALANCE,
    (_S.PREPARING_REBALANCE, _E.JOIN_EXPIRED): _S.COMPLETING_REBALANCE,
    (_S.PREPARING_REBALANCE, _E.EMPTIED): _S.EMPTY,
    (_S.COMPLETING_REBALANCE, _E.LEADER_SYNCED): _S.STABLE,
    (_S.COMPLETING_REBALANCE, _E.MEMBER_ADDED): _S.PREPARING_REBALANCE,
    (_S.COMPLETING_REBALANCE, _E.MEMBER_UPDATED): _S.PREPARING_REBALANCE,
    (_S.COMPLETING_REBALANCE, _E.STATIC_MEMBER_REPLACED): _S.PREPARING_REBALANCE,
    (_S.COMPLETING_REBALANCE, _E.MEMBER_LEFT): _S.PREPARING_REBALANCE,
    (_S.COMPLETING_REBALANCE, _E.SESSION_EXPIRED): _S.PREPARING_REBALANCE,
    (_S.COMPLETING_REBALANCE, _E.SYNC_EXPIRED): _S.PREPARING_REBALANCE,
    (_S.COMPLETING_REBALANCE, _E.STORE_FAILED): _S.PREPARING_REBALANCE,
    (_S.COMPLETING_REBALANCE, _E.LEADER_SYNC_FAILED): _S.COMPLETING_REBALANCE,
    (_S.COMPLETING_REBALANCE, _E.LEADER_REJOINED): _S.PREPARING_REBALANCE,
    (_S.COMPLETING_REBALANCE, _E.SYNC_FAILURE_EXPIRED): _S.PREPARING_REBALANCE,
    (_S.STABLE, _E.LEADER_RESYNCED): _S.STABLE,
    (_S.STABLE, _E.RESYNC_COMPLETED): _S.STABLE,
    (_S.STABLE, _E.RESYNC_REFUSED): _S.PREPARING_REBALANCE,
    (_S.STABLE, _E.RESYNC_ABORTED): _S.PREPARING_REBALANCE,
    (_S.STABLE, _E.STORE_FAILED): _S.PREPARING_REBALANCE,
    (_S.STABLE, _E.MEMBER_ADDED): _S.PREPARING_REBALANCE,
    (_S.STABLE, _E.MEMBER_UPDATED): _S.PREPARING_REBALANCE,
    (_S.STABLE, _E.LEADER_REJOINED): _S.PREPARING_REBALANCE,
    (_S.STABLE, _E.STATIC_PROTOCOL_CHANGED): _S.PREPARING_REBALANCE,
    (_S.STABLE, _E.MEMBER_LEFT): _S.PREPARING_REBALANCE,
    (_S.STABLE, _E.SESSION_EXPIRED): _S.PREPARING_REBALANCE,
    (_S.STABLE, _E.SYNC_EXPIRED): _S.PREPARING_REBALANCE,
    (_S.STABLE, _E.OVER_CAPACITY): _S.PREPARING_REBALANCE,
    (_S.STABLE, _E.DOWNGRADED): _S.PREPARING_REBALANCE,
    (_S.EMPTY, _E.DELETED): _S.DEAD,
    (_S.EMPTY, _E.OFFSETS_EXPIRED): _S.DEAD,
    # Nothing was ever written of the group, so it never was.
    **{(state, _E.REVERTED): _S.DEAD for state in (_S.EMPTY, _S.PREPARING_REBALANCE, _S.COMPLETING_REBALANCE)},
    **{(state, _E.UNLOADED): _S.DEAD for state in _S if state is not _S.DEAD},
}

#: The states in which a rebalance may begin (ClassicGroup.canRebalance).
CAN_REBALANCE = frozenset(
    state for (state, _), target in TRANSITIONS.items() if target is ClassicGroupState.PREPARING_REBALANCE
)


class IllegalTransition(Exception):
    """An event in a state that doesn't know it: a defect of ours, never an answer to a request."""

    def __init__(self, group_id: str, state: ClassicGroupState, event: GroupEvent) -> None:
        super().__init__(f"group {group_id!r} in state {state} can't take the event {event}")


def next_state(group_id: str, state: ClassicGroupState, event: GroupEvent) -> ClassicGroupState:
    """Returns the state after an event.

    Raises:
        IllegalTransition: `TRANSITIONS` has no such row.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(group_id, state, event) from None
