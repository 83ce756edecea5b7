"""The records that Kafka's coordinator wrote in the recorded scenarios: bytes, Kafka's JSON and table rows agree."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from coordinator_udf.offsets_topic.records import (
    Record,
    encode,
    is_marker,
    key_text,
    marker_from_json,
    marker_to_json,
    to_json,
)
from coordinator_udf.offsets_topic.rows import from_columns, to_columns
from coordinator_udf.tables.rows import to_tables
from schemas.outputs import shard_output_arrow
from tests.conftest import shared


def recorded() -> Iterator[dict[str, Any]]:
    for trace in sorted(shared("oracle", "traces").glob("*.jsonl.gz")):
        with gzip.open(trace, "rt", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith('{"type":"record"'):
                    yield json.loads(line)


def record_of(line: dict[str, Any]) -> Record:
    return Record(line["key"], line.get("valueVersion"), line["value"])


def test_recorded_json_becomes_bytes_and_the_same_json_again() -> None:
    count = 0
    for line in recorded():
        record = record_of(line)
        count += 1
        if is_marker(record):
            key, value = marker_from_json(record)
            assert marker_to_json(key, value, line["key"]["producerId"], line["key"]["producerEpoch"]) == record
        else:
            assert to_json(*encode(record)) == record
    assert count > 20_000


def test_the_coordinators_rows_and_imported_rows_are_alike() -> None:
    lines = list(recorded())[::5]
    outputs = [
        {
            "kind": "record",
            "source": "s",
            "partition": 0,
            "seq": number,
            "ts": line["ts"],
            "record_type": line["key"]["type"],
            "record_key": key_text(line["key"]),
            "value_version": line.get("valueVersion"),
            "record_offset": number,
            "producer_id": line.get("producerId"),
            "producer_epoch": line.get("producerEpoch"),
            "body": None if line["value"] is None else json.dumps(line["value"], separators=(",", ":")),
        }
        for number, line in enumerate(lines)
    ]
    rows = to_tables(pa.Table.from_pylist(outputs, schema=shard_output_arrow()))["consumer_offsets"]
    imported = pa.Table.from_pylist([to_columns(record_of(line)) for line in lines], schema=_columns(rows.schema))
    names = [name for name in imported.column_names if name != "other_value"]
    assert rows.select(names).to_pylist() == imported.select(names).to_pylist()
    assert [from_columns(row) for row in rows.to_pylist()] == [record_of(line) for line in lines]


def _columns(schema: pa.Schema) -> pa.Schema:
    return pa.schema([schema.field(name) for name in to_columns(Record({"type": "EndTxnMarker"}, None, None))])


def test_the_coordinators_markers_name_their_producer_in_its_column_too() -> None:
    key = {"type": "EndTxnMarker", "producerId": 7, "producerEpoch": 1}
    output = {"kind": "record", "source": "s", "partition": 0, "seq": 0, "ts": 0, "record_type": "EndTxnMarker"}
    output |= {"record_key": key_text(key), "record_offset": 0, "body": '{"committed":true}'}
    rows = to_tables(pa.Table.from_pylist([output], schema=shard_output_arrow()))["consumer_offsets"].to_pylist()
    assert (rows[0]["producer_id"], rows[0]["producer_epoch"]) == (7, 1)
