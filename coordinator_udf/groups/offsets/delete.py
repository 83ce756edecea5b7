"""OffsetDelete, and whatever else writes tombstones: of offsets and of groups.

Source: OffsetMetadataManager (deleteOffsets, deleteAllOffsets, onTopicsDeleted) and the records that end a group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model.classic import ClassicGroup
from coordinator_udf.groups.model.classic_states import ClassicGroupState, GroupEvent
from coordinator_udf.groups.model.consumer import ConsumerGroup, ConsumerGroupState
from coordinator_udf.groups.offsets.shared import (
    Change,
    merged_topics,
    offset_key,
    partition_answer,
    split_existing,
    topics_of_broker,
    write_or_refuse,
)
from coordinator_udf.groups.records.classic import GROUP_METADATA, OFFSET_COMMIT, group_metadata_key, offset_sizes
from coordinator_udf.groups.records.consumer import NewRecord, group_tombstones
from coordinator_udf.groups.store import Group, GroupStore
from coordinator_udf.protocol.errors import ApiError, Errors
from coordinator_udf.protocol.requests import ZERO_UUID, DeleteTopic, OffsetDelete


def delete_offsets(ctx: Context, store: GroupStore, body: OffsetDelete) -> list[dict[str, Any]]:
    """Deletes offsets of topics to which no member is subscribed; the answer's topics.

    Raises:
        ApiError: the whole request is refused.
    """
    group = store.get(body.group_id)
    if group is None or group.state is ClassicGroupState.DEAD:
        raise ApiError(Errors.GROUP_ID_NOT_FOUND)
    if isinstance(group, ClassicGroup) and not group.is_empty() and not group.uses_consumer_protocol():
        raise ApiError(Errors.NON_EMPTY_GROUP)
    there = set(offset_partitions(store, body.group_id))
    doomed: list[tuple[str, int]] = []
    topics, missing = _existing(ctx, body)
    answers = [_delete_topic(group, topic, there, doomed) for topic in topics]
    sizes = [offset_sizes(body.group_id, name, None) for name, _ in doomed]
    write_or_refuse(ctx, store, sizes, offset_tombstones(body.group_id, doomed))
    for name, index in doomed:
        delete_offset(ctx, store, body.group_id, name, index)
    return merged_topics(missing, answers)


def _existing(ctx: Context, body: OffsetDelete) -> tuple[Sequence[DeleteTopic], list[dict[str, Any]]]:
    """Returns topics with the partitions that exist, and a broker's own answers for those that don't."""
    if not ctx.settings.offsets_topic_partition_check:
        return body.topics, []
    topics = topics_of_broker(ctx, body.metadata_cache)
    error = Errors.UNKNOWN_TOPIC_OR_PARTITION
    split = [split_existing(topics, topic) for topic in body.topics]
    answers = [
        {"name": lost.name, "partitions": [partition_answer(place.partition_index, error) for place in lost.partitions]}
        for _, lost in split
        if lost is not None
    ]
    return [there for there, _ in split if there is not None], answers


def _delete_topic(
    group: Group, topic: DeleteTopic, there: set[tuple[str, int]], doomed: list[tuple[str, int]]
) -> dict[str, Any]:
    subscribed = group.is_subscribed_to(topic.name)
    partitions = []
    for partition in topic.partitions:
        index = partition.partition_index
        if subscribed:
            partitions.append(partition_answer(index, Errors.GROUP_SUBSCRIBED_TO_TOPIC))
            continue
        partitions.append(partition_answer(index, Errors.NONE))
        if (topic.name, index) in there:
            doomed.append((topic.name, index))
    return {"name": topic.name, "partitions": partitions}


def offset_partitions(store: GroupStore, group_id: str) -> list[tuple[str, int]]:
    """Returns the partitions for which a group has an offset, committed or pending."""
    committed = [
        (topic, partition)
        for topic, partitions in store.offsets.committed.get(group_id, {}).items()
        for partition in partitions
    ]
    return committed + sorted(store.offsets.pending_partitions(group_id) - set(committed))


def offset_tombstones(group_id: str, partitions: Iterable[tuple[str, int]]) -> Iterator[Change]:
    """Returns the records that end offsets."""
    return ((OFFSET_COMMIT, offset_key(group_id, topic, partition), None) for topic, partition in partitions)


def delete_all_offsets(ctx: Context, store: GroupStore, group_id: str) -> None:
    """Deletes every offset of a group, pending ones too."""
    for topic, partition in offset_partitions(store, group_id):
        delete_offset(ctx, store, group_id, topic, partition)


def end_group(ctx: Context, store: GroupStore, group_id: str, event: GroupEvent) -> None:
    """Writes the tombstones of an empty group, which end it."""
    group = store.groups[group_id]
    previous = group.state
    for type_, key, value in group_end(group):
        offset = ctx.append(type_, key, None, value)
        store.apply(ctx, offset, type_, key, value, event=event)
    if isinstance(group, ConsumerGroup):
        ctx.note(group, previous, event, to=ConsumerGroupState.DEAD)


def group_end(group: Group) -> list[NewRecord]:
    """Returns the tombstones that end an empty group."""
    if isinstance(group, ConsumerGroup):
        return group_tombstones(group)
    return [NewRecord(GROUP_METADATA, group_metadata_key(group.group_id), None)]


def forget_topics(ctx: Context, store: GroupStore, deleted: dict[str, str]) -> None:
    """Deletes the offsets of topics that are no more.

    Args:
        deleted: topic name -> topic id. An offset that was committed with another id belongs to another topic.
    """
    doomed = [
        (group_id, topic, partition)
        for group_id, topics in store.offsets.committed.items()
        for topic, partitions in topics.items()
        if topic in deleted
        for partition, value in partitions.items()
        if value.topic_id in (ZERO_UUID, deleted[topic])
    ]
    doomed += [
        (group_id, topic, partition)
        for group_id, topic, partition, value in store.offsets.all_pending()
        if topic in deleted and value.topic_id in (ZERO_UUID, deleted[topic])
    ]
    for group_id, topic, partition in doomed:
        delete_offset(ctx, store, group_id, topic, partition)


def delete_offset(ctx: Context, store: GroupStore, group_id: str, topic: str, partition: int) -> None:
    """Writes the tombstone of an offset."""
    key = offset_key(group_id, topic, partition)
    offset = ctx.append(OFFSET_COMMIT, key, None, None)
    store.apply(ctx, offset, OFFSET_COMMIT, key, None)
