"""Reads what our coordinator said out of a shard's output rows, in the form of a recording."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.replay.judge.compare import Said
from coordinator_udf.replay.recording import Answer, Description, Record

_decode = msgspec.json.decode

_COLUMNS = (
    "kind", "ts", "request_id", "by", "api", "api_version", "body", "record_key", "value_version", "producer_id",
    "producer_epoch",
)  # fmt: skip

#: The control row whose answer is a description of the groups inside.
DESCRIBE = "Describe"


def said_of(outputs: pa.Table) -> Said:
    """The answers, records and descriptions in the output rows of one source, in the order of the rows.

    Args:
        outputs: rows of SHARD_OUTPUT with every placeholder completed and the parts of a request merged.
    """
    said = Said({}, [], {})
    for row in rows_of(outputs, _COLUMNS):
        if row["kind"] == "record":
            said.records.append(
                Record(
                    row["ts"],
                    row["request_id"],
                    _decode(row["record_key"]),
                    None if row["body"] is None else _decode(row["body"]),
                    row["value_version"],
                    row["producer_id"],
                    row["producer_epoch"],
                )
            )
        elif row["kind"] == "response" and row["api"] == DESCRIBE:
            request_id = row["request_id"]
            said.descriptions[request_id] = Description(request_id, row["ts"], _decode(row["body"])["groups"])
        elif row["kind"] == "response" and row["request_id"] is not None:
            said.answers[row["request_id"]] = Answer(
                row["request_id"], row["api"], row["api_version"], answer_body(row["body"]), row["ts"], row["by"]
            )
    return said


def answer_body(text: str | None) -> dict[str, Any]:
    """An answer's body; of one that failed and can't say so, its error alone, which no recorded answer equals."""
    body: dict[str, Any] = {"errorCode": int(Errors.UNKNOWN_SERVER_ERROR)} if text is None else _decode(text)
    return body


def rows_of(table: pa.Table, columns: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """The rows of a table as dicts of some of its columns."""
    for values in zip(*(table.column(name).to_pylist() for name in columns), strict=True):
        yield dict(zip(columns, values, strict=True))
