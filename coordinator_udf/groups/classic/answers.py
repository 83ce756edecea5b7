"""What members of a classic group are answered to their JoinGroup and SyncGroup, at once or when their wait is over."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model.classic import ClassicGroup, Member, Parked
from coordinator_udf.groups.records.classic import placeholder
from coordinator_udf.protocol.answer_json import AnswerTemplate
from coordinator_udf.protocol.errors import Errors

#: As names of their own: Python 3.11 takes longer to find a member in its class.
_NO_ERROR = Errors.NONE
_NONE = int(_NO_ERROR)

#: The versions of JoinGroup, SyncGroup and Heartbeat from which on their extensions are served.
JOIN_EXTENSIONS_VERSION, SYNC_EXTENSIONS_VERSION, HEARTBEAT_EXTENSIONS_VERSION = 9, 5, 4


def join_body(
    *,
    error: Errors = Errors.NONE,
    member_id: str = "",
    generation_id: int = -1,
    protocol_type: str | None = None,
    protocol_name: str | None = "",
    leader: str | None = "",
    skip_assignment: bool = False,
    members: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Returns the body of a JoinGroup answer."""
    return {
        "throttleTimeMs": 0,
        "errorCode": int(error),
        "generationId": generation_id,
        "protocolType": protocol_type,
        "protocolName": protocol_name,
        "leader": leader,
        "skipAssignment": skip_assignment,
        "memberId": member_id,
        "members": members or [],
    }


def sync_body(
    error: Errors = Errors.NONE,
    protocol_type: str | None = None,
    protocol_name: str | None = None,
    assignment: str = "",
    resync_epoch: int = 0,
) -> dict[str, Any]:
    """Returns the body of a SyncGroup answer; the assignment is a placeholder.

    Args:
        resync_epoch: how often the generation's assignment has been replaced, as an extension tells; not told if never.
    """
    body = {
        "throttleTimeMs": 0,
        "errorCode": int(error),
        "protocolType": protocol_type,
        "protocolName": protocol_name,
        "assignment": assignment,
    }
    return {**body, "resyncEpoch": resync_epoch} if resync_epoch else body


def generation_body(
    group: ClassicGroup, member_id: str, *, with_members: bool, skip_assignment: bool = False
) -> dict[str, Any]:
    """Returns the JoinGroup answer that tells a member the group's current generation."""
    body = join_body(
        member_id=member_id,
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader,
        skip_assignment=skip_assignment,
        members=joined_members(group, group.in_order()) if with_members else None,
    )
    member = group.members.get(member_id)
    return {**body, **extensions_told(group)} if member is not None and member.client_extensions else body


def extensions_told(group: ClassicGroup) -> dict[str, Any]:
    """Returns what the JoinGroup answer tells a member that understands the extensions: what its generation allows."""
    allowed = {"syncErrors": True}
    return {**allowed, "resync": True} if group.understands_extensions() else allowed


def joined_members(group: ClassicGroup, members: Iterable[Member]) -> list[dict[str, Any]]:
    """Returns what the leader gets to know of all members, who are given in their order."""
    return [
        {
            "memberId": member.member_id,
            "groupInstanceId": member.group_instance_id,
            "metadata": member.metadata(group.protocol_name),
        }
        for member in members
    ]


def refuse_join(ctx: Context, group: ClassicGroup, member: Member, error: Errors, member_id: str = "") -> None:
    """Answers a member's JoinGroup with an error, if one waits."""
    answer_join(ctx, group, member, join_body(error=error, member_id=member_id))


def answer_join(ctx: Context, group: ClassicGroup, member: Member, body: dict[str, Any]) -> None:
    """Answers a member's JoinGroup, if one waits for the end of the join phase."""
    parked = unpark_join(group, member)
    if parked is None:
        return
    ctx.answer(
        parked.request_id, "JoinGroup", parked.api_version, body, group_id=group.group_id, member_id=member.member_id
    )


def unpark_join(group: ClassicGroup, member: Member) -> Parked | None:
    """Takes the member's JoinGroup that waits for the end of the join phase; None if there is none."""
    parked = member.awaiting_join
    if parked is not None:
        member.awaiting_join = None
        group.awaiting_join_count -= 1
    return parked


def answer_sync(ctx: Context, group: ClassicGroup, member: Member, error: Errors) -> None:
    """Answers a member's parked SyncGroup, if it has one: with its assignment, or with an error."""
    parked = member.awaiting_sync
    if parked is None:
        return
    member.awaiting_sync = None
    if error is _NO_ERROR:
        answer_assignment(ctx, group, member, parked.request_id, parked.api_version)
        return
    ctx.answer(
        parked.request_id,
        "SyncGroup",
        parked.api_version,
        sync_body(error),
        group_id=group.group_id,
        member_id=member.member_id,
    )


def answer_assignment(
    ctx: Context, group: ClassicGroup, member: Member, request_id: str | None, api_version: int
) -> None:
    """Answers a SyncGroup with the member's assignment, which is empty where the leader forgot the member."""
    assignment = member.assignment
    epoch = group.resync_epoch if member.client_extensions and api_version >= SYNC_EXTENSIONS_VERSION else 0
    template = _assignment_template(api_version, group.protocol_type, group.protocol_name, epoch)
    ctx.answer_in_json(
        request_id,
        "SyncGroup",
        api_version,
        template.fill(placeholder(assignment)),
        error_code=_NONE,
        group_id=group.group_id,
        member_id=member.member_id,
        refs=(assignment.record_offset,) if assignment is not None and assignment.size else (),
    )


@lru_cache(maxsize=1024)
def _assignment_template(
    api_version: int, protocol_type: str | None, protocol_name: str | None, resync_epoch: int
) -> AnswerTemplate:
    body = sync_body(Errors.NONE, protocol_type, protocol_name, resync_epoch=resync_epoch)
    return AnswerTemplate("SyncGroup", api_version, body, "assignment")
