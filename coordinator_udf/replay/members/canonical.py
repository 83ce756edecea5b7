"""The form in which a member's outputs are compared: without orders that come from Java's hash maps, without messages.

Sets are: topics and partitions in OffsetCommit and ConsumerGroupHeartbeat, a subscription's topics, an assignment's
partitions, the assignments in SyncGroup. The order of the partitions that a subscription owns counts within a topic.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from coordinator_udf.protocol.consumer_protocol import (
    MalformedConsumerProtocol,
    decode_assignment,
    decode_subscription,
)
from coordinator_udf.replay.judge.canonical import canonical_answer as canonical_body
from coordinator_udf.replay.members.recording import Line

#: What Kafka's texts are for people, and what repeats a request's bytes for convenience.
_NOT_COMPARED = frozenset({"message", "causeMessage", "decoded"})


def canonical(line: Line) -> Line:
    """Returns the line in the form that is compared."""
    kept = {name: value for name, value in line.items() if name not in _NOT_COMPARED}
    if line["type"] == "request":
        shape = _BODIES.get(line["api"])
        if shape is not None:
            kept["body"] = shape(dict(line["body"]))
    elif line["type"] == "assign":
        kept["result"] = {member: sorted(partitions) for member, partitions in line["result"].items()}
    elif line["type"] == "onAssignment":
        kept["partitions"] = sorted(line["partitions"])
    return kept


def canonical_answer(api: str, body: Mapping[str, Any]) -> Any:
    """Returns an answer in the form that is compared, with what members put into it read as theirs."""
    read = dict(body)
    if api == "JoinGroup":
        read["members"] = [{**member, "metadata": _subscription(member["metadata"])} for member in body["members"]]
    elif api == "SyncGroup":
        read["assignment"] = _assignment(body["assignment"])
    # The bytes that are left in there are of the sticky assignors' user data.
    return canonical_body(api, msgspec.to_builtins(read))


def _join(body: Line) -> Line:
    protocols = [{**protocol, "metadata": _subscription(protocol["metadata"])} for protocol in body["protocols"]]
    return {**body, "protocols": protocols}


def _subscription(text: str) -> Any:
    try:
        read = decode_subscription(base64.b64decode(text))
    except MalformedConsumerProtocol:
        return text
    return {
        **read._asdict(),
        "topics": sorted(read.topics),
        "owned_partitions": sorted(read.owned_partitions.items()),
        "user_data": None if read.user_data is None else _sticky_user_data(read.user_data),
    }


def _sticky_user_data(data: bytes) -> Any:
    """Returns what a sticky assignor remembers: topics and partitions, of a hash map's order, and the generation."""
    try:
        (count,) = struct.unpack_from(">i", data)
        at, topics = 4, []
        for _ in range(count):
            (length,) = struct.unpack_from(">h", data, at)
            name = data[at + 2 : at + 2 + length].decode()
            at += 2 + length
            (size,) = struct.unpack_from(">i", data, at)
            topics.append((name, sorted(struct.unpack_from(f">{size}i", data, at + 4))))
            at += 4 + 4 * size
        return sorted(topics), data[at:]
    except (struct.error, UnicodeDecodeError):
        return data


def _sync(body: Line) -> Line:
    assignments = {a["memberId"]: _assignment(a["assignment"]) for a in body["assignments"]}
    return {**body, "assignments": assignments, "count": len(body["assignments"])}


def _assignment(text: str) -> Any:
    try:
        read = decode_assignment(base64.b64decode(text))
    except MalformedConsumerProtocol:
        return text
    partitions = sorted((topic, sorted(numbers)) for topic, numbers in read.partitions.items())
    return {**read._asdict(), "partitions": partitions}


def _commit(body: Line) -> Line:
    topics = [
        {**topic, "partitions": sorted(topic["partitions"], key=lambda partition: partition["partitionIndex"])}
        for topic in body["topics"]
    ]
    return {**body, "topics": sorted(topics, key=lambda topic: topic.get("name") or topic.get("topicId", ""))}


def _heartbeat(body: Line) -> Line:
    if body.get("topicPartitions") is not None:
        owned = [{**topic, "partitions": sorted(topic["partitions"])} for topic in body["topicPartitions"]]
        body["topicPartitions"] = sorted(owned, key=lambda topic: topic["topicId"])
    if body.get("subscribedTopicNames") is not None:
        body["subscribedTopicNames"] = sorted(body["subscribedTopicNames"])
    return body


_BODIES: dict[str, Callable[[Line], Line]] = {
    "JoinGroup": _join,
    "SyncGroup": _sync,
    "OffsetCommit": _commit,
    "ConsumerGroupHeartbeat": _heartbeat,
}
