"""A record of ``__consumer_offsets`` as columns of the table consumer_offsets, and back.

Commits and classic groups have typed columns, the values of all other types stand in ``other_value`` as Kafka's JSON.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from coordinator_udf.offsets_topic.codec import CodecError
from coordinator_udf.offsets_topic.messages import Array, Field, Struct
from coordinator_udf.offsets_topic.records import END_TXN_MARKER, Record, key_text, record_type_named

#: The typed column of a record type's value.
TYPED_COLUMNS: Final = {
    "LegacyOffsetCommit": "offset_commit",
    "OffsetCommit": "offset_commit",
    "GroupMetadata": "group_metadata",
}


def to_columns(record: Record) -> dict[str, Any]:
    """The columns ``record_type`` to ``other_value`` and ``key`` of a record.

    Raises:
        UnknownRecordError: Kafka 4.3.1 knows no such record type.
        CodecError: a bytes field of the value is no base64.
    """
    key, name = record.key, str(record.key.get("type"))
    columns: dict[str, Any] = {
        "record_type": name,
        "group_id": key.get("group", key.get("groupId")),
        "topic": key.get("topic"),
        "topic_partition": key.get("partition"),
        "member_id": key.get("memberId"),
        "value_version": record.value_version,
        "group_metadata": None,
        "offset_commit": None,
        "other_value": None,
        "key": key_text(key),
    }
    if record.value is None:
        return columns
    typed = TYPED_COLUMNS.get(name)
    if typed is None:
        columns["other_value"] = msgspec.json.encode(record.value).decode()
    else:
        columns[typed] = _to_typed(record.value, record_type_named(name).value)
    return columns


def from_columns(row: Mapping[str, Any]) -> Record:
    """The record that a row of consumer_offsets holds.

    Raises:
        UnknownRecordError: Kafka 4.3.1 knows no such record type.
        CodecError: ``key`` or ``other_value`` is no JSON object, or a value has no version.
    """
    key = _json_object("key", row["key"])
    name = row["record_type"]
    typed = TYPED_COLUMNS.get(name)
    if typed is None:
        text = row["other_value"]
        value = None if text is None else _json_object("other_value", text)
        version = None if value is None or name == END_TXN_MARKER else row["value_version"]
        return Record(key, version, value)
    columns = row[typed]
    if columns is None:
        return Record(key, None, None)
    version = row["value_version"]
    if version is None:
        raise CodecError(f"value_version of {row['key']} is null, expected the version of its {typed}")
    return Record(key, version, _from_typed(columns, record_type_named(name).value, version))


def _json_object(column: str, text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise CodecError(f"{column} is {text!r:.200}, expected a JSON object: {error}") from error


def _snake(name: str) -> str:
    return re.sub("([A-Z])", r"_\1", name).lower()


def _to_typed(value: Mapping[str, Any], of: Struct) -> dict[str, Any]:
    return {_snake(field.name): _to_cell(value.get(field.name), field) for field in of.fields}


def _to_cell(value: Any, field: Field) -> Any:
    if value is None:
        return None
    if isinstance(field.type, Array) and isinstance(field.type.of, Struct):
        return [_to_typed(item, field.type.of) for item in value]
    if field.type == "bytes":
        try:
            return base64.b64decode(value, validate=True)
        except ValueError as error:
            raise CodecError(f"{field.name} is {value!r:.100}, expected base64: {error}") from error
    return value


def _from_typed(columns: Mapping[str, Any], of: Struct, version: int) -> dict[str, Any]:
    return {
        field.name: _from_cell(columns[_snake(field.name)], field, version)
        for field in of.fields
        if field.since <= version <= field.until and not (field.tag is not None and columns[_snake(field.name)] is None)
    }


def _from_cell(value: Any, field: Field, version: int) -> Any:
    if value is None:
        return None
    if isinstance(field.type, Array) and isinstance(field.type.of, Struct):
        return [_from_typed(item, field.type.of, version) for item in value]
    if field.type == "bytes":
        return base64.b64encode(value).decode()
    return value
