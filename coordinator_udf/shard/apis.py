"""From a row to the handler of its API, and the answers that a shard gives before any group is looked at.

Source: Kafka's GroupCoordinatorService (the checks in front of the shard, exceptions turned into errors).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import msgspec

from coordinator_udf.groups.admin import delete_groups, describe_groups, list_groups
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
from coordinator_udf.groups.offsets.commit import commit_offsets, commit_txn_offsets, refuse_commit
from coordinator_udf.groups.offsets.delete import delete_offsets
from coordinator_udf.groups.offsets.fetch import fetch_offsets, refuse_fetch
from coordinator_udf.groups.store import GroupStore
from coordinator_udf.protocol import requests as r
from coordinator_udf.protocol.errors import ApiError, BadRequest, Errors
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard import member_apis
from coordinator_udf.shard.reply import Body, reply


class Availability(StrEnum):
    """Whether a shard can answer."""

    ACTIVE = "active"
    LOADING = "loading"
    NOT_OWNED = "not owned"


#: What requests are refused with while a shard can't answer.
UNAVAILABLE: dict[Availability, Errors | None] = {
    Availability.ACTIVE: None,
    Availability.LOADING: Errors.COORDINATOR_LOAD_IN_PROGRESS,
    Availability.NOT_OWNED: Errors.NOT_COORDINATOR,
}


_DECODERS = {api: msgspec.json.Decoder(body) for api, body in r.BODIES.items()}


def read_body(row: Request) -> Any:
    """Returns a row's body as the struct of its API.

    Raises:
        BadRequest: the body isn't that API's.
    """
    api, text = row.api, row.body
    if not text:
        if api == "Heartbeat" and text is None:
            return _heartbeat_of_columns(row)
        if api in r.VERSIONS:
            raise BadRequest(f"body of {api}", text, f"a request of version {row.api_version}")
        text = "{}"
    try:
        body = _DECODERS[api].decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadRequest(f"body of {api}", row.body, f"a request of version {row.api_version} ({error})") from None
    if isinstance(body, r.OffsetFetch) and body.groups is None and row.api_version >= r.OFFSET_FETCH_BATCH_VERSION:
        raise BadRequest("groups of OffsetFetch", None, f"the groups that version {row.api_version} asks for")
    return body


def _heartbeat_of_columns(row: Request) -> r.Heartbeat:
    if row.group_id is None:
        raise BadRequest("group_id", None, "text")
    return r.Heartbeat(row.group_id, row.generation_or_epoch or 0, row.member_id or "", row.group_instance_id)


def _offset_commit(
    ctx: Context, store: GroupStore, unavailable: Errors | None, row: Request, body: r.OffsetCommit
) -> None:
    topics = commit_offsets(ctx, store, row.api_version, body, unavailable)
    reply(ctx, row, {"throttleTimeMs": 0, "topics": topics})


def _txn_offset_commit(
    ctx: Context, store: GroupStore, unavailable: Errors | None, row: Request, body: r.TxnOffsetCommit
) -> None:
    if not body.group_id:
        topics = refuse_commit(body.topics, Errors.INVALID_GROUP_ID)
    else:
        topics = commit_txn_offsets(ctx, store, body, unavailable)
    reply(ctx, row, {"throttleTimeMs": 0, "topics": topics})


def _offset_fetch(
    ctx: Context, store: GroupStore, unavailable: Errors | None, row: Request, body: r.OffsetFetch
) -> None:
    if unavailable is not None:
        reply(ctx, row, refuse_fetch(row.api_version, body, unavailable))
    else:
        reply(ctx, row, fetch_offsets(ctx, store, row.api_version, body))


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
    reply(ctx, row, {"errorCode": int(error), "throttleTimeMs": 0, "topics": topics})


def _describe_groups(
    ctx: Context, store: GroupStore, unavailable: Errors | None, row: Request, body: r.DescribeGroups
) -> None:
    refs: tuple[int, ...] = ()
    if unavailable is not None:
        groups: list[Body] = [_undescribed(group_id, unavailable) for group_id in body.groups]
    else:
        groups, refs = describe_groups(ctx, store, row.api_version, body.groups)
    reply(ctx, row, {"throttleTimeMs": 0, "groups": groups}, refs)


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
    reply(ctx, row, {"throttleTimeMs": 0, "errorCode": int(error), "groups": groups})


def _delete_groups(
    ctx: Context, store: GroupStore, unavailable: Errors | None, row: Request, body: r.DeleteGroups
) -> None:
    if unavailable is not None:
        names = dict.fromkeys(body.groups_names)
        results = [{"groupId": group_id, "errorCode": int(unavailable)} for group_id in names]
    else:
        results = delete_groups(ctx, store, body.groups_names)
    reply(ctx, row, {"throttleTimeMs": 0, "results": results})


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
        reply(ctx, row, heartbeat_body(refused.error, message))


def _consumer_describe(
    ctx: Context, store: GroupStore, unavailable: Errors | None, row: Request, body: r.ConsumerGroupDescribe
) -> None:
    if unavailable is not None:
        groups = [undescribed(group_id, unavailable) for group_id in body.group_ids]
    else:
        groups = describe_consumer_groups(ctx, store, body.group_ids)
    reply(ctx, row, {"throttleTimeMs": 0, "groups": groups})


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
    reply(ctx, row, answer)


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
    reply(ctx, row, answer)


Handler = Callable[[Context, GroupStore, Errors | None, Request, Any], None]

HANDLERS: dict[str, Handler] = {
    "JoinGroup": member_apis.join,
    "SyncGroup": member_apis.sync,
    "Heartbeat": member_apis.heartbeat,
    "LeaveGroup": member_apis.leave,
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
    """Returns the APIs that a coordinator with these settings answers."""
    if settings.group_consumer_client_assignors_enable:
        return HANDLERS
    return {api: handler for api, handler in HANDLERS.items() if api not in r.CLIENT_ASSIGNMENT_APIS}
