"""The consumer's embedded protocol: what the bytes in JoinGroup's metadata and SyncGroup's assignment mean.

Only groups whose protocol type is ``consumer`` are known to use this form.
Source: ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json, and ConsumerProtocol for what a reader does
with a version that it doesn't know: a newer one is read as the newest known, for fields are only ever added at the end.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from kio.schema.consumer_protocol_assignment import v3 as assignment_v3
from kio.schema.consumer_protocol_subscription import v0 as subscription_v0
from kio.schema.consumer_protocol_subscription import v1 as subscription_v1
from kio.schema.consumer_protocol_subscription import v2 as subscription_v2
from kio.schema.consumer_protocol_subscription import v3 as subscription_v3
from kio.serial import entity_reader
from kio.serial.errors import SerialError

CONSUMER_PROTOCOL_TYPE = "consumer"

_VERSION = struct.Struct(">h")
#: All versions of an assignment have the same fields.
_READ_ASSIGNMENT = entity_reader(assignment_v3.ConsumerProtocolAssignment)
_READ_SUBSCRIPTION = (
    entity_reader(subscription_v0.ConsumerProtocolSubscription),
    entity_reader(subscription_v1.ConsumerProtocolSubscription),
    entity_reader(subscription_v2.ConsumerProtocolSubscription),
    entity_reader(subscription_v3.ConsumerProtocolSubscription),
)


class MalformedConsumerProtocol(ValueError):
    """Bytes that are no subscription or assignment of the consumer protocol."""


class Assignment(NamedTuple):
    """What one member may consume: ``partitions`` goes from a topic's name to its partitions, in the order written."""

    version: int
    partitions: dict[str, list[int]]
    user_data: bytes | None


class Subscription(NamedTuple):
    """What one member wants to consume, and what it had when it asked (from version 1, 2 and 3 on: else as here)."""

    version: int
    topics: list[str]
    user_data: bytes | None
    owned_partitions: dict[str, list[int]]
    generation_id: int = -1
    rack_id: str | None = None


def decode_assignment(data: bytes) -> Assignment:
    """Reads an assignment. No bytes at all are a member without partitions.

    Raises:
        MalformedConsumerProtocol: the bytes are something else.
    """
    if not data:
        return Assignment(0, {}, None)
    version = _version(data, "an assignment")
    value = _read(_READ_ASSIGNMENT, data, "an assignment")
    return Assignment(version, _by_topic(value.assigned_partitions), value.user_data)


def decode_subscription(data: bytes) -> Subscription:
    """Reads a subscription.

    Raises:
        MalformedConsumerProtocol: the bytes are something else.
    """
    version = _version(data, "a subscription")
    known = min(version, len(_READ_SUBSCRIPTION) - 1)
    value = _read(_READ_SUBSCRIPTION[known], data, "a subscription")
    return Subscription(
        version,
        list(value.topics),
        value.user_data,
        _by_topic(value.owned_partitions) if known >= 1 else {},
        value.generation_id if known >= 2 else -1,
        value.rack_id if known >= 3 else None,
    )


@lru_cache(maxsize=1024)
def decode_subscription_topics(data: bytes) -> tuple[str, ...]:
    """Returns the topics of a subscription, which is all that the coordinator itself looks at.

    It reads every version as version 0 (ClassicGroup.computeSubscribedTopics).

    Raises:
        MalformedConsumerProtocol: the bytes are no subscription.
    """
    _version(data, "a subscription")
    return tuple(_read(_READ_SUBSCRIPTION[0], data, "a subscription").topics)


def decode_version(data: bytes) -> int:
    """Returns the version with which a member's metadata begins, for an assignment of the same version.

    Raises:
        MalformedConsumerProtocol: there are no two bytes, or they are negative. Its text is Kafka's, which a member is
            told (ConsumerProtocol.deserializeVersion, checkAssignmentVersion).
    """
    if len(data) < _VERSION.size:
        raise MalformedConsumerProtocol("Buffer underflow while parsing consumer protocol's header")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise MalformedConsumerProtocol(f"Unsupported assignment version: {version}")
    return version


def encode_assignment(partitions: Mapping[str, Sequence[int]], version: int, user_data: bytes | None = None) -> bytes:
    """Writes an assignment, topics and partitions in the order given.

    Args:
        version: the version that the member understands; one newer than the newest known is written as that.
    """
    parts = [struct.pack(">hi", min(version, len(_READ_SUBSCRIPTION) - 1), len(partitions))]
    for topic, numbers in partitions.items():
        name = topic.encode()
        parts.append(struct.pack(f">h{len(name)}si{len(numbers)}i", len(name), name, len(numbers), *numbers))
    parts.append(struct.pack(">i", -1) if user_data is None else struct.pack(">i", len(user_data)) + user_data)
    return b"".join(parts)


def _by_topic(topics: Any) -> dict[str, list[int]]:
    # A topic may stand twice: librdkafka and others never write it so, but nothing forbids it.
    partitions: dict[str, list[int]] = {}
    for topic in topics:
        partitions.setdefault(topic.topic, []).extend(topic.partitions)
    return partitions


def _version(data: bytes, what: str) -> int:
    if len(data) < _VERSION.size:
        raise MalformedConsumerProtocol(
            f"{what} begins with a version of 2 bytes, but there are {len(data)} bytes in all"
        )
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise MalformedConsumerProtocol(f"the version of {what} is {version}, expected 0 or more")
    return version


def _read(read: Any, data: bytes, what: str) -> Any:
    try:
        return read(data, _VERSION.size)[0]
    except (SerialError, ValueError) as error:
        raise MalformedConsumerProtocol(
            f"{len(data)} bytes are not {what} of the consumer protocol: {error}"
        ) from error
