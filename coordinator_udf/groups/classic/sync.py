"""SyncGroup of classic groups: every branch of the group synchronisation, and storing the group before answering.

Source: GroupMetadataManager.classicGroupSyncToClassicGroup; the description of handleSyncGroup and doSyncGroup.
"""

from __future__ import annotations

from coordinator_udf.groups.classic.rebalance import (
    answer_assignment,
    propagate_assignment,
    rebalance_or_complete_join,
    reset_assignment,
)
from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model import timers
from coordinator_udf.groups.model.classic import AssignmentRef, ClassicGroup, Parked
from coordinator_udf.groups.model.classic_states import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    GroupEvent,
)
from coordinator_udf.groups.model.timers import TimerKey
from coordinator_udf.groups.records.classic import (
    GROUP_METADATA,
    GROUP_METADATA_VALUE_VERSION,
    group_metadata_key,
    group_metadata_value,
)
from coordinator_udf.protocol.errors import ApiError, Errors
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.protocol.requests import SyncGroup

_REQUIRES_PROTOCOL_NAMES = 5


def lacks_protocol_names(row: Request, body: SyncGroup) -> bool:
    """Whether a request that must name protocol type and name (version 5 on, KIP-559) doesn't."""
    return row.api_version >= _REQUIRES_PROTOCOL_NAMES and (body.protocol_type is None or body.protocol_name is None)


def sync_group(ctx: Context, group: ClassicGroup, row: Request, body: SyncGroup) -> None:
    """Answers a SyncGroup, or parks it until the leader's assignment is there; stores the leader's assignment.

    Raises:
        ApiError: the request is refused.
    """
    _validate(group, body)
    member = group.members[body.member_id]
    if group.state is PREPARING_REBALANCE:
        raise ApiError(Errors.REBALANCE_IN_PROGRESS)
    if group.state is COMPLETING_REBALANCE:
        member.awaiting_sync = Parked(row.request_id, row.api_version)
        _synced(ctx, group, body.member_id)
        if group.leader == body.member_id:
            _store(ctx, group, body)
        return
    _synced(ctx, group, body.member_id)
    answer_assignment(ctx, group, member, row.request_id, row.api_version)


def _validate(group: ClassicGroup, body: SyncGroup) -> None:
    if group.state is DEAD:
        raise ApiError(Errors.COORDINATOR_NOT_AVAILABLE)
    if group.state is EMPTY:
        raise ApiError(Errors.UNKNOWN_MEMBER_ID)
    group.validate_member(body.member_id, body.group_instance_id)
    if body.generation_id != group.generation_id:
        raise ApiError(Errors.ILLEGAL_GENERATION)
    if _differ(body.protocol_type, group.protocol_type) or _differ(body.protocol_name, group.protocol_name):
        raise ApiError(Errors.INCONSISTENT_GROUP_PROTOCOL)


def _differ(asked: str | None, have: str | None) -> bool:
    return asked != have and asked is not None and have is not None


def _synced(ctx: Context, group: ClassicGroup, member_id: str) -> None:
    """One member less to wait for; the sync phase's timer ends with the last."""
    group.pending_sync.pop(member_id, None)
    if not group.pending_sync:
        ctx.timers.cancel(TimerKey(timers.SYNC, group.group_id))


def _store(ctx: Context, group: ClassicGroup, body: SyncGroup) -> None:
    """Writes the group with the leader's assignment, then tells the members. Who was forgotten gets an empty one."""
    assigned = {entry.member_id: entry.assignment for entry in body.assignments}
    sizes = {member_id: len(assigned.get(member_id, b"")) for member_id in group.members}
    if not ctx.fits_group(group, sizes):
        reset_assignment(ctx, group, Errors.UNKNOWN_SERVER_ERROR)
        reason = (
            f"Error UNKNOWN_SERVER_ERROR when storing group assignment during SyncGroup (member: {body.member_id})."
        )
        rebalance_or_complete_join(ctx, group, GroupEvent.STORE_FAILED, reason)
        return
    offset = ctx.end_offset
    # Only the conversion to a consumer group reads an assignment again, in the request that converts: no join can help.
    may_convert = group.uses_consumer_protocol() and ctx.settings.allows_online_upgrade()
    for member in group.members.values():
        size = sizes[member.member_id]
        data = assigned[member.member_id] if may_convert and size else None
        member.assignment = AssignmentRef(offset, member.member_id, size, data) if size else None
    ctx.append(
        GROUP_METADATA,
        group_metadata_key(group.group_id),
        GROUP_METADATA_VALUE_VERSION,
        group_metadata_value(group),
        refs=(offset,) if any(sizes.values()) else (),
    )
    brought = {member_id: assigned[member_id] for member_id, size in sizes.items() if size}
    ctx.store_assignments(group.group_id, offset, brought)
    propagate_assignment(ctx, group, Errors.NONE)
    ctx.move(group, GroupEvent.LEADER_SYNCED, f"Assignment received from leader {body.member_id}")
