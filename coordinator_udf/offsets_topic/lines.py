"""The file form of ``__consumer_offsets``: JSON lines, one a record, with the raw bytes in base64.

A line has ``partition``, ``offset``, ``timestamp`` (ms), ``batchBase`` and ``leaderEpoch`` (of the batch; where known),
``txn``, ``producerId`` and ``producerEpoch`` (-1 without), ``control`` (COMMIT or ABORT, in transaction markers only),
``keyType`` (the key's first two bytes), ``key`` and ``value`` (null is a tombstone). A file may be gzipped.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from coordinator_udf.offsets_topic.codec import CodecError
from coordinator_udf.offsets_topic.records import Record, encode, is_marker, marker_to_json, to_json
from coordinator_udf.offsets_topic.rows import from_columns, to_columns

NO_PRODUCER: Final = -1


class Line(msgspec.Struct, forbid_unknown_fields=True):
    """One line of a file. Names are those of the file."""

    partition: int
    offset: int
    timestamp: int
    key: str | None
    value: str | None
    batchBase: int | None = None  # noqa: N815
    leaderEpoch: int | None = None  # noqa: N815
    txn: bool = False
    producerId: int = NO_PRODUCER  # noqa: N815
    producerEpoch: int = NO_PRODUCER  # noqa: N815
    control: str | None = None
    keyType: int | None = None  # noqa: N815


def read_line(text: str | bytes) -> Line:
    """Returns a line of a file.

    Raises:
        CodecError: it is no JSON object of the fields above.
    """
    try:
        return msgspec.json.decode(text, type=Line)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CodecError(f"the line is no record of __consumer_offsets: {error}") from error


def line_to_row(line: Line, source: str) -> dict[str, Any]:
    """Returns the row of consumer_offsets for a line.

    What the typed columns can't hold goes to ``stored``: the batch's place, and the bytes themselves wherever the typed
    columns encode to others. So `row_to_line` gives the line again.

    Raises:
        UnknownRecordError: a record type or value version that Kafka 4.3.1 doesn't know.
        CodecError: the line's key or value can't be read.
    """
    key, value = _bytes("key", line.key), _bytes("value", line.value)
    if key is None:
        raise CodecError("key is null, expected the record's key in base64")
    record = to_json(key, value) if line.control is None else _marker(line, key, value)
    exact_key, exact_value = encode(record)
    transactional = line.producerId != NO_PRODUCER
    stored = {
        "batch_base": line.batchBase,
        "leader_epoch": line.leaderEpoch,
        "transactional": None if line.txn == transactional else line.txn,
        "key": None if exact_key == key else key,
        "value": None if exact_value == value else value,
    }
    return {
        "source": source,
        "partition": line.partition,
        "offset": line.offset,
        "ts": line.timestamp,
        "request_id": None,
        **to_columns(record),
        "producer_id": None if line.producerId == NO_PRODUCER else line.producerId,
        "producer_epoch": None if line.producerEpoch == NO_PRODUCER else line.producerEpoch,
        "stored": stored if any(cell is not None for cell in stored.values()) else None,
    }


def row_to_line(row: Mapping[str, Any]) -> str:
    """Returns the line of a row of consumer_offsets, without its newline.

    Raises:
        CodecError: the row's columns are no record that Kafka 4.3.1 can write.
    """
    record = from_columns(row)
    try:
        key, value = encode(record)
    except CodecError as error:
        place = f"source {row['source']}, partition {row['partition']}, offset {row['offset']}"
        raise CodecError(f"the record at {place} can't be encoded: {error}") from error
    stored = row.get("stored") or {}
    if stored.get("key") is not None:
        key = stored["key"]
    if stored.get("value") is not None:
        value = stored["value"]
    producer_id = NO_PRODUCER if row["producer_id"] is None else row["producer_id"]
    transactional = stored.get("transactional")
    line: dict[str, Any] = {"partition": row["partition"], "offset": row["offset"], "timestamp": row["ts"]}
    if stored.get("batch_base") is not None:
        line["batchBase"] = stored["batch_base"]
    if stored.get("leader_epoch") is not None:
        line["leaderEpoch"] = stored["leader_epoch"]
    line["txn"] = producer_id != NO_PRODUCER if transactional is None else transactional
    line["producerId"] = producer_id
    line["producerEpoch"] = NO_PRODUCER if row["producer_epoch"] is None else row["producer_epoch"]
    if is_marker(record) and record.value is not None:
        line["control"] = _control(record.value)
    line["keyType"] = int.from_bytes(key[:2], "big", signed=True)
    line["key"] = base64.b64encode(key).decode()
    line["value"] = None if value is None else base64.b64encode(value).decode()
    return json.dumps(line, separators=(",", ":"))


def _control(value: Mapping[str, Any]) -> str:
    return "COMMIT" if value["committed"] else "ABORT"


def _marker(line: Line, key: bytes, value: bytes | None) -> Record:
    record = marker_to_json(key, value, line.producerId, line.producerEpoch)
    told = _control(record.value or {})
    if line.control != told:
        raise CodecError(f"control is {line.control!r}, but the key's bytes are those of {told}")
    return record


def _bytes(field: str, text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise CodecError(f"{field} is {text!r:.100}, expected base64: {error}") from error
