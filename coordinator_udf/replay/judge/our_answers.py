"""Reads what our coordinator said out of a shard's output rows, in the form of a recording."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pyarrow as pa

from coordinator_udf.groups.records.classic import END_TXN_MARKER
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.replay.judge.compare import OurOutputs
from coordinator_udf.replay.recording import Answer, Description, Record
from coordinator_udf.tables.outputs import Outputs

_decode = msgspec.json.decode

_RESPONSE = ("ts", "request_id", "answered_by", "api", "api_version", "body")
_RECORD = ("ts", "request_id", "record_type", "key", "body", "value_version", "producer_id", "producer_epoch")

#: The control row whose answer is a description of the groups inside.
DESCRIBE = "Describe"


def our_outputs(outputs: Outputs, *, with_records: bool = True) -> OurOutputs:
    """Returns the answers, records and descriptions in the outputs of one source, in the order of the rows.

    Args:
        outputs: every placeholder completed and the parts of a request merged.
        with_records: whether the records are wanted.
    """
    found = OurOutputs({}, [], {})
    for row in rows_of(outputs.records, _RECORD) if with_records else ():
        value = None if row["body"] is None else _decode(row["body"])
        found.records.append(
            Record(row["ts"], row["request_id"], _decode(row["key"]), value, row["value_version"], *producer_of(row))
        )
    for row in rows_of(outputs.responses, _RESPONSE):
        request_id = row["request_id"]
        if row["api"] == DESCRIBE:
            found.descriptions[request_id] = Description(request_id, row["ts"], _decode(row["body"])["groups"])
        elif request_id is not None:
            found.answers[request_id] = Answer(
                request_id, row["api"], row["api_version"], answer_body(row["body"]), row["ts"], row["answered_by"]
            )
    return found


def producer_of(row: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Returns a record's producer id and epoch as a recording tells them; a marker has them in its key alone."""
    is_marker = row["record_type"] == END_TXN_MARKER
    return (None, None) if is_marker else (row["producer_id"], row["producer_epoch"])


def answer_body(text: str | None) -> dict[str, Any]:
    """Returns an answer's body.

    Of one that failed and can't say so, its error alone, which no recorded answer equals.
    """
    body: dict[str, Any] = {"errorCode": int(Errors.UNKNOWN_SERVER_ERROR)} if text is None else _decode(text)
    return body


def rows_of(table: pa.Table, columns: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yields the rows of a table as dicts of some of its columns."""
    for values in zip(*(table.column(name).to_pylist() for name in columns), strict=True):
        yield dict(zip(columns, values, strict=True))
