"""A row of the request log as a record of a topic, and back.

The record's partition, offset and timestamp (LogAppendTime) are the row's. Its value is a JSON object with the other
columns that say something; ``"log_ts": 0`` is in it where no time passes by the row (schemas.requests). Its key is the
shard's number.

Partitions are read as far as each goes, so the rows of a request that asks several shards may come at different times.
Each is a request of its own here, with an answer of its own (``parts`` is 1); whoever asked puts the answers together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, get_type_hints

import msgspec
import pyarrow as pa
from msgspec.structs import astuple

from schemas.request_row import Request
from schemas.requests import LIVE, request_log_arrow

#: What a record's own place and time say, and what is the same in all rows.
_OF_RECORD: Final = ("partition", "offset", "log_ts", "parts")

_encode: Final = msgspec.json.Encoder().encode

_Value: Final = msgspec.defstruct(
    "_Value",
    [
        ("log_ts", int | None, None),
        *(
            (name, hint | None, None)
            for name, hint in get_type_hints(Request, include_extras=True).items()
            if name not in _OF_RECORD
        ),
    ],
)
_decode: Final = msgspec.json.Decoder(_Value).decode

_SCHEMA: Final = request_log_arrow()


def to_key(partition: int) -> bytes:
    """Returns the key of a shard's records."""
    return b"%d" % partition


def to_value(row: Mapping[str, Any]) -> bytes:
    """Returns a row (every column of REQUEST_LOG but ``source`` and ``offset``) as a record's value."""
    value = {name: told for name, told in row.items() if told is not None and name not in _OF_RECORD}
    if row["log_ts"] == 0:
        value["log_ts"] = 0
    return _encode(value)


def to_rows(records: Iterable[tuple[int, int, int, bytes | None]], source: str = LIVE) -> pa.RecordBatch:
    """Returns records (partition, offset, timestamp in ms, value) as rows of REQUEST_LOG.

    A value that is none of a row becomes a row of no API, which the shard rejects; its body is the value.
    """
    places: list[tuple[int, int, int]] = []
    told: list[tuple[Any, ...]] = []
    for partition, offset, timestamp_ms, value in records:
        read = _read(value or b"")
        places.append((partition, offset, 0 if read.log_ts == 0 else timestamp_ms))
        told.append(astuple(read))
    columns: dict[str, Sequence[Any]] = dict(zip(_Value.__struct_fields__, zip(*told, strict=True), strict=bool(told)))
    columns |= zip(("partition", "offset", "log_ts"), zip(*places, strict=True), strict=bool(places))
    columns |= {"source": [source] * len(told), "parts": [1] * len(told)}
    return pa.record_batch([pa.array(columns.get(field.name, ()), field.type) for field in _SCHEMA], schema=_SCHEMA)


def _read(value: bytes) -> Any:
    try:
        return _decode(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        unreadable = f"none, the record's value can't be read ({error})"
        return _Value(api=unreadable, body=value.decode("utf-8", "backslashreplace"))
