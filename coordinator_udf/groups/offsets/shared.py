"""What commits and deletions of offsets have in common: keys, answers, and a log that takes all or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from coordinator_udf.groups.context import Context
from coordinator_udf.groups.records.classic import OFFSET_COMMIT
from coordinator_udf.groups.store import GroupStore
from coordinator_udf.offsets_topic.sizes import Sizes
from coordinator_udf.protocol.errors import ApiError, Errors
from coordinator_udf.protocol.requests import CachedTopic, CommitTopic, DeleteTopic, Topic

#: A record that is about to be applied: type, key and value; None is a tombstone.
Change = tuple[str, dict[str, Any], dict[str, Any] | None]

NamedTopic = TypeVar("NamedTopic", CommitTopic, DeleteTopic)


def write_or_refuse(ctx: Context, store: GroupStore, sizes: Sequence[Sizes], records: Iterable[Change]) -> None:
    """Refuses a request whose records are larger together than the log takes; it writes all of them or none.

    Args:
        sizes: how large each of its records is.
        records: those that replace or end something, if they are applied.

    Raises:
        ApiError: UNKNOWN_SERVER_ERROR.
    """
    if sizes and not store.make_room(ctx, sizes):
        store.put_back(ctx, records)
        raise ApiError(Errors.UNKNOWN_SERVER_ERROR)


def offset_key(group_id: str, topic: str, partition: int) -> dict[str, Any]:
    """Returns the key of an offset's record."""
    return {"type": OFFSET_COMMIT, "group": group_id, "topic": topic, "partition": partition}


def partition_answer(index: int, error: Errors) -> dict[str, Any]:
    """Returns what an answer says of a partition."""
    return {"partitionIndex": index, "errorCode": int(error)}


def topics_of_broker(ctx: Context, metadata_cache: Sequence[CachedTopic]) -> Mapping[str, Topic]:
    """Returns the topics, by name, that there are for the broker that takes a request.

    A broker makes what it hears known to one part after another: its metadata cache is the first, and the groups'
    coordinator the last. Source: BrokerMetadataPublisher.

    Args:
        metadata_cache: what the request says of that; all else is as the coordinator knows it.
    """
    if not metadata_cache:
        return ctx.topics
    cached = {topic.name: Topic(topic.name, topic.partitions, topic.id) for topic in metadata_cache if topic.partitions}
    named = {topic.name for topic in metadata_cache}
    return {name: topic for name, topic in ctx.topics.items() if name not in named} | cached


def _exists(topics: Mapping[str, Topic], topic: str, partition: int) -> bool:
    there = topics.get(topic)
    return there is not None and 0 <= partition < there.partitions


def split_existing(topics: Mapping[str, Topic], topic: NamedTopic) -> tuple[NamedTopic | None, NamedTopic | None]:
    """Returns a request's topic with those of its partitions that exist, and with the others; None without any.

    Args:
        topics: those that there are, by name.
    """
    missing = [place for place in topic.partitions if not _exists(topics, topic.name, place.partition_index)]
    if not missing:
        return (topic if topic.partitions else None), None
    there = tuple(place for place in topic.partitions if _exists(topics, topic.name, place.partition_index))
    lost = msgspec.structs.replace(topic, partitions=tuple(missing))
    return (msgspec.structs.replace(topic, partitions=there) if there else None), lost


def merged_topics(missing: Sequence[dict[str, Any]], answered: Sequence[dict[str, Any]] = ()) -> list[dict[str, Any]]:
    """Returns an answer's topics: first what the broker refuses, then what the coordinator says of the others.

    A topic stands there once, unless all exists: then the answer is the coordinator's, topic by topic as was asked.
    Source: OffsetCommitResponse.Builder and OffsetDeleteResponse.Builder, as KafkaApis uses them.
    """
    if not missing:
        return list(answered)
    topics: dict[tuple[str, str | None], dict[str, Any]] = {}
    for answer in (*missing, *answered):
        topic = topics.setdefault((answer["name"], answer.get("topicId")), {**answer, "partitions": []})
        topic["partitions"] += answer["partitions"]
    return list(topics.values())
