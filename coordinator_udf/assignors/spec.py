"""What an assignor on the coordinator is given, and what it gives.

Source: ConsumerGroupPartitionAssignor, GroupSpec and SubscribedTopicDescriber of Kafka's group coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from coordinator_udf.java_order.walks import Target


class MemberSpec(NamedTuple):
    """A member as an assignor sees it.

    Attributes:
        topic_ids: the existing topics that it wants.
        target: what it shall have until now.
        named: how many topics it names, be they ones that don't exist.
    """

    instance_id: str | None
    topic_ids: Collection[str]
    target: Target
    named: int = 0

    @property
    def size(self) -> int:
        """What Kafka takes for the number of the topics: TopicIds.size counts names."""
        return max(self.named, len(self.topic_ids))


class GroupSpec(NamedTuple):
    """A group as an assignor sees it.

    Attributes:
        members: member id -> member, in the order in which Kafka's assignors see them.
        homogeneous: whether all members want the same topics.
        partitions: topic id -> number of partitions.
        names: topic id -> topic name.
        is_assigned: whether a partition of a topic id is in somebody's target until now.
    """

    members: dict[str, MemberSpec]
    homogeneous: bool
    partitions: Mapping[str, int]
    names: Mapping[str, str]
    is_assigned: Callable[[str, int], bool]


class Assignor(Protocol):
    """Assigns partitions. It is given all that it may look at, and gives the same for the same."""

    @property
    def name(self) -> str:
        """What members call it."""

    def assign(self, spec: GroupSpec) -> dict[str, Target]:
        """Returns what each member shall have; a member that isn't there shall have nothing.

        Topics and partitions stand in the order in which Kafka's assignor has them, which the records show.
        """
