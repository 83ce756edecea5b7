"""Heartbeat and LeaveGroup of classic groups.

Source: GroupMetadataManager (classicGroupHeartbeat, classicGroupLeave).
"""

from __future__ import annotations

from typing import Any

from coordinator_udf.groups.classic.answers import refuse_join
from coordinator_udf.groups.classic.rebalance import (
    cancel_session,
    maybe_complete_join,
    rebalance_or_complete_join,
    restart_session,
)
from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model.classic import ClassicGroup
from coordinator_udf.groups.model.classic_states import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroupState,
    GroupEvent,
)
from coordinator_udf.groups.store import GroupStore
from coordinator_udf.protocol.errors import ApiError, Errors
from coordinator_udf.protocol.requests import MemberIdentity

#: What a heartbeat that is valid is told in each state.
HEARTBEAT_ANSWERS: dict[ClassicGroupState, Errors] = {
    EMPTY: Errors.UNKNOWN_MEMBER_ID,
    PREPARING_REBALANCE: Errors.REBALANCE_IN_PROGRESS,
    COMPLETING_REBALANCE: Errors.NONE,
    STABLE: Errors.NONE,
}


def heartbeat(
    ctx: Context, group: ClassicGroup, member_id: str, group_instance_id: str | None, generation_id: int
) -> Errors:
    """Returns the answer to a heartbeat; one that is valid begins the member's session anew.

    Raises:
        ApiError: the heartbeat is refused.
    """
    if group.state is DEAD:
        raise ApiError(Errors.COORDINATOR_NOT_AVAILABLE)
    group.validate_member(member_id, group_instance_id)
    if generation_id != group.generation_id:
        raise ApiError(Errors.ILLEGAL_GENERATION)
    answer = HEARTBEAT_ANSWERS[group.state]
    if group.state is not EMPTY:
        restart_session(ctx, group, group.members[member_id])
    return answer


def leave_group(
    ctx: Context, _: GroupStore, group: ClassicGroup, leaving: tuple[MemberIdentity, ...]
) -> list[dict[str, Any]]:
    """Lets members go, each with an answer of its own, and rebalances if any went.

    Raises:
        ApiError: the whole request is refused.
    """
    if group.state is DEAD:
        raise ApiError(Errors.COORDINATOR_NOT_AVAILABLE)
    answers = []
    left = []
    for identity in leaving:
        error = _leave(ctx, group, identity)
        if error is Errors.NONE:
            left.append(identity.member_id)
        answers.append(member_answer(identity, error))
    if left:
        reason = f"explicit `LeaveGroup` request for ({', '.join(left)}) members."
        if group.state in (STABLE, COMPLETING_REBALANCE):
            rebalance_or_complete_join(ctx, group, GroupEvent.MEMBER_LEFT, reason)
        elif group.state is PREPARING_REBALANCE:
            maybe_complete_join(ctx, group)
    if ctx.append_failed:
        # The last member is gone, but that nobody is there could not be stored.
        raise ApiError(Errors.UNKNOWN_SERVER_ERROR)
    return answers


def member_answer(identity: MemberIdentity, error: Errors) -> dict[str, Any]:
    """Returns one member's part of a LeaveGroup answer."""
    return {
        "memberId": identity.member_id,
        "groupInstanceId": identity.group_instance_id,
        "errorCode": int(error),
    }


def _leave(ctx: Context, group: ClassicGroup, identity: MemberIdentity) -> Errors:
    member_id, instance = identity.member_id, identity.group_instance_id
    if not member_id:
        # An admin removes a static member by its instance id alone.
        owner = None if instance is None else group.static_members.get(instance)
        if owner is None:
            return Errors.UNKNOWN_MEMBER_ID
        _remove(ctx, group, owner, identity.reason)
        return Errors.NONE
    if member_id in group.pending_join:
        group.remove(member_id)
        cancel_session(ctx, group.group_id, member_id)
        return Errors.NONE
    try:
        group.validate_member(member_id, instance)
    except ApiError as refused:
        return refused.error
    _remove(ctx, group, member_id, identity.reason)
    return Errors.NONE


def _remove(ctx: Context, group: ClassicGroup, member_id: str, reason: str | None) -> None:
    ctx.note_member(group, GroupEvent.MEMBER_LEFT, group.members[member_id], client_reason=reason)
    cancel_session(ctx, group.group_id, member_id)
    refuse_join(ctx, group, group.members[member_id], Errors.UNKNOWN_MEMBER_ID)
    group.remove(member_id)
