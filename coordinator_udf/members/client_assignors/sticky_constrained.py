"""Sticky assignment where all members subscribe to the same topics.

Source: AbstractStickyAssignor.ConstrainedAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from coordinator_udf.members.client_assignors.partitions import TopicRacks
from coordinator_udf.members.client_assignors.sticky_racks import RackInfo
from coordinator_udf.members.client_assignors.sticky_unassigned import unassigned_of
from coordinator_udf.members.exceptions import illegal_state
from coordinator_udf.members.inputs import TopicPartition


class ConstrainedAssignment:
    """Every member gets the quotient, as many as there is a rest one more; each keeps of its own what fits.

    Attributes:
        transferred: partitions that go from one member to another, with the new one.
    """

    def __init__(
        self,
        topics: TopicRacks,
        racks: RackInfo,
        owned: Mapping[str, list[TopicPartition]],
        claimed_twice: AbstractSet[TopicPartition],
    ) -> None:
        self._topics = topics
        self._racks = racks
        self._owned = owned
        self._claimed_twice = claimed_twice
        total = sum(len(of_topic) for of_topic in topics.values())
        self._min_quota, self._over_min_wanted = divmod(total, len(owned))
        self._max_quota = self._min_quota + (1 if self._over_min_wanted else 0)
        self._over_min = 0
        self._assignment: dict[str, list[TopicPartition]] = {member: [] for member in owned}
        self._maybe_revoked: dict[TopicPartition, str] = {}
        self._under_min: list[str] = []
        self._at_min: list[str] = []
        self.transferred: dict[TopicPartition, str] = {}

    def build(self) -> dict[str, list[TopicPartition]]:
        """Returns each member's partitions.

        Raises:
            ClientException: they don't come out even (IllegalStateException), which would be a defect.
        """
        for member, owned in self._owned.items():
            self._keep_owned(member, owned)
        kept = sorted(partition for partitions in self._assignment.values() for partition in partitions)
        everything = (
            TopicPartition(topic, number)
            for topic in sorted(self._topics)
            for number in range(len(self._topics[topic]))
        )
        unassigned = unassigned_of(everything, kept)
        self._under_min.sort()
        self._at_min.sort()
        unassigned = self._racks.hardest_first(unassigned)
        if self._racks.member_racks:
            unassigned = self._assign_near(unassigned)
        self._assign_in_turn(unassigned)
        self._check()
        return self._assignment

    def _keep_owned(self, member: str, owned: list[TopicPartition]) -> None:
        """Lets a member keep what it had, up to its quota."""
        near: list[TopicPartition] = []
        for partition in owned:
            if self._racks.mismatch(member, partition):
                self._maybe_revoked[partition] = member
            else:
                near.append(partition)
        near.sort(key=lambda partition: (partition.partition, partition.topic))
        near = [partition for partition in near if partition not in self._claimed_twice]
        if len(near) < self._min_quota:
            self._assignment[member].extend(near)
            self._under_min.append(member)
            return
        if len(near) >= self._max_quota and self._over_min < self._over_min_wanted:
            self._over_min += 1
            if self._over_min == self._over_min_wanted:
                self._at_min.clear()
            quota = self._max_quota
        else:
            quota = self._min_quota
            if self._over_min < self._over_min_wanted:
                self._at_min.append(member)
        self._assignment[member].extend(near[:quota])
        self._maybe_revoked.update((partition, member) for partition in near[quota:])

    def _assign_near(self, unassigned: list[TopicPartition]) -> list[TopicPartition]:
        """Assigns partitions to members in their racks, in turn. Returns what is left."""
        left: list[TopicPartition] = []
        turn = 0
        for partition in unassigned:
            index = self._racks.next_member(partition, self._under_min, turn)
            if index is not None:
                member = self._under_min[index]
                turn = self._next_turn(index, member)
            else:
                found = self._near_at_min(partition)
                if found is None:
                    left.append(partition)
                    continue
                member = found
            self._give(partition, member)
        return left

    def _next_turn(self, index: int, member: str) -> int:
        count = len(self._assignment[member]) + 1
        if count >= self._min_quota:
            self._under_min.remove(member)
            if count < self._max_quota and self._over_min < self._over_min_wanted:
                self._at_min.append(member)
        else:
            index += 1
        return index % len(self._under_min) if self._under_min else 0

    def _near_at_min(self, partition: TopicPartition) -> str | None:
        index = self._racks.next_member(partition, self._at_min, 0)
        if index is None:
            return None
        member = self._at_min[index]
        if len(self._assignment[member]) + 1 == self._max_quota:
            del self._at_min[index]
            self._over_min += 1
            if self._over_min == self._over_min_wanted:
                self._at_min.clear()
        return member

    def _assign_in_turn(self, unassigned: list[TopicPartition]) -> None:
        """Assigns the rest to the members under their quota in turn, then to those that may have one more."""
        turn = 0
        for partition in unassigned:
            from_turn = True
            if turn < len(self._under_min):
                member = self._under_min[turn]
            elif not self._under_min and not self._at_min:
                raise illegal_state("No more unfilled consumers to be assigned.")
            elif not self._under_min:
                member = self._at_min.pop(0)
                from_turn = False
            else:
                turn = 0
                member = self._under_min[0]
            count = self._give(partition, member)
            if from_turn:
                turn += 1
            if count == self._min_quota:
                turn -= 1
                del self._under_min[turn]
                self._at_min.append(member)
            elif count == self._max_quota:
                self._over_min += 1

    def _give(self, partition: TopicPartition, member: str) -> int:
        self._assignment[member].append(partition)
        if self._maybe_revoked.get(partition, member) != member or partition in self._claimed_twice:
            self.transferred[partition] = member
        return len(self._assignment[member])

    def _check(self) -> None:
        if not self._under_min:
            return
        if self._over_min != self._over_min_wanted:
            raise illegal_state(
                "We haven't reached the expected number of members with more than the minQuota partitions, but no "
                "more partitions to be assigned"
            )
        for member in self._under_min:
            if len(self._assignment[member]) != self._min_quota:
                raise illegal_state(
                    f"Consumer: [{member}] doesn't reach minQuota partitions, and no more partitions to be assigned"
                )
