"""Rows as a shard puts them out, made by hand."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pyarrow as pa

from coordinator_udf.tables.outputs import SCHEMAS, Outputs


class Row(NamedTuple):
    """A row of one kind."""

    kind: str
    columns: dict[str, Any]


def row(kind: str, **columns: Any) -> Row:
    """Columns that aren't given are null."""
    nothing: dict[str, Any] = dict.fromkeys(SCHEMAS[kind].names)
    return Row(kind, nothing | {"source": "live", "partition": 0, "seq": 0, "ts": 1} | columns)


def response(api: str, body: dict[str, Any], **columns: Any) -> Row:
    given = {"api": api, "error_code": body.get("errorCode", 0), "body": json.dumps(body), "parts": 1}
    return row("responses", **(given | columns))


def record(key: dict[str, Any], value: dict[str, Any] | None, offset: int, **columns: Any) -> Row:
    group_id = key.get("group", key.get("groupId"))
    given = {"record_type": key["type"], "key": json.dumps(key), "offset": offset, "group_id": group_id}
    given |= {"topic": key.get("topic"), "topic_partition": key.get("partition")}
    return row("records", **(given | {"body": None if value is None else json.dumps(value)} | columns))


def assignment(offset: int, member_id: str, payload: bytes, **columns: Any) -> Row:
    return row("assignments", record_offset=offset, member_id=member_id, payload=payload, **columns)


def outputs(*rows: Row) -> Outputs:
    """The rows by kind, numbered in their order where they have no number."""
    by_kind: dict[str, list[dict[str, Any]]] = {kind: [] for kind in SCHEMAS}
    for seq, (kind, columns) in enumerate(rows):
        by_kind[kind].append(columns | {"seq": columns["seq"] or seq})
    return Outputs(*(pa.Table.from_pylist(by_kind[kind], schema=SCHEMAS[kind]) for kind in SCHEMAS))
