"""The order of a consumer group's tables after Kafka applied records and took them back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from coordinator_udf.groups.model.consumer import ConsumerGroup
from coordinator_udf.groups.records.consumer import CURRENT_ASSIGNMENT, MEMBER, apply_record


def restore_order(
    group: ConsumerGroup, records: Sequence[tuple[str, Mapping[str, Any], dict[str, Any] | None]]
) -> None:
    """Brings a group's tables into the order that they have after records were applied and taken back.

    What they replaced or removed is put back behind the others of its slot, and a table that grew doesn't shrink
    (SnapshottableHashTable.executeRevert).
    """
    applied = deepcopy(group)
    members: dict[str, None] = {}
    assignors: dict[str | None, None] = {}
    for type_, key, value in records:
        member_id = key.get("memberId", "")
        if type_ in (MEMBER, CURRENT_ASSIGNMENT):
            members[member_id] = None
        before = applied.members.get(member_id)
        apply_record(applied, type_, key, value)
        after = applied.members.get(member_id)
        if before is not after:
            assignors |= {member.server_assignor: None for member in (before, after) if member is not None}
    group.table = applied.table
    for member_id in members:
        if member_id in group.members:
            group.members[member_id] = group.members.pop(member_id)
    for name in assignors:
        if name in group.assignors:
            group.assignors[name] = group.assignors.pop(name)
