"""The target assignment of a consumer group: who shall have what, computed by an assignor on the coordinator.

Source: TargetAssignmentBuilder and the assignor's interface (GroupSpec, SubscribedTopicDescriber).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

from coordinator_udf.groups.model.consumer import ConsumerGroup, ConsumerMember, ResolvedRegex, Target
from coordinator_udf.groups.records.consumer import NewRecord, target_epoch, target_member
from coordinator_udf.java_order.tables import INITIAL_TABLE, grown_table, hash_order, set_table
from coordinator_udf.java_order.walks import is_same_target
from coordinator_udf.protocol.requests import Topic


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
        """What each member shall have; a member that isn't there shall have nothing.

        Topics and partitions stand in the order in which Kafka's assignor has them, which the records show.
        """


def subscribed_names(member: ConsumerMember, resolved: Mapping[str, ResolvedRegex]) -> list[str]:
    """The topics that a member names or its regular expression matched, existing or not, as Kafka walks them.

    Of two sets the larger one comes first; the names where there are more of them (UnionSet).
    """
    regex = resolved.get(member.subscribed_topic_regex)
    sets = [() if regex is None else regex.topics, member.subscribed_topic_names]
    walked = (
        name for names in sorted(sets, key=len, reverse=True) for name in hash_order(names, set_table(len(names)))
    )
    return list(dict.fromkeys(walked))


def subscribed_topic_ids(topics: Mapping[str, Topic], names: Iterable[str]) -> dict[str, int]:
    """The topics of these names that exist: their ids, with their numbers of partitions, in the same order."""
    return {topics[name].id: topics[name].partitions for name in names if name in topics}


def compute_target(
    topics: Mapping[str, Topic],
    assignor: Assignor,
    group: ConsumerGroup,
    updated: ConsumerMember,
    when: tuple[int, int],
    *,
    homogeneous: bool,
) -> tuple[list[NewRecord], Target]:
    """Computes the targets of a group in which one member comes, or is about to be another.

    Args:
        when: the targets' epoch, and the time in milliseconds.
        homogeneous: whether all members want the same topics.

    Returns:
        The records of the targets that are new, and what the updated member shall have, in Kafka's order.
    """
    replaced = group.static_members.get(updated.instance_id) if updated.instance_id is not None else None
    members = {known.member_id: known for known in group.in_order()}
    if replaced is not None and replaced != updated.member_id:
        del members[replaced]
    members[updated.member_id] = updated
    old_ids = {updated.member_id: replaced or updated.member_id}
    order = hash_order(members, grown_table(INITIAL_TABLE, len(group.members | members)))
    held = {
        (topic_id, partition)
        for target in group.targets.values()
        for topic_id, partitions in target.items()
        for partition in partitions
    }
    spec = GroupSpec(
        members={
            member_id: MemberSpec(
                members[member_id].instance_id,
                subscribed_topic_ids(topics, names),
                group.target(old_ids.get(member_id, member_id)),
                len(names),
            )
            for member_id in order
            for names in [subscribed_names(members[member_id], group.resolved_regexes)]
        },
        homogeneous=homogeneous,
        partitions={topic.id: topic.partitions for topic in topics.values()},
        names={topic.id: topic.name for topic in topics.values()},
        is_assigned=lambda topic_id, partition: (topic_id, partition) in held,
    )
    targets = assignor.assign(spec)
    records = [
        target_member(group.group_id, member_id, targets.get(member_id, {}))
        for member_id in order
        if not is_same_target(targets.get(member_id, {}), group.targets.get(member_id))
    ]
    records.append(target_epoch(group.group_id, *when))
    return records, targets.get(updated.member_id, {})
