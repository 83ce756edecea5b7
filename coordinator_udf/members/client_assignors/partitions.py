"""What Kafka's own assignors start from: the partitions of the subscribed topics with their racks, members in order.

Source: AbstractPartitionAssignor.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from coordinator_udf.java_order.tables import INITIAL_TABLE, grown_table, hash_order
from coordinator_udf.members.client_assignors.spec import Assignment, ClientAssignor, ClusterTopics, MemberSubscription
from coordinator_udf.members.inputs import TopicPartition

#: The racks of each partition's replicas, by topic and partition. Replicas without a rack count for nothing.
TopicRacks = dict[str, tuple[frozenset[str], ...]]
Subscriptions = Mapping[str, MemberSubscription]


class PartitionAssignor(ClientAssignor):
    """An assignor that looks at topics with known partitions only, and adds nothing to the assignments."""

    def assign(self, cluster: ClusterTopics, subscriptions: Subscriptions) -> dict[str, Assignment]:
        """Returns an assignment for each member."""
        subscribed = {topic for subscription in subscriptions.values() for topic in subscription.topics}
        topics: TopicRacks = {}
        for name in sorted(subscribed):
            view = cluster.topics.get(name)
            if view is not None and view.partitions:
                racks = [frozenset(rack for rack in of_partition if rack) for of_partition in view.racks]
                racks += [frozenset()] * (view.partitions - len(racks))
                topics[name] = tuple(racks[: view.partitions])
        # As a HashMap of member ids has them: where an assignor looks at one member after another, it shows.
        members = hash_order(subscriptions, grown_table(INITIAL_TABLE, len(subscriptions)))
        assigned = self.assign_partitions(topics, {member: subscriptions[member] for member in members})
        return {member: Assignment(tuple(partitions)) for member, partitions in assigned.items()}

    @abstractmethod
    def assign_partitions(self, topics: TopicRacks, subscriptions: Subscriptions) -> dict[str, list[TopicPartition]]:
        """Returns each member's partitions; the members come in the order of a HashMap."""


def member_order(member_id: str, subscription: MemberSubscription) -> tuple[bool, str]:
    """Returns what members are sorted by: static ones first, by instance id, then dynamic ones by member id."""
    instance_id = subscription.group_instance_id
    return (True, member_id) if instance_id is None else (False, instance_id)


def prefers_racks(consumer_racks: AbstractSet[str], topics: Mapping[TopicPartition, frozenset[str]]) -> bool:
    """Tells whether racks make a difference: members and partitions share some, and not all partitions are in all."""
    partition_racks: set[str] = set().union(*topics.values())
    if not consumer_racks & partition_racks:
        return False
    return any(racks != partition_racks for racks in topics.values())
