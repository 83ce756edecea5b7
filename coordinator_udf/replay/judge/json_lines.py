"""What our coordinator said as JSON lines in the format of a trace, with `source` and `requestId` added."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

import msgspec
import pyarrow as pa

from coordinator_udf.replay.judge.our_answers import DESCRIBE, producer_of, rows_of
from coordinator_udf.tables.outputs import Outputs
from schemas.requests import CONTROL_APIS

_RESPONSE = ("partition", "seq", "ts", "request_id", "answered_by", "api", "api_version", "body")
_RECORD = (
    "partition", "seq", "ts", "request_id", "offset", "record_type", "key", "body", "value_version", "producer_id",
    "producer_epoch",
)  # fmt: skip


def json_lines(source: str, outputs: Outputs) -> Iterator[bytes]:
    """Yields a line for each answer, record or description, with its newline: in a shard's order, else by time.

    A trace's request numbers are numbers again; another log's request ids are texts wherever a number would stand.
    """
    lines = [*_lines(outputs.records, _RECORD, _record), *_lines(outputs.responses, _RESPONSE, _response)]
    if len({partition for (_, partition, _), _ in lines}) > 1:
        lines.sort(key=itemgetter(0))
    else:
        lines.sort(key=lambda line: line[0][2])
    for _, line in lines:
        yield msgspec.json.encode({**line, "source": source}) + b"\n"


def _lines(
    table: pa.Table, columns: tuple[str, ...], line_of: Callable[[dict[str, Any]], dict[str, Any] | None]
) -> Iterator[tuple[tuple[int, int, int], dict[str, Any]]]:
    """Yields lines with when they were said: time, partition and number."""
    for row in rows_of(table, columns):
        line = line_of(row)
        if line is not None:
            yield (row["ts"], row["partition"], row["seq"]), line


def _record(row: dict[str, Any]) -> dict[str, Any]:
    line = {
        "type": "record",
        "ts": row["ts"],
        "cause": _number(row["request_id"]),
        "partition": row["partition"],
        "offset": row["offset"],
        "key": msgspec.Raw(row["key"].encode()),
        "valueVersion": row["value_version"],
        "value": _raw(row["body"]),
        "requestId": row["request_id"],
    }
    producer_id, producer_epoch = producer_of(row)
    return line if producer_id is None else line | {"producerId": producer_id, "producerEpoch": producer_epoch}


def _response(row: dict[str, Any]) -> dict[str, Any] | None:
    if row["request_id"] is None:
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
        "by": _number(row["answered_by"]),
        "api": row["api"],
        "apiVersion": row["api_version"],
        "body": _raw(row["body"]),
        "requestId": row["request_id"],
    }


def _raw(body: str | None) -> msgspec.Raw | None:
    return None if body is None else msgspec.Raw(body.encode())


def _number(name: str | None) -> int | str | None:
    return int(name) if name is not None and name.isdecimal() else name
