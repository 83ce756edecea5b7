"""SyncGroup of classic groups: every branch of the group synchronisation, and storing the group before answering.

Source: GroupMetadataManager.classicGroupSyncToClassicGroup; the description of handleSyncGroup and doSyncGroup.
"""

from __future__ import annotations

from coordinator_udf.groups.classic.answers import SYNC_EXTENSIONS_VERSION, answer_assignment
from coordinator_udf.groups.classic.rebalance import propagate_assignment, rebalance_or_complete_join, reset_assignment
from coordinator_udf.groups.classic.resync import begin_resync, resync_asked
from coordinator_udf.groups.classic.stored_group import store_assignment
from coordinator_udf.groups.classic.sync_failure import answer_failure, fail_sync
from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model import timers
from coordinator_udf.groups.model.classic import ClassicGroup, Parked, ResyncMode, SyncFailure
from coordinator_udf.groups.model.classic_states import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    GroupEvent,
)
from coordinator_udf.groups.model.timers import TimerKey
from coordinator_udf.protocol.errors import ApiError, Errors
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.protocol.requests import SyncGroup

_REQUIRES_PROTOCOL_NAMES = 5
_NONE = Errors.NONE
_NO_RESYNC = ResyncMode.NONE
_CODES = frozenset(map(int, Errors))


def lacks_protocol_names(row: Request, body: SyncGroup) -> bool:
    """Returns whether a request that must name protocol type and name (version 5 on, KIP-559) doesn't."""
    return row.api_version >= _REQUIRES_PROTOCOL_NAMES and (body.protocol_type is None or body.protocol_name is None)


def sync_group(ctx: Context, group: ClassicGroup, row: Request, body: SyncGroup) -> None:
    """Answers a SyncGroup, or parks it until the leader's assignment is there; stores the leader's assignment.

    Raises:
        ApiError: the request is refused.
    """
    _validate(group, body)
    state, member_id = group.state, body.member_id
    member = group.members[member_id]
    if state is PREPARING_REBALANCE:
        raise ApiError(Errors.REBALANCE_IN_PROGRESS)
    extensions = ctx.settings.group_classic_client_extensions_enable and row.api_version >= SYNC_EXTENSIONS_VERSION
    leads = group.leader == member_id
    if state is COMPLETING_REBALANCE:
        if group.sync_failure is not None:
            group.pending_sync.pop(member_id, None)
            answer_failure(ctx, group, member, row.request_id, row.api_version)
            return
        member.awaiting_sync = Parked(row.request_id, row.api_version)
        _synced(ctx, group, member_id)
        if leads and extensions and body.sync_error_code:
            fail_sync(ctx, group, SyncFailure(_known_code(body.sync_error_code), body.sync_error_reason))
        elif leads:
            _store(ctx, group, body)
    elif leads and extensions and body.resync:
        begin_resync(ctx, group, row, body)
    elif group.resync is not _NO_RESYNC:
        resync_asked(ctx, group, member, row, body)
    else:
        _synced(ctx, group, member_id)
        answer_assignment(ctx, group, member, row.request_id, row.api_version)


def _known_code(code: int) -> int:
    """Returns an error code that any client can read; another one stands for an error that nobody foresaw."""
    return code if code in _CODES else int(Errors.UNKNOWN_SERVER_ERROR)


def _validate(group: ClassicGroup, body: SyncGroup) -> None:
    if group.state is DEAD:
        raise ApiError(Errors.COORDINATOR_NOT_AVAILABLE)
    if group.state is EMPTY:
        raise ApiError(Errors.UNKNOWN_MEMBER_ID)
    group.validate_member(body.member_id, body.group_instance_id)
    if body.generation_id != group.generation_id:
        raise ApiError(Errors.ILLEGAL_GENERATION)
    for asked, have in ((body.protocol_type, group.protocol_type), (body.protocol_name, group.protocol_name)):
        if asked != have and asked is not None and have is not None:
            raise ApiError(Errors.INCONSISTENT_GROUP_PROTOCOL)


def _synced(ctx: Context, group: ClassicGroup, member_id: str) -> None:
    """Counts one member less to wait for; the sync phase's timer ends with the last."""
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
    store_assignment(ctx, group, assigned, sizes)
    propagate_assignment(ctx, group, _NONE)
    ctx.move(group, GroupEvent.LEADER_SYNCED, f"Assignment received from leader {body.member_id}")
