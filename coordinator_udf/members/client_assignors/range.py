"""Ranges of each topic's partitions, racks first (RangeAssignor, KIP-881)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from coordinator_udf.members.client_assignors.partitions import (
    PartitionAssignor,
    Subscriptions,
    TopicRacks,
    member_order,
    prefers_racks,
)
from coordinator_udf.members.inputs import TopicPartition

Assigned = dict[str, list[TopicPartition]]


class RangeAssignor(PartitionAssignor):
    """Gives each member of a topic as many partitions in a row, the first members one more."""

    @property
    def name(self) -> str:
        """Kafka's name."""
        return "range"

    def assign_partitions(self, topics: TopicRacks, subscriptions: Subscriptions) -> Assigned:
        """Returns each member's partitions."""
        states = [_TopicState(topic, racks, subscriptions) for topic, racks in topics.items()]
        assigned: Assigned = {member: [] for member in subscriptions}
        by_rack = any(state.needs_racks for state in states)
        if by_rack:
            _assign_by_rack(states, assigned)
        for state in states:
            state.assign_ranges(lambda _member, _partition: True, assigned)
        if by_rack:
            for partitions in assigned.values():
                partitions.sort()
        return assigned


class _TopicState:
    """What is left to assign of a topic."""

    def __init__(self, topic: str, racks: Sequence[frozenset[str]], subscriptions: Subscriptions) -> None:
        members = [member for member, subscription in subscriptions.items() if topic in subscription.topics]
        members.sort(key=lambda member: member_order(member, subscriptions[member]))
        self.topic = topic
        self.members = {member: subscriptions[member].rack_id for member in members}
        self._unassigned = dict.fromkeys(TopicPartition(topic, number) for number in range(len(racks)))
        self._assigned = dict.fromkeys(members, 0)
        self._each, self._with_one_more = divmod(len(racks), len(members)) if members else (0, 0)
        consumer_racks = {rack for rack in self.members.values() if rack is not None}
        self._racks = dict(zip(self._unassigned, racks, strict=True)) if consumer_racks else {}
        self.needs_racks = prefers_racks(consumer_racks, self._racks)

    @property
    def rack_count(self) -> int:
        """For how many partitions racks are looked at."""
        return len(self._racks)

    def matches(self, member: str, partition: TopicPartition) -> bool:
        """Tells whether a replica of the partition is in the member's rack, or the member in none."""
        rack = self.members[member]
        return rack is None or rack in self._racks.get(partition, ())

    def room(self, member: str) -> int:
        """Returns how many partitions the member may still get."""
        return max(0, self._each + (1 if self._with_one_more > 0 else 0) - self._assigned[member])

    def take(self, member: str, partitions: Sequence[TopicPartition], assigned: Assigned) -> None:
        """Gives partitions to a member."""
        assigned[member].extend(partitions)
        self._assigned[member] += len(partitions)
        if self._assigned[member] > self._each:
            self._with_one_more -= 1
        for partition in partitions:
            self._unassigned.pop(partition, None)

    def assign_ranges(self, may_assign: Callable[[str, TopicPartition], bool], assigned: Assigned) -> None:
        """Gives each member what it may get of what is left, in order."""
        for member in self.members:
            if not self._unassigned:
                break
            partitions = [partition for partition in self._unassigned if may_assign(member, partition)]
            partitions = partitions[: self.room(member)]
            if partitions:
                self.take(member, partitions, assigned)


def _assign_by_rack(states: Iterable[_TopicState], assigned: Assigned) -> None:
    """Assigns what is in a member's rack; topics with the same members and as many partitions go together."""
    alike: dict[tuple[frozenset[tuple[str, str | None]], int], list[_TopicState]] = {}
    for state in states:
        alike.setdefault((frozenset(state.members.items()), state.rack_count), []).append(state)
    for (_, partitions), together in alike.items():
        if len(together) > 1:
            _assign_together(together, partitions, assigned)
        elif together[0].needs_racks:
            together[0].assign_ranges(together[0].matches, assigned)


def _assign_together(states: Sequence[_TopicState], partitions: int, assigned: Assigned) -> None:
    """Gives the partitions of one number in all topics to one member, so that they stay together."""
    remaining = dict.fromkeys(states[0].members)
    for number in range(partitions):
        matching = (
            member
            for member in remaining
            if all(
                state.matches(member, TopicPartition(state.topic, number)) and state.room(member) > 0
                for state in states
            )
        )
        member = next(matching, None)
        if member is None:
            continue
        for state in states:
            state.take(member, (TopicPartition(state.topic, number),), assigned)
        if not any(state.room(member) > 0 for state in states):
            del remaining[member]
            if not remaining:
                break
