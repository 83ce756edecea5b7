"""A group as another coordinator's answers tell it: a replay puts it in the place of its own where those part."""

from __future__ import annotations

from typing import Final

import msgspec

from coordinator_udf.groups.classic.answers import answer_sync
from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model import timers as kinds
from coordinator_udf.groups.model.classic import AssignmentRef, ClassicGroup
from coordinator_udf.groups.model.classic_states import ClassicGroupState, GroupEvent
from coordinator_udf.groups.model.offsets import TopicOffsets
from coordinator_udf.groups.model.timers import TimerKey
from coordinator_udf.groups.records.classic import (
    GROUP_METADATA,
    GROUP_METADATA_VALUE_VERSION,
    group_metadata_key,
    group_metadata_value,
)
from coordinator_udf.groups.store import Group
from coordinator_udf.protocol.errors import BadRequest, Errors
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.shard.state import ShardState

#: The type of the entry of a shard's own log that a row AdoptGroup leaves, for the state to be loaded again.
ADOPTED: Final = "AdoptGroup"
#: Where a classic group is rebalancing its last generation alone is on record.
_NOT_ON_RECORD = frozenset({ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.COMPLETING_REBALANCE})
_KINDS = (kinds.SESSION, kinds.JOIN, kinds.SYNC, kinds.REBALANCE)


class ArmedTimer(msgspec.Struct, frozen=True, array_like=True):
    """One of the group's timers; its deadline in milliseconds of log time."""

    kind: str
    member_id: str
    deadline_ms: int
    data: tuple[int, ...] = ()


class Adoption(msgspec.Struct, frozen=True, rename="camel"):
    """The body of a row AdoptGroup.

    Attributes:
        group: what the group is from now on; None if it isn't there any more.
        timers: all of its timers.
        assignments: what the members of a classic group were assigned, as the leader sent it.
        offsets: what is committed, in place of what was; None to leave that as it is.
    """

    group_id: str
    group: Group | None
    timers: tuple[ArmedTimer, ...] = ()
    assignments: dict[str, bytes] = {}
    offsets: TopicOffsets | None = None


_decode = msgspec.json.Decoder(Adoption).decode


def encode_adoption(adoption: Adoption) -> str:
    """Returns the body of the row."""
    return msgspec.json.encode(adoption).decode()


def adopt_group(shard: ShardState, row: Request) -> None:
    """Puts a group in the place of the shard's own. Who waited for an answer there isn't answered.

    But for those that waited for an assignment, where a rebalance begins: they are told to join again.

    Raises:
        BadRequest: the body is no `Adoption`.
    """
    try:
        adoption = _decode(row.body or "")
        if any(timer.kind not in _KINDS for timer in adoption.timers):
            raise ValueError(f"timers of kinds {sorted({timer.kind for timer in adoption.timers})}")
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BadRequest("body of AdoptGroup", (row.body or "")[:80], f"a group and its timers ({error})") from error
    ctx, group_id, group = shard.ctx, adoption.group_id, adoption.group
    previous = shard.store.groups.get(group_id)
    _disarm(shard, group_id)
    _take_offsets(shard, adoption)
    if isinstance(group, ClassicGroup) and group.state is ClassicGroupState.PREPARING_REBALANCE:
        _end_syncs(ctx, previous)
    if group is None:
        shard.store.groups.pop(group_id, None)
        return
    shard.store.groups[group_id] = group
    rebalances = isinstance(group, ClassicGroup) and group.state in _NOT_ON_RECORD
    if ctx.appended is not None and not rebalances:
        # What a coordinator didn't load stands in its log all the same, and may be loaded later.
        ctx.appended.append((ctx.end_offset, ADOPTED, {"body": row.body}, None, None))
    for timer in adoption.timers:
        ctx.timers.arm(TimerKey(timer.kind, group_id, timer.member_id), timer.deadline_ms, *timer.data)
    if isinstance(group, ClassicGroup):
        _store_assignments(shard, group, adoption.assignments)
    ctx.note(group, None if previous is None else previous.state, GroupEvent.LOADED, "adopted from what was answered")


def _end_syncs(ctx: Context, group: Group | None) -> None:
    if isinstance(group, ClassicGroup) and group.state is ClassicGroupState.COMPLETING_REBALANCE:
        for member in group.in_order():
            answer_sync(ctx, group, member, Errors.REBALANCE_IN_PROGRESS)


def load_adopted(shard: ShardState, body: str) -> None:
    """Brings back what `adopt_group` put in place, as far as it is on record: nobody waits, nobody is about to come."""
    adoption = _decode(body)
    group = adoption.group
    _take_offsets(shard, adoption)
    shard.store.groups.pop(adoption.group_id, None)
    if isinstance(group, ClassicGroup):
        for member in group.members.values():
            member.assignment = member.awaiting_join = member.awaiting_sync = None
        group.awaiting_join_count, group.pending_join, group.pending_sync = 0, {}, {}
        group.state = ClassicGroupState.STABLE if group.members else ClassicGroupState.EMPTY
    if group is not None and not (isinstance(group, ClassicGroup) and group.members and not group.generation_id):
        shard.store.groups[adoption.group_id] = group


def _take_offsets(shard: ShardState, adoption: Adoption) -> None:
    if adoption.offsets is None:
        return
    shard.store.offsets.committed.pop(adoption.group_id, None)
    if adoption.offsets:
        shard.store.offsets.committed[adoption.group_id] = adoption.offsets


def _disarm(shard: ShardState, group_id: str) -> None:
    for timer in shard.ctx.timers.in_order():
        if timer.key.group_id == group_id and timer.key.kind in _KINDS:
            shard.ctx.timers.cancel(timer.key)


def _store_assignments(shard: ShardState, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
    """Writes the group's record as a leader's SyncGroup does, for the assignments to be found."""
    ctx = shard.ctx
    offset = ctx.end_offset
    may_convert = group.uses_consumer_protocol() and ctx.settings.allows_online_upgrade()
    for member in group.members.values():
        # Where they lay in another log says nothing here.
        member.assignment = None
    brought = {member_id: data for member_id, data in assignments.items() if data and member_id in group.members}
    for member_id, data in brought.items():
        ref = AssignmentRef(offset, member_id, len(data), data if may_convert else None)
        group.members[member_id].assignment = ref
    if not brought:
        return
    if group.protocol_name is not None:
        key, value = group_metadata_key(group.group_id), group_metadata_value(group)
        ctx.append(GROUP_METADATA, key, GROUP_METADATA_VALUE_VERSION, value, refs=(offset,) if brought else ())
    ctx.store_assignments(group.group_id, offset, brought)
