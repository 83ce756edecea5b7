"""A record of ``__consumer_offsets``: its bytes to and from Kafka's JSON of it.

The JSON form of a key is ``{"type": "GroupMetadata", "group": ...}``, that of a value the message's own fields; the
value's version stands beside it. A transaction marker is the record type ``EndTxnMarker``: its key names the producer,
which in the log stands in the batch, and its value is ``{"committed": true|false}``, with ``coordinatorEpoch`` unless
that is 0. Source: Kafka's GroupCoordinatorRecordSerde, ControlRecordType and EndTransactionMarker.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from coordinator_udf.offsets_topic.codec import CodecError, decode_struct, encode_struct
from coordinator_udf.offsets_topic.messages import RECORD_TYPES, RecordType

END_TXN_MARKER: Final = "EndTxnMarker"

_BY_ID: Final = {record_type.id: record_type for record_type in RECORD_TYPES}
_BY_NAME: Final = {record_type.name: record_type for record_type in RECORD_TYPES}

# Kafka's ControlRecordType; the other control records have no place in this topic.
_ABORT: Final = 0
_COMMIT: Final = 1
_MARKER_KEY: Final = struct.Struct(">hh")
_MARKER_VALUE: Final = struct.Struct(">hi")


class Record(NamedTuple):
    """A record in Kafka's JSON. A tombstone has neither version nor value, a transaction marker no version."""

    key: dict[str, Any]
    value_version: int | None
    value: dict[str, Any] | None


class UnknownRecordError(CodecError):
    """A record of a type or of a value version that Kafka 4.3.1 doesn't know."""


def to_json(key: bytes, value: bytes | None) -> Record:
    """Returns the Kafka JSON of a record's bytes. The record is no control record.

    Raises:
        UnknownRecordError: the type or the value's version is unknown.
        CodecError: the bytes can't be read.
    """
    record_type = _type_of(key)
    fields, _ = decode_struct(key, 2, record_type.key, 0, flexible=False)
    json_key = {"type": record_type.name, **fields}
    if value is None:
        return Record(json_key, None, None)
    if len(value) < 2:
        raise CodecError(f"value of {record_type.name} has {len(value)} bytes, expected at least the 2 of its version")
    version = int.from_bytes(value[:2], "big", signed=True)
    _check_version(record_type, version)
    json_value, _ = decode_struct(value, 2, record_type.value, version, flexible=version >= record_type.flexible)
    return Record(json_key, version, json_value)


def from_json(record: Record) -> tuple[bytes, bytes | None]:
    """Returns the bytes of a record, key and value, as Kafka 4.3.1 writes them. The record is no transaction marker.

    Raises:
        UnknownRecordError: the type or the value's version is unknown.
        CodecError: a field is missing, unknown or out of bounds.
    """
    fields = dict(record.key)
    record_type = record_type_named(fields.pop("type", None))
    key = record_type.id.to_bytes(2, "big") + encode_struct(fields, record_type.key, 0, flexible=False)
    if record.value is None:
        return key, None
    if record.value_version is None:
        raise CodecError(f"value version of {record_type.name} is missing, expected 0 to {record_type.newest}")
    _check_version(record_type, record.value_version)
    flexible = record.value_version >= record_type.flexible
    value = encode_struct(record.value, record_type.value, record.value_version, flexible)
    return key, record.value_version.to_bytes(2, "big") + value


def marker_to_json(key: bytes, value: bytes | None, producer_id: int, producer_epoch: int) -> Record:
    """Returns the Kafka JSON of a transaction marker.

    Args:
        key: version and type of the control record.
        value: version and coordinator epoch.
        producer_id: of the batch.
        producer_epoch: of the batch.

    Raises:
        UnknownRecordError: the control record is neither COMMIT nor ABORT.
        CodecError: the bytes can't be read.
    """
    if len(key) < _MARKER_KEY.size or value is None or len(value) < _MARKER_VALUE.size:
        size = None if value is None else len(value)
        raise CodecError(f"a transaction marker has a key of 4 bytes and a value of 6, this one {len(key)} and {size}")
    _, control_type = _MARKER_KEY.unpack_from(key)
    if control_type not in (_ABORT, _COMMIT):
        raise UnknownRecordError(f"control record type is {control_type}, expected 0 (ABORT) or 1 (COMMIT)")
    _, coordinator_epoch = _MARKER_VALUE.unpack_from(value)
    json_value: dict[str, Any] = {"committed": control_type == _COMMIT}
    if coordinator_epoch:
        json_value["coordinatorEpoch"] = coordinator_epoch
    return Record(
        {"type": END_TXN_MARKER, "producerId": producer_id, "producerEpoch": producer_epoch}, None, json_value
    )


def marker_from_json(record: Record) -> tuple[bytes, bytes]:
    """Returns the bytes of a transaction marker, key and value; versions 0.

    Raises:
        CodecError: the value doesn't say whether the transaction was committed.
    """
    value = record.value or {}
    committed = value.get("committed")
    if not isinstance(committed, bool):
        raise CodecError(f"value.committed of an EndTxnMarker is {committed!r}, expected true or false")
    key = _MARKER_KEY.pack(0, _COMMIT if committed else _ABORT)
    try:
        return key, _MARKER_VALUE.pack(0, value.get("coordinatorEpoch", 0))
    except struct.error as error:
        raise CodecError(f"value.coordinatorEpoch is {value['coordinatorEpoch']!r}, expected an int32") from error


def is_marker(record: Record) -> bool:
    """Returns whether the record is a transaction marker."""
    return record.key.get("type") == END_TXN_MARKER


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """Returns the bytes of any record, marker or not; see `from_json` and `marker_from_json`."""
    return marker_from_json(record) if is_marker(record) else from_json(record)


def key_text(key: Mapping[str, Any]) -> str:
    """Returns a key's JSON as the column ``key`` holds it: compact, `type` first, one text for each key."""
    return msgspec.json.encode(key).decode()


def record_type_named(name: object) -> RecordType:
    """Returns what a type's keys and values are made of.

    Raises:
        UnknownRecordError: Kafka 4.3.1 knows no such type.
    """
    found = _BY_NAME.get(name) if isinstance(name, str) else None
    if found is None:
        raise UnknownRecordError(f"record type is {name!r}, expected one of {', '.join(_BY_NAME)}")
    return found


def _type_of(key: bytes) -> RecordType:
    if len(key) < 2:
        raise CodecError(f"key has {len(key)} bytes, expected at least the 2 of the record type")
    type_id = int.from_bytes(key[:2], "big", signed=True)
    record_type = _BY_ID.get(type_id)
    if record_type is None:
        raise UnknownRecordError(
            f"record type (the key's version) is {type_id}, expected one of {', '.join(map(str, _BY_ID))}"
        )
    return record_type


def _check_version(record_type: RecordType, version: int) -> None:
    if not 0 <= version <= record_type.newest:
        raise UnknownRecordError(
            f"value version of {record_type.name} is {version}, Kafka 4.3.1 reads 0 to {record_type.newest}"
        )
