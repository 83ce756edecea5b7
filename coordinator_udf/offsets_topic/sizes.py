"""How large records of ``__consumer_offsets`` are in Kafka's format, by the description that reads and writes them.

For the log's size limit: nothing is encoded. A struct becomes a function once, as most writes are sized.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from coordinator_udf.offsets_topic.messages import RECORD_TYPES, Array, Field, Struct

#: The bytes of a record's key and of its value; None is a tombstone.
Sizes = tuple[int, int | None]

#: Measures a value: numbers, texts, lists and objects as Kafka's JSON has them; of bytes only the length matters.
Measure = Callable[[Any], int]

_TYPES: Final = {record_type.name: record_type for record_type in RECORD_TYPES}
#: The record type before a key, the version before a value.
_VERSION_BYTES: Final = 2
_FIXED: Final = {"int8": 1, "int16": 2, "uint16": 2, "int32": 4, "int64": 8, "uuid": 16}


def record_sizes(type_: str, key: Mapping[str, Any], value: Mapping[str, Any] | None, version: int) -> Sizes:
    """Returns the sizes of a record's key and value.

    Args:
        type_: Kafka's name of the record type.
        key: its fields; others are ignored.
        value: its fields, of which those that the version hasn't got are ignored; None is a tombstone.
        version: that of the value.

    Raises:
        KeyError: a type that isn't known, or a field that is missing.
    """
    of_key, of_value = measures(type_, version)
    return of_key(key), None if value is None else of_value(value)


def unsigned_varint_bytes(value: int) -> int:
    """Returns how many bytes an unsigned varint has."""
    return 1 if value < 0x80 else (value.bit_length() + 6) // 7


@cache
def measures(type_: str, version: int) -> tuple[Measure, Measure]:
    """Returns what measures a type's key, and a version of its value; for who measures many.

    Raises:
        KeyError: a type that isn't known.
    """
    record_type = _TYPES[type_]
    flexible = version >= record_type.flexible
    return (
        _struct(record_type.key, 0, False, _VERSION_BYTES),
        _struct(record_type.value, version, flexible, _VERSION_BYTES),
    )


def _struct(of: Struct, version: int, flexible: bool, head_bytes: int = 0) -> Measure:
    there = [field for field in of.fields if field.since <= version <= field.until]
    plain = [field for field in there if field.tag is None]
    fixed = head_bytes + sum(_FIXED.get(field.type, 0) for field in plain if isinstance(field.type, str))
    varying = tuple((f.name, _value(f, version, flexible)) for f in plain if f.type not in _FIXED)
    tagged = tuple(
        (f.name, f.implied, unsigned_varint_bytes(f.tag), _tagged(f, version)) for f in there if f.tag is not None
    )

    def measure(value: Any) -> int:
        size = fixed
        for name, measure_field in varying:
            size += measure_field(value[name])
        return size

    def measure_flexible(value: Any) -> int:
        size = fixed
        for name, measure_field in varying:
            size += measure_field(value[name])
        for name, implied, tag_bytes, measure_field in tagged:
            if name in value and value[name] != implied:
                content = measure_field(value[name])
                size += tag_bytes + unsigned_varint_bytes(content) + content
        # No struct has so many tagged fields that their number takes two bytes.
        return size + 1

    if flexible:
        return measure_flexible
    return _of_two_fields(fixed, *varying) if len(varying) == 2 else measure


def _of_two_fields(fixed: int, first: tuple[str, Measure], second: tuple[str, Measure]) -> Measure:
    """Measures structs of two fields without a loop: an offset's key, of which there are more than of all others."""
    (first_name, measure_first), (second_name, measure_second) = first, second
    return lambda value: fixed + measure_first(value[first_name]) + measure_second(value[second_name])


def _value(field: Field, version: int, flexible: bool) -> Measure:
    kind = field.type
    if isinstance(kind, Array):
        return _array(kind, version, flexible)
    if isinstance(kind, Struct):
        # One that may be null has a byte that says whether it is.
        return _behind(1, _struct(kind, version, flexible)) if field.nullable else _struct(kind, version, flexible)
    return _sized(kind, flexible)


def _tagged(field: Field, version: int) -> Measure:
    kind = field.type
    if isinstance(kind, Struct):
        return _behind(1, _struct(kind, version, True))
    if isinstance(kind, str) and kind in _FIXED:
        size = _FIXED[kind]
        return lambda _: size
    return _value(field, version, True)


def _behind(head_bytes: int, measure: Measure) -> Measure:
    return lambda value: head_bytes if value is None else head_bytes + measure(value)


def _sized(kind: str, flexible: bool) -> Measure:
    """Returns a text or bytes behind their length."""
    length_bytes = 2 if kind == "string" else 4
    is_text = kind == "string"

    def measure(value: Any) -> int:
        if value is None:
            return 1 if flexible else length_bytes
        size = len(value) if not is_text or value.isascii() else len(value.encode("utf-8", "replace"))
        if flexible:
            return size + 1 if size < 0x7F else size + unsigned_varint_bytes(size + 1)
        return size + length_bytes

    return measure


def _array(kind: Array, version: int, flexible: bool) -> Measure:
    of = kind.of
    each = _FIXED.get(of) if isinstance(of, str) else None
    element = _struct(of, version, flexible) if isinstance(of, Struct) else _sized(of, flexible)

    def measure(values: Any) -> int:
        if values is None:
            return 1 if flexible else 4
        size = unsigned_varint_bytes(len(values) + 1) if flexible else 4
        return size + (each * len(values) if each is not None else sum(map(element, values)))

    return measure
