"""Racks of members and partitions, as the sticky assignors look at them (AbstractStickyAssignor.RackInfo, KIP-881)."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator_udf.members.client_assignors.partitions import Subscriptions, TopicRacks, prefers_racks
from coordinator_udf.members.inputs import TopicPartition


class RackInfo:
    """Racks, where they make a difference; else there are none.

    Attributes:
        member_racks: the racks of members that say one.
        partition_racks: the racks of each partition's replicas.
    """

    def __init__(self, topics: TopicRacks, subscriptions: Subscriptions) -> None:
        member_racks = {
            member: subscription.rack_id for member, subscription in subscriptions.items() if subscription.rack_id
        }
        partition_racks = {
            TopicPartition(topic, number): racks
            for topic, of_topic in topics.items()
            for number, racks in enumerate(of_topic)
        }
        if not member_racks:
            partition_racks = {}
        members_by_rack: dict[str, int] = {}
        for rack in member_racks.values():
            members_by_rack[rack] = members_by_rack.get(rack, 0) + 1
        # Counted even where racks turn out to make no difference: it still sorts the partitions.
        self._members_near = {
            partition: sum(members_by_rack.get(rack, 0) for rack in racks)
            for partition, racks in partition_racks.items()
        }
        makes_difference = prefers_racks(members_by_rack.keys(), partition_racks)
        self.member_racks: dict[str, str] = member_racks if makes_difference else {}
        self.partition_racks = partition_racks if makes_difference else {}

    def mismatch(self, member: str, partition: TopicPartition) -> bool:
        """Tells whether the member has a rack in which the partition has no replica."""
        rack = self.member_racks.get(member)
        return rack is not None and rack not in self.partition_racks.get(partition, ())

    def hardest_first(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Returns the partitions, those first that are near the fewest members."""
        if not self._members_near:
            return partitions
        return sorted(partitions, key=lambda partition: self._members_near.get(partition, 0))

    def next_member(self, partition: TopicPartition, members: Sequence[str], first: int) -> int | None:
        """Returns the index of the next member, from ``first`` on and around, in a rack of the partition."""
        racks = self.partition_racks.get(partition)
        if not racks:
            return None
        for offset in range(len(members)):
            index = (first + offset) % len(members)
            if self.member_racks.get(members[index]) in racks:
                return index
        return None
