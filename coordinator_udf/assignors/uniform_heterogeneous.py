"""Uniform where members want different topics: topic by topic, always to the member that has least.

First everybody keeps what it has and still wants, then what is free is given out, the topics with the most partitions a
subscriber first, then partitions move from the most to the least loaded subscriber of each topic, round after round,
until nothing moves. Source: UniformHeterogeneousAssignmentBuilder.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode

from coordinator_udf.assignors.spec import GroupSpec
from coordinator_udf.java_order.maps import PartitionSets
from coordinator_udf.java_order.tables import table_for
from coordinator_udf.java_order.walks import Target, target_in_kafka_order

#: How often all topics are looked through for a partition to move, at most: Kafka's own bound (MAX_ITERATION_COUNT).
_MAX_ROUNDS = 16


def assign_heterogeneous(spec: GroupSpec) -> dict[str, Target]:
    """Returns what each member shall have."""
    work = _Work(spec)
    if not work.subscribers:
        return {}
    work.keep()
    work.assign_free()
    work.balance()
    return work.targets()


class _Work:
    """An assignment in the making. Members are numbers, in the order of the specification."""

    def __init__(self, spec: GroupSpec) -> None:
        self.spec = spec
        self.member_ids = list(spec.members)
        self.subscribers: dict[str, list[int]] = {}
        for member, wants in enumerate(spec.members.values()):
            for topic_id in wants.topic_ids:
                self.subscribers.setdefault(topic_id, []).append(member)
        #: Topic id -> the owner of each partition; None: nobody.
        self.owners: dict[str, list[int | None]] = {
            topic_id: [None] * spec.partitions[topic_id] for topic_id in self.subscribers
        }
        self.loads = [0] * len(self.member_ids)
        #: What each member has: as it was, or a copy that was changed.
        self.given: list[Target | PartitionSets] = [
            target_in_kafka_order(member.target) for member in spec.members.values()
        ]
        self.topics = sorted(self.subscribers, key=self._rank)

    def _rank(self, topic_id: str) -> tuple[float, int, tuple[int, int]]:
        """Ranks topics: those with the most partitions a subscriber first, then those with the fewest subscribers."""
        subscribers = len(self.subscribers[topic_id])
        data = urlsafe_b64decode(topic_id + "==")
        halves = int.from_bytes(data[:8], signed=True), int.from_bytes(data[8:], signed=True)
        return -self.spec.partitions[topic_id] / subscribers, subscribers, halves

    def keep(self) -> None:
        for member, spec in enumerate(self.spec.members.values()):
            for topic_id, partitions in spec.target.items():
                if topic_id in spec.topic_ids:
                    self.loads[member] += len(partitions)
                    for partition in partitions:
                        self.owners[topic_id][partition] = member
                else:
                    self._sets(member).drop(topic_id)

    def _sets(self, member: int) -> PartitionSets:
        given = self.given[member]
        sets = self.given[member] = given if isinstance(given, PartitionSets) else PartitionSets(given)
        return sets

    def assign_free(self) -> None:
        for topic_id in self.topics:
            balancer = _Balancer(self.loads, self.subscribers[topic_id])
            for partition, owner in enumerate(list(self.owners[topic_id])):
                if owner is None:
                    self._give(topic_id, partition, balancer.least_loaded())

    def balance(self) -> None:
        topics = [topic_id for topic_id in self.topics if len(self.subscribers[topic_id]) >= 2]
        last_moved = -1
        for _ in range(_MAX_ROUNDS):
            for index, topic_id in enumerate(topics):
                if index == last_moved:
                    return
                if self._balance_topic(topic_id) or last_moved == -1:
                    last_moved = index

    def _balance_topic(self, topic_id: str) -> int:
        """Moves partitions of a topic to members that have less; how many."""
        balancer = _Balancer(self.loads, self.subscribers[topic_id])
        if balancer.imbalance <= 1:
            return 0
        # Each member's partitions in order; what it got in this very pass is not given on.
        movable: dict[int, list[int]] = {}
        for partition, owner in enumerate(self.owners[topic_id]):
            if owner is not None:
                movable.setdefault(owner, []).append(partition)
        moved = 0
        while not balancer.is_balanced():
            giver = balancer.most_loaded()
            while giver is not None and not movable.get(giver):
                balancer.exclude_most_loaded()
                giver = balancer.most_loaded()
            if giver is None:
                break
            partition = movable[giver].pop()
            taker = balancer.least_loaded()
            if balancer.is_balanced():
                break
            self._give(topic_id, partition, taker)
            moved += 1
        return moved

    def _give(self, topic_id: str, partition: int, member: int) -> None:
        owner = self.owners[topic_id][partition]
        if owner is not None:
            self.loads[owner] -= 1
            self._sets(owner).discard(topic_id, partition)
        self.owners[topic_id][partition] = member
        self.loads[member] += 1
        share = -(-self.spec.partitions[topic_id] // len(self.subscribers[topic_id]))
        self._sets(member).add(topic_id, partition, table_for(share))

    def targets(self) -> dict[str, Target]:
        return {
            member_id: given.walk() if isinstance(given, PartitionSets) else given
            for member_id, given in zip(self.member_ids, self.given, strict=True)
        }


class _Balancer:
    """Walks a topic's subscribers from the least and from the most loaded end, as if loads changed with each step.

    Members are sorted once. The least loaded are those of the first range: once each of them was named, each has one
    partition more, and the range grows by those that had as many from the start; likewise from the other end.
    """

    def __init__(self, loads: list[int], subscribers: list[int]) -> None:
        self._loads = loads
        self._members = sorted(subscribers, key=lambda member: (loads[member], member))
        first, last = loads[self._members[0]], loads[self._members[-1]]
        self.imbalance = last - first
        self._least_end = 0
        self._least_load = first - 1
        self._next_least = 0
        self._most_start = self._most_end = len(self._members)
        self._most_load = last + 1
        self._next_most = len(self._members) - 1

    def least_loaded(self) -> int:
        """Returns the member that gets the next partition."""
        if self._next_least >= self._least_end:
            self._least_load += 1
            while self._least_end < len(self._members) and self._load(self._least_end) == self._least_load:
                self._least_end += 1
            self._next_least = 0
        self._next_least += 1
        return self._members[self._next_least - 1]

    def most_loaded(self) -> int | None:
        """Returns the member that gives the next partition; None if nobody is left."""
        if self._next_most < self._most_start:
            if self._most_end <= self._most_start and self._most_start > 0:
                # All of the range were excluded: on to those with the next load.
                self._most_load = self._load(self._most_start - 1)
            else:
                self._most_load -= 1
            while self._most_start > 0 and self._load(self._most_start - 1) == self._most_load:
                self._most_start -= 1
            self._next_most = self._most_end - 1
        if self._next_most < 0:
            return None
        self._next_most -= 1
        return self._members[self._next_most + 1]

    def exclude_most_loaded(self) -> None:
        """Leaves out the member that was named last: it has nothing to give."""
        at, last = self._next_most + 1, self._most_end - 1
        self._members[at], self._members[last] = self._members[last], self._members[at]
        self._most_end -= 1

    def is_balanced(self) -> bool:
        """Returns whether the two ends have met."""
        return self._most_load - self._least_load <= 1

    def _load(self, place: int) -> int:
        return self._loads[self._members[place]]
