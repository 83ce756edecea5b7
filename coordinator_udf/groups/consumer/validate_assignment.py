"""Whether an assignment that a member computed can be its group's target.

It is looked at as of the group epoch that it was computed for: the group may have gone on. Who has left since is left
out, and who has joined since has nothing in it. Source: KIP-848 (client-side mode).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from coordinator_udf.groups.consumer.target import subscribed_names
from coordinator_udf.groups.model.client_assignment import Departure
from coordinator_udf.groups.model.consumer import ConsumerGroup, ConsumerMember
from coordinator_udf.java_order.walks import Target
from coordinator_udf.protocol.errors import ApiError, Errors
from coordinator_udf.protocol.requests import MemberPartitions, OwnedPartitions, Topic


@dataclass(frozen=True, slots=True)
class NewTargets:
    """What members shall have, by id, and the version and bytes of what their assignors are told."""

    targets: dict[str, Target] = field(default_factory=dict)
    metadata: dict[str, tuple[int, bytes]] = field(default_factory=dict)


def _invalid(message: str) -> ApiError:
    return ApiError(Errors.INVALID_ASSIGNMENT, message)


def validated(
    topics: Mapping[str, Topic], group: ConsumerGroup, group_epoch: int, members: Iterable[MemberPartitions]
) -> NewTargets:
    """Checks an assignment.

    Args:
        topics: what exists now, by name.
        group_epoch: the epoch that the assignment says it was computed for.

    Returns:
        What of it is for members that are there now.

    Raises:
        ApiError: INVALID_ASSIGNMENT; the message names what can't be.
    """
    if not group.assignment_epoch < group_epoch <= group.group_epoch:
        raise _invalid(
            f"GroupEpoch is {group_epoch}, expected more than {group.assignment_epoch}, which has an assignment, and "
            f"at most {group.group_epoch}."
        )
    check = _Check(topics, group, group_epoch)
    for entry in members:
        check.add(entry)
    return check.found


class _Check:
    """An assignment on its way through the checks."""

    def __init__(self, topics: Mapping[str, Topic], group: ConsumerGroup, group_epoch: int) -> None:
        self.found = NewTargets()
        self._topics = {topic.id: topic for topic in topics.values()}
        self._group = group
        self._group_epoch = group_epoch
        departures = () if group.computation is None else group.computation.departures
        self._departures = {each.member_id: each for each in departures}
        self._named: set[str] = set()
        self._assigned: dict[tuple[str, int], str] = {}
        self._subscribed: dict[tuple[tuple[str, ...], str], frozenset[str]] = {}

    def add(self, entry: MemberPartitions) -> None:
        """Checks what one member shall have, and takes it."""
        if entry.member_id in self._named:
            raise _invalid(f"Member {entry.member_id} is named twice.")
        self._named.add(entry.member_id)
        self._check_partitions(entry)
        member = self._member(entry.member_id)
        if member is None:
            return
        target = self._wanted(member, entry.partitions)
        self.found.targets[member.member_id] = target
        if entry.metadata_version != -1 or entry.metadata:
            self.found.metadata[member.member_id] = entry.metadata_version, entry.metadata

    def _check_partitions(self, entry: MemberPartitions) -> None:
        for topic_id, partition in _flat(entry.partitions):
            topic = self._topics.get(topic_id)
            if topic is None:
                raise _invalid(f"Topic {topic_id}, assigned to member {entry.member_id}, doesn't exist.")
            if not 0 <= partition < topic.partitions:
                raise _invalid(
                    f"Partition {partition} of topic {topic.name}, assigned to member {entry.member_id}, doesn't "
                    f"exist; there are {topic.partitions}."
                )
            if (topic_id, partition) in self._assigned:
                other = self._assigned[topic_id, partition]
                raise _invalid(
                    f"Partition {partition} of topic {topic.name} is assigned twice, to {other} and {entry.member_id}."
                )
            self._assigned[topic_id, partition] = entry.member_id

    def _member(self, member_id: str) -> ConsumerMember | None:
        """Returns the member that an entry is for; None if it has left."""
        departure: Departure | None = self._departures.get(member_id)
        member = self._group.members.get(member_id)
        if departure is not None and (member is None or self._group_epoch < departure.group_epoch):
            return self._group.members.get(departure.replaced_by)
        if member is None:
            raise _invalid(f"Member {member_id} is not a member of the group.")
        if member.joined_epoch > self._group_epoch:
            raise _invalid(
                f"Member {member_id} joined with epoch {member.joined_epoch}, after the assignment's, which is "
                f"{self._group_epoch}."
            )
        return member

    def _wanted(self, member: ConsumerMember, partitions: Iterable[OwnedPartitions]) -> Target:
        """Returns what a member shall have, without what it has given up since the epoch."""
        names = self._names(member)
        target: dict[str, list[int]] = {}
        for topic_id, partition in _flat(partitions):
            name = self._topics[topic_id].name
            if name in names:
                target.setdefault(topic_id, []).append(partition)
            elif not self._has_changed(member):
                raise _invalid(f"Member {member.member_id} is not subscribed to topic {name}, which is assigned to it.")
        return {topic_id: tuple(numbers) for topic_id, numbers in target.items()}

    def _names(self, member: ConsumerMember) -> frozenset[str]:
        key = member.subscribed_topic_names, member.subscribed_topic_regex
        if key not in self._subscribed:
            self._subscribed[key] = frozenset(subscribed_names(member, self._group.resolved_regexes))
        return self._subscribed[key]

    def _has_changed(self, member: ConsumerMember) -> bool:
        """Returns whether the member's subscription may have changed since the epoch."""
        if member.subscribed_epoch > self._group_epoch:
            return True
        return bool(member.subscribed_topic_regex) and self._group_epoch < self._group.group_epoch


def _flat(partitions: Iterable[OwnedPartitions]) -> Iterable[tuple[str, int]]:
    return ((each.topic_id, partition) for each in partitions for partition in each.partitions)
