"""Subscriptions and assignments as bytes, as Kafka's clients write and read them (ConsumerProtocol)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

from coordinator_udf.members.client_assignors.spec import Assignment, MemberSubscription
from coordinator_udf.members.exceptions import ClientException
from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.protocol.consumer_protocol import (
    MalformedConsumerProtocol,
    Subscription,
    decode_assignment,
    decode_subscription,
)

#: The newest version, which members write; what they read is of any version.
_VERSION = 3


def encode_subscription(subscription: Subscription) -> bytes:
    """Writes a subscription in its version, topics and owned partitions in the order given."""
    parts = [struct.pack(">hi", subscription.version, len(subscription.topics))]
    parts.extend(_text(topic) for topic in subscription.topics)
    parts.append(_bytes(subscription.user_data))
    if subscription.version >= 1:
        parts.append(_partitions(subscription.owned_partitions))
    if subscription.version >= 2:
        parts.append(struct.pack(">i", subscription.generation_id))
    if subscription.version >= 3:
        parts.append(struct.pack(">h", -1) if subscription.rack_id is None else _text(subscription.rack_id))
    return b"".join(parts)


def read_subscription(data: bytes, group_instance_id: str | None) -> MemberSubscription:
    """Reads a member's subscription.

    Raises:
        ClientException: the bytes are none (SchemaException).
    """
    try:
        read = decode_subscription(data)
    except MalformedConsumerProtocol as error:
        raise ClientException("SchemaException", str(error)) from error
    return MemberSubscription(
        tuple(read.topics),
        _flat(read.owned_partitions),
        read.user_data,
        read.generation_id,
        read.rack_id or None,
        group_instance_id,
    )


def encode_assignment(assignment: Assignment) -> bytes:
    """Writes an assignment, topics in the order in which they first come."""
    return struct.pack(">h", _VERSION) + _partitions(by_topic(assignment.partitions)) + _bytes(assignment.user_data)


def read_assignment(data: bytes) -> Assignment:
    """Reads a member's assignment.

    Raises:
        ClientException: the bytes are none (SchemaException).
    """
    try:
        read = decode_assignment(data)
    except MalformedConsumerProtocol as error:
        raise ClientException("SchemaException", str(error)) from error
    return Assignment(_flat(read.partitions), read.user_data)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Returns partitions by their topics, both in the order given."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def _flat(partitions: Mapping[str, Sequence[int]]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for topic, numbers in partitions.items() for number in numbers)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _bytes(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def _partitions(partitions: Mapping[str, Sequence[int]]) -> bytes:
    parts = [struct.pack(">i", len(partitions))]
    for topic, numbers in partitions.items():
        parts.append(_text(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    return b"".join(parts)
