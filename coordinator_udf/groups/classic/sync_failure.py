"""An error of the leader that reaches all members: an extension after the proposal of 2015 (SyncErrorCode)."""

from __future__ import annotations

from coordinator_udf.groups.classic.answers import SYNC_EXTENSIONS_VERSION, sync_body
from coordinator_udf.groups.classic.rebalance import restart_sessions
from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model import timers
from coordinator_udf.groups.model.classic import ClassicGroup, Member, SyncFailure
from coordinator_udf.groups.model.classic_states import GroupEvent
from coordinator_udf.groups.model.timers import TimerKey
from coordinator_udf.protocol.errors import Errors, error_name


def fail_sync(ctx: Context, group: ClassicGroup, failure: SyncFailure) -> None:
    """Tells all members that wait for their assignment why the leader has none (an extension).

    Nothing is stored and the generation stays. A rebalance begins by the leader's next join, or by the sync timer.
    """
    group.sync_failure = failure
    waiting = [member for member in group.in_order() if member.awaiting_sync is not None]
    for member in waiting:
        parked, member.awaiting_sync = member.awaiting_sync, None
        if parked is not None:
            answer_failure(ctx, group, member, parked.request_id, parked.api_version)
    restart_sessions(ctx, group, waiting)
    key = TimerKey(timers.SYNC, group.group_id)
    ctx.timers.arm(key, ctx.now_ms + group.rebalance_timeout_ms(), group.generation_id)
    reason = f"Leader {group.leader} can't compute an assignment: {error_name(failure.error_code)}"
    ctx.move(group, GroupEvent.LEADER_SYNC_FAILED, f"{reason}; {failure.reason or 'reason not provided'}")


def answer_failure(ctx: Context, group: ClassicGroup, member: Member, request_id: str | None, api_version: int) -> None:
    """Answers a SyncGroup with the leader's error; its reason goes to members that understand."""
    failure = group.sync_failure or SyncFailure(int(Errors.UNKNOWN_SERVER_ERROR))
    body = {**sync_body(), "errorCode": failure.error_code}
    if failure.reason is not None and member.client_extensions and api_version >= SYNC_EXTENSIONS_VERSION:
        body["syncErrorReason"] = failure.reason
    ctx.answer(request_id, "SyncGroup", api_version, body, group_id=group.group_id, member_id=member.member_id)
