"""The way of one member from what it has to what it shall have: a pure function.

Partitions that it shall not have any more must be given up first, then it moves to the new epoch and gets those of its
new partitions that nobody holds any longer. Source: CurrentAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from coordinator_udf.groups.consumer_state import Assigned, ConsumerMember, MemberState, Target
from coordinator_udf.protocol.errors import ApiError, Errors

#: What a member says that it still holds: topic id -> partitions. None: it doesn't say, so it still holds all.
Owned = Mapping[str, Sequence[int]] | None


@dataclass(frozen=True, slots=True)
class Goal:
    """Where a member shall go.

    Attributes:
        target_epoch: the epoch of the group's target assignment.
        target: what the member shall have in it.
        subscribed_topic_ids: the topics that exist and that the member wants now; the target may be older than that.
        subscription_changed: whether what it wants has changed in this very request.
        partition_epoch: (topic id, partition) -> the epoch of the member that holds it, -1 if nobody does.
        owned: what the member says that it holds.
    """

    target_epoch: int
    target: Target
    subscribed_topic_ids: Collection[str]
    subscription_changed: bool
    partition_epoch: Callable[[str, int], int]
    owned: Owned


def reconcile(member: ConsumerMember, goal: Goal) -> ConsumerMember:
    """The member after its next step; the same one where there is none.

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
    # Without any topic left Kafka goes on although there is nothing to take: the previous epoch then becomes this one.
    if not unwanted and (goal.subscribed_topic_ids or member.pending_revocation):
        return member
    assigned = {topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id not in unwanted}
    pending = dict(member.pending_revocation)
    for topic_id in unwanted:
        pending[topic_id] = {**pending.get(topic_id, {}), **member.assigned[topic_id]}
    if pending and _holds(goal.owned, pending):
        return _moved(member, member.member_epoch, MemberState.UNREVOKED_PARTITIONS, assigned, pending)
    return _moved(member, member.member_epoch, member.state, assigned, member.pending_revocation)


def _advance(member: ConsumerMember, goal: Goal, epoch: int) -> ConsumerMember:
    kept: Assigned = {}
    to_revoke: Assigned = {}
    free: dict[str, list[int]] = {}
    unreleased = False
    for topic_id in dict.fromkeys([*goal.target, *member.assigned]):
        target = goal.target.get(topic_id, ()) if topic_id in goal.subscribed_topic_ids else ()
        has = member.assigned.get(topic_id, {})
        giving_up = member.pending_revocation.get(topic_id, {})
        keeps = {partition: since for partition, since in has.items() if partition in target}
        revokes = {partition: since for partition, since in has.items() if partition not in target}
        wanted = [partition for partition in target if partition not in keeps]
        # What the member itself has just given up counts as free.
        gets = [p for p in wanted if p in giving_up or goal.partition_epoch(topic_id, p) == -1]
        unreleased |= len(gets) < len(wanted)
        for partitions, where in ((keeps, kept), (revokes, to_revoke)):
            if partitions:
                where[topic_id] = partitions
        if gets:
            free[topic_id] = gets
    if to_revoke and _holds(goal.owned, to_revoke):
        return _moved(member, epoch, MemberState.UNREVOKED_PARTITIONS, kept, to_revoke)
    for topic_id, partitions_to_get in free.items():
        since = dict.fromkeys(partitions_to_get, goal.target_epoch)
        gets_now = dict(sorted({**kept.get(topic_id, {}), **since}.items()))
        # A topic that wasn't there goes before the others of its bucket, as HashMap.computeIfAbsent puts it.
        kept = {**kept, topic_id: gets_now} if topic_id in kept else {topic_id: gets_now, **kept}
    state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
    return _moved(member, goal.target_epoch, state, kept, {})


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
