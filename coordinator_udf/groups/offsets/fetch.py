"""OffsetFetch: what was committed.

Source: OffsetMetadataManager.fetchOffsets and fetchAllOffsets, OffsetFetchResponse.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model.consumer import ConsumerGroup
from coordinator_udf.groups.model.offsets import CommittedOffset
from coordinator_udf.groups.offsets.commit import topic_name
from coordinator_udf.groups.offsets.shared import topics_of_broker
from coordinator_udf.groups.store import SEEN_OFFSET, SEEN_TOPIC, Group, GroupStore
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.requests import (
    OFFSET_FETCH_BATCH_VERSION,
    OFFSET_FETCH_TOP_LEVEL_ERROR_VERSION,
    ZERO_UUID,
    FetchGroup,
    FetchTopic,
    OffsetFetch,
    Topic,
)

_TOPIC_ID_VERSION = 10


def fetch_offsets(ctx: Context, store: GroupStore, api_version: int, body: OffsetFetch) -> dict[str, Any]:
    """Returns the body of the answer, in the shape of its version (one group before version 8)."""
    if api_version >= OFFSET_FETCH_BATCH_VERSION:
        groups = [_fetch_group(ctx, store, api_version, group, body) for group in body.groups or ()]
        return {"throttleTimeMs": 0, "groups": groups}
    group = FetchGroup(group_id=body.group_id, topics=body.topics)
    answer = _fetch_group(ctx, store, api_version, group, body)
    return {"throttleTimeMs": 0, "topics": answer["topics"], "errorCode": answer["errorCode"]}


def refuse_fetch(api_version: int, body: OffsetFetch, error: Errors) -> dict[str, Any]:
    """Returns the answer where no group can be asked at all; before version 2 each partition carries the error."""
    if api_version >= OFFSET_FETCH_BATCH_VERSION:
        groups = [{"groupId": group.group_id, "topics": [], "errorCode": int(error)} for group in body.groups or ()]
        return {"throttleTimeMs": 0, "groups": groups}
    if api_version >= OFFSET_FETCH_TOP_LEVEL_ERROR_VERSION:
        return {"throttleTimeMs": 0, "topics": [], "errorCode": int(error)}
    topics = [
        {"name": topic.name, "partitions": [_nothing(index, error) for index in topic.partition_indexes]}
        for topic in body.topics or ()
    ]
    return {"throttleTimeMs": 0, "topics": topics, "errorCode": 0}


def _fetch_group(
    ctx: Context, store: GroupStore, api_version: int, group: FetchGroup, body: OffsetFetch
) -> dict[str, Any]:
    require_stable = body.require_stable
    found = store.get(group.group_id) if require_stable else store.committed(ctx, group.group_id)
    error = _refusal(found, group)
    if error is not Errors.NONE:
        return {"groupId": group.group_id, "topics": [], "errorCode": int(error)}
    unstable = store.offsets.pending_partitions(group.group_id) if require_stable else set()
    if found is None:
        # Offsets may be left of a group that ended without a record; without a group they aren't told.
        store = GroupStore()
    there = topics_of_broker(ctx, body.metadata_cache)
    if group.topics is None:
        twice = frozenset() if require_stable else store.twice(ctx)
        topics = _all_topics(there, store, api_version, group.group_id, unstable=unstable, twice=twice)
    else:
        topics = _named_topics(there, store, api_version, group, unstable)
    return {"groupId": group.group_id, "topics": topics, "errorCode": 0}


def _refusal(group: Group | None, asked: FetchGroup) -> Errors:
    """Returns the error of a member that names another epoch than its own; NONE for all others."""
    if not isinstance(group, ConsumerGroup) or (asked.member_id is None and asked.member_epoch < 0):
        return Errors.NONE
    if asked.member_id is None:
        # Kafka's coordinator throws here.
        return Errors.UNKNOWN_SERVER_ERROR
    member = group.members.get(asked.member_id)
    if member is None:
        return Errors.UNKNOWN_MEMBER_ID
    if member.member_epoch == asked.member_epoch:
        return Errors.NONE
    return Errors.STALE_MEMBER_EPOCH if member.classic is None else Errors.ILLEGAL_GENERATION


def _all_topics(
    topics: Mapping[str, Topic],
    store: GroupStore,
    api_version: int,
    group_id: str,
    *,
    unstable: set[tuple[str, int]],
    twice: frozenset[tuple[str, ...]],
) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = []
    for name, partitions in store.offsets.committed.get(group_id, {}).items():
        there = topics.get(name)
        if api_version >= _TOPIC_ID_VERSION and (there is None or there.id == ZERO_UUID):
            continue
        answer = {
            "name": name,
            "topicId": ZERO_UUID if there is None else there.id,
            "partitions": [
                _partition(index, value, (name, index) in unstable)
                for index, value in partitions.items()
                for _ in range(1 + ((SEEN_OFFSET, group_id, name, str(index)) in twice))
            ],
        }
        answers += [answer] * (1 + ((SEEN_TOPIC, group_id, name) in twice))
    return answers


def _named_topics(
    topics: Mapping[str, Topic],
    store: GroupStore,
    api_version: int,
    group: FetchGroup,
    unstable: set[tuple[str, int]],
) -> list[dict[str, Any]]:
    known = []
    unknown = []
    for topic in group.topics or ():
        if api_version < _TOPIC_ID_VERSION:
            known.append(_named_topic(store, group.group_id, topic.name, topic, unstable))
            continue
        name = topic_name(topics, topic.topic_id)
        if name is None:
            errors = [_nothing(index, Errors.UNKNOWN_TOPIC_ID) for index in topic.partition_indexes]
            unknown.append({"name": "", "topicId": topic.topic_id, "partitions": errors})
        else:
            known.append(_named_topic(store, group.group_id, name, topic, unstable))
    return known + unknown


def _named_topic(
    store: GroupStore, group_id: str, name: str, topic: FetchTopic, unstable: set[tuple[str, int]]
) -> dict[str, Any]:
    partitions = []
    for index in topic.partition_indexes:
        value = store.offsets.get(group_id, name, index)
        if value is not None and ZERO_UUID not in (value.topic_id, topic.topic_id) and value.topic_id != topic.topic_id:
            value = None  # committed for a topic of this name that was deleted since
        partitions.append(_partition(index, value, (name, index) in unstable))
    return {"name": name, "topicId": topic.topic_id, "partitions": partitions}


def _partition(index: int, value: CommittedOffset | None, unstable: bool) -> dict[str, Any]:
    if unstable:
        return _nothing(index, Errors.UNSTABLE_OFFSET_COMMIT)
    if value is None:
        return _nothing(index, Errors.NONE)
    return {
        "partitionIndex": index,
        "committedOffset": value.offset,
        "committedLeaderEpoch": value.leader_epoch,
        "metadata": value.metadata,
        "errorCode": 0,
    }


def _nothing(index: int, error: Errors) -> dict[str, Any]:
    return {
        "partitionIndex": index,
        "committedOffset": -1,
        "committedLeaderEpoch": -1,
        "metadata": "",
        "errorCode": int(error),
    }
