"""Assigns by lag: whoever gets partitions that are far behind gets fewer of them."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet

from coordinator_udf.members.client_assignors.loads import Loads, newest_loads, spread, write_report
from coordinator_udf.members.client_assignors.partitions import (
    PartitionAssignor,
    Subscriptions,
    TopicRacks,
    member_order,
)
from coordinator_udf.members.inputs import TopicPartition


class LagBasedAssignor(PartitionAssignor):
    """Spreads the sum of lags evenly. Members report the lags of what they consume when they join."""

    def __init__(self, lags: Callable[[], Loads]) -> None:
        """Takes a function that returns the lags that the application has measured, in offsets, for the next join."""
        self._lags = lags

    @property
    def name(self) -> str:
        """The name in the group's lists."""
        return "lag"

    def subscription_user_data(self, topics: AbstractSet[str]) -> bytes | None:
        """Returns the lags of partitions of these topics."""
        lags = self._lags()
        return write_report({partition: lag for partition, lag in lags.items() if partition.topic in topics})

    def assign_partitions(self, topics: TopicRacks, subscriptions: Subscriptions) -> dict[str, list[TopicPartition]]:
        """Returns each member's partitions."""
        members = sorted(subscriptions, key=lambda member: member_order(member, subscriptions[member]))
        everything = (TopicPartition(topic, number) for topic, racks in topics.items() for number in range(len(racks)))
        topics_of = {member: subscriptions[member].topics for member in members}
        return spread(everything, newest_loads(subscriptions), topics_of)
