"""The sizes of records are those of the bytes that the codec writes, for every type, version and value."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_udf.offsets_topic.messages import RECORD_TYPES, Array, Struct
from coordinator_udf.offsets_topic.records import Record, from_json
from coordinator_udf.offsets_topic.sizes import record_sizes, unsigned_varint_bytes
from tests.offsets_topic.strategies import records

TYPES = {record_type.name: record_type for record_type in RECORD_TYPES}


def with_bytes(value: Any, kind: str | Array | Struct) -> Any:
    """A value with bytes in the place of base64, as a group has it before it is written."""
    if value is None:
        return None
    if isinstance(kind, Struct):
        types = {field.name: field.type for field in kind.fields}
        return {name: with_bytes(item, types[name]) for name, item in value.items()}
    if isinstance(kind, Array):
        return [with_bytes(item, kind.of) for item in value]
    return b64decode(value) if kind == "bytes" else value


@given(records())
@settings(max_examples=1_000, deadline=None)
def test_sizes_are_those_of_what_is_written(record: Record) -> None:
    key, value = from_json(record)
    type_ = record.key["type"]
    held = with_bytes(record.value, TYPES[type_].value)
    sizes = record_sizes(type_, record.key, held, record.value_version or 0)
    assert sizes == (len(key), None if value is None else len(value))


@given(st.integers(0, 2**31 - 1))
def test_a_varint_has_seven_bits_a_byte(value: int) -> None:
    assert unsigned_varint_bytes(value) == max(1, -(-len(f"{value:b}") // 7))
