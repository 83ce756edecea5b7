"""Range: each topic's partitions in ranges, so that topics with equally many partitions are given out alike.

Source: Kafka's RangeAssignor of the consumer protocol (KIP-848): no racks, and nothing of the previous assignment.
"""

from __future__ import annotations

from typing import Final

from coordinator_udf.groups.consumer_state import Target
from coordinator_udf.groups.consumer_target import GroupSpec, MemberSpec
from coordinator_udf.groups.java_order import java_string_key


class RangeAssignor:
    """The assignor ``range``."""

    name: Final = "range"

    def assign(self, spec: GroupSpec) -> dict[str, Target]:
        """What each member shall have."""
        members = sorted(spec.members, key=lambda member_id: _place(member_id, spec.members[member_id]))
        given: dict[str, dict[str, tuple[int, ...]]] = {member_id: {} for member_id in members}
        topics = dict.fromkeys(topic_id for member_id in members for topic_id in spec.members[member_id].topic_ids)
        for topic_id in topics:
            subscribers = [member_id for member_id in members if topic_id in spec.members[member_id].topic_ids]
            quota, extra = divmod(spec.partitions[topic_id], len(subscribers))
            start = 0
            for index, member_id in enumerate(subscribers):
                end = start + quota + (index < extra)
                if start < end:
                    given[member_id][topic_id] = tuple(range(start, end))
                start = end
        return given


def _place(member_id: str, member: MemberSpec) -> tuple[bool, bytes]:
    """Static members first, in the order of their instance ids, so that they keep their ranges over restarts."""
    return member.instance_id is None, java_string_key(member_id if member.instance_id is None else member.instance_id)
