"""From a row to the handler of its API, and the answers that a shard gives before any group is looked at.

Source: Kafka's GroupCoordinatorService (the checks in front of the shard, exceptions turned into errors).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from coordinator_udf.groups.admin import delete_groups, describe_groups, list_groups
from coordinator_udf.groups.classic.heartbeat_leave import heartbeat, leave_group, member_answer
from coordinator_udf.groups.classic.join import Join
from coordinator_udf.groups.classic.rebalance import (
    HEARTBEAT_EXTENSIONS_VERSION,
    join_body,
    refuse_join,
    sync_body,
)
from coordinator_udf.groups.classic.resync import resync_told
from coordinator_udf.groups.classic.sync import lacks_protocol_names, sync_group
from coordinator_udf.groups.consumer.classic_members import (
    ClassicJoin,
    heartbeat_classic_member,
    leave_classic_members,
    sync_classic_member,
)
from coordinator_udf.groups.consumer.client_assignment import check_request as check_assignment_request
from coordinator_udf.groups.consumer.client_assignment import (
    install_assignment,
    install_body,
    prepare_assignment,
    prepare_body,
)
from coordinator_udf.groups.consumer.describe import describe_consumer_groups, undescribed
from coordinator_udf.groups.consumer.heartbeat import ConsumerHeartbeat, check_request, heartbeat_body
from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model.classic import ClassicGroup
from coordinator_udf.groups.model.consumer import ConsumerGroup
from coordinator_udf.groups.offsets.commit import commit_offsets, commit_txn_offsets, refuse_commit
from coordinator_udf.groups.offsets.delete import delete_offsets
from coordinator_udf.groups.offsets.fetch import BATCH_VERSION, fetch_offsets, refuse_fetch
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
from coordinator_udf.protocol.errors import ApiError, BadRequest, Errors
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.settings.coordinator import Settings

_SINGLE_LEAVE_VERSION = 2


class Availability(StrEnum):
    """Whether a shard can answer."""

    ACTIVE = "active"
    LOADING = "loading"
    NOT_OWNED = "not owned"


_UNAVAILABLE = {
    Availability.ACTIVE: None,
    Availability.LOADING: Errors.COORDINATOR_LOAD_IN_PROGRESS,
    Availability.NOT_OWNED: Errors.NOT_COORDINATOR,
}

Body = dict[str, Any]

_DECODERS = {api: msgspec.json.Decoder(body) for api, body in r.BODIES.items()}


def read_body(row: Request) -> Any:
    """A row's body as the struct of its API.

    Raises:
        BadRequest: the body isn't that API's.
    """
    if row.api == "Heartbeat" and row.body is None:
        if row.group_id is None:
            raise BadRequest("group_id", None, "text")
        return r.Heartbeat(row.group_id, row.generation_or_epoch or 0, row.member_id or "", row.group_instance_id)
    if not row.body and row.api in r.VERSIONS:
        raise BadRequest(f"body of {row.api}", row.body, f"a request of version {row.api_version}")
    try:
        body = _DECODERS[row.api].decode(row.body or "{}")
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadRequest(f"body of {row.api}", row.body, f"a request of version {row.api_version} ({error})") from None
    if isinstance(body, r.OffsetFetch) and body.groups is None and row.api_version >= BATCH_VERSION:
        raise BadRequest("groups of OffsetFetch", None, f"the groups that version {row.api_version} asks for")
    return body


def answer_request(ctx: Context, store: GroupStore, availability: Availability, row: Request, body: Any) -> None:
    """Handles one request: answers it, or parks it.

    Raises:
        BadRequest: what the row says can't be a request.
    """
    HANDLERS[row.api](ctx, store, _UNAVAILABLE[availability], row, body)


def _reply(ctx: Context, row: Request, body: Body, refs: tuple[int, ...] = ()) -> None:
    ctx.answer(
        row.request_id,
        row.api,
        row.api_version,
        body,
        group_id=row.group_id,
        member_id=row.member_id,
        refs=refs,
        parts=row.parts,
    )


def _join(ctx: Context, store: GroupStore, unavailable: Errors | None, row: Request, body: r.JoinGroup) -> None:
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
    _reply(ctx, row, join_body(error=error, member_id=member_id))


def _join_consumer_group(
    ctx: Context, store: GroupStore, group: ConsumerGroup, row: Request, body: r.JoinGroup
) -> None:
    try:
        ClassicJoin(ctx, store, group, row, body).handle()
    except ApiError as refused:
        _reply(ctx, row, join_body(error=refused.error))


def _sync(ctx: Context, store: GroupStore, unavailable: Errors | None, row: Request, body: r.SyncGroup) -> None:
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
        if isinstance(group, ConsumerGroup):
            if group.is_empty():
                raise ApiError(Errors.UNKNOWN_MEMBER_ID)
            sync_classic_member(ctx, group, row, body)
        else:
            sync_group(ctx, group, row, body)
    except ApiError as refused:
        _reply(ctx, row, sync_body(refused.error))


def _heartbeat(ctx: Context, store: GroupStore, unavailable: Errors | None, row: Request, body: r.Heartbeat) -> None:
    told: Body = {}
    try:
        if not body.group_id:
            error = Errors.INVALID_GROUP_ID
        elif unavailable is not None:
            # While the group loads nobody can say that the member is unknown.
            error = Errors.NONE if unavailable is Errors.COORDINATOR_LOAD_IN_PROGRESS else unavailable
        else:
            group = store.get(body.group_id)
            if group is None:
                error = Errors.UNKNOWN_MEMBER_ID
            elif isinstance(group, ConsumerGroup):
                error = heartbeat_classic_member(ctx, group, body.member_id, body.group_instance_id, body.generation_id)
            else:
                error = heartbeat(ctx, group, body.member_id, body.group_instance_id, body.generation_id)
                told = resync_told(group, body.member_id) if row.api_version >= HEARTBEAT_EXTENSIONS_VERSION else {}
    except ApiError as refused:
        error = refused.error
    _reply(ctx, row, {"throttleTimeMs": 0, "errorCode": int(error), **told})


def _leave(ctx: Context, store: GroupStore, unavailable: Errors | None, row: Request, body: r.LeaveGroup) -> None:
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
        elif isinstance(group, ConsumerGroup):
            members = leave_classic_members(ctx, store, group, leaving)
        else:
            left = leave_group(ctx, group, leaving)
            if ctx.append_failed:
                # The last member is gone, but that nobody is there could not be stored.
                raise ApiError(Errors.UNKNOWN_SERVER_ERROR)
            members = left
    except ApiError as refused:
        error = refused.error
    code = int(error)
    if single and error is Errors.NONE:
        code = members[0]["errorCode"]
    _reply(ctx, row, {"throttleTimeMs": 0, "errorCode": code, "members": members})


def _offset_commit(
    ctx: Context, store: GroupStore, unavailable: Errors | None, row: Request, body: r.OffsetCommit
) -> None:
    topics = commit_offsets(ctx, store, row.api_version, body, unavailable)
    _reply(ctx, row, {"throttleTimeMs": 0, "topics": topics})


def _txn_offset_commit(
    ctx: Context, store: GroupStore, unavailable: Errors | None, row: Request, body: r.TxnOffsetCommit
) -> None:
    if not body.group_id:
        topics = refuse_commit(body.topics, Errors.INVALID_GROUP_ID)
    else:
        topics = commit_txn_offsets(ctx, store, body, unavailable)
    _reply(ctx, row, {"throttleTimeMs": 0, "topics": topics})


def _offset_fetch(
    ctx: Context, store: GroupStore, unavailable: Errors | None, row: Request, body: r.OffsetFetch
) -> None:
    if unavailable is not None:
        _reply(ctx, row, refuse_fetch(row.api_version, body, unavailable))
    else:
        _reply(ctx, row, fetch_offsets(ctx, store, row.api_version, body))


def _offset_delete(
    ctx: Context, store: GroupStore, unavailable: Errors | None, row: Request, body: r.OffsetDelete
) -> None:
    error = Errors.NONE
    topics: list[Body] = []
    try:
        if not body.group_id:
            raise ApiError(Errors.INVALID_GROUP_ID)
        if unavailable is not None:
            raise ApiError(unavailable)
        topics = delete_offsets(ctx, store, body)
    except ApiError as refused:
        error = refused.error
    _reply(ctx, row, {"errorCode": int(error), "throttleTimeMs": 0, "topics": topics})


def _describe_groups(
    ctx: Context, store: GroupStore, unavailable: Errors | None, row: Request, body: r.DescribeGroups
) -> None:
    refs: tuple[int, ...] = ()
    if unavailable is not None:
        groups: list[Body] = [_undescribed(group_id, unavailable) for group_id in body.groups]
    else:
        groups, refs = describe_groups(ctx, store, row.api_version, body.groups)
    _reply(ctx, row, {"throttleTimeMs": 0, "groups": groups}, refs)


def _undescribed(group_id: str, error: Errors) -> Body:
    return {
        "errorCode": int(error),
        "errorMessage": None,
        "groupId": group_id,
        "groupState": "",
        "protocolType": "",
        "protocolData": "",
        "members": [],
        "authorizedOperations": -(2**31),
    }


def _list_groups(ctx: Context, store: GroupStore, unavailable: Errors | None, row: Request, body: r.ListGroups) -> None:
    error = Errors.NONE
    groups: list[Body] = []
    if unavailable is Errors.COORDINATOR_LOAD_IN_PROGRESS:
        error = unavailable
    elif unavailable is None:
        groups = list_groups(ctx, store, body.states_filter, body.types_filter)
    _reply(ctx, row, {"throttleTimeMs": 0, "errorCode": int(error), "groups": groups})


def _delete_groups(
    ctx: Context, store: GroupStore, unavailable: Errors | None, row: Request, body: r.DeleteGroups
) -> None:
    if unavailable is not None:
        names = dict.fromkeys(body.groups_names)
        results = [{"groupId": group_id, "errorCode": int(unavailable)} for group_id in names]
    else:
        results = delete_groups(ctx, store, body.groups_names)
    _reply(ctx, row, {"throttleTimeMs": 0, "results": results})


def _consumer_heartbeat(
    ctx: Context, store: GroupStore, unavailable: Errors | None, row: Request, body: r.ConsumerGroupHeartbeat
) -> None:
    try:
        check_request(ctx, row.api_version, body)
        if unavailable is not None:
            raise ApiError(unavailable)
        ConsumerHeartbeat(ctx, store, row, body).handle()
    except ApiError as refused:
        # What isn't foreseen isn't told.
        message = None if refused.error is Errors.UNKNOWN_SERVER_ERROR else refused.message
        _reply(ctx, row, heartbeat_body(refused.error, message))


def _consumer_describe(
    ctx: Context, store: GroupStore, unavailable: Errors | None, row: Request, body: r.ConsumerGroupDescribe
) -> None:
    if unavailable is not None:
        groups = [undescribed(group_id, unavailable) for group_id in body.group_ids]
    else:
        groups = describe_consumer_groups(ctx, store, body.group_ids)
    _reply(ctx, row, {"throttleTimeMs": 0, "groups": groups})


def _prepare_assignment(
    ctx: Context,
    store: GroupStore,
    unavailable: Errors | None,
    row: Request,
    body: r.ConsumerGroupPrepareAssignment,
) -> None:
    try:
        check_assignment_request(body)
        if unavailable is not None:
            raise ApiError(unavailable)
        answer = prepare_assignment(ctx, store, body)
    except ApiError as refused:
        answer = prepare_body(refused.error, refused.message)
    _reply(ctx, row, answer)


def _install_assignment(
    ctx: Context,
    store: GroupStore,
    unavailable: Errors | None,
    row: Request,
    body: r.ConsumerGroupInstallAssignment,
) -> None:
    answer = install_body()
    try:
        check_assignment_request(body)
        if unavailable is not None:
            raise ApiError(unavailable)
        install_assignment(ctx, store, body)
    except ApiError as refused:
        message = None if refused.error is Errors.UNKNOWN_SERVER_ERROR else refused.message
        answer = install_body(refused.error, message)
    _reply(ctx, row, answer)


Handler = Callable[[Context, GroupStore, Errors | None, Request, Any], None]

HANDLERS: dict[str, Handler] = {
    "JoinGroup": _join,
    "SyncGroup": _sync,
    "Heartbeat": _heartbeat,
    "LeaveGroup": _leave,
    "OffsetCommit": _offset_commit,
    "TxnOffsetCommit": _txn_offset_commit,
    "OffsetFetch": _offset_fetch,
    "OffsetDelete": _offset_delete,
    "DescribeGroups": _describe_groups,
    "ListGroups": _list_groups,
    "DeleteGroups": _delete_groups,
    "ConsumerGroupHeartbeat": _consumer_heartbeat,
    "ConsumerGroupDescribe": _consumer_describe,
    "ConsumerGroupPrepareAssignment": _prepare_assignment,
    "ConsumerGroupInstallAssignment": _install_assignment,
}


def served(settings: Settings) -> dict[str, Handler]:
    """The APIs that a coordinator with these settings answers."""
    if settings.group_consumer_client_assignors_enable:
        return HANDLERS
    return {api: handler for api, handler in HANDLERS.items() if api not in r.CLIENT_ASSIGNMENT_APIS}
