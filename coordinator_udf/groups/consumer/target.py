"""The target assignment of a consumer group: who shall have what, computed by an assignor on the coordinator.

Source: TargetAssignmentBuilder and the assignor's interface (GroupSpec, SubscribedTopicDescriber).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coordinator_udf.assignors.spec import Assignor, GroupSpec, MemberSpec
from coordinator_udf.groups.model.consumer import ConsumerGroup, ConsumerMember, ResolvedRegex
from coordinator_udf.groups.records.consumer import NewRecord, target_epoch, target_member
from coordinator_udf.java_order.tables import INITIAL_TABLE, grown_table, hash_order, set_table
from coordinator_udf.java_order.walks import Target, is_same_target
from coordinator_udf.protocol.requests import Topic


def subscribed_names(member: ConsumerMember, resolved: Mapping[str, ResolvedRegex]) -> list[str]:
    """Returns the topics that a member names or its regular expression matched, existing or not, as Kafka walks them.

    Of two sets the larger one comes first; the names where there are more of them (UnionSet).
    """
    regex = resolved.get(member.subscribed_topic_regex)
    sets = [() if regex is None else regex.topics, member.subscribed_topic_names]
    in_order = (
        name for names in sorted(sets, key=len, reverse=True) for name in hash_order(names, set_table(len(names)))
    )
    return list(dict.fromkeys(in_order))


def subscribed_topic_ids(topics: Mapping[str, Topic], names: Iterable[str]) -> dict[str, int]:
    """Returns the topics of these names that exist: their ids, with their numbers of partitions, in the same order."""
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
    held = _assigned(group)
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
        # What an assignor of the members told them goes with the next target of the coordinator's.
        if member_id in group.target_metadata
        or not is_same_target(targets.get(member_id, {}), group.targets.get(member_id))
    ]
    records.append(target_epoch(group.group_id, *when))
    return records, targets.get(updated.member_id, {})


def _assigned(group: ConsumerGroup) -> set[tuple[str, int]]:
    """Returns the partitions (topic id, number) that are in any target of a group."""
    return {
        (topic_id, partition)
        for target in group.targets.values()
        for topic_id, partitions in target.items()
        for partition in partitions
    }
