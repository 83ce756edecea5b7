"""The assignor of recorded traces, which can be told in a sentence: all partitions in order, to all members in turn.

Members are sorted by id, topics by name. The partition at position i of all topics' partitions goes to the first member
that is subscribed to its topic among the members at the positions i, i+1, ... (modulo their number). It knows nothing
of what was assigned before, so that what it assigns is easily checked; it is for tests and not for large groups.
"""

from __future__ import annotations

from typing import Final

from coordinator_udf.assignors.spec import GroupSpec
from coordinator_udf.java_order.maps import PartitionSets
from coordinator_udf.java_order.tables import java_string_key
from coordinator_udf.java_order.walks import Target


class SortedAssignor:
    """The assignor ``oracle-sorted``."""

    name: Final = "oracle-sorted"

    def assign(self, spec: GroupSpec) -> dict[str, Target]:
        """Returns what each member shall have."""
        members = sorted(spec.members, key=java_string_key)
        topics = set[str]().union(*(member.topic_ids for member in spec.members.values()))
        given = {member_id: PartitionSets() for member_id in members}
        position = 0
        for topic_id in sorted(topics, key=lambda topic_id: java_string_key(spec.names[topic_id])):
            for partition in range(spec.partitions[topic_id]):
                turn = members[position % len(members) :] + members[: position % len(members)]
                owner = next(member_id for member_id in turn if topic_id in spec.members[member_id].topic_ids)
                given[owner].add(topic_id, partition)
                position += 1
        return {member_id: sets.walk() for member_id, sets in given.items()}
