"""A record of ``__consumer_offsets`` as columns of the table consumer_offsets, and back.

Commits and classic groups have typed columns, the values of all other types stand in ``other_value`` as Kafka's JSON.
So do the extensions of classic groups (`messages.FIRST_EXTENSION_TAG`) beside their columns: the value's fields that
are extensions, and a list of the members' in their order.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import msgspec

from coordinator_udf.offsets_topic.codec import CodecError
from coordinator_udf.offsets_topic.messages import (
    CLASSIC_GROUP,
    CLASSIC_MEMBER,
    FIRST_EXTENSION_TAG,
    Array,
    Field,
    Struct,
)
from coordinator_udf.offsets_topic.records import END_TXN_MARKER, Record, key_text, record_type_named

#: The typed column of a record type's value.
TYPED_COLUMNS: Final = {
    "LegacyOffsetCommit": "offset_commit",
    "OffsetCommit": "offset_commit",
    "GroupMetadata": "group_metadata",
}


def to_columns(record: Record) -> dict[str, Any]:
    """Returns the columns ``record_type`` to ``other_value`` and ``key`` of a record.

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
        columns["other_value"] = extensions(record.value)
    return columns


def extensions(value: Mapping[str, Any]) -> str | None:
    """Returns what of a classic group's value, in Kafka's JSON, has no columns; None where that is nothing."""
    found = {name: value[name] for name in _GROUP_EXTENSIONS if name in value}
    members = [
        {name: member[name] for name in _MEMBER_EXTENSIONS if name in member} for member in value.get("members") or ()
    ]
    if any(members):
        found["members"] = members
    return msgspec.json.encode(found).decode() if found else None


def _with_extensions(value: dict[str, Any], text: str | None) -> dict[str, Any]:
    if text is None:
        return value
    found = _json_object("other_value", text)
    members = found.pop("members", None)
    if members is not None:
        if len(members) != len(value["members"]):
            raise CodecError(f"other_value has {len(members)} members, expected {len(value['members'])} as its column")
        found["members"] = [{**member, **more} for member, more in zip(value["members"], members, strict=True)]
    return {**value, **found}


def from_columns(row: Mapping[str, Any]) -> Record:
    """Returns the record that a row of consumer_offsets holds.

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
    value = _from_typed(columns, record_type_named(name).value, version)
    return Record(key, version, _with_extensions(value, row["other_value"]))


def _json_object(column: str, text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise CodecError(f"{column} is {text!r:.200}, expected a JSON object: {error}") from error


@cache
def _snake(name: str) -> str:
    return re.sub("([A-Z])", r"_\1", name).lower()


def _has_column(field: Field) -> bool:
    return field.tag is None or field.tag < FIRST_EXTENSION_TAG


def _extension_names(of: Struct) -> tuple[str, ...]:
    return tuple(field.name for field in of.fields if not _has_column(field))


_GROUP_EXTENSIONS: Final = _extension_names(CLASSIC_GROUP)
_MEMBER_EXTENSIONS: Final = _extension_names(CLASSIC_MEMBER)


def _to_typed(value: Mapping[str, Any], of: Struct) -> dict[str, Any]:
    return {_snake(field.name): _to_cell(value.get(field.name), field) for field in of.fields if _has_column(field)}


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
        if _has_column(field)
        and field.since <= version <= field.until
        and not (field.tag is not None and columns[_snake(field.name)] is None)
    }


def _from_cell(value: Any, field: Field, version: int) -> Any:
    if value is None:
        return None
    if isinstance(field.type, Array) and isinstance(field.type.of, Struct):
        return [_from_typed(item, field.type.of, version) for item in value]
    if field.type == "bytes":
        return base64.b64encode(value).decode()
    return value
