"""Sticky assignment where members subscribe to different topics (AbstractStickyAssignor.GeneralAssignmentBuilder)."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping

from coordinator_udf.members.client_assignors.partitions import Subscriptions, TopicRacks
from coordinator_udf.members.client_assignors.sticky_movements import PartitionMovements
from coordinator_udf.members.client_assignors.sticky_racks import RackInfo
from coordinator_udf.members.client_assignors.sticky_unassigned import unassigned_of
from coordinator_udf.members.exceptions import ClientException
from coordinator_udf.members.inputs import TopicPartition

#: Partitions with the member of an older generation that had them, and that generation.
Previous = Mapping[TopicPartition, tuple[str, int]]


class GeneralAssignment:
    """Members keep what they have; the rest goes to whom has least; then partitions are moved until it is balanced."""

    def __init__(
        self,
        topics: TopicRacks,
        racks: RackInfo,
        owned: Mapping[str, list[TopicPartition]],
        subscriptions: Subscriptions,
    ) -> None:
        self._counts = {topic: len(of_topic) for topic, of_topic in topics.items()}
        self._racks = racks
        self._subscriptions = subscriptions
        self._assignment = {member: list(partitions) for member, partitions in owned.items()}
        self._topics_of = {
            member: [topic for topic in subscription.topics if topic in topics]
            for member, subscription in subscriptions.items()
        }
        self._members_of: dict[str, list[str]] = {topic: [] for topic in topics}
        for member, of_member in self._topics_of.items():
            for topic in of_member:
                self._members_of[topic].append(member)
        self._owner = {partition: member for member, of_member in owned.items() for partition in of_member}
        self._everything = [
            TopicPartition(topic, number)
            for topic in sorted(topics, key=lambda topic: (len(self._members_of[topic]), topic))
            for number in range(self._counts[topic])
        ]
        #: Members by the size of what they have, those first that have least.
        self._by_size: list[tuple[int, str]] = []
        self._movements = PartitionMovements()
        self._needs_revocation = False

    def build(self, previous: Previous) -> dict[str, list[TopicPartition]]:
        """Returns each member's partitions.

        Raises:
            ClientException: a partition's previous owner takes part no longer (NullPointerException, as in Kafka).
        """
        assigned = self._keep_owned()
        assigned.sort(key=lambda partition: (len(self._members_of[partition.topic]), *partition))
        unassigned = unassigned_of(self._everything, assigned) if assigned else self._everything
        self._by_size = sorted((len(partitions), member) for member, partitions in self._assignment.items())
        self._balance(previous, unassigned)
        return self._assignment

    def _keep_owned(self) -> list[TopicPartition]:
        kept: list[TopicPartition] = []
        for member, partitions in self._assignment.items():
            of_member = self._subscriptions[member].topics
            near = [p for p in partitions if p.topic in of_member and not self._racks.mismatch(member, p)]
            self._needs_revocation = self._needs_revocation or len(near) < len(partitions)
            kept.extend(near)
            self._assignment[member] = near
        return kept

    # ---- what nobody has

    def _balance(self, previous: Previous, unassigned: list[TopicPartition]) -> None:
        is_first = self._by_size[-1][0] == 0
        left = unassigned
        if self._racks.member_racks:
            left = [partition for partition in unassigned if not self._assign(partition, near_only=True)]
        for partition in left:
            self._assign(partition, near_only=False)
        movable = {topic for topic, members in self._members_of.items() if len(members) > 1}
        everything = [partition for partition in self._everything if partition.topic in movable]
        unassigned = [partition for partition in unassigned if partition.topic in movable]
        fixed = self._take_out_fixed()
        before = {member: list(partitions) for member, partitions in self._assignment.items()}
        if not self._needs_revocation:
            self._reassign(unassigned, previous)
        has_moved = self._reassign(everything, previous)
        if not is_first and has_moved and _balance_score(self._assignment) >= _balance_score(before):
            self._assignment = before
        self._assignment.update(fixed)

    def _assign(self, partition: TopicPartition, *, near_only: bool) -> bool:
        for _, member in self._by_size:
            is_near = not near_only or not self._racks.mismatch(member, partition)
            if is_near and partition.topic in self._topics_of[member]:
                self._give(partition, member)
                return True
        return False

    def _take_out_fixed(self) -> dict[str, list[TopicPartition]]:
        """Takes out the members that balancing can't change."""
        fixed = [member for member in self._topics_of if not self._can_change(member)]
        self._by_size = [(size, member) for size, member in self._by_size if member not in fixed]
        return {member: self._assignment.pop(member) for member in fixed}

    def _can_change(self, member: str) -> bool:
        partitions = self._assignment[member]
        if len(partitions) < self._most(member):
            return True
        return any(len(self._members_of[partition.topic]) > 1 for partition in partitions)

    def _most(self, member: str) -> int:
        return sum(self._counts[topic] for topic in self._topics_of[member])

    # ---- moving

    def _reassign(self, partitions: Iterable[TopicPartition], previous: Previous) -> bool:
        """Moves partitions until it is balanced or nothing more can be moved. Returns whether any was."""
        candidates = list(partitions)
        has_moved = False
        modified = True
        while modified:
            modified = False
            for partition in candidates:
                if self._is_balanced():
                    break
                target = self._target(partition, previous)
                if target is not None:
                    self._move(partition, target)
                    has_moved = modified = True
        return has_moved

    def _target(self, partition: TopicPartition, previous: Previous) -> str | None:
        """Returns to whom a partition should go: back to its previous owner, or to whom has least."""
        owner = self._owner.get(partition)
        if partition in previous:
            earlier = previous[partition][0]
            if self._size(owner) > self._size(earlier) + 1:
                return earlier
        if self._has_more_than_any(owner, self._near(partition, owner)) or self._has_more_than_any(
            owner, self._members_of[partition.topic]
        ):
            return next(member for _, member in self._by_size if partition.topic in self._topics_of[member])
        return None

    def _near(self, partition: TopicPartition, owner: str | None) -> list[str]:
        """Returns the members in racks of the partition, if its owner is in one: they are looked at first.

        The partition goes to whom has least all the same; but where a member that can't change has been taken out, to
        look at it would be an error.
        """
        racks = self._racks.partition_racks.get(partition, frozenset())
        member_racks = self._racks.member_racks
        if owner is None or member_racks.get(owner) not in racks:
            return []
        return [member for member in self._members_of[partition.topic] if member_racks.get(member) in racks]

    def _has_more_than_any(self, owner: str | None, others: Iterable[str]) -> bool:
        """Tells whether the owner has at least two partitions more than one of the others."""
        return any(self._size(owner) > self._size(other) + 1 for other in others)

    def _move(self, partition: TopicPartition, new: str) -> None:
        moved = self._movements.actual(partition, self._owner[partition], new)
        old = self._owner[moved]
        self._movements.move(moved, old, new)
        self._by_size.remove((len(self._assignment[old]), old))
        self._assignment[old].remove(moved)
        insort(self._by_size, (len(self._assignment[old]), old))
        self._give(moved, new)

    def _is_balanced(self) -> bool:
        if not self._by_size:
            raise ClientException("NoSuchElementException")
        if self._by_size[0][0] >= self._by_size[-1][0] - 1:
            return True
        owners = {partition: member for member, of_member in self._assignment.items() for partition in of_member}
        for size, member in self._by_size:
            if size == self._most(member):
                continue
            own = set(self._assignment[member])
            for topic in self._topics_of[member]:
                for number in range(self._counts[topic]):
                    partition = TopicPartition(topic, number)
                    if partition not in own and size + 1 < self._size(owners.get(partition)):
                        return False
        return True

    def _size(self, member: str | None) -> int:
        partitions = None if member is None else self._assignment.get(member)
        if partitions is None:
            raise ClientException("NullPointerException", f"member {member} has no assignment")
        return len(partitions)

    def _give(self, partition: TopicPartition, member: str) -> None:
        partitions = self._assignment[member]
        self._by_size.remove((len(partitions), member))
        partitions.append(partition)
        insort(self._by_size, (len(partitions), member))
        self._owner[partition] = member


def _balance_score(assignment: Mapping[str, list[TopicPartition]]) -> int:
    """Returns the sum of the differences in size of all pairs of members."""
    sizes = sorted(len(partitions) for partitions in assignment.values())
    return sum(size * (2 * index - len(sizes) + 1) for index, size in enumerate(sizes))
