"""A group changes its kind.

A classic group becomes a consumer group when the first member of the consumer protocol joins, and a consumer group a
classic one when the last of them leaves. Source: GroupMetadataManager (convertToConsumerGroup, convertToClassicGroup),
ConsumerGroup.fromClassicGroup and ClassicGroup.fromConsumerGroup.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from coordinator_udf.groups.classic.answers import answer_sync, refuse_join
from coordinator_udf.groups.classic.rebalance import cancel_session, prepare_rebalance, restart_session
from coordinator_udf.groups.consumer.topic_hash import metadata_hash
from coordinator_udf.groups.consumer.writing import TOO_LARGE
from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model import timers
from coordinator_udf.groups.model.classic import AssignmentRef, ClassicGroup, Member, ResyncMode
from coordinator_udf.groups.model.classic_states import ClassicGroupState, GroupEvent
from coordinator_udf.groups.model.consumer import (
    ClassicMetadata,
    ConsumerGroup,
    ConsumerMember,
    subscribed_topics,
)
from coordinator_udf.groups.model.timers import TimerKey
from coordinator_udf.groups.records.classic import (
    GROUP_METADATA,
    GROUP_METADATA_VALUE_VERSION,
    group_metadata_key,
    group_metadata_sizes,
    group_metadata_value,
)
from coordinator_udf.groups.records.consumer import (
    GROUP_EPOCH,
    NewRecord,
    group_records,
    group_tombstones,
    tombstone,
)
from coordinator_udf.groups.store import GroupStore
from coordinator_udf.java_order.walks import Target, target_in_kafka_order
from coordinator_udf.protocol.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    MalformedConsumerProtocol,
    decode_assignment,
    decode_subscription,
    decode_version,
    encode_assignment,
)
from coordinator_udf.protocol.errors import ApiError, Errors
from coordinator_udf.protocol.requests import Topic


def may_mix(ctx: Context) -> bool:
    """Returns whether members of the classic protocol may join a consumer group at all."""
    return ctx.settings.allows_online_upgrade() or ctx.settings.allows_online_downgrade()


# -- classic to consumer ------------------------------------------------------------------------------------------


def check_upgrade(ctx: Context, group: ClassicGroup) -> None:
    """Checks that a classic group with members may become a consumer group.

    Raises:
        ApiError: GROUP_ID_NOT_FOUND; COORDINATOR_LOAD_IN_PROGRESS, after which members try again, while nobody can say
            who owns which partitions.
    """
    if group.resync is not ResyncMode.NONE:
        raise ApiError(Errors.COORDINATOR_LOAD_IN_PROGRESS)
    because = None
    if not ctx.settings.allows_online_upgrade():
        because = "online upgrade is disabled"
    elif not group.uses_consumer_protocol():
        because = "the group does not use the consumer embedded protocol"
    elif len(group.members) > ctx.settings.group_consumer_max_size:
        because = "the group size exceeds the consumer group maximum size"
    if because is not None:
        raise _cannot_upgrade(group, because)


def _cannot_upgrade(group: ClassicGroup, because: str) -> ApiError:
    message = f"Cannot upgrade classic group {group.group_id} to consumer group because {because}."
    return ApiError(Errors.GROUP_ID_NOT_FOUND, message)


def end_empty_classic(group: ClassicGroup) -> list[NewRecord]:
    """Returns the record that ends an empty classic group in whose place a consumer group comes."""
    return [NewRecord(GROUP_METADATA, group_metadata_key(group.group_id), None)]


def convert_to_consumer(
    ctx: Context, group: ClassicGroup
) -> tuple[ConsumerGroup, list[NewRecord], list[Callable[[], None]]]:
    """Makes a consumer group of a classic one; it is there once the records are written.

    Who waits for a rebalance is told at once that another one is under way.

    Returns:
        The group, its records, and what to do once they are written.

    Raises:
        ApiError: GROUP_ID_NOT_FOUND or UNKNOWN_SERVER_ERROR; the group stays a classic one.
    """
    for member in group.in_order():
        refuse_join(ctx, group, member, Errors.REBALANCE_IN_PROGRESS, member.member_id)
    for member in group.in_order():
        answer_sync(ctx, group, member, Errors.REBALANCE_IN_PROGRESS)
    if group.protocol_name is None and group.members:
        # Its first rebalance is still open. Kafka's coordinator throws here.
        raise ApiError(Errors.UNKNOWN_SERVER_ERROR)
    converted = ConsumerGroup(group.group_id, group_epoch=group.generation_id, assignment_epoch=group.generation_id)
    try:
        for member in group.in_order():
            _convert_member(ctx, group, member, converted)
    except MalformedConsumerProtocol:
        raise _cannot_upgrade(group, "the embedded consumer protocol is malformed") from None
    topics = subscribed_topics(converted.members.values(), {})
    converted.metadata_hash = metadata_hash(ctx.topics, topics)
    armings: list[Callable[[], None]] = [
        partial(_arm_session, ctx, group.group_id, known.member_id, known.classic)
        for known in converted.in_order()
        if known.classic is not None
    ]
    return converted, [*end_empty_classic(group), *group_records(converted)], armings


def _arm_session(ctx: Context, group_id: str, member_id: str, classic: ClassicMetadata) -> None:
    ctx.timers.arm(TimerKey(timers.SESSION, group_id, member_id), ctx.now_ms + classic.session_timeout_ms)


def _convert_member(ctx: Context, group: ClassicGroup, member: Member, converted: ConsumerGroup) -> None:
    target: Target = {}
    if member.assignment is not None and member.assignment.size:
        if member.assignment.data is None:
            raise _cannot_upgrade(group, "its assignments were not kept while online upgrade was disabled")
        assignment = decode_assignment(member.assignment.data)
        if assignment.user_data:
            raise _cannot_upgrade(
                group,
                "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
                "assignor before re-attempting the upgrade",
            )
        target = {
            ctx.topics[name].id: tuple(dict.fromkeys(partitions))
            for name, partitions in assignment.partitions.items()
            if name in ctx.topics
        }
    try:
        metadata = member.metadata(group.protocol_name)
    except ValueError:
        # It joined again and doesn't support the last generation's protocol any more. Kafka's coordinator throws here.
        raise ApiError(Errors.UNKNOWN_SERVER_ERROR) from None
    subscription = decode_subscription(metadata)
    if any(
        converted.partition_epoch(topic_id, partition) >= 0 for topic_id, own in target.items() for partition in own
    ):
        # Its leader gave a partition to two. Kafka's coordinator throws here (ConsumerGroup.addPartitionEpochs).
        raise ApiError(Errors.UNKNOWN_SERVER_ERROR)
    converted.targets[member.member_id] = target
    converted.put(
        ConsumerMember(
            member.member_id,
            member_epoch=group.generation_id,
            previous_member_epoch=group.generation_id,
            instance_id=member.group_instance_id,
            rack_id=subscription.rack_id or None,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=tuple(sorted(set(subscription.topics))),
            assigned={
                topic_id: dict.fromkeys(partitions, group.generation_id)
                for topic_id, partitions in target_in_kafka_order(target).items()
            },
            classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
        )
    )


# -- consumer to classic ------------------------------------------------------------------------------------------


def can_downgrade_without(ctx: Context, group: ConsumerGroup, leaving: Sequence[ConsumerMember]) -> bool:
    """Returns whether the group becomes a classic one when these members leave."""
    left = len(group.members) - len(leaving)
    classic_left = group.classic_member_count() - sum(member.classic is not None for member in leaving)
    return classic_left == left and left > 0 and _may_downgrade(ctx, left)


def can_downgrade_replacing(ctx: Context, group: ConsumerGroup, replaced: ConsumerMember) -> bool:
    """Returns whether the group becomes a classic one when this static member comes back with the classic protocol."""
    others_are_classic = group.classic_member_count() == len(group.members) - 1 and replaced.classic is None
    return others_are_classic and _may_downgrade(ctx, len(group.members))


def _may_downgrade(ctx: Context, size: int) -> bool:
    return ctx.settings.allows_online_downgrade() and size <= ctx.settings.group_max_size


def convert_to_classic(
    ctx: Context,
    store: GroupStore,
    group: ConsumerGroup,
    *,
    leaving: Sequence[ConsumerMember] = (),
    joining: ConsumerMember | None = None,
    records: Sequence[NewRecord] = (),
    rebalance_reason: str | None = "",
) -> None:
    """Makes a classic group of a consumer group, writes it and lets it rebalance.

    Args:
        leaving: the members that won't be in it.
        joining: the static member that takes the place of the one with its instance id.
        records: what was decided before in the same request.
        rebalance_reason: None: the members have what they shall have, so no rebalance.

    Raises:
        ApiError: GROUP_ID_NOT_FOUND, where a member's subscription can't be read, or UNKNOWN_SERVER_ERROR, where the
            records are too large for the log or a member that stays isn't a classic one; nothing has changed then.
    """
    replaced = None if joining is None else group.static_member(joining.instance_id)
    renamed = {} if joining is None or replaced is None else {replaced.member_id: joining.member_id}
    gone = {member.member_id for member in leaving}
    # By the instance id that a member has now, as Kafka has it: it may have been found by one that it had before.
    taken = None if joining is None else joining.instance_id
    stay = [
        member
        for member in group.in_order()
        if member.member_id not in gone and (taken is None or member.instance_id != taken)
    ]
    classic = _classic_group(ctx, group, stay if joining is None else [*stay, joining])
    assignments = _assignments(ctx, group, classic, {new: old for old, new in renamed.items()})
    written = [*records, *group_tombstones(group, renamed)]
    sizes = {member_id: len(data) for member_id, data in assignments.items()}
    if not ctx.fits([*(record.sizes for record in written), group_metadata_sizes(classic, sizes)]):
        store.put_back(ctx, [tombstone(GROUP_EPOCH, group.group_id)])
        raise ApiError(Errors.UNKNOWN_SERVER_ERROR, TOO_LARGE)
    previous = group.state
    for type_, key, value in written:
        ctx.append(type_, key, None if value is None else 0, value)
    _write_classic(ctx, classic, assignments)
    if ctx.reverted_to is not None:
        # Kafka has put the classic group into its place before it writes, and then goes back: the log alone knows.
        return
    store.groups[group.group_id] = classic
    ctx.note(classic, previous, GroupEvent.DOWNGRADED)
    ctx.timers.cancel(TimerKey(timers.COMPUTE, group.group_id))
    for member_id in group.members.keys() - classic.members.keys():
        cancel_session(ctx, group.group_id, member_id)
    for member in classic.in_order():
        restart_session(ctx, classic, member)
    if rebalance_reason is not None:
        reason = rebalance_reason or f"Downgrade group {group.group_id} from consumer to classic for member leaving."
        prepare_rebalance(ctx, classic, GroupEvent.DOWNGRADED, reason)


def _assignments(
    ctx: Context, group: ConsumerGroup, classic: ClassicGroup, old_ids: Mapping[str, str]
) -> dict[str, bytes]:
    """Returns what each member shall have, as its own version of the consumer protocol writes it."""
    try:
        return {
            member.member_id: encode_assignment(
                _by_name(ctx.topics, group.target(old_ids.get(member.member_id, member.member_id))),
                decode_version(member.metadata(classic.protocol_name)),
            )
            for member in classic.in_order()
        }
    except MalformedConsumerProtocol as error:
        message = f"Cannot downgrade the classic group {group.group_id}: {error}."
        raise ApiError(Errors.GROUP_ID_NOT_FOUND, message) from None


def _classic_group(ctx: Context, group: ConsumerGroup, members: Sequence[ConsumerMember]) -> ClassicGroup:
    classic = ClassicGroup(
        group.group_id,
        state=ClassicGroupState.STABLE,
        state_timestamp=ctx.now_ms,
        generation_id=group.group_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
    )
    for member in members:
        if member.classic is None:
            # Kafka throws here, too: NoSuchElementException in ClassicGroup.fromConsumerGroup.
            raise ApiError(Errors.UNKNOWN_SERVER_ERROR)
        classic.add(
            Member(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.classic.session_timeout_ms,
                protocols=member.classic.protocols,
            ),
            CONSUMER_PROTOCOL_TYPE,
        )
    classic.protocol_name = classic.select_protocol()
    classic.subscribed_topics = classic.compute_subscribed_topics()
    return classic


def _write_classic(ctx: Context, group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
    offset = ctx.end_offset
    for member in group.members.values():
        data = assignments[member.member_id]
        member.assignment = AssignmentRef(offset, member.member_id, len(data), data)
    ctx.append(
        GROUP_METADATA,
        group_metadata_key(group.group_id),
        GROUP_METADATA_VALUE_VERSION,
        group_metadata_value(group),
        refs=(offset,),
    )
    ctx.store_assignments(group.group_id, offset, assignments)


def _by_name(topics: Mapping[str, Topic], target: Target) -> dict[str, list[int]]:
    """Returns partitions by topic name, in the order in which Kafka writes them; topics that are gone are left out."""
    names = {topic.id: topic.name for topic in topics.values()}
    return {
        names[topic_id]: list(partitions)
        for topic_id, partitions in target_in_kafka_order(target).items()
        if topic_id in names
    }
