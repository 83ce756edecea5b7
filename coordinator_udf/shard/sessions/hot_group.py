"""What a heartbeat needs of a classic group, without the group: so that most heartbeats touch nothing else.

A `HotGroup` says the same as the group itself as long as no request but heartbeats and offset requests, and none of its
timers, was handled since it was made; the shard throws it away before any other.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator_udf.groups.classic.heartbeat_leave import HEARTBEAT_ANSWERS
from coordinator_udf.groups.model.classic import ClassicGroup, ResyncMode
from coordinator_udf.groups.model.classic_states import ClassicGroupState
from coordinator_udf.groups.model.timers import TIMEOUT, Entry, Timers

#: Requests that change neither who is a member, nor the generation, nor the state.
HARMLESS = frozenset({"Heartbeat", "Tick", "OffsetCommit", "OffsetFetch", "TxnOffsetCommit", "OffsetDelete"} | {
    "DescribeGroups", "ListGroups", "TopicMetadata", "Describe", "EndTxn",
})  # fmt: skip


@dataclass(slots=True)
class HotGroup:
    """A group as heartbeats see it.

    Attributes:
        generation_id: the generation that a heartbeat must name.
        error_code: what a valid heartbeat is answered.
        sessions: member id -> session timer; one without a timeout is no member's.
        instances: group instance id -> member id.
    """

    generation_id: int
    error_code: int
    sessions: dict[str, Entry]
    instances: dict[str, str]


def heat(group: ClassicGroup, timers: Timers) -> HotGroup | None:
    """Returns the hot side of a group; None for one whose heartbeats need a closer look."""
    if group.state in (ClassicGroupState.EMPTY, ClassicGroupState.DEAD):
        return None
    if group.resync is not ResyncMode.NONE:
        # Answers tell some members to ask for their new assignments.
        return None
    sessions = timers.sessions_of(group.group_id)
    if not sessions:
        return None
    for member_id, entry in sessions.items():
        member = group.members.get(member_id)
        # A session without a length ends with the request that begins it, which takes the long way.
        entry[TIMEOUT] = None if member is None or member.session_timeout_ms < 1 else member.session_timeout_ms
    return HotGroup(group.generation_id, int(HEARTBEAT_ANSWERS[group.state]), sessions, group.static_members)
