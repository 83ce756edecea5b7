"""How a classic group is written to the offsets topic, with where its members' assignments lie."""

from __future__ import annotations

from collections.abc import Mapping

from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model.classic import AssignmentRef, ClassicGroup
from coordinator_udf.groups.records.classic import (
    GROUP_METADATA,
    group_metadata_key,
    group_metadata_value,
    group_metadata_version,
)


def write_group(ctx: Context, group: ClassicGroup, refs: tuple[int, ...] = ()) -> None:
    """Appends the group as it is now.

    Args:
        refs: the records with its members' assignments.
    """
    key, version = group_metadata_key(group.group_id), group_metadata_version(group)
    ctx.append(GROUP_METADATA, key, version, group_metadata_value(group), refs=refs)


def rewrite_group(ctx: Context, group: ClassicGroup) -> None:
    """Appends the group with the assignments that its members have."""
    assignments = [member.assignment for member in group.members.values() if member.assignment is not None]
    write_group(ctx, group, tuple(sorted({assignment.record_offset for assignment in assignments})))


def store_assignment(ctx: Context, group: ClassicGroup, assigned: Mapping[str, bytes], sizes: dict[str, int]) -> None:
    """Appends the group with a leader's assignment, which the members have from now on. It has to fit the log.

    Args:
        assigned: bytes by member id; who isn't named gets nothing.
        sizes: how many bytes each member gets.
    """
    offset = ctx.end_offset
    # Only the conversion to a consumer group reads an assignment again, in the request that converts: no join can help.
    may_convert = group.uses_consumer_protocol() and ctx.settings.allows_online_upgrade()
    for member in group.members.values():
        size = sizes[member.member_id]
        data = assigned[member.member_id] if may_convert and size else None
        member.assignment = AssignmentRef(offset, member.member_id, size, data) if size else None
    write_group(ctx, group, (offset,) if any(sizes.values()) else ())
    brought = {member_id: assigned[member_id] for member_id, size in sizes.items() if size}
    ctx.store_assignments(group.group_id, offset, brought)
