"""The records that Kafka's coordinator wrote in the recorded scenarios: bytes, Kafka's JSON and table rows agree."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model.timers import Timers
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
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.outputs import to_output_rows
from coordinator_udf.shard.sessions.columns import SessionColumns
from coordinator_udf.tables.outputs import Outputs
from coordinator_udf.tables.rows import to_tables
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
    rows = consumer_offsets(lines)
    imported = pa.Table.from_pylist([to_columns(record_of(line)) for line in lines], schema=_columns(rows.schema))
    names = [name for name in imported.column_names if name != "other_value"]
    assert rows.select(names).to_pylist() == imported.select(names).to_pylist()
    assert [from_columns(row) for row in rows.to_pylist()] == [record_of(line) for line in lines]


def consumer_offsets(lines: list[dict[str, Any]]) -> pa.Table:
    """The rows of a coordinator that appends these records."""
    context = Context(Settings(), Timers(SessionColumns({})))
    for line in lines:
        key, value = line["key"], line["value"]
        producer_id, producer_epoch = line.get("producerId"), line.get("producerEpoch")
        context.append(
            key["type"], key, line.get("valueVersion"), value, producer_id=producer_id, producer_epoch=producer_epoch
        )
    return to_tables(Outputs.of(to_output_rows(context.decisions, "s", 0)))["consumer_offsets"]


def _columns(schema: pa.Schema) -> pa.Schema:
    return pa.schema([schema.field(name) for name in to_columns(Record({"type": "EndTxnMarker"}, None, None))])


def test_the_coordinators_markers_name_their_producer_in_its_column_too() -> None:
    key = {"type": "EndTxnMarker", "producerId": 7, "producerEpoch": 1}
    (row,) = consumer_offsets([{"key": key, "value": {"committed": True}}]).to_pylist()
    assert (row["producer_id"], row["producer_epoch"]) == (7, 1)
    assert row["key"] == key_text(key)
