"""The function of the views that reads what members tell each other through a classic group's coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from coordinator_udf.protocol import connect_protocol as connect
from coordinator_udf.protocol.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    MalformedConsumerProtocol,
    decode_assignment,
    decode_subscription,
    decode_subscription_topics,
)
from coordinator_udf.protocol.java_bytes import MalformedBytes
from coordinator_udf.protocol.streams_protocol import (
    STREAMS_ASSIGNOR,
    decode_assignment_info,
    decode_subscription_info,
)


class Embedded(NamedTuple):
    """What a member's bytes say; the columns of the struct that the views' function gives.

    Attributes:
        topics: of a consumer's subscription.
        partitions: topic -> partitions; of a Connect worker connector -> tasks, -1 for the connector itself.
        details: what else Connect and Streams tell, as JSON.
        error: why something of it could not be read.
    """

    topics: list[str] | None = None
    partitions: dict[str, list[int]] | None = None
    details: str | None = None
    error: str | None = None


def read_embedded_protocol(
    protocol_type: str | None, protocol: str | None, subscription: bytes | None, assignment: bytes | None
) -> Embedded:
    """Reads the bytes of one member; of an unknown protocol type nothing.

    Args:
        protocol: the assignor that the group has chosen.
    """
    if protocol_type == connect.CONNECT_PROTOCOL_TYPE:
        return _of_connect(subscription, assignment)
    if protocol_type != CONSUMER_PROTOCOL_TYPE:
        return Embedded()
    topics: list[str] | None = None
    partitions: dict[str, list[int]] | None = None
    try:
        if subscription is not None:
            topics = list(decode_subscription_topics(bytes(subscription)))
        if assignment is not None:
            partitions = decode_assignment(bytes(assignment)).partitions
        details = _of_streams(subscription, assignment) if protocol == STREAMS_ASSIGNOR else None
    except (MalformedConsumerProtocol, MalformedBytes) as error:
        return Embedded(topics, partitions, None, str(error))
    return Embedded(topics, partitions, details)


def _of_connect(metadata: bytes | None, assignment: bytes | None) -> Embedded:
    try:
        state = None if not metadata else connect.decode_worker_state(bytes(metadata))
        told = None if assignment is None else connect.decode_assignment(bytes(assignment))
    except MalformedBytes as error:
        return Embedded(error=str(error))
    details: dict[str, Any] = {}
    if state is not None:
        details |= {"protocol_version": state.version, "url": state.url, "config_offset": state.config_offset}
    if told is not None:
        details |= {
            "leader": told.leader, "leader_url": told.leader_url, "told_config_offset": told.config_offset,
            "error": told.error, "assigned": told.assigned, "revoked": told.revoked, "delay_ms": told.delay_ms,
        }  # fmt: skip
    return Embedded(None, None if assignment is None else connect.after(state, told), _json(details))


def _of_streams(subscription: bytes | None, assignment: bytes | None) -> str | None:
    details: dict[str, Any] = {}
    user_data = None if subscription is None else decode_subscription(bytes(subscription)).user_data
    if user_data:
        said = decode_subscription_info(user_data)
        details |= {
            "version": said.version, "process_id": said.process_id, "user_end_point": said.user_end_point,
            "previous_active_tasks": said.active_tasks, "previous_standby_tasks": said.standby_tasks,
            "offset_sums": said.offset_sums, "client_tags": said.client_tags,
        }  # fmt: skip
    user_data = None if not assignment else decode_assignment(bytes(assignment)).user_data
    if user_data:
        told = decode_assignment_info(user_data)
        details |= {
            "active_tasks": told.active_tasks, "standby_tasks": sorted(told.standby_tasks), "error": told.error,
            "next_rebalance_ms": told.next_rebalance_ms,
        }  # fmt: skip
    return _json(details)


def _json(details: Mapping[str, Any]) -> str | None:
    told = {name: value for name, value in details.items() if value not in (None, (), {}, [])}
    return msgspec.json.encode(told).decode() if told else None
