"""OffsetCommit and TxnOffsetCommit. Source: OffsetMetadataManager and ClassicGroup (validateOffsetCommit)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from coordinator_udf.groups.classic.rebalance import restart_session
from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model.classic import ClassicGroup
from coordinator_udf.groups.model.classic_states import ClassicGroupState
from coordinator_udf.groups.model.consumer import ConsumerGroup
from coordinator_udf.groups.offsets.consumer_commit import PartitionCheck, member_commit_check, txn_commit_check
from coordinator_udf.groups.offsets.shared import (
    merged_topics,
    offset_key,
    partition_answer,
    split_existing,
    topics_of_broker,
    write_or_refuse,
)
from coordinator_udf.groups.records.classic import OFFSET_COMMIT, offset_sizes
from coordinator_udf.groups.store import Group, GroupStore
from coordinator_udf.protocol.errors import ApiError, Errors
from coordinator_udf.protocol.requests import (
    ZERO_UUID,
    CommitPartition,
    CommitTopic,
    OffsetCommit,
    Topic,
    TxnOffsetCommit,
)

#: From this version on an unknown group is called by its name in the error, before it is an ILLEGAL_GENERATION.
_GROUP_ID_NOT_FOUND_VERSION = 9
_TOPIC_ID_VERSION = 10


def commit_offsets(
    ctx: Context, store: GroupStore, api_version: int, body: OffsetCommit, unavailable: Errors | None = None
) -> list[dict[str, Any]]:
    """Commits offsets; the answer's topics. An error that concerns the whole request stands at every partition.

    Args:
        unavailable: why the shard can't answer, if so. What doesn't exist is refused all the same.
    """
    known, missing = _resolve_topics(ctx, api_version, body)
    if _is_answered(ctx, body.topics, known):
        return merged_topics(missing)
    try:
        if unavailable is not None:
            raise ApiError(unavailable)
        generation_id = body.generation_id_or_member_epoch
        group = _group_to_commit(ctx, store, body.group_id, generation_id, api_version)
        check: PartitionCheck | None = None
        if isinstance(group, ConsumerGroup):
            check = member_commit_check(group, body.member_id, generation_id, api_version)
        else:
            _validate_commit(group, body.member_id, body.group_instance_id, generation_id, transactional=False)
            if group.state in (ClassicGroupState.STABLE, ClassicGroupState.PREPARING_REBALANCE):
                restart_session(ctx, group, group.members[body.member_id])
        expire = None if body.retention_time_ms == -1 else _java_long(ctx.now_ms + body.retention_time_ms)
        accepted = _commit(ctx, store, body.group_id, known, expire=expire, producer=None, check=check)
        return merged_topics(missing, accepted)
    except ApiError as refused:
        return merged_topics(missing, refuse_commit((topic for topic, _ in known), refused.error))


def commit_txn_offsets(
    ctx: Context, store: GroupStore, body: TxnOffsetCommit, unavailable: Errors | None = None
) -> list[dict[str, Any]]:
    """Commits offsets within a producer's transaction: they count once the transaction is committed.

    Arguments as of `commit_offsets`.
    """
    topics = topics_of_broker(ctx, body.metadata_cache)
    known, missing = _existing(ctx, topics, [(topic, ZERO_UUID) for topic in body.topics])
    if _is_answered(ctx, body.topics, known):
        return merged_topics(missing)
    try:
        if unavailable is not None:
            raise ApiError(unavailable)
        group = _group_to_commit(ctx, store, body.group_id, body.generation_id, api_version=0)
        check: PartitionCheck | None = None
        if isinstance(group, ConsumerGroup):
            check = txn_commit_check(ctx, group, body)
        else:
            _validate_commit(group, body.member_id, body.group_instance_id, body.generation_id, transactional=True)
        producer = (body.producer_id, body.producer_epoch)
        accepted = _commit(ctx, store, body.group_id, known, expire=None, producer=producer, check=check)
        return merged_topics(missing, accepted)
    except ApiError as refused:
        return merged_topics(missing, refuse_commit((topic for topic, _ in known), refused.error))


def refuse_commit(topics: Iterable[CommitTopic], error: Errors) -> list[dict[str, Any]]:
    """Returns the answer's topics where every partition carries the same error."""
    return [
        {
            "name": topic.name,
            "topicId": topic.topic_id,
            "partitions": [partition_answer(partition.partition_index, error) for partition in topic.partitions],
        }
        for topic in topics
    ]


def _resolve_topics(
    ctx: Context, api_version: int, body: OffsetCommit
) -> tuple[list[tuple[CommitTopic, str]], list[dict[str, Any]]]:
    """Returns topics that exist with their ids, and the answers for those that don't, in the order of the request.

    Version 10 names topics by id.
    """
    topics = topics_of_broker(ctx, body.metadata_cache)
    known: list[tuple[CommitTopic, str]] = []
    missing: list[dict[str, Any]] = []
    for asked in body.topics:
        if api_version < _TOPIC_ID_VERSION:
            topic, there = asked, topics.get(asked.name)
            topic_id = there.id if there is not None else ZERO_UUID
        else:
            name, topic_id = topic_name(topics, asked.topic_id), asked.topic_id
            if name is None:
                errors = [partition_answer(p.partition_index, Errors.UNKNOWN_TOPIC_ID) for p in asked.partitions]
                missing.append({"name": "", "topicId": topic_id, "partitions": errors})
                continue
            topic = CommitTopic(name=name, topic_id=topic_id, partitions=asked.partitions)
        exists, lost = _existing(ctx, topics, [(topic, topic_id)])
        known += exists
        missing += lost
    return known, missing


def _existing(
    ctx: Context, topics: Mapping[str, Topic], asked: list[tuple[CommitTopic, str]]
) -> tuple[list[tuple[CommitTopic, str]], list[dict[str, Any]]]:
    """Returns asked topics with the partitions that exist, and the answers for those that don't.

    A broker refuses those before the coordinator hears of the request, so they say the same whatever it answers.
    """
    if not ctx.settings.offsets_topic_partition_check:
        return asked, []
    known: list[tuple[CommitTopic, str]] = []
    answers = []
    for topic, topic_id in asked:
        there, missing = split_existing(topics, topic)
        if there is not None:
            known.append((there, topic_id))
        if missing is not None:
            answers += refuse_commit([missing], Errors.UNKNOWN_TOPIC_OR_PARTITION)
    return known, answers


def _is_answered(ctx: Context, topics: tuple[CommitTopic, ...], known: list[tuple[CommitTopic, str]]) -> bool:
    """Returns whether a broker answers a request itself, as nothing in it exists.

    A coordinator alone hears of an empty one.
    """
    return not known and (ctx.settings.offsets_topic_partition_check or bool(topics))


def topic_name(topics: Mapping[str, Topic], topic_id: str) -> str | None:
    """Returns the name of the topic with an id; None if there is none."""
    return next((topic.name for topic in topics.values() if topic.id == topic_id), None)


def _group_to_commit(ctx: Context, store: GroupStore, group_id: str, generation_id: int, api_version: int) -> Group:
    group = store.get(group_id)
    if group is not None:
        return group
    if generation_id < 0:
        # An admin, or a consumer that assigns its partitions itself: a simple group comes to be.
        return store.create(ctx, group_id)
    if api_version >= _GROUP_ID_NOT_FOUND_VERSION:
        raise ApiError(Errors.GROUP_ID_NOT_FOUND)
    raise ApiError(Errors.ILLEGAL_GENERATION)


def _validate_commit(
    group: ClassicGroup, member_id: str, group_instance_id: str | None, generation_id: int, *, transactional: bool
) -> None:
    if group.state is ClassicGroupState.DEAD:
        raise ApiError(Errors.COORDINATOR_NOT_AVAILABLE)
    if generation_id < 0 and group.is_empty():
        return
    if generation_id >= 0 or member_id or group_instance_id is not None:
        group.validate_member(member_id, group_instance_id)
        if generation_id != group.generation_id:
            raise ApiError(Errors.ILLEGAL_GENERATION)
    elif not transactional and not group.is_empty():
        raise ApiError(Errors.UNKNOWN_MEMBER_ID)
    if not transactional and group.state is ClassicGroupState.COMPLETING_REBALANCE:
        raise ApiError(Errors.REBALANCE_IN_PROGRESS)


def _commit(
    ctx: Context,
    store: GroupStore,
    group_id: str,
    topics: Iterable[tuple[CommitTopic, str]],
    *,
    expire: int | None,
    producer: tuple[int, int] | None,
    check: PartitionCheck | None = None,
) -> list[dict[str, Any]]:
    answers = []
    values = []
    for topic, topic_id in topics:
        partitions = []
        for partition in topic.partitions:
            error = _refusal(ctx, partition)
            partitions.append(partition_answer(partition.partition_index, error))
            if error is Errors.NONE:
                if check is not None:
                    check(topic.name, topic_id, partition.partition_index)
                value = _offset_value(ctx, partition, topic_id, expire)
                values.append((topic.name, partition.partition_index, value))
        answers.append({"name": topic.name, "topicId": topic.topic_id, "partitions": partitions})
    changes = [(OFFSET_COMMIT, offset_key(group_id, name, index), value) for name, index, value in values]
    # What a transaction brings takes no offset's place before its end.
    write_or_refuse(
        ctx, store, [offset_sizes(group_id, name, value) for name, _, value in values], [] if producer else changes
    )
    producer_id, producer_epoch = producer or (None, None)
    version = 4 if expire is None else 1
    for _, key, value in changes:
        offset = ctx.append(OFFSET_COMMIT, key, version, value, producer_id=producer_id, producer_epoch=producer_epoch)
        store.apply(ctx, offset, OFFSET_COMMIT, key, value, producer_id=producer_id)
    return answers


def _refusal(ctx: Context, partition: CommitPartition) -> Errors:
    metadata = partition.committed_metadata
    if metadata is not None and _java_length(metadata) > ctx.settings.offset_metadata_max_bytes:
        return Errors.OFFSET_METADATA_TOO_LARGE
    return Errors.NONE


def _java_long(number: int) -> int:
    """Returns a sum as Java's 64 bits have it: one that is too large comes out negative, which is long ago."""
    return (number + 2**63) % 2**64 - 2**63


def _java_length(text: str) -> int:
    """Returns the length in UTF-16 units, which Kafka compares with a limit that is called one of bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _offset_value(ctx: Context, partition: CommitPartition, topic_id: str, expire: int | None) -> dict[str, Any]:
    metadata = partition.committed_metadata or ""
    if expire is not None:
        # Only this old version of the record can say when an offset expires; it has no leader epoch and no topic id.
        return {
            "offset": partition.committed_offset,
            "metadata": metadata,
            "commitTimestamp": ctx.now_ms,
            "expireTimestamp": expire,
        }
    value = {
        "offset": partition.committed_offset,
        "leaderEpoch": partition.committed_leader_epoch,
        "metadata": metadata,
        "commitTimestamp": ctx.now_ms,
    }
    # A tagged field: where the id isn't known the record doesn't have it.
    return value if topic_id == ZERO_UUID else {**value, "topicId": topic_id}
