"""Who comes into a consumer group and who leaves it: joining, static members that come back, fencing.

Source: GroupMetadataManager (getOrMaybeSubscribe...ConsumerGroupMember, consumerGroupFenceMembers, consumerGroupLeave).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from coordinator_udf.groups.consumer.change import Change
from coordinator_udf.groups.consumer.computation import arm
from coordinator_udf.groups.consumer.convert import can_downgrade_without, convert_to_classic
from coordinator_udf.groups.consumer.reconcile import Owned
from coordinator_udf.groups.consumer.topic_hash import metadata_hash
from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model import timers
from coordinator_udf.groups.model.classic_states import GroupEvent
from coordinator_udf.groups.model.consumer import (
    LEFT_FOR_A_WHILE,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    regex_counts,
    subscribed_topics,
)
from coordinator_udf.groups.model.timers import TimerKey
from coordinator_udf.groups.records.consumer import (
    REGEX,
    current_assignment,
    member_in_kafka_order,
    member_metadata,
    member_tombstones,
    target_member,
    tombstone,
)
from coordinator_udf.groups.store import GroupStore
from coordinator_udf.java_order.walks import assigned_in_kafka_order, target_in_kafka_order
from coordinator_udf.protocol.errors import ApiError, Errors


def check_room(ctx: Context, group: ConsumerGroup, member_id: str) -> None:
    """Checks that the group takes another member.

    Raises:
        ApiError: GROUP_MAX_SIZE_REACHED.
    """
    limit = ctx.settings.group_consumer_max_size
    if len(group.members) >= limit and member_id not in group.members:
        message = f"The consumer group has reached its maximum capacity of {limit} members."
        raise ApiError(Errors.GROUP_MAX_SIZE_REACHED, message)


def check_epoch(member: ConsumerMember, epoch: int, owned: Owned) -> None:
    """Checks the epoch that a member names. The one before its own will do if the answer with its own got lost.

    Raises:
        ApiError: FENCED_MEMBER_EPOCH.
    """
    if epoch in (0, member.member_epoch):
        return
    if epoch > member.member_epoch:
        raise ApiError(Errors.FENCED_MEMBER_EPOCH, _fenced("greater", epoch, member))
    if epoch != member.previous_member_epoch or not _is_assigned(member, owned):
        raise ApiError(Errors.FENCED_MEMBER_EPOCH, _fenced("smaller", epoch, member))


def _fenced(compared: str, epoch: int, member: ConsumerMember) -> str:
    return (
        f"The consumer group member has a {compared} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.member_epoch}). The member must abandon all its partitions and rejoin."
    )


def _is_assigned(member: ConsumerMember, owned: Owned) -> bool:
    if owned is None:
        return False
    return all(
        topic_id in member.assigned and all(partition in member.assigned[topic_id] for partition in partitions)
        for topic_id, partitions in owned.items()
    )


def join_dynamic(group: ConsumerGroup, member_id: str, *, create: bool) -> ConsumerMember:
    """Returns the member with an id; a new one if it may be made.

    Raises:
        ApiError: UNKNOWN_MEMBER_ID.
    """
    if create and member_id not in group.members:
        return ConsumerMember(member_id)
    return group.member(member_id)


def join_static(change: Change, member_id: str, instance_id: str, *, create: bool, classic: bool) -> ConsumerMember:
    """Returns the member that has a group instance id; if it may be made, under the id that it comes with now.

    Raises:
        ApiError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or UNRELEASED_INSTANCE_ID.
    """
    group = change.group
    existing = group.static_member(instance_id)
    if not create:
        return known_static(existing, member_id, instance_id)
    if existing is None:
        return join_dynamic(group, member_id, create=True)
    if not classic and existing.classic is None and existing.member_epoch != LEFT_FOR_A_WHILE:
        message = (
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {existing.member_id} member."
        )
        raise ApiError(Errors.UNRELEASED_INSTANCE_ID, message)
    member = replace(existing, member_id=member_id, member_epoch=0, previous_member_epoch=0)
    # The timers of the old id go on: they find nobody when they fire.
    change.records += [
        *member_tombstones(group.group_id, existing.member_id),
        member_metadata(group.group_id, member),
        target_member(
            group.group_id,
            member_id,
            target_in_kafka_order(group.target(existing.member_id)),
            group.target_metadata.get(existing.member_id),
        ),
        current_assignment(group.group_id, member_in_kafka_order(member)),
    ]
    change.rename_in_computation(existing.member_id, member_id)
    return member


def known_static(existing: ConsumerMember | None, member_id: str, instance_id: str) -> ConsumerMember:
    """Returns the member that has an instance id, if it is the one that says so.

    Raises:
        ApiError: UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
    """
    if existing is None:
        raise ApiError(Errors.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if existing.member_id != member_id:
        message = f"Static member {member_id} with instance id {instance_id} was fenced by member {existing.member_id}."
        raise ApiError(Errors.FENCED_INSTANCE_ID, message)
    return existing


def note_come(change: Change, replaced: ConsumerMember | None, member: ConsumerMember, *, known: bool) -> None:
    """Puts out a row for a member that is new in the group.

    Args:
        replaced: the static member in whose place it came.
        known: whether it was in the group before.
    """
    group = change.store.get(change.group.group_id)
    if known or group is None:
        return
    if replaced is None:
        change.ctx.note_member(group, GroupEvent.MEMBER_ADDED, member)
    else:
        told = f"instance id {member.instance_id}, before member {replaced.member_id}"
        change.ctx.note_member(group, GroupEvent.STATIC_MEMBER_REPLACED, member, told)


def leave_for_a_while(ctx: Context, store: GroupStore, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Lets a static member go that will be back: what it has stays its own until its session ends."""
    change = Change(ctx, store, group)
    in_order = assigned_in_kafka_order(member.assigned)
    assigned = assigned_in_kafka_order(
        {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in in_order.items()}
    )
    away = replace(member, member_epoch=LEFT_FOR_A_WHILE, assigned=assigned, pending_revocation={})
    change.records.append(current_assignment(group.group_id, away))
    change.replace_in_computation(away)
    change.write(GroupEvent.MEMBER_LEFT)


def fence_members(
    ctx: Context,
    store: GroupStore,
    group: ConsumerGroup,
    members: Sequence[ConsumerMember],
    event: GroupEvent,
    *,
    reason: str | None = None,
) -> None:
    """Removes members. If only members of the classic protocol are left, the group becomes a classic one.

    Raises:
        ApiError: GROUP_ID_NOT_FOUND, where a classic group can't be made of what is left.
    """
    if not members:
        return
    if can_downgrade_without(ctx, group, members):
        convert_to_classic(ctx, store, group, leaving=members)
        _note_gone(ctx, store, group.group_id, members, event, reason=reason)
        return
    group_id = group.group_id
    change = Change(ctx, store, group)
    for member in members:
        change.records += member_tombstones(group_id, member.member_id)
    leaving = regex_counts(members)
    counts = regex_counts(group.members.values())
    dropped = [regex for regex, count in leaving.items() if counts[regex] == count]
    change.records += [tombstone(REGEX, group_id, regularExpression=regex) for regex in dropped]
    gone = {member.member_id for member in members}
    left = [member for member in group.members.values() if member.member_id not in gone]
    resolved = {regex: topics for regex, topics in group.resolved_regexes.items() if regex not in dropped}
    new_hash = metadata_hash(ctx.topics, subscribed_topics(left, resolved))
    change.raise_epoch(new_hash)
    change.drop_from_computation(sorted(gone), left)
    for member_id in gone:
        cancel_timers(ctx, group_id, member_id)
    change.write(event, reason)
    _note_gone(ctx, store, group_id, members, event, reason=reason)


def _note_gone(
    ctx: Context,
    store: GroupStore,
    group_id: str,
    members: Sequence[ConsumerMember],
    event: GroupEvent,
    *,
    reason: str | None,
) -> None:
    group = store.get(group_id)
    if group is not None:
        for member in members:
            ctx.note_member(group, event, member, reason)


def cancel_timers(ctx: Context, group_id: str, member_id: str) -> None:
    """Disarms all timers of the member."""
    for kind in (timers.SESSION, timers.REBALANCE, timers.JOIN, timers.SYNC):
        ctx.timers.cancel(TimerKey(kind, group_id, member_id))


def resume(ctx: Context, group: ConsumerGroup) -> None:
    """Begins every member's session, and its time to give partitions up, anew after the group was loaded.

    What was resolved before may be of a life with more versions of the topics behind it: the count goes on from there.
    """
    session_ms = ctx.group_setting(group.group_id, "consumer_session_timeout_ms")
    for member in group.in_order():
        ctx.timers.arm(TimerKey(timers.SESSION, group.group_id, member.member_id), ctx.now_ms + session_ms)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            key = TimerKey(timers.REBALANCE, group.group_id, member.member_id)
            ctx.timers.arm(key, ctx.now_ms + member.rebalance_timeout_ms, member.member_epoch)
    if group.computation is not None and group.computation.told_ms:
        arm(ctx, group, group.computation)
    versions = (resolved.version for resolved in group.resolved_regexes.values())
    ctx.topics_version = max(ctx.topics_version, *versions, 0)
