"""What an assignor of a classic group's leader is: the one interface that a user's own class can implement.

Source: org.apache.kafka.clients.consumer.ConsumerPartitionAssignor. See docs/writing-an-assignor.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import IntEnum

from coordinator_udf.members.cluster_view import TopicView
from coordinator_udf.members.inputs import TopicPartition


class RebalanceProtocol(IntEnum):
    """What members do with their partitions before they join; the higher, the more advanced."""

    #: All are revoked.
    EAGER = 0
    #: They are kept, and what the assignment takes away is revoked after it, before another round (KIP-429).
    COOPERATIVE = 1


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What a member told its leader of itself.

    Attributes:
        owned_partitions: what it had when it joined, in its order.
        generation_id: the generation in which it had that; -1 if it said none.
        rack_id: where it is, if it said so.
        user_data: what its assignor added.
    """

    topics: tuple[str, ...]
    owned_partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None
    generation_id: int = -1
    rack_id: str | None = None
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a member is to consume, and what its assignor is told besides."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


@dataclass(frozen=True, slots=True)
class ClusterTopics:
    """The topics that the leader knows, by name; each has at least one partition."""

    topics: Mapping[str, TopicView] = field(default_factory=dict)

    def partition_count(self, topic: str) -> int:
        """Returns how many partitions a topic has; 0 if it isn't known."""
        known = self.topics.get(topic)
        return 0 if known is None else known.partitions


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """The group, the generation and the member that an assignment is for."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


class ClientAssignor(ABC):
    """Assigns partitions to the members of a group whose leader runs it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name under which members propose it: unlike that of any other in the group's lists."""

    @property
    def protocols(self) -> Sequence[RebalanceProtocol]:
        """The rebalance protocols that it supports."""
        return (RebalanceProtocol.EAGER,)

    @property
    def minimum_version(self) -> int:
        """The oldest version of other members' metadata that it reads; -1 is the user data of the classic protocol."""
        return -1

    @property
    def maximum_version(self) -> int:
        """The newest version of other members' metadata that it reads (KIP-848's client-side mode only)."""
        return 0

    @property
    def reason(self) -> int:
        """Why it wants a new assignment (KIP-848's client-side mode only); a change to another one asks for it."""
        return 0

    def subscription_user_data(self, topics: AbstractSet[str]) -> bytes | None:
        """Returns what the member adds to its subscription for the leader's assignor; None for nothing."""
        del topics
        return None

    def subscription_with(
        self, subscription: MemberSubscription, had: tuple[TopicPartition, ...], generation_id: int
    ) -> MemberSubscription:
        """Returns what a member would tell its leader if it joined again, having been assigned these partitions.

        The leader asks for it when it assigns anew without a join round (docs/client-extensions.md).
        """
        return replace(subscription, owned_partitions=had, generation_id=generation_id)

    @abstractmethod
    def assign(
        self, cluster: ClusterTopics, subscriptions: Mapping[str, MemberSubscription]
    ) -> Mapping[str, Assignment]:
        """Returns an assignment for each member id in ``subscriptions``.

        Runs in the leader only. Without randomness and I/O, so that a replay gives the same.
        """

    def on_assignment(self, assignment: Assignment, group: GroupMetadata) -> None:
        """Is told the member's own assignment, in every member, before the application is."""
        del assignment, group
