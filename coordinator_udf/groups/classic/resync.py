"""A new assignment in the same generation, without a new join round: an extension after the proposal of 2015.

The leader sends SyncGroup again in Stable. If all members understand, the assignment is stored before anybody is told;
then heartbeats tell members to ask for it by SyncGroup. Where partitions change hands nobody is answered before all
members have said that they own nothing. A join ends it and begins an ordinary rebalance.
"""

from __future__ import annotations

from typing import Any

from coordinator_udf.groups.classic.answers import answer_assignment
from coordinator_udf.groups.classic.rebalance import prepare_rebalance, propagate_assignment
from coordinator_udf.groups.classic.stored_group import rewrite_group, store_assignment
from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model import timers
from coordinator_udf.groups.model.classic import ClassicGroup, Member, Parked, ResyncMode
from coordinator_udf.groups.model.classic_states import GroupEvent
from coordinator_udf.groups.model.timers import TimerKey
from coordinator_udf.protocol.errors import ApiError, Errors
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.protocol.requests import SyncGroup


def begin_resync(ctx: Context, group: ClassicGroup, row: Request, body: SyncGroup) -> None:
    """Takes the leader's new assignment for the generation that it is in, and answers the leader or parks its request.

    Raises:
        ApiError: REBALANCE_IN_PROGRESS where not all members understand, UNKNOWN_SERVER_ERROR where the group with the
            new assignment is too large for the log; an ordinary rebalance begins.
    """
    leader = group.members[body.member_id]
    if not group.understands_extensions():
        unaware = sum(not member.client_extensions for member in group.members.values())
        reason = f"Leader {leader.member_id} assigned anew, and {unaware} members can't be told without a rejoin"
        prepare_rebalance(ctx, group, GroupEvent.RESYNC_REFUSED, reason)
        raise ApiError(Errors.REBALANCE_IN_PROGRESS)
    _await_members(group, body)
    group.resync_epoch += 1
    assigned = {entry.member_id: entry.assignment for entry in body.assignments}
    sizes = {member_id: len(assigned.get(member_id, b"")) for member_id in group.members}
    if not ctx.fits_group(group, sizes):
        reason = f"Error UNKNOWN_SERVER_ERROR when storing another assignment (member: {body.member_id})"
        prepare_rebalance(ctx, group, GroupEvent.STORE_FAILED, reason)
        raise ApiError(Errors.UNKNOWN_SERVER_ERROR)
    store_assignment(ctx, group, assigned, sizes)
    received = f"Assignment {group.resync_epoch + 1} of the generation received from leader {body.member_id}"
    told = f"{len(group.pending_sync)} members are told by their heartbeats"
    ctx.move(group, GroupEvent.LEADER_RESYNCED, f"{received}; {told}")
    if group.resync is ResyncMode.NONE:
        ctx.move(group, GroupEvent.RESYNC_COMPLETED)
    else:
        arm_resync(ctx, group)
    if group.resync is ResyncMode.MOVES:
        leader.awaiting_sync = Parked(row.request_id, row.api_version)
    else:
        answer_assignment(ctx, group, leader, row.request_id, row.api_version)


def _await_members(group: ClassicGroup, body: SyncGroup) -> None:
    """Notes who has to ask for the new assignment; members that gave up all for an earlier one wait for this one."""
    if group.resync is not ResyncMode.MOVES:
        group.resync = ResyncMode.MOVES if body.resync == ResyncMode.MOVES else ResyncMode.ADDS
        group.pending_sync.update(dict.fromkeys([member.member_id for member in group.in_order()], 1))
    group.pending_sync.pop(body.member_id, None)
    if not group.pending_sync:
        group.resync = ResyncMode.NONE


def arm_resync(ctx: Context, group: ClassicGroup) -> None:
    """Gives members the rebalance timeout to ask for the new assignment; who doesn't is out."""
    key = TimerKey(timers.SYNC, group.group_id)
    ctx.timers.arm(key, ctx.now_ms + group.rebalance_timeout_ms(), group.generation_id)


def resync_asked(ctx: Context, group: ClassicGroup, member: Member, row: Request, body: SyncGroup) -> None:
    """Answers a member that asks for the new assignment; parks it where others still own partitions.

    Raises:
        ApiError: REBALANCE_IN_PROGRESS to a member that may own what the new assignment gives to another.
    """
    if group.resync is ResyncMode.MOVES and not body.owns_nothing:
        reason = f"Member {member.member_id} asked for an assignment by which partitions change hands and owns some"
        prepare_rebalance(ctx, group, GroupEvent.RESYNC_ABORTED, reason)
        raise ApiError(Errors.REBALANCE_IN_PROGRESS)
    group.pending_sync.pop(member.member_id, None)
    if group.resync is ResyncMode.MOVES:
        member.awaiting_sync = Parked(row.request_id, row.api_version)
    is_complete = not group.pending_sync
    if is_complete:
        group.resync = ResyncMode.NONE
        ctx.timers.cancel(TimerKey(timers.SYNC, group.group_id))
        rewrite_group(ctx, group)
    if member.awaiting_sync is None:
        answer_assignment(ctx, group, member, row.request_id, row.api_version)
    if is_complete:
        propagate_assignment(ctx, group, Errors.NONE)
        ctx.move(group, GroupEvent.RESYNC_COMPLETED)


def resync_told(group: ClassicGroup, member_id: str) -> dict[str, Any]:
    """Returns what a heartbeat's answer says besides, to a member that has to ask for a new assignment."""
    if group.resync is ResyncMode.NONE or member_id not in group.pending_sync:
        return {}
    told: dict[str, Any] = {"resyncEpoch": group.resync_epoch}
    return {**told, "giveUpFirst": True} if group.resync is ResyncMode.MOVES else told


def resume_resync(ctx: Context, group: ClassicGroup) -> None:
    """Goes on with what was under way when the group was stored: who has asked already isn't known any more."""
    if group.resync is not ResyncMode.NONE:
        group.pending_sync = dict.fromkeys([member.member_id for member in group.in_order()], 1)
        arm_resync(ctx, group)
