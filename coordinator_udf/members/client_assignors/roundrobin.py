"""All partitions in turn (RoundRobinAssignor)."""

from __future__ import annotations

from itertools import cycle

from coordinator_udf.members.client_assignors.partitions import (
    PartitionAssignor,
    Subscriptions,
    TopicRacks,
    member_order,
)
from coordinator_udf.members.inputs import TopicPartition


class RoundRobinAssignor(PartitionAssignor):
    """Gives one partition after another to one member after another, skipping who isn't subscribed."""

    @property
    def name(self) -> str:
        """Kafka's name."""
        return "roundrobin"

    def assign_partitions(self, topics: TopicRacks, subscriptions: Subscriptions) -> dict[str, list[TopicPartition]]:
        """Returns each member's partitions."""
        assigned: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
        members = sorted(subscriptions, key=lambda member: member_order(member, subscriptions[member]))
        turns = cycle(members)
        for topic in sorted(topics):
            for number in range(len(topics[topic])):
                member = next(turn for turn in turns if topic in subscriptions[turn].topics)
                assigned[member].append(TopicPartition(topic, number))
        return assigned
