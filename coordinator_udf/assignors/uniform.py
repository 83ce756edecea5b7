"""Uniform: as evenly as can be, moving as little as possible.

Source: Kafka's UniformAssignor and UniformHomogeneousAssignmentBuilder; where members want different topics
UniformHeterogeneousAssignmentBuilder (uniform_heterogeneous).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from coordinator_udf.assignors.spec import GroupSpec
from coordinator_udf.assignors.uniform_heterogeneous import assign_heterogeneous
from coordinator_udf.java_order.maps import PartitionSets
from coordinator_udf.java_order.tables import set_table, uuid_order
from coordinator_udf.java_order.walks import Target, target_in_kafka_order


class UniformAssignor:
    """The assignor ``uniform``."""

    name: Final = "uniform"

    def assign(self, spec: GroupSpec) -> dict[str, Target]:
        """Returns what each member shall have."""
        if not spec.members:
            return {}
        return _assign_homogeneous(spec) if spec.homogeneous else assign_heterogeneous(spec)


def _assign_homogeneous(spec: GroupSpec) -> dict[str, Target]:
    first = next(iter(spec.members.values()))
    wanted = first.topic_ids
    if not wanted:
        return {}
    topics = uuid_order(wanted, set_table(first.size))
    unassigned = [
        (topic_id, partition)
        for topic_id in topics
        for partition in range(spec.partitions[topic_id])
        if not spec.is_assigned(topic_id, partition)
    ]
    quota, extra = divmod(sum(spec.partitions[topic_id] for topic_id in topics), len(spec.members))
    given: dict[str, Target | PartitionSets] = {}
    unfilled: list[tuple[str, int]] = []
    for index, (member_id, member) in enumerate(spec.members.items()):
        has_extra = extra > 0
        given[member_id], room = _keep(target_in_kafka_order(member.target), wanted, quota + has_extra, unassigned)
        if room > 0 and has_extra and len(spec.members) - index > extra:
            # One of the members to come can have the extra partition without anything moving.
            room -= 1
            has_extra = False
        if room > 0:
            unfilled.append((member_id, room))
        extra -= has_extra
    rest = iter(unassigned)
    for member_id, room in unfilled:
        kept = given[member_id]
        sets = given[member_id] = kept if isinstance(kept, PartitionSets) else PartitionSets(kept)
        for _, (topic_id, partition) in zip(range(room), rest, strict=False):
            sets.add(topic_id, partition)
    return {
        member_id: target.walk() if isinstance(target, PartitionSets) else target for member_id, target in given.items()
    }


def _keep(
    old: Target, wanted: Collection[str], room: int, unassigned: list[tuple[str, int]]
) -> tuple[Target | PartitionSets, int]:
    """Returns what a member keeps of what it had, given in the order in which Kafka has it, and the room that is left.

    What it must give up is added to ``unassigned``.
    """
    kept: PartitionSets | None = None
    for topic_id, partitions in old.items():
        if topic_id in wanted and len(partitions) <= room:
            room -= len(partitions)
            continue
        kept = kept or PartitionSets(old)
        if topic_id not in wanted:
            kept.drop(topic_id)
            continue
        for partition in partitions[room:]:
            kept.discard(topic_id, partition)
            unassigned.append((topic_id, partition))
        room = 0
    return kept or old, room
