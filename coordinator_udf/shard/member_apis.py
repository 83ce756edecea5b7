"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: what members of the classic protocol ask, of either kind of group.

Source: Kafka's GroupCoordinatorService (the checks in front of the shard) and GroupMetadataManager, which looks at the
group's type first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from coordinator_udf.groups.classic.answers import HEARTBEAT_EXTENSIONS_VERSION, join_body, refuse_join, sync_body
from coordinator_udf.groups.classic.heartbeat_leave import heartbeat as heartbeat_group
from coordinator_udf.groups.classic.heartbeat_leave import leave_group, member_answer
from coordinator_udf.groups.classic.join import Join
from coordinator_udf.groups.classic.resync import resync_told
from coordinator_udf.groups.classic.sync import lacks_protocol_names, sync_group
from coordinator_udf.groups.consumer.classic_members import (
    ClassicJoin,
    heartbeat_classic_member,
    leave_classic_members,
    sync_classic_member,
)
from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model.classic import ClassicGroup
from coordinator_udf.groups.model.consumer import ConsumerGroup
from coordinator_udf.groups.records.classic import (
    GROUP_METADATA,
    GROUP_METADATA_VALUE_VERSION,
    empty_group_metadata_value,
    empty_group_sizes,
    group_metadata_key,
)
from coordinator_udf.groups.records.consumer import NewRecord, group_tombstones
from coordinator_udf.groups.store import GroupStore
from coordinator_udf.protocol import requests as r
from coordinator_udf.protocol.errors import ApiError, Errors
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.shard.reply import Body, reply

_SINGLE_LEAVE_VERSION = 2


def join(ctx: Context, store: GroupStore, unavailable: Errors | None, row: Request, body: r.JoinGroup) -> None:
    """Answers a JoinGroup, or parks it until the join phase is over."""
    limits = ctx.settings
    if not body.group_id:
        return _refuse_join(ctx, row, Errors.INVALID_GROUP_ID, body.member_id)
    if not limits.group_min_session_timeout_ms <= body.session_timeout_ms <= limits.group_max_session_timeout_ms:
        return _refuse_join(ctx, row, Errors.INVALID_SESSION_TIMEOUT, body.member_id)
    if unavailable is not None:
        return _refuse_join(ctx, row, unavailable)
    group = store.get(body.group_id)
    ended: list[NewRecord] = []
    if isinstance(group, ConsumerGroup):
        if not group.is_empty():
            return _join_consumer_group(ctx, store, group, row, body)
        # An empty consumer group makes room for a classic one.
        ended = group_tombstones(group)
        store.vanish(ctx, body.group_id)
        group = None
    if group is None and body.member_id:
        return _refuse_join(ctx, row, Errors.UNKNOWN_MEMBER_ID, body.member_id)
    is_new_group = group is None
    if group is None:
        group = store.create(ctx, body.group_id)
    end_offset = ctx.end_offset
    try:
        Join(ctx, group, row, body).handle()
    except ApiError as refused:
        return _refuse_join(ctx, row, refused.error)
    if is_new_group and ctx.end_offset == end_offset:
        _store_new_group(ctx, group, ended)
    return None


def _store_new_group(ctx: Context, group: ClassicGroup, ended: Sequence[NewRecord]) -> None:
    """Writes a group that was made at once, so that it is there after a restart.

    Args:
        ended: the tombstones of the consumer group in whose place it comes.
    """
    if not ctx.fits([*(record.sizes for record in ended), empty_group_sizes(group.group_id)]):
        for member in group.in_order():
            refuse_join(ctx, group, member, Errors.UNKNOWN_SERVER_ERROR)
        return
    for type_, tombstone_key, _ in ended:
        ctx.append(type_, tombstone_key, None, None)
    key = group_metadata_key(group.group_id)
    ctx.append(GROUP_METADATA, key, GROUP_METADATA_VALUE_VERSION, empty_group_metadata_value(group))


def _refuse_join(ctx: Context, row: Request, error: Errors, member_id: str = "") -> None:
    reply(ctx, row, join_body(error=error, member_id=member_id))


def _join_consumer_group(
    ctx: Context, store: GroupStore, group: ConsumerGroup, row: Request, body: r.JoinGroup
) -> None:
    try:
        ClassicJoin(ctx, store, group, row, body).handle()
    except ApiError as refused:
        reply(ctx, row, join_body(error=refused.error))


def sync(ctx: Context, store: GroupStore, unavailable: Errors | None, row: Request, body: r.SyncGroup) -> None:
    """Answers a SyncGroup, or parks it until the assignment is there."""
    try:
        if lacks_protocol_names(row, body):
            raise ApiError(Errors.INCONSISTENT_GROUP_PROTOCOL)
        if not body.group_id:
            raise ApiError(Errors.INVALID_GROUP_ID)
        if unavailable is not None:
            # All that a member knows of its rebalance is lost; it is told to join again, not to look elsewhere.
            loading = unavailable is Errors.COORDINATOR_LOAD_IN_PROGRESS
            raise ApiError(Errors.REBALANCE_IN_PROGRESS if loading else unavailable)
        group = store.get(body.group_id)
        if group is None:
            raise ApiError(Errors.UNKNOWN_MEMBER_ID)
        _KINDS[type(group)].sync(ctx, group, row, body)
    except ApiError as refused:
        reply(ctx, row, sync_body(refused.error))


def heartbeat(ctx: Context, store: GroupStore, unavailable: Errors | None, row: Request, body: r.Heartbeat) -> None:
    """Answers a Heartbeat."""
    told: Body = {}
    try:
        if not body.group_id:
            error = Errors.INVALID_GROUP_ID
        elif unavailable is not None:
            # While the group loads nobody can say that the member is unknown.
            error = Errors.NONE if unavailable is Errors.COORDINATOR_LOAD_IN_PROGRESS else unavailable
        elif (group := store.get(body.group_id)) is None:
            error = Errors.UNKNOWN_MEMBER_ID
        else:
            kind = _KINDS[type(group)]
            error = kind.heartbeat(ctx, group, body.member_id, body.group_instance_id, body.generation_id)
            told = kind.told(group, body.member_id) if row.api_version >= HEARTBEAT_EXTENSIONS_VERSION else {}
    except ApiError as refused:
        error = refused.error
    reply(ctx, row, {"throttleTimeMs": 0, "errorCode": int(error), **told})


def leave(ctx: Context, store: GroupStore, unavailable: Errors | None, row: Request, body: r.LeaveGroup) -> None:
    """Answers a LeaveGroup."""
    single = row.api_version <= _SINGLE_LEAVE_VERSION
    leaving = (r.MemberIdentity(member_id=body.member_id),) if single else body.members
    members: list[Body] = []
    error = Errors.NONE
    try:
        if not body.group_id:
            raise ApiError(Errors.INVALID_GROUP_ID)
        if unavailable is not None:
            raise ApiError(unavailable)
        group = store.get(body.group_id)
        if group is None:
            members = [member_answer(identity, Errors.UNKNOWN_MEMBER_ID) for identity in leaving]
        else:
            members = _KINDS[type(group)].leave(ctx, store, group, leaving)
    except ApiError as refused:
        error = refused.error
    code = int(error)
    if single and error is Errors.NONE:
        code = members[0]["errorCode"]
    reply(ctx, row, {"throttleTimeMs": 0, "errorCode": code, "members": members})


class _Kind(NamedTuple):
    """What a kind of group does with requests of the classic protocol's members.

    Attributes:
        told: what a heartbeat's answer says beside its error.
    """

    sync: Callable[[Context, Any, Request, r.SyncGroup], None]
    heartbeat: Callable[[Context, Any, str, str | None, int], Errors]
    leave: Callable[[Context, GroupStore, Any, tuple[r.MemberIdentity, ...]], list[Body]]
    told: Callable[[Any, str], Body]


def _nothing_told(_: ConsumerGroup, __: str) -> Body:
    return {}


_KINDS: Mapping[type, _Kind] = {
    ClassicGroup: _Kind(sync_group, heartbeat_group, leave_group, resync_told),
    ConsumerGroup: _Kind(sync_classic_member, heartbeat_classic_member, leave_classic_members, _nothing_told),
}
