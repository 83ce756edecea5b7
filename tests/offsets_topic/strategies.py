"""Hypothesis strategies: Kafka JSON of any record type in any value version, straight from the table of messages."""

from __future__ import annotations

import base64
from functools import partial
from typing import Any

from hypothesis import strategies as st

from coordinator_udf.offsets_topic.messages import RECORD_TYPES, Array, Field, RecordType, Struct
from coordinator_udf.offsets_topic.records import END_TXN_MARKER, Record
from coordinator_udf.protocol.requests import ZERO_UUID

_INTS = {"int8": (-(2**7), 2**7 - 1), "int16": (-(2**15), 2**15 - 1), "uint16": (0, 2**16 - 1)}
_INTS |= {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
BYTES = st.binary(max_size=200).map(lambda data: base64.b64encode(data).decode())
UUIDS = st.just(ZERO_UUID) | st.binary(min_size=16, max_size=16).map(
    lambda data: base64.urlsafe_b64encode(data)[:22].decode()
)


def values(kind: str | Array | Struct, version: int) -> st.SearchStrategy[Any]:
    if isinstance(kind, Array):
        return st.lists(values(kind.of, version), max_size=3)
    if isinstance(kind, Struct):
        return structs(kind, version)
    if kind in _INTS:
        return st.integers(*_INTS[kind])
    return {"string": TEXT, "bytes": BYTES, "uuid": UUIDS}[kind]


def _default(field: Field) -> Any:
    if isinstance(field.type, Array):
        return []
    if isinstance(field.type, Struct):
        return {inner.name: _default(inner) for inner in field.type.fields}
    return {"uuid": ZERO_UUID, "bytes": ""}.get(field.type, field.default)


def _differs(default: Any, value: Any) -> bool:
    return bool(value != default)


def structs(of: Struct, version: int) -> st.SearchStrategy[dict[str, Any]]:
    required: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for field in of.fields:
        if field.since <= version <= field.until:
            strategy = values(field.type, version)
            if field.nullable:
                strategy = st.none() | strategy
            if field.tag is None:
                required[field.name] = strategy
            else:
                # Kafka's JSON leaves out a tagged field that has its default.
                optional[field.name] = strategy.filter(partial(_differs, _default(field)))
    return st.fixed_dictionaries(required, optional=optional)


def records_of(record_type: RecordType) -> st.SearchStrategy[Record]:
    """Records of one type in every value version, and its tombstones."""
    keys = structs(record_type.key, 0).map(lambda fields: {"type": record_type.name, **fields})
    versions = [
        st.tuples(keys, st.just(version), structs(record_type.value, version))
        for version in range(record_type.newest + 1)
    ]
    return st.one_of(*versions, st.tuples(keys, st.none(), st.none())).map(lambda parts: Record(*parts))


def markers() -> st.SearchStrategy[Record]:
    keys = st.fixed_dictionaries(
        {
            "type": st.just(END_TXN_MARKER),
            "producerId": st.integers(0, 2**63 - 1),
            "producerEpoch": st.integers(0, 2**15 - 1),
        }
    )
    epochs = st.integers(-(2**31), 2**31 - 1).filter(bool)
    value = st.fixed_dictionaries({"committed": st.booleans()}, optional={"coordinatorEpoch": epochs})
    return st.tuples(keys, value).map(lambda parts: Record(parts[0], None, parts[1]))


def records() -> st.SearchStrategy[Record]:
    """Records of all types but markers."""
    return st.one_of(*(records_of(record_type) for record_type in RECORD_TYPES))
