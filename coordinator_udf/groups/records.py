"""The records of the offsets topic that classic groups write: keys and values in Kafka's JSON field names.

Assignments stand in values as placeholders (schemas/outputs.py). Source: GroupCoordinatorRecordHelpers.
"""

from __future__ import annotations

from typing import Any

from coordinator_udf.groups.classic import AssignmentRef, ClassicGroup

GROUP_METADATA = "GroupMetadata"
OFFSET_COMMIT = "OffsetCommit"
END_TXN_MARKER = "EndTxnMarker"

GROUP_METADATA_VALUE_VERSION = 3

#: A record batch's header, and a record's own bytes beside key and value where all of its varints take one byte.
_BATCH_OVERHEAD_BYTES = 61


def placeholder(ref: AssignmentRef | None) -> str:
    """What stands in a body or value for a member's assignment."""
    return "" if ref is None or not ref.size else f"@{ref.record_offset}/{ref.assigned_as}"


def group_metadata_key(group_id: str) -> dict[str, Any]:
    """The key of a group's record."""
    return {"type": GROUP_METADATA, "group": group_id}


def group_metadata_value(group: ClassicGroup) -> dict[str, Any]:
    """A group with its members and where their assignments lie.

    Raises:
        ValueError: there are members and no protocol, which no group that can be stored has.
    """
    return {
        "protocolType": group.protocol_type or "",
        "generation": group.generation_id,
        "protocol": group.protocol_name,
        "leader": group.leader,
        "currentStateTimestamp": -1 if group.state_timestamp is None else group.state_timestamp,
        "members": [
            {
                "memberId": member.member_id,
                "groupInstanceId": member.group_instance_id,
                "clientId": member.client_id,
                "clientHost": member.client_host,
                "rebalanceTimeout": member.rebalance_timeout_ms,
                "sessionTimeout": member.session_timeout_ms,
                "subscription": member.metadata(group.protocol_name),
                "assignment": placeholder(member.assignment),
            }
            for member in group.in_order()
        ],
    }


def empty_group_metadata_value(group: ClassicGroup) -> dict[str, Any]:
    """A group that was just made and that nobody has joined."""
    return {
        "protocolType": "",
        "generation": 0,
        "protocol": None,
        "leader": None,
        "currentStateTimestamp": -1 if group.state_timestamp is None else group.state_timestamp,
        "members": [],
    }


def group_metadata_batch_bytes(group: ClassicGroup, sizes: dict[str, int]) -> int:
    """How large the record batch of a group's record is in Kafka's format, uncompressed.

    Args:
        sizes: member id -> bytes of its assignment.
    """
    value = 2 + _text(group.protocol_type or "") + 4 + _text(group.protocol_name) + _text(group.leader) + 8 + 4
    for member in group.members.values():
        value += (
            _text(member.member_id)
            + _text(member.group_instance_id)
            + _text(member.client_id)
            + _text(member.client_host)
            + 8
            + 4
            + len(member.metadata(group.protocol_name))
            + 4
            + sizes.get(member.member_id, 0)
        )
    return batch_bytes(2 + _text(group.group_id), value)


def batch_bytes(key_bytes: int, value_bytes: int) -> int:
    """The size of a record batch that holds one record (DefaultRecord, DefaultRecordBatch)."""
    body = 1 + 1 + 1 + _varint(key_bytes) + key_bytes + _varint(value_bytes) + value_bytes + 1
    return _BATCH_OVERHEAD_BYTES + _varint(body) + body


def _text(text: str | None) -> int:
    return 2 + (0 if text is None else len(text.encode("utf-8", "replace")))


def _varint(value: int) -> int:
    zigzag = value << 1
    length = 1
    while zigzag >= 0x80:
        zigzag >>= 7
        length += 1
    return length
