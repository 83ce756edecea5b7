"""Rows as a shard puts them out, made by hand."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from schemas.outputs import OUTPUT_COLUMNS, shard_output_arrow

EMPTY: dict[str, Any] = dict.fromkeys(OUTPUT_COLUMNS) | {"source": "live", "partition": 0, "seq": 0, "ts": 1}


def response(api: str, body: dict[str, Any], **columns: Any) -> dict[str, Any]:
    error = body.get("errorCode", 0)
    return EMPTY | {"kind": "response", "api": api, "error_code": error, "body": json.dumps(body), "parts": 1} | columns


def record(key: dict[str, Any], value: dict[str, Any] | None, offset: int, **columns: Any) -> dict[str, Any]:
    return (
        EMPTY
        | {"kind": "record", "record_type": key["type"], "record_key": json.dumps(key), "record_offset": offset}
        | {"body": None if value is None else json.dumps(value)}
        | columns
    )


def assignment(offset: int, member_id: str, payload: bytes, **columns: Any) -> dict[str, Any]:
    return EMPTY | {"kind": "assignment", "record_offset": offset, "member_id": member_id, "payload": payload} | columns


def table(*rows: dict[str, Any]) -> pa.Table:
    numbered = [row | {"seq": row["seq"] or seq} for seq, row in enumerate(rows)]
    return pa.Table.from_pylist(numbered, schema=shard_output_arrow())
