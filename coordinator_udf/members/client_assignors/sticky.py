"""The sticky assignors: as even as can be, and each member keeps what it has.

What members had stands in what they add to their subscriptions, or in the partitions that they own.
Source: StickyAssignor, CooperativeStickyAssignor, AbstractStickyAssignor.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from coordinator_udf.members.client_assignors.partitions import PartitionAssignor, Subscriptions, TopicRacks
from coordinator_udf.members.client_assignors.spec import (
    Assignment,
    GroupMetadata,
    MemberSubscription,
    RebalanceProtocol,
)
from coordinator_udf.members.client_assignors.sticky_constrained import ConstrainedAssignment
from coordinator_udf.members.client_assignors.sticky_general import GeneralAssignment
from coordinator_udf.members.client_assignors.sticky_previous import NO_GENERATION, MemberData, PreviousOwners
from coordinator_udf.members.client_assignors.sticky_racks import RackInfo
from coordinator_udf.members.client_assignors.wire import by_topic
from coordinator_udf.members.inputs import TopicPartition

Assigned = dict[str, list[TopicPartition]]


class _AbstractStickyAssignor(PartitionAssignor):
    """What both have in common. It remembers the highest generation that it has seen of anybody."""

    def __init__(self) -> None:
        self._max_generation = NO_GENERATION

    def member_data(self, subscription: MemberSubscription) -> MemberData:
        """Returns what a member had."""
        raise NotImplementedError

    def assign_partitions(self, topics: TopicRacks, subscriptions: Subscriptions) -> Assigned:
        """Returns each member's partitions."""
        return self.assign_and_transfer(topics, subscriptions)[0]

    def assign_and_transfer(
        self, topics: TopicRacks, subscriptions: Subscriptions
    ) -> tuple[Assigned, dict[TopicPartition, str] | None]:
        """Returns each member's partitions, and those that go from one member to another, if that is known."""
        previous = PreviousOwners(topics.keys(), subscriptions, self.member_data, self._max_generation)
        self._max_generation = previous.max_generation
        racks = RackInfo(topics, subscriptions)
        if previous.all_subscriptions_equal:
            constrained = ConstrainedAssignment(topics, racks, previous.owned, previous.claimed_twice)
            return constrained.build(), constrained.transferred
        general = GeneralAssignment(topics, racks, previous.owned, subscriptions)
        return general.build(previous.of_older_generations()), None


class StickyAssignor(_AbstractStickyAssignor):
    """Revokes all before it joins, and tells in its user data what it had."""

    def __init__(self) -> None:
        super().__init__()
        self._had: Sequence[TopicPartition] | None = None
        self._generation = NO_GENERATION

    @property
    def name(self) -> str:
        """Kafka's name."""
        return "sticky"

    def on_assignment(self, assignment: Assignment, group: GroupMetadata) -> None:
        """Remembers the assignment for the next time."""
        self._had = assignment.partitions
        self._generation = group.generation_id

    def subscription_user_data(self, topics: AbstractSet[str]) -> bytes | None:
        """Returns what the member had, and in which generation."""
        del topics
        return None if self._had is None else _user_data(self._had, self._generation)

    def subscription_with(
        self, subscription: MemberSubscription, had: tuple[TopicPartition, ...], generation_id: int
    ) -> MemberSubscription:
        """Returns a subscription whose user data tells these partitions."""
        told = super().subscription_with(subscription, had, generation_id)
        return replace(told, user_data=_user_data(had, generation_id))

    def member_data(self, subscription: MemberSubscription) -> MemberData:
        """Reads a member's user data."""
        if not subscription.user_data:
            return MemberData((), None)
        return _read_user_data(subscription.user_data)


class CooperativeStickyAssignor(_AbstractStickyAssignor):
    """Keeps what it has while it joins: what goes to another member is given in the next round only."""

    def __init__(self) -> None:
        super().__init__()
        self._generation = NO_GENERATION

    @property
    def name(self) -> str:
        """Kafka's name."""
        return "cooperative-sticky"

    @property
    def protocols(self) -> Sequence[RebalanceProtocol]:
        """Both protocols: EAGER is for the way from another assignor to this one."""
        return (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def on_assignment(self, assignment: Assignment, group: GroupMetadata) -> None:
        """Remembers the generation."""
        del assignment
        self._generation = group.generation_id

    def subscription_user_data(self, topics: AbstractSet[str]) -> bytes | None:
        """Returns the generation, for leaders that don't read it in the subscription."""
        del topics
        return struct.pack(">i", self._generation)

    def member_data(self, subscription: MemberSubscription) -> MemberData:
        """Returns what a member owns, and the generation that its subscription or its user data tells."""
        owned = subscription.owned_partitions
        if subscription.generation_id >= 0:
            return MemberData(owned, subscription.generation_id)
        if subscription.user_data is None:
            return MemberData(owned, None)
        try:
            (generation,) = struct.unpack_from(">i", subscription.user_data)
        except struct.error:
            generation = NO_GENERATION
        return MemberData(owned, generation)

    def assign_partitions(self, topics: TopicRacks, subscriptions: Subscriptions) -> Assigned:
        """Returns each member's partitions, without those that another one still owns."""
        assigned, transferred = self.assign_and_transfer(topics, subscriptions)
        if transferred is None:
            transferred = _transferred(subscriptions, assigned)
        for partition, member in transferred.items():
            if partition in assigned[member]:
                assigned[member].remove(partition)
        return assigned


def _transferred(subscriptions: Subscriptions, assigned: Assigned) -> dict[TopicPartition, str]:
    added: dict[TopicPartition, str] = {}
    revoked: set[TopicPartition] = set()
    for member, partitions in assigned.items():
        owned, now = set(subscriptions[member].owned_partitions), set(partitions)
        added.update((partition, member) for partition in partitions if partition not in owned)
        revoked |= owned - now
    return {partition: member for partition, member in added.items() if partition in revoked}


def _user_data(had: Sequence[TopicPartition], generation: int) -> bytes:
    """Writes what a member had, and in which generation."""
    partitions = by_topic(had)
    parts = [struct.pack(">i", len(partitions))]
    for topic, numbers in partitions.items():
        name = topic.encode()
        parts.append(struct.pack(f">h{len(name)}si{len(numbers)}i", len(name), name, len(numbers), *numbers))
    return b"".join([*parts, struct.pack(">i", generation)])


def _read_user_data(data: bytes) -> MemberData:
    """Reads what a member had; of version 0 there is no generation, and what can't be read is nothing."""
    partitions: list[TopicPartition] = []
    try:
        (count,) = struct.unpack_from(">i", data)
        at = 4
        for _ in range(count):
            (length,) = struct.unpack_from(">h", data, at)
            topic = data[at + 2 : at + 2 + length].decode()
            at += 2 + length
            (size,) = struct.unpack_from(">i", data, at)
            numbers = struct.unpack_from(f">{size}i", data, at + 4)
            partitions.extend(TopicPartition(topic, number) for number in numbers)
            at += 4 + 4 * size
    except (struct.error, UnicodeDecodeError):
        return MemberData((), NO_GENERATION)
    if len(data) < at + 4:
        return MemberData(tuple(partitions), None)
    (generation,) = struct.unpack_from(">i", data, at)
    return MemberData(tuple(partitions), generation)
