"""The records of the offsets topic that classic groups write: keys and values in Kafka's JSON field names.

Assignments stand in values as placeholders (schemas/outputs.py). Source: GroupCoordinatorRecordHelpers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from coordinator_udf.groups.model.classic import AssignmentRef, ClassicGroup, Member
from coordinator_udf.offsets_topic.sizes import Sizes, measures, unsigned_varint_bytes
from coordinator_udf.protocol import placeholders

GROUP_METADATA = "GroupMetadata"
OFFSET_COMMIT = "OffsetCommit"
END_TXN_MARKER = "EndTxnMarker"

GROUP_METADATA_VALUE_VERSION = 3
#: The first version that can carry what the extensions add.
_EXTENDED_VALUE_VERSION = 4

#: A record batch's header (DefaultRecordBatch.RECORD_BATCH_OVERHEAD).
BATCH_OVERHEAD_BYTES = 61


def placeholder(ref: AssignmentRef | None) -> str:
    """Returns what stands in a body or value for a member's assignment."""
    return "" if ref is None or not ref.size else placeholders.placeholder(ref.record_offset, ref.assigned_as)


def group_metadata_key(group_id: str) -> dict[str, Any]:
    """Returns the key of a group's record."""
    return {"type": GROUP_METADATA, "group": group_id}


def group_metadata_version(group: ClassicGroup) -> int:
    """Returns the value version of a group's record: Kafka's, or the next where a member understands extensions."""
    extended = any(member.client_extensions for member in group.members.values())
    return _EXTENDED_VALUE_VERSION if extended else GROUP_METADATA_VALUE_VERSION


def group_metadata_value(group: ClassicGroup) -> dict[str, Any]:
    """Returns a group with its members and where their assignments lie.

    What extensions add only where it isn't the default.

    Raises:
        ValueError: there are members and no protocol, which no group that can be stored has.
    """
    value = {
        "protocolType": group.protocol_type or "",
        "generation": group.generation_id,
        "protocol": group.protocol_name,
        "leader": group.leader,
        "currentStateTimestamp": -1 if group.state_timestamp is None else group.state_timestamp,
        "members": [_member_value(member, group.protocol_name) for member in group.in_order()],
    }
    if group.resync_epoch:
        value["resyncEpoch"] = group.resync_epoch
    if group.resync:
        value["resync"] = int(group.resync)
    return value


def _member_value(member: Member, protocol_name: str | None) -> dict[str, Any]:
    value = {
        "memberId": member.member_id,
        "groupInstanceId": member.group_instance_id,
        "clientId": member.client_id,
        "clientHost": member.client_host,
        "rebalanceTimeout": member.rebalance_timeout_ms,
        "sessionTimeout": member.session_timeout_ms,
        "subscription": member.metadata(protocol_name),
        "assignment": placeholder(member.assignment),
    }
    if member.client_extensions:
        value["clientExtensions"] = 1
    return value


def empty_group_metadata_value(group: ClassicGroup) -> dict[str, Any]:
    """Returns a group that was just made and that nobody has joined."""
    return {
        "protocolType": "",
        "generation": 0,
        "protocol": None,
        "leader": None,
        "currentStateTimestamp": -1 if group.state_timestamp is None else group.state_timestamp,
        "members": [],
    }


def group_metadata_sizes(group: ClassicGroup, sizes: dict[str, int]) -> Sizes:
    """Returns how large a group's record is in Kafka's format.

    Args:
        group: the group as it would be written.
        sizes: member id -> bytes of its assignment.
    """
    value = group_metadata_value(group)
    for member in value["members"]:
        # Of bytes only the length matters.
        member["assignment"] = range(sizes.get(member["memberId"], 0))
    measure_key, measure_value = measures(GROUP_METADATA, group_metadata_version(group))
    return measure_key({"group": group.group_id}), measure_value(value)


def most_group_metadata_bytes(group: ClassicGroup, sizes: dict[str, int]) -> int:
    """Returns what the record batch with a group's record doesn't exceed.

    The arguments are those of `group_metadata_sizes`.
    """
    texts = len(group.group_id) + len(group.protocol_type or "") + len(group.protocol_name or "")
    texts += len(group.leader or "")
    others = 256 + sum(sizes.values())
    for member in group.members.values():
        texts += len(member.member_id) + len(member.client_id) + len(member.client_host)
        texts += len(member.group_instance_id or "")
        # One of them is written.
        others += 40
        for _, metadata in member.protocols:
            others += len(metadata)
    return 4 * texts + others


_measure_group_key, _measure_group = measures(GROUP_METADATA, GROUP_METADATA_VALUE_VERSION)
#: With an expiry of its own an offset's value is one of version 1.
_, _measure_expiring_offset = measures(OFFSET_COMMIT, 1)
_measure_offset_key, _measure_offset = measures(OFFSET_COMMIT, 4)

_EMPTY_GROUP_BYTES = _measure_group(empty_group_metadata_value(ClassicGroup("")))


def empty_group_sizes(group_id: str) -> Sizes:
    """Returns how large the record is of a group that nobody has joined."""
    return _measure_group_key({"group": group_id}), _EMPTY_GROUP_BYTES


def offset_sizes(group_id: str, topic: str, value: dict[str, Any] | None) -> Sizes:
    """Returns how large an offset's record is, or its tombstone."""
    key_bytes = _measure_offset_key({"group": group_id, "topic": topic})
    if value is None:
        return key_bytes, None
    return key_bytes, (_measure_expiring_offset if "expireTimestamp" in value else _measure_offset)(value)


def batch_bytes(records: Iterable[Sizes]) -> int:
    """Returns the size of these records' batch in bytes, uncompressed (DefaultRecord, DefaultRecordBatch)."""
    size = BATCH_OVERHEAD_BYTES
    for delta, (key_bytes, value_bytes) in enumerate(records):
        body = 1 + 1 + _varint(delta) + _varint(key_bytes) + key_bytes + 1
        body += 1 if value_bytes is None else _varint(value_bytes) + value_bytes
        size += _varint(body) + body
    return size


def _varint(value: int) -> int:
    return unsigned_varint_bytes(value << 1)
