"""What our coordinator said as JSON lines in the format of a trace, with `source` and `requestId` added."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa

from coordinator_udf.replay.judge.our_answers import DESCRIBE, rows_of
from schemas.requests import CONTROL_APIS

_COLUMNS = (
    "kind", "ts", "request_id", "by", "api", "api_version", "body", "record_offset", "record_key", "value_version",
    "producer_id", "producer_epoch", "partition",
)  # fmt: skip


def json_lines(source: str, outputs: pa.Table) -> Iterator[bytes]:
    """One line an answer, record or description, in the order of the rows, each with its newline.

    A trace's request numbers are numbers again; another log's request ids are texts wherever a number would stand.
    """
    for row in rows_of(outputs, _COLUMNS):
        line = _line(row)
        if line is not None:
            line["source"] = source
            yield msgspec.json.encode(line) + b"\n"


def _line(row: dict[str, Any]) -> dict[str, Any] | None:
    body = None if row["body"] is None else msgspec.Raw(row["body"].encode())
    if row["kind"] == "record":
        line = {
            "type": "record",
            "ts": row["ts"],
            "cause": _number(row["request_id"]),
            "partition": row["partition"],
            "offset": row["record_offset"],
            "key": msgspec.Raw(row["record_key"].encode()),
            "valueVersion": row["value_version"],
            "value": body,
            "requestId": row["request_id"],
        }
        if row["producer_id"] is not None:
            line |= {"producerId": row["producer_id"], "producerEpoch": row["producer_epoch"]}
        return line
    if row["kind"] != "response" or row["request_id"] is None:
        return None
    if row["api"] == DESCRIBE:
        groups = msgspec.json.decode(row["body"])["groups"]
        return {"type": "describe", "ts": row["ts"], "groups": groups, "requestId": row["request_id"]}
    if row["api"] in CONTROL_APIS:
        return None
    return {
        "type": "response",
        "ts": row["ts"],
        "seq": _number(row["request_id"]),
        "by": _number(row["by"]),
        "api": row["api"],
        "apiVersion": row["api_version"],
        "body": body,
        "requestId": row["request_id"],
    }


def _number(name: str | None) -> int | str | None:
    return int(name) if name is not None and name.isdecimal() else name
