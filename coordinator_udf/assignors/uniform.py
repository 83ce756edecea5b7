"""Uniform: as evenly as can be, moving as little as possible.

Source: Kafka's UniformAssignor and UniformHomogeneousAssignmentBuilder; where members want different topics
UniformHeterogeneousAssignmentBuilder (uniform_heterogeneous).
"""

from __future__ import annotations

from typing import Final

from coordinator_udf.assignors.uniform_heterogeneous import assign_heterogeneous
from coordinator_udf.groups.consumer_state import Target
from coordinator_udf.groups.consumer_target import GroupSpec
from coordinator_udf.groups.java_order import int_order, set_table, uuid_order


class UniformAssignor:
    """The assignor ``uniform``."""

    name: Final = "uniform"

    def assign(self, spec: GroupSpec) -> dict[str, Target]:
        """What each member shall have."""
        if not spec.members:
            return {}
        return _assign_homogeneous(spec) if spec.homogeneous else assign_heterogeneous(spec)


def _assign_homogeneous(spec: GroupSpec) -> dict[str, Target]:
    wanted = next(iter(spec.members.values())).topic_ids
    if not wanted:
        return {}
    topics = uuid_order(wanted, set_table(len(wanted)))
    unassigned = [
        (topic_id, partition)
        for topic_id in topics
        for partition in range(spec.partitions[topic_id])
        if not spec.is_assigned(topic_id, partition)
    ]
    quota, extra = divmod(sum(spec.partitions[topic_id] for topic_id in topics), len(spec.members))
    given: dict[str, dict[str, set[int]]] = {}
    unfilled: list[tuple[str, int]] = []
    for index, (member_id, member) in enumerate(spec.members.items()):
        room = quota + (extra > 0)
        has_extra = extra > 0
        kept = given[member_id] = {}
        for topic_id in uuid_order(member.target):
            if topic_id not in wanted:
                continue
            for partition in int_order(member.target[topic_id]):
                if room > 0:
                    room -= 1
                    kept.setdefault(topic_id, set()).add(partition)
                else:
                    unassigned.append((topic_id, partition))
        if room > 0 and has_extra and len(spec.members) - index > extra:
            # One of the members to come can have the extra partition without anything moving.
            room -= 1
            has_extra = False
        if room > 0:
            unfilled.append((member_id, room))
        extra -= has_extra
    rest = iter(unassigned)
    for member_id, room in unfilled:
        for _, (topic_id, partition) in zip(range(room), rest, strict=False):
            if topic_id not in given[member_id]:
                # Before the others of its bucket, as HashMap.computeIfAbsent puts it.
                given[member_id] = {topic_id: set(), **given[member_id]}
            given[member_id][topic_id].add(partition)
    return {
        member_id: {topic_id: tuple(sorted(partitions)) for topic_id, partitions in target.items()}
        for member_id, target in given.items()
    }
