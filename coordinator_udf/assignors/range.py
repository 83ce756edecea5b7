"""Range: each topic's partitions in ranges, so that topics with equally many partitions are given out alike.

Source: Kafka's RangeAssignor of the consumer protocol (KIP-848): no racks, and nothing of the previous assignment.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from coordinator_udf.assignors.spec import GroupSpec, MemberSpec
from coordinator_udf.java_order.maps import JavaMap, by_topic
from coordinator_udf.java_order.tables import java_string_key, table_for
from coordinator_udf.java_order.walks import Target


class RangeAssignor:
    """The assignor ``range``."""

    name: Final = "range"

    def assign(self, spec: GroupSpec) -> dict[str, Target]:
        """Returns what each member shall have."""
        members = sorted(spec.members, key=lambda member_id: _place(member_id, spec.members[member_id]))
        # Where all are said to want the same, only the first is asked: some may not know yet what they want.
        asked = {member_id: spec.members[members[0] if spec.homogeneous else member_id] for member_id in members}
        subscribers = Counter(topic_id for want in asked.values() for topic_id in want.topic_ids)
        quotas = {topic_id: divmod(spec.partitions[topic_id], count) for topic_id, count in subscribers.items()}
        # Topic id -> how many members have their range already, and where the last one ends.
        served = dict.fromkeys(subscribers, (0, 0))
        given: dict[str, Target] = {}
        for member_id, want in asked.items():
            target: JavaMap[str, tuple[int, ...]] = by_topic(
                table_for(len(want.topic_ids) if spec.homogeneous else want.size)
            )
            for topic_id in want.topic_ids:
                quota, extra = quotas[topic_id]
                index, start = served[topic_id]
                end = start + quota + (index < extra)
                served[topic_id] = index + 1, end
                if start < end:
                    target.put(topic_id, tuple(range(start, end)))
            given[member_id] = target.walk()
        return given


def _place(member_id: str, member: MemberSpec) -> tuple[bool, bytes]:
    """Sorts static members first, in the order of their instance ids, so that they keep their ranges over restarts."""
    return member.instance_id is None, java_string_key(member_id if member.instance_id is None else member.instance_id)
