"""Records of ``__consumer_offsets`` in the texts that tools make of them.

- JSON lines with the raw bytes in base64, as ``muster offsets export`` writes them (offsets_topic.lines).
- ``kafka-dump-log --offsets-decoder``: a line a batch and one a record, with key and payload as JSON.
- ``kafka-console-consumer`` with OffsetsMessageFormatter or GroupMetadataMessageFormatter: key and value as JSON, one
  behind the other, without partition, offset and time; and what these print before 4.0 (older_console).

Source: DumpLogSegments and CoordinatorRecordMessageFormatter of kafka-tools 4.3.1.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from coordinator_udf.members.client_assignors.wire import encode_subscription
from coordinator_udf.offsets_topic.codec import CodecError
from coordinator_udf.offsets_topic.lines import line_to_row, read_line
from coordinator_udf.offsets_topic.messages import RECORD_TYPES
from coordinator_udf.offsets_topic.records import END_TXN_MARKER, Record
from coordinator_udf.offsets_topic.rows import to_columns
from coordinator_udf.protocol.consumer_protocol import Subscription, encode_assignment
from coordinator_udf.replay.inputs.offsets_dump.older_console import is_older_line, read_older
from coordinator_udf.replay.inputs.text_lines import read_lines
from coordinator_udf.replay.recording import Rejection, clip

Row = dict[str, Any]

_NAMES: Final = {str(record_type.id): record_type.name for record_type in RECORD_TYPES}
_BATCH: Final = re.compile(
    r"^baseOffset: (?P<base>\d+) .*producerId: (?P<producer>-?\d+) producerEpoch: (?P<epoch>-?\d+)"
    r".*isTransactional: (?P<transactional>\w+)"
)
_RECORD: Final = re.compile(
    r"^\| (?:offset: (?P<offset>\d+) (?:CreateTime|LogAppendTime|NoTimestampType): (?P<ts>-?\d+) .*?)?(?=key: |endTxn)"
)
_MARKER: Final = re.compile(r"endTxnMarker: (?P<what>COMMIT|ABORT) coordinatorEpoch: (?P<epoch>-?\d+)")
_DUMPING: Final = re.compile(r"^(?:Dumping .*|\S*/)__consumer_offsets-(?P<partition>\d+)(?:/|$)")
_OF_A_FILE: Final = re.compile(r"__consumer_offsets-(\d+)")
#: What a console consumer writes, and our own export.
_CONSOLE: Final = re.compile(r'^\s*\{"key":\{"(?:type|version)":"?\d+"?,"data":\{')
_EXPORT: Final = re.compile(r'^\s*\{"partition":\d+,"offset":\d+,"timestamp":-?\d+,')
_DECODER: Final = json.JSONDecoder()


def is_record_line(text: str) -> bool:
    """Returns whether a line is one of a dump of ``__consumer_offsets``."""
    if _EXPORT.match(text) or _CONSOLE.match(text) or _DUMPING.match(text) or is_older_line(text):
        return True
    return text.startswith("| offset:") and ('"type":"' in text or "endTxnMarker" in text)


class _Batch(NamedTuple):
    base: int | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None


def read_records(path: Path, source: str, following: Mapping[int, int] | None = None) -> Iterator[Row | Rejection]:
    """Yields the records of a file as rows of consumer_offsets, in its order; a rejection for each that can't be read.

    A console consumer's records get offsets in their order, and their times are those that they hold.

    Args:
        following: the first of these offsets, by the partition; else 0.

    Raises:
        InputError: it can't be opened.
    """
    named = _OF_A_FILE.search(str(path))
    partition = 0 if named is None else int(named[1])
    reader = _Reader(source, partition, (following or {}).get(partition, 0))
    for line in read_lines(path):
        if isinstance(line, Rejection):
            yield line
            continue
        try:
            yield from reader.rows(line.text)
        except (CodecError, ValueError, KeyError, TypeError, AttributeError) as error:
            yield Rejection(f"{path.name} line {line.number} is no record that Kafka 4.3.1 writes: {error}",
                            clip(line.text))  # fmt: skip


class _Reader:
    """Reads the lines of one file."""

    def __init__(self, source: str, partition: int, first: int) -> None:
        self._source = source
        self._partition = partition
        self._batch = _Batch()
        self._next = first
        self._ts = 0

    def rows(self, text: str) -> Iterator[Row]:
        """Yields the rows of one line; none where it holds no record."""
        if _EXPORT.match(text):
            yield line_to_row(read_line(text), self._source)
        elif text.startswith("|"):
            yield from self._of_dump(text)
        elif (batch := _BATCH.match(text)) is not None:
            producer = int(batch["producer"])
            is_none = producer < 0
            self._batch = _Batch(
                int(batch["base"]), None if is_none else producer, None if is_none else int(batch["epoch"])
            )
        elif (named := _DUMPING.match(text)) is not None:
            self._partition = int(named["partition"])
        elif text.lstrip().startswith('{"key":'):
            yield from self._of_console(text.strip())
        elif (older := read_older(text)) is not None:
            yield self._timed(older)

    def _of_dump(self, text: str) -> Iterator[Row]:
        place = _RECORD.match(text)
        if place is None:
            raise CodecError("it has no key that --offsets-decoder could read")
        if place["offset"] is not None:
            self._next, self._ts = int(place["offset"]), int(place["ts"])
        marker = _MARKER.search(text, place.end())
        if marker is not None:
            key = {"type": END_TXN_MARKER, "producerId": self._batch.producer_id,
                   "producerEpoch": self._batch.producer_epoch}  # fmt: skip
            value: dict[str, Any] = {"committed": marker["what"] == "COMMIT"}
            yield self._row(Record(key, None, value))
            return
        told, end = _DECODER.raw_decode(text, place.end() + len("key: "))
        payload = text.find("payload: ", end)
        if payload < 0:
            raise CodecError("its payload is missing")
        start = payload + len("payload: ")
        body = None if text.startswith("<DELETE>", start) else _DECODER.raw_decode(text, start)[0]
        yield self._row(_record(told, body))

    def _of_console(self, text: str) -> Iterator[Row]:
        start = 0
        while start < len(text):
            told, start = _DECODER.raw_decode(text, start)
            yield self._timed(_record(told["key"], told["value"]))

    def _timed(self, record: Record) -> Row:
        """Returns the row of a record that says when it was made in itself alone."""
        value = record.value or {}
        self._ts = max(self._ts, value.get("commitTimestamp") or 0, value.get("currentStateTimestamp") or 0)
        return self._row(record)

    def _row(self, record: Record) -> Row:
        offset, self._next = self._next, self._next + 1
        batch = self._batch
        stored = {"batch_base": batch.base, "leader_epoch": None, "transactional": None, "key": None, "value": None}
        return {
            "source": self._source, "partition": self._partition, "offset": offset, "ts": self._ts,
            "request_id": None, **to_columns(record), "producer_id": batch.producer_id,
            "producer_epoch": batch.producer_epoch, "stored": None if batch.base is None else stored,
        }  # fmt: skip


def _record(key: Mapping[str, Any], value: Mapping[str, Any] | None) -> Record:
    # Before 4.0 a key's type goes by the name of version.
    number = key["type"] if "type" in key else key["version"]
    name = _NAMES.get(str(number))
    if name is None:
        raise CodecError(f"record type is {number}, expected one of {', '.join(_NAMES)}")
    told_key = {"type": name, **key["data"]}
    if value is None or value["data"] is None:
        return Record(told_key, None, None)
    data = dict(value["data"])
    if name == "GroupMetadata":
        data["members"] = [_with_bytes(member) for member in data.get("members") or ()]
    return Record(told_key, int(value["version"]), data)


def _with_bytes(member: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a member as the record holds it: the decoder reads subscription and assignment of consumers."""
    found = dict(member)
    subscription, assignment = member.get("subscription"), member.get("assignment")
    if isinstance(subscription, dict):
        found["subscription"] = b64encode(_subscription(subscription)).decode()
    if isinstance(assignment, dict):
        told = {topic["topic"]: topic["partitions"] for topic in assignment.get("assignedPartitions") or ()}
        found["assignment"] = b64encode(encode_assignment(told, 0, _user_data(assignment))).decode()
    return found


def _subscription(told: Mapping[str, Any]) -> bytes:
    owned = {topic["topic"]: topic["partitions"] for topic in told.get("ownedPartitions") or ()}
    version = 3 if "rackId" in told else 2 if "generationId" in told else 1 if "ownedPartitions" in told else 0
    return encode_subscription(
        Subscription(
            version, list(told["topics"]), _user_data(told), owned, told.get("generationId", -1), told.get("rackId")
        )
    )


def _user_data(told: Mapping[str, Any]) -> bytes | None:
    text = told.get("userData")
    return None if text is None else b64decode(text)
