"""From what shards put out to the rows of the tables: typed columns out of Kafka's JSON, in Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_udf.protocol.errors import error_name
from coordinator_udf.tables.outputs import Outputs
from schemas.tables import CONSUMER_OFFSETS, GROUP_RESPONSES, table_arrow


class _Kafka(msgspec.Struct, rename="camel"):
    """Fields in Kafka's JSON names; what isn't there is null."""


class _Answer(_Kafka):
    generation_id: int | None = None
    member_epoch: int | None = None
    leader: str | None = None
    protocol_name: str | None = None
    # SyncGroup's bytes; another API's answer may have a field of that name that is no bytes.
    assignment: Any = None


class _Commit(_Kafka):
    offset: int | None = None
    leader_epoch: int | None = None
    metadata: str | None = None
    commit_timestamp: int | None = None
    expire_timestamp: int | None = None
    topic_id: str | None = None


class _Member(_Kafka):
    member_id: str | None = None
    group_instance_id: str | None = None
    client_id: str | None = None
    client_host: str | None = None
    rebalance_timeout: int | None = None
    session_timeout: int | None = None
    subscription: bytes | None = None
    assignment: bytes | None = None


class _Group(_Kafka):
    protocol_type: str | None = None
    generation: int | None = None
    protocol: str | None = None
    leader: str | None = None
    current_state_timestamp: int | None = None
    members: list[_Member] | None = None


class _MemberExtensions(_Kafka, omit_defaults=True):
    client_extensions: int = 0


class _GroupExtensions(_Kafka, omit_defaults=True):
    """What extensions add to a classic group, in whose columns there is no place for it."""

    resync_epoch: int = 0
    resync: int = 0
    members: list[_MemberExtensions] | None = None


#: The table in which the rows of each kind of outputs end; assignments are in those of others.
TABLE_OF: Final = {
    "records": "consumer_offsets",
    "responses": "group_responses",
    "transitions": "group_transitions",
    "rejected": "rejected_requests",
}

#: The version of a classic group's value that can have extensions.
_EXTENDED_VERSION: Final = 4

#: The APIs whose answers have typed columns; the bodies of all others (heartbeats above all) are not read. No array
#: yet, for whose first one Arrow imports pandas.
_TYPED_APIS: Final = ("JoinGroup", "SyncGroup", "ConsumerGroupHeartbeat")

_read_answer: Final = msgspec.json.Decoder(_Answer).decode
_read_commit: Final = msgspec.json.Decoder(_Commit).decode
_read_group: Final = msgspec.json.Decoder(_Group).decode
_read_extensions: Final = msgspec.json.Decoder(_GroupExtensions).decode
_read_bytes: Final = msgspec.json.Decoder(bytes).decode


def to_tables(outputs: Outputs) -> dict[str, pa.Table]:
    """Makes the rows of the tables of schemas.tables, in the order in which the outputs come.

    Args:
        outputs: assignments are bytes already (coordinator_udf.tables.assignment_join.complete_assignments).

    Returns:
        Every table by its name, empty ones too.

    Raises:
        msgspec.ValidationError: a body has a typed field of another type, such as a placeholder left in it.
    """
    return {table: to_table(kind, getattr(outputs, kind)) for kind, table in TABLE_OF.items()}


def to_table(kind: str, rows: pa.Table) -> pa.Table:
    """Makes the rows of the table of one kind of outputs (`TABLE_OF`), as `to_tables` does of all."""
    if kind == "records":
        return _consumer_offsets(rows)
    return _group_responses(rows) if kind == "responses" else rows


def _group_responses(rows: pa.Table) -> pa.Table:
    columns: dict[str, Any] = {name: rows.column(name) for name in rows.column_names}
    columns["error_name"] = _error_names(rows.column("error_code"))
    typed = pc.indices_nonzero(pc.is_in(rows.column("api"), value_set=pa.array(_TYPED_APIS)))
    answers = [_read_answer(body) for body in rows.column("body").take(typed).to_pylist()]
    sync = pc.equal(rows.column("api").take(typed), "SyncGroup").to_pylist()
    values: dict[str, list[Any]] = {
        "generation_id": [
            answer.member_epoch if answer.generation_id is None else answer.generation_id for answer in answers
        ],
        "leader": [answer.leader for answer in answers],
        "protocol_name": [answer.protocol_name for answer in answers],
        "assignment": [
            _bytes(answer.assignment) if is_sync and answer.assignment is not None else None
            for answer, is_sync in zip(answers, sync, strict=True)
        ],
    }
    places = typed.to_pylist()
    for name, found in values.items():
        columns[name] = _scattered(found, places, len(rows), GROUP_RESPONSES[name].dataType.simpleString())
    return _table("group_responses", GROUP_RESPONSES.fieldNames(), columns)


def _error_names(codes: pa.ChunkedArray) -> pa.ChunkedArray:
    known = pc.unique(codes).drop_null()
    names = pa.array([error_name(code) for code in known.to_pylist()], pa.string())
    return names.take(pc.index_in(codes, value_set=known))


_ARROW: Final = {"int": pa.int32(), "string": pa.string(), "binary": pa.binary()}


def _scattered(found: list[Any], places: list[int], length: int, kind: str) -> pa.Array:
    """Puts values at their places, with nulls around them."""
    if not found:
        return pa.nulls(length, _ARROW[kind])
    column = [None] * length
    for place, value in zip(places, found, strict=True):
        column[place] = value
    return pa.array(column, _ARROW[kind])


def _bytes(text: Any) -> bytes:
    # msgspec's own base64, which refuses a placeholder where b64decode would skip what it doesn't know.
    return _read_bytes(msgspec.json.encode(text))


def _consumer_offsets(rows: pa.Table) -> pa.Table:
    columns: dict[str, Any] = {name: rows.column(name) for name in rows.column_names}
    types = rows.column("record_type").to_pylist()
    bodies = rows.column("body").to_pylist()

    def read(record_type: str, decode: Callable[[str], Any]) -> list[Any]:
        return [
            decode(body) if body is not None and kind == record_type else None
            for body, kind in zip(bodies, types, strict=True)
        ]

    schema = table_arrow("consumer_offsets")
    columns["offset_commit"] = _structs(read("OffsetCommit", _read_commit), schema.field("offset_commit").type)
    columns["group_metadata"] = _structs(read("GroupMetadata", _read_group), schema.field("group_metadata").type)
    versions = rows.column("value_version").to_pylist()
    others = [_other_value(*row) for row in zip(types, versions, bodies, strict=True)]
    columns["other_value"] = pa.array(others, pa.string())
    columns["stored"] = pa.nulls(len(rows), schema.field("stored").type)
    return _table("consumer_offsets", CONSUMER_OFFSETS.fieldNames(), columns)


def _other_value(kind: str, version: int | None, body: str | None) -> str | None:
    """Returns what of a record's value has no columns, as JSON."""
    if kind == "GroupMetadata" and body is not None and version == _EXTENDED_VERSION:
        found = _read_extensions(body)
        if found.members is not None and not any(member.client_extensions for member in found.members):
            found.members = None
        text = msgspec.json.encode(found).decode()
        return None if text == "{}" else text
    return None if kind in ("OffsetCommit", "GroupMetadata") else body


def _structs(values: Sequence[Any], kind: pa.StructType) -> pa.Array:
    """Returns records of one struct class as an Arrow struct column, field by field, without dictionaries."""
    there = [value is not None for value in values]
    if not any(there):
        return pa.nulls(len(values), kind)
    arrays = []
    for field in kind:
        leaves = [None if value is None else getattr(value, field.name) for value in values]
        if pa.types.is_list(field.type):
            arrays.append(_lists(leaves, field.type))
        else:
            arrays.append(pa.array(leaves, field.type))
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=pa.array([not is_there for is_there in there]))


def _lists(lists: Iterable[Sequence[Any] | None], kind: pa.ListType) -> pa.Array:
    starts: list[int | None] = []
    flat: list[Any] = []
    for items in lists:
        starts.append(None if items is None else len(flat))
        flat += items or ()
    offsets = pa.array([*starts, len(flat)], pa.int32())
    return pa.ListArray.from_arrays(offsets, _structs(flat, kind.value_type), type=kind)


def _table(name: str, column_names: Sequence[str], columns: dict[str, Any]) -> pa.Table:
    return pa.table([columns[column] for column in column_names], schema=table_arrow(name))
