"""DescribeGroups, ListGroups and DeleteGroups. Source: GroupMetadataManager and GroupCoordinatorShard.deleteGroups."""

from __future__ import annotations

from typing import Any

from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model.classic import ClassicGroup, Member
from coordinator_udf.groups.model.classic_states import ClassicGroupState, GroupEvent
from coordinator_udf.groups.model.consumer import ConsumerGroup
from coordinator_udf.groups.offsets.delete import (
    delete_all_offsets,
    end_group,
    group_end,
    offset_partitions,
    offset_tombstones,
)
from coordinator_udf.groups.offsets.shared import Change, write_or_refuse
from coordinator_udf.groups.records.classic import offset_sizes, placeholder
from coordinator_udf.groups.store import SEEN_GROUP, Group, GroupStore
from coordinator_udf.protocol.errors import ApiError, Errors

_GROUP_ID_NOT_FOUND_VERSION = 6
_NO_AUTHORIZED_OPERATIONS = -(2**31)


def describe_groups(
    ctx: Context, store: GroupStore, api_version: int, group_ids: tuple[str, ...]
) -> tuple[list[dict[str, Any]], tuple[int, ...]]:
    """Returns the answer's groups, and the records whose assignments they need."""
    described = []
    refs: set[int] = set()
    for group_id in group_ids:
        group = store.committed(ctx, group_id)
        if not isinstance(group, ClassicGroup):
            what = "not found" if group is None else "is not a classic group"
            described.append(_not_found(group_id, f"Group {group_id} {what}.", api_version))
        else:
            described.append(_describe(group))
            refs.update(m.assignment.record_offset for m in group.members.values() if m.assignment is not None)
    return described, tuple(sorted(refs))


def _describe(group: ClassicGroup) -> dict[str, Any]:
    stable = group.state is ClassicGroupState.STABLE
    return {
        "errorCode": 0,
        "errorMessage": None,
        "groupId": group.group_id,
        "groupState": group.state.value,
        "protocolType": group.protocol_type or "",
        "protocolData": group.protocol_name if stable else "",
        "members": [_describe_member(group, member, stable) for member in group.in_order()],
        "authorizedOperations": _NO_AUTHORIZED_OPERATIONS,
    }


def _describe_member(group: ClassicGroup, member: Member, stable: bool) -> dict[str, Any]:
    return {
        "memberId": member.member_id,
        "groupInstanceId": member.group_instance_id,
        "clientId": member.client_id,
        "clientHost": member.client_host,
        "memberMetadata": member.metadata(group.protocol_name) if stable else b"",
        "memberAssignment": placeholder(member.assignment),
    }


def _not_found(group_id: str, message: str, api_version: int) -> dict[str, Any]:
    named = api_version >= _GROUP_ID_NOT_FOUND_VERSION
    return {
        "errorCode": int(Errors.GROUP_ID_NOT_FOUND if named else Errors.NONE),
        "errorMessage": message if named else None,
        "groupId": group_id,
        "groupState": ClassicGroupState.DEAD.value,
        "protocolType": "",
        "protocolData": "",
        "members": [],
        "authorizedOperations": _NO_AUTHORIZED_OPERATIONS,
    }


def list_groups(
    ctx: Context, store: GroupStore, states_filter: tuple[str, ...], types_filter: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Returns the answer's groups. Filters don't mind case; an unknown type matches nothing."""
    states = {state.lower().strip() for state in states_filter}
    types = {type_.lower() for type_ in types_filter}
    twice = store.twice(ctx)
    listed: list[dict[str, Any]] = []
    for group_id in dict.fromkeys([*store.groups, *store.unlogged_ends]):
        group = store.committed(ctx, group_id)
        if group is None or (states and group.state.value.lower() not in states):
            continue
        if types and _kind(group) not in types:
            continue
        listed += [_list(group)] * (1 + ((SEEN_GROUP, group_id) in twice))
    return listed


def _list(group: Group) -> dict[str, Any]:
    return {
        "groupId": group.group_id,
        "protocolType": group.protocol_type or "",
        "groupState": group.state.value,
        "groupType": _kind(group),
    }


def _kind(group: Group) -> str:
    return "consumer" if isinstance(group, ConsumerGroup) else "classic"


def delete_groups(ctx: Context, store: GroupStore, group_ids: tuple[str, ...]) -> list[dict[str, Any]]:
    """Deletes empty groups with their offsets; the answer's results. A name that is repeated is asked once."""
    errors = {group_id: _refusal(store, group_id) for group_id in group_ids}
    doomed = [group_id for group_id, error in errors.items() if error is Errors.NONE]
    sizes = []
    records: list[Change] = []
    for group_id in doomed:
        partitions = offset_partitions(store, group_id)
        sizes += [offset_sizes(group_id, topic, None) for topic, _ in partitions]
        records += offset_tombstones(group_id, partitions)
        ends = group_end(store.groups[group_id])
        sizes += [record.sizes for record in ends]
        records += ends
    try:
        write_or_refuse(ctx, store, sizes, records)
    except ApiError as refused:
        errors = dict.fromkeys(group_ids, refused.error)
    else:
        for group_id in doomed:
            delete_all_offsets(ctx, store, group_id)
            end_group(ctx, store, group_id, GroupEvent.DELETED)
    return [{"groupId": group_id, "errorCode": int(error)} for group_id, error in errors.items()]


def _refusal(store: GroupStore, group_id: str) -> Errors:
    """Returns the error of deleting a group; NONE if it can be deleted."""
    group = store.get(group_id)
    if group is None or group.state is ClassicGroupState.DEAD:
        return Errors.GROUP_ID_NOT_FOUND
    return Errors.NONE if group.is_empty() else Errors.NON_EMPTY_GROUP
