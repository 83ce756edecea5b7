"""The function of the views that reads the embedded consumer protocol."""

from __future__ import annotations

from coordinator_udf.protocol.consumer_protocol import (
    MalformedConsumerProtocol,
    decode_assignment,
    decode_subscription_topics,
)


def read_consumer_protocol(
    subscription: bytes | None, assignment: bytes | None
) -> tuple[list[str] | None, dict[str, list[int]] | None, str | None]:
    """The topics of a subscription, the partitions of an assignment, and why one of them could not be read."""
    topics: list[str] | None = None
    partitions: dict[str, list[int]] | None = None
    try:
        if subscription is not None:
            topics = list(decode_subscription_topics(bytes(subscription)))
        if assignment is not None:
            partitions = decode_assignment(bytes(assignment)).partitions
    except MalformedConsumerProtocol as error:
        return topics, partitions, str(error)
    return topics, partitions, None
