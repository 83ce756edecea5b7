"""Parts of requests' bodies, as Kafka's JSON has them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from coordinator_udf.protocol.unchanged_heartbeat import unchanged_heartbeat
from coordinator_udf.protocol.wire.schema import Message
from coordinator_udf.settings.file import topic_id

#: What a partition's offset is committed with.
Offsets = Mapping[tuple[str, int], int]


def base64(data: bytes) -> str:
    return b64encode(data).decode()


def subscription(*topics: str, version: int = 0) -> bytes:
    """The consumers' own form of a subscription."""
    data = version.to_bytes(2) + len(topics).to_bytes(4)
    for topic in topics:
        data += len(topic).to_bytes(2) + topic.encode()
    return data + b"\xff\xff\xff\xff" + (b"\0\0\0\0" if version >= 1 else b"")


def consumer_heartbeat(group: str, member_id: str, epoch: int, **body: Any) -> dict[str, Any]:
    """A ConsumerGroupHeartbeat in which nothing is new but what is given."""
    return {**unchanged_heartbeat(group, member_id, epoch, version=1), **body}


def commit_topics(offsets: Offsets, metadata: str | None) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, index), offset in offsets.items():
        entry = {"partitionIndex": index, "committedOffset": offset, "committedLeaderEpoch": -1}
        topics.setdefault(topic, []).append({**entry, "committedMetadata": metadata})
    return [{"name": name, "topicId": topic_id(name), "partitions": parts} for name, parts in topics.items()]


def by_topic(partitions: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return [{"name": name, "topicId": topic_id(name), "partitionIndexes": found} for name, found in topics.items()]


def join_protocols(protocols: Sequence[str] | Mapping[str, bytes]) -> list[dict[str, str]]:
    if not isinstance(protocols, Mapping):
        protocols = dict.fromkeys(protocols, subscription("t0"))
    return [{"name": name, "metadata": base64(data)} for name, data in protocols.items()]


def cut(body: Mapping[str, Any], message: Message) -> dict[str, Any]:
    """The fields that a version can carry."""
    kept: dict[str, Any] = {}
    for field in message.fields:
        if field.name not in body:
            continue
        value = body[field.name]
        if field.struct is not None and value is not None:
            value = [cut(item, field.struct) for item in value]
        kept[field.name] = value
    return kept
