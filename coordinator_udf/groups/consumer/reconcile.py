"""The way of one member from what it has to what it shall have: a pure function.

Partitions that it shall not have any more must be given up first, then it moves to the new epoch and gets those of its
new partitions that nobody holds any longer. Source: CurrentAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from coordinator_udf.groups.model.consumer import ConsumerMember, MemberState
from coordinator_udf.java_order.maps import JavaMap, by_partition, by_topic, copied_partitions, copied_topics
from coordinator_udf.java_order.tables import int_order, set_table
from coordinator_udf.java_order.walks import Assigned, Target, assigned_in_kafka_order
from coordinator_udf.protocol.errors import ApiError, Errors

#: What a member says that it still holds: topic id -> partitions. None: it doesn't say, so it still holds all.
Owned = Mapping[str, Sequence[int]] | None


@dataclass(frozen=True, slots=True)
class Goal:
    """Where a member shall go.

    Attributes:
        target_epoch: the epoch of the group's target assignment.
        target: what the member shall have in it, in Kafka's order.
        subscribed_topic_ids: the topics that exist and that the member wants now; the target may be older than that.
        wants_topics: whether it names a topic at all, be it one that doesn't exist.
        subscription_changed: whether what it wants has changed in this very request.
        partition_epoch: (topic id, partition) -> the epoch of the member that holds it, -1 if nobody does.
        owned: what the member says that it holds.
    """

    target_epoch: int
    target: Target
    subscribed_topic_ids: Collection[str]
    wants_topics: bool
    subscription_changed: bool
    partition_epoch: Callable[[str, int], int]
    owned: Owned


def reconcile(member: ConsumerMember, goal: Goal) -> ConsumerMember:
    """Returns the member after its next step, its partitions in the order in which Kafka has them then.

    Returns:
        The same member where there is no step.

    Raises:
        ApiError: FENCED_MEMBER_EPOCH, of a member in a state that only a newer version knows.
    """
    if member.state is MemberState.STABLE and member.member_epoch == goal.target_epoch:
        return _drop_unsubscribed(member, goal) if goal.subscription_changed else member
    if member.state is MemberState.UNREVOKED_PARTITIONS and _holds(goal.owned, member.pending_revocation):
        return _drop_unsubscribed(member, goal) if goal.subscription_changed else member
    if member.state is MemberState.UNKNOWN:
        if goal.owned is None or goal.owned:
            raise ApiError(
                Errors.FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. The member must abandon all its partitions and "
                "rejoin.",
            )
        return _advance(member, goal, goal.target_epoch)
    return _advance(member, goal, member.member_epoch)


def _holds(owned: Owned, partitions: Assigned) -> bool:
    if owned is None:
        return True
    return any(partition in partitions.get(topic_id, {}) for topic_id, held in owned.items() for partition in held)


def _drop_unsubscribed(member: ConsumerMember, goal: Goal) -> ConsumerMember:
    """Takes topics away that the member doesn't want any more, without waiting for a new target."""
    unwanted = [topic_id for topic_id in member.assigned if topic_id not in goal.subscribed_topic_ids]
    # Without any name left Kafka goes on although there is nothing to take: the previous epoch then becomes this one.
    if not unwanted and (goal.wants_topics or member.pending_revocation):
        return member
    has, giving_up = assigned_in_kafka_order(member.assigned), assigned_in_kafka_order(member.pending_revocation)
    if not goal.wants_topics and not giving_up:
        assigned, pending = {}, has
    else:
        kept, dropped = copied_topics(has), copied_topics(giving_up)
        for topic_id, epochs in has.items():
            if topic_id in goal.subscribed_topic_ids:
                continue
            del kept.entries[topic_id]
            if topic_id in giving_up:
                both = copied_partitions(giving_up[topic_id])
                both.put_all(epochs)
                dropped.entries[topic_id] = both.walk()
            else:
                dropped.get_or_put_first(topic_id, epochs)
        assigned, pending = kept.walk(), dropped.walk()
    if pending and _holds(goal.owned, pending):
        return _moved(member, member.member_epoch, MemberState.UNREVOKED_PARTITIONS, assigned, pending)
    return _moved(member, member.member_epoch, member.state, assigned, giving_up)


def _advance(member: ConsumerMember, goal: Goal, epoch: int) -> ConsumerMember:
    assigned = assigned_in_kafka_order(member.assigned)
    kept: JavaMap[str, JavaMap[int, int]] = by_topic()
    to_revoke: JavaMap[str, JavaMap[int, int]] = by_topic()
    free: JavaMap[str, list[int]] = by_topic()
    unreleased = False
    for topic_id in _topics(goal.target, assigned):
        target = goal.target.get(topic_id, ()) if topic_id in goal.subscribed_topic_ids else ()
        among = set(target)
        has = assigned.get(topic_id, {})
        giving_up = member.pending_revocation.get(topic_id, {})
        keeps, revokes = copied_partitions(has), copied_partitions(has)
        keeps.entries = {partition: since for partition, since in has.items() if partition in among}
        revokes.entries = {partition: since for partition, since in has.items() if partition not in among}
        wanted = [partition for partition in int_order(target) if partition not in keeps.entries]
        # What the member itself has just given up counts as free.
        gets = [p for p in wanted if p in giving_up or goal.partition_epoch(topic_id, p) == -1]
        unreleased |= len(gets) < len(wanted)
        if keeps.entries:
            kept.put(topic_id, keeps)
        if revokes.entries:
            to_revoke.put(topic_id, revokes)
        if gets:
            free.put(topic_id, gets)
    if to_revoke.entries and _holds(goal.owned, pending := _in_kafka_order(to_revoke)):
        return _moved(member, epoch, MemberState.UNREVOKED_PARTITIONS, _in_kafka_order(kept), pending)
    for topic_id, partitions in free.walk().items():
        epochs = kept.get_or_put_first(topic_id, by_partition())
        for partition in partitions:
            epochs.put(partition, goal.target_epoch)
    state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
    return _moved(member, goal.target_epoch, state, _in_kafka_order(kept), {})


def _topics(target: Target, assigned: Assigned) -> list[str]:
    """Returns the topics of both, in the order of a set of the ones to which the others are added."""
    topics: JavaMap[str, None] = by_topic(set_table(len(target)))
    for topic_id in [*target, *assigned]:
        topics.put(topic_id, None)
    return list(topics.walk())


def _in_kafka_order(partitions: JavaMap[str, JavaMap[int, int]]) -> Assigned:
    return {topic_id: epochs.walk() for topic_id, epochs in partitions.walk().items()}


def _moved(
    member: ConsumerMember, epoch: int, state: MemberState, assigned: Assigned, pending_revocation: Assigned
) -> ConsumerMember:
    return replace(
        member,
        member_epoch=epoch,
        previous_member_epoch=member.member_epoch,
        state=state,
        assigned=assigned,
        pending_revocation=pending_revocation,
    )
