"""Bytes, Kafka's JSON and columns of every record type are one and the same record."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_udf.offsets_topic.codec import CodecError
from coordinator_udf.offsets_topic.messages import RECORD_TYPES, RecordType
from coordinator_udf.offsets_topic.records import (
    Record,
    UnknownRecordError,
    encode,
    from_json,
    key_text,
    marker_from_json,
    marker_to_json,
    to_json,
)
from coordinator_udf.offsets_topic.rows import from_columns, to_columns
from tests.offsets_topic.strategies import markers, records, records_of

COMMIT_KEY = {"type": "OffsetCommit", "group": "g", "topic": "t", "partition": 3}
COMMIT = {"offset": 7, "leaderEpoch": -1, "metadata": "m", "commitTimestamp": 5}


@pytest.mark.parametrize("record_type", RECORD_TYPES, ids=lambda record_type: record_type.name)
@given(data=st.data())
def test_what_is_written_is_read(record_type: RecordType, data: st.DataObject) -> None:
    record = data.draw(records_of(record_type))
    assert to_json(*from_json(record)) == record


@given(markers())
def test_what_is_written_of_a_marker_is_read(marker: Record) -> None:
    key, value = marker_from_json(marker)
    assert marker_to_json(key, value, marker.key["producerId"], marker.key["producerEpoch"]) == marker


@given(records() | markers())
def test_columns_hold_the_whole_record(record: Record) -> None:
    columns = to_columns(record)
    assert from_columns(columns) == record
    assert json.loads(columns["key"]) == record.key


@given(records(), st.data())
def test_other_bytes_are_an_error_or_a_record_never_anything_else(record: Record, data: st.DataObject) -> None:
    key, value = from_json(record)
    broken = bytearray(key if value is None else value)
    for _ in range(data.draw(st.integers(1, 3))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    del broken[data.draw(st.integers(0, len(broken))) :]
    try:
        read = to_json(bytes(broken), None) if value is None else to_json(key, bytes(broken))
    except CodecError:
        return
    # What could be read can be written, and then reads the same.
    assert to_json(*from_json(read)) == read


def test_bytes_of_a_broker() -> None:
    key = base64.b64decode("AAEAC3NjYWxlLTEtNS1nAAJ0MgAAAAM=")
    value = base64.b64decode("AAQAAAAAAAAAGgAAAAABAAABofv7/EwBABCEl2jVhddJ4aIyKX9T7Wcy")
    record = to_json(key, value)
    assert record == Record(
        {"type": "OffsetCommit", "group": "scale-1-5-g", "topic": "t2", "partition": 3},
        4,
        {
            "offset": 26,
            "leaderEpoch": 0,
            "metadata": "",
            "commitTimestamp": 1795228957772,
            "topicId": "hJdo1YXXSeGiMil_U-1nMg",
        },
    )
    assert encode(record) == (key, value)
    assert key_text(record.key) == '{"type":"OffsetCommit","group":"scale-1-5-g","topic":"t2","partition":3}'


def test_a_nullable_tagged_list_is_written_when_null_and_not_when_empty() -> None:
    # So does Kafka: its generator takes the definition's bare null for "no default".
    key = {"type": "StreamsGroupMetadata", "groupId": "g"}
    fields = {"epoch": 1, "metadataHash": 2}
    _, null = from_json(Record(key, 0, {**fields, "lastAssignmentConfigs": None}))
    _, empty = from_json(Record(key, 0, {**fields, "lastAssignmentConfigs": []}))
    start = bytes.fromhex("0000000000010000000000000002")
    assert null == start + bytes.fromhex("01010100")
    assert empty == start + b"\x00"


def test_a_nullable_tagged_struct_says_first_whether_it_is_there() -> None:
    member: dict[str, Any] = {
        "instanceId": None,
        "rackId": None,
        "clientId": "",
        "clientHost": "",
        "subscribedTopicNames": [],
    }
    member |= {"subscribedTopicRegex": None, "rebalanceTimeoutMs": 1, "serverAssignor": None}
    classic = {"sessionTimeoutMs": 9, "supportedProtocols": [{"name": "r", "metadata": "AQI="}]}
    key = {"type": "ConsumerGroupMemberMetadata", "groupId": "g", "memberId": "m"}
    _, value = from_json(Record(key, 0, {**member, "classicMemberMetadata": classic}))
    tagged = bytes.fromhex("01000000090202720301020000")
    assert value == bytes.fromhex("000000000101010000000001000100") + bytes([len(tagged)]) + tagged


@pytest.mark.parametrize("type_id", [9, 18, 24, -1])
def test_an_unknown_type_is_named(type_id: int) -> None:
    with pytest.raises(
        UnknownRecordError, match=rf"record type \(the key's version\) is {type_id}, expected one of 0, 1"
    ):
        to_json(type_id.to_bytes(2, "big", signed=True) + b"\x00\x01g", None)


@pytest.mark.parametrize(
    ("record_type", "version"), [("OffsetCommit", 5), ("GroupMetadata", -1), ("ShareGroupMetadata", 1)]
)
def test_an_unknown_value_version_is_named(record_type: str, version: int) -> None:
    key, _ = from_json(
        next(Record({"type": t.name, **_plain_key(t)}, None, None) for t in RECORD_TYPES if t.name == record_type)
    )
    with pytest.raises(
        UnknownRecordError, match=f"value version of {record_type} is {version}, Kafka 4.3.1 reads 0 to"
    ):
        to_json(key, version.to_bytes(2, "big", signed=True) + bytes(40))


def _plain_key(record_type: RecordType) -> dict[str, Any]:
    return {field.name: 0 if field.type == "int32" else "x" for field in record_type.key.fields}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            Record({"type": "OffsetCommit", "group": "g", "topic": "t"}, None, None),
            "partition can't be written: it is missing",
        ),
        (Record({"type": "Offset"}, None, None), "record type is 'Offset', expected one of"),
        (
            Record(COMMIT_KEY, 4, {**COMMIT, "offset": 2**63}),
            "offset can't be written: it is 9223372036854775808, which no int64",
        ),
        (Record(COMMIT_KEY, 4, {**COMMIT, "metadata": None}), "metadata can't be written: it is null, expected string"),
        (Record(COMMIT_KEY, 4, {**COMMIT, "topicId": "x"}), "topicId can't be written: it is 'x', expected a uuid"),
        (Record(COMMIT_KEY, 1, COMMIT), "'leaderEpoch' is no field of it in version 1"),
        (Record(COMMIT_KEY, None, COMMIT), "value version of OffsetCommit is missing, expected 0 to 4"),
        (Record(COMMIT_KEY, 4, {**COMMIT, "metadata": "x" * 40000}), "it has 40000 bytes, Kafka allows a string 32767"),
        (Record(COMMIT_KEY, 4, {**COMMIT, "offset": True}), "offset can't be written: it is True, expected an int64"),
    ],
)
def test_json_that_is_no_record_is_named(record: Record, message: str) -> None:
    with pytest.raises(CodecError, match=message.replace("(", r"\(")):
        from_json(record)


def test_bytes_that_end_too_early_are_named() -> None:
    key, value = from_json(Record(COMMIT_KEY, 3, COMMIT))
    assert value is not None
    with pytest.raises(
        CodecError, match=r"metadata can't be read at byte 16 of 16: 1 bytes are announced, but 0 are left"
    ):
        to_json(key, value[:16])
    with pytest.raises(CodecError, match="key has 1 bytes"):
        to_json(b"\x00", None)
