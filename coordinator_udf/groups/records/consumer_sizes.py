"""How large the records of consumer groups are in Kafka's format, for the log's size limit.

Keys are of the old encoding (a text behind two bytes of length), values of the flexible one (lengths and tags as
unsigned varints). Source: the schemas ConsumerGroup*Key and ConsumerGroup*Value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from coordinator_udf.groups.records.classic import GROUP_METADATA, Sizes, group_tombstone_sizes, unsigned_varint_bytes
from coordinator_udf.groups.records.consumer import (
    CURRENT_ASSIGNMENT,
    GROUP_EPOCH,
    MEMBER,
    REGEX,
    TARGET_EPOCH,
    TARGET_MEMBER,
    NewRecord,
)

_VERSION = 2
_UUID = 16
#: The number of tagged fields, where there are none.
_NO_TAGS = 1
_TAGGED_LONG = 1 + 1 + 8


def consumer_record_sizes(record: NewRecord) -> Sizes:
    """The sizes of one record's key and value."""
    if record.type == GROUP_METADATA:
        # A conversion ends the classic group in the same write.
        return group_tombstone_sizes(record.key["group"])
    texts = [text for name, text in record.key.items() if name != "type"]
    key = _VERSION + sum(2 + len(_utf8(text)) for text in texts)
    if record.value is None:
        return key, None
    return key, _VERSION + _VALUES[record.type](record.value) + _NO_TAGS


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _text(text: str | None) -> int:
    return 1 if text is None else _bytes(_utf8(text))


def _bytes(data: bytes) -> int:
    return unsigned_varint_bytes(len(data) + 1) + len(data)


def _array(sizes: Iterable[int]) -> int:
    known = list(sizes)
    return unsigned_varint_bytes(len(known) + 1) + sum(known)


def _ints(numbers: list[int]) -> int:
    return unsigned_varint_bytes(len(numbers) + 1) + 4 * len(numbers)


def _epoch(value: Mapping[str, Any]) -> int:
    return 4 + (_TAGGED_LONG if "metadataHash" in value else 0)


def _target_epoch(value: Mapping[str, Any]) -> int:
    return 4 + (_TAGGED_LONG if "assignmentTimestamp" in value else 0)


def _target_member(value: Mapping[str, Any]) -> int:
    return _array(_UUID + _ints(topic["partitions"]) + _NO_TAGS for topic in value["topicPartitions"])


def _current_assignment(value: Mapping[str, Any]) -> int:
    return 4 + 4 + 1 + _with_epochs(value["assignedPartitions"]) + _with_epochs(value["partitionsPendingRevocation"])


def _with_epochs(topics: Iterable[Mapping[str, Any]]) -> int:
    return _array(_UUID + _ints(topic["partitions"]) + _tagged(_ints(topic["assignmentEpochs"])) for topic in topics)


def _tagged(size: int) -> int:
    """The tags of a struct with one tagged field of that size."""
    return 1 + 1 + unsigned_varint_bytes(size) + size


def _member(value: Mapping[str, Any]) -> int:
    texts = ("instanceId", "rackId", "clientId", "clientHost", "subscribedTopicRegex", "serverAssignor")
    size = sum(_text(value[name]) for name in texts) + _array(map(_text, value["subscribedTopicNames"])) + 4
    classic = value["classicMemberMetadata"]
    if classic is None:
        # Kafka writes null, though it is the default.
        return size + _tagged(1) - _NO_TAGS
    protocols = _array(
        _text(protocol["name"]) + _bytes(protocol["metadata"]) + _NO_TAGS for protocol in classic["supportedProtocols"]
    )
    # A struct that may be null has a byte that says whether it is.
    return size + _tagged(1 + 4 + protocols + _NO_TAGS) - _NO_TAGS


def _regex(value: Mapping[str, Any]) -> int:
    return _array(map(_text, value["topics"])) + 8 + 8


_VALUES: dict[str, Callable[[Mapping[str, Any]], int]] = {
    GROUP_EPOCH: _epoch,
    MEMBER: _member,
    TARGET_EPOCH: _target_epoch,
    TARGET_MEMBER: _target_member,
    CURRENT_ASSIGNMENT: _current_assignment,
    REGEX: _regex,
}
