"""What a shard holds, as the row Describe asks for it: every group with members and offsets, everything sorted."""

from __future__ import annotations

from typing import Any

from coordinator_udf.groups.consumer.describe import consumer_group_state
from coordinator_udf.groups.model.classic import ClassicGroup, Member
from coordinator_udf.groups.records.classic import placeholder
from coordinator_udf.groups.store import GroupStore


def describe_state(store: GroupStore, only: tuple[str, ...] | None) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Returns the body of the answer, and the records whose assignments it needs."""
    groups = []
    refs: set[int] = set()
    for group_id in sorted(store.groups):
        if only and group_id not in only:
            continue
        group = store.groups[group_id]
        if isinstance(group, ClassicGroup):
            groups.append({**_classic(group), "offsets": _offsets(store, group_id)})
            refs.update(m.assignment.record_offset for m in group.members.values() if m.assignment is not None)
        else:
            groups.append({**consumer_group_state(group), "offsets": _offsets(store, group_id)})
    return {"groups": groups}, tuple(sorted(refs))


def _classic(group: ClassicGroup) -> dict[str, Any]:
    return {
        "groupId": group.group_id,
        "type": "classic",
        "state": group.state.value,
        "generationId": group.generation_id,
        "protocolType": group.protocol_type,
        "protocolName": group.protocol_name,
        "leader": group.leader,
        "currentStateTimestamp": -1 if group.state_timestamp is None else group.state_timestamp,
        "pendingJoinMembers": sorted(group.pending_join),
        "pendingSyncMembers": sorted(group.pending_sync),
        "members": [_member(group.members[member_id]) for member_id in sorted(group.members)],
    }


def _member(member: Member) -> dict[str, Any]:
    return {
        "memberId": member.member_id,
        "groupInstanceId": member.group_instance_id,
        "clientId": member.client_id,
        "clientHost": member.client_host,
        "sessionTimeoutMs": member.session_timeout_ms,
        "rebalanceTimeoutMs": member.rebalance_timeout_ms,
        "awaitingJoin": member.awaiting_join is not None,
        "awaitingSync": member.awaiting_sync is not None,
        "isNew": member.is_new,
        "assignment": placeholder(member.assignment),
        "protocols": [{"name": name, "metadata": metadata} for name, metadata in member.protocols],
    }


def _offsets(store: GroupStore, group_id: str) -> list[dict[str, Any]]:
    pending = store.offsets.pending_partitions(group_id)
    rows = []
    for topic, partitions in sorted(store.offsets.committed.get(group_id, {}).items()):
        for index, value in sorted(partitions.items()):
            unstable = (topic, index) in pending
            rows.append(
                {
                    "topic": topic,
                    "partition": index,
                    "offset": -1 if unstable else value.offset,
                    "leaderEpoch": -1 if unstable else value.leader_epoch,
                    "metadata": "" if unstable else value.metadata,
                }
            )
    return rows
