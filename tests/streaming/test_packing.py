"""Packed outputs come back as they were, and leave out what every row says."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from coordinator_udf.streaming.packing import PACKED_OUTPUTS, Tally, pack_outputs, unpack_outputs
from coordinator_udf.tables.outputs import SCHEMAS, OutputRows, Outputs

IDS = pa.array([f"request-{number}" for number in range(4)])
NUMBERS = pa.array([7, 8, 11, 9])
WHERE = {"source": "live", "partition": 0}

ROWS = {
    "all columns": OutputRows(
        "assignments",
        4,
        {
            "seq": NUMBERS,
            "ts": NUMBERS,
            "request_id": IDS,
            "group_id": IDS,
            "member_id": IDS,
            "record_offset": NUMBERS,
            "payload": pa.array([b"", b"\0", b"\xff", b"x" * 5_000]),
        },
        WHERE,
    ),
    "numbers that rise and a copied column": OutputRows(
        "responses",
        4,
        {"ts": NUMBERS, "request_id": IDS},
        {**WHERE, "api": "Heartbeat", "api_version": 4, "error_code": 0, "body": '"\u2603"', "parts": 1},
        first_seq=100,
        copies={"answered_by": "request_id"},
    ),
    "a copy of what is the same": OutputRows(
        "responses",
        4,
        {"seq": NUMBERS, "ts": NUMBERS},
        {**WHERE, "request_id": "r"},
        copies={"answered_by": "request_id"},
    ),
    "nulls among texts": OutputRows(
        "responses", 4, {"seq": NUMBERS, "ts": NUMBERS, "member_id": pa.array(["a", None, "", "b"])}, WHERE
    ),
    "lists": OutputRows(
        "transitions",
        2,
        {"seq": pa.array([1, 2]), "ts": pa.array([1, 2]), "members": pa.array([["a", "b"], []])},
        {**WHERE, "group_id": "g", "to_state": "Empty", "rule": "LEFT"},
    ),
    "one row of columns that say one thing": OutputRows(
        "rejected", 1, {}, {**WHERE, "seq": 1, "ts": 2, "reason": "x" * 2_000_000}
    ),
}


def unpacked(*of_shards: list[OutputRows]) -> tuple[dict[int, Tally], Outputs]:
    rows = [
        row for partition, said in enumerate(of_shards) for row in pack_outputs(partition, Tally(len(said), 3), said)
    ]
    columns = dict(zip(PACKED_OUTPUTS.fieldNames(), zip(*rows, strict=True), strict=True))
    return unpack_outputs(pa.table({name: pa.array(values) for name, values in columns.items()}))


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS.keys())
def test_outputs_come_back_as_they_were(rows: OutputRows) -> None:
    tallies, outputs = unpacked([rows])
    assert tallies == {0: Tally(1, 3)}
    found: pa.Table = getattr(outputs, rows.kind)
    assert found.equals(getattr(Outputs.of([rows]), rows.kind))
    for column in SCHEMAS[rows.kind]:
        given = rows.columns.get(rows.copies.get(column.name, column.name))
        values = [rows.same.get(rows.copies.get(column.name, column.name))] * rows.rows if given is None else given
        if column.name == "seq" and rows.first_seq is not None:
            values = list(range(rows.first_seq, rows.first_seq + rows.rows))
        assert found.column(column.name).to_pylist() == (values if isinstance(values, list) else values.to_pylist())


def test_outputs_of_shards_are_put_together_by_kind() -> None:
    shards: list[list[OutputRows]] = [
        [*ROWS.values()],
        [],
        [ROWS["nulls among texts"]],
        [ROWS["a copy of what is the same"], ROWS["all columns"]],
    ]
    tallies, outputs = unpacked(*shards)
    assert {partition: tally.requests for partition, tally in tallies.items()} == {0: len(ROWS), 1: 0, 2: 1, 3: 2}
    for kind, table in outputs._asdict().items():
        parts = [rows for said in shards for rows in said if rows.kind == kind]
        expected = [row for rows in parts for row in getattr(Outputs.of([rows]), kind).to_pylist()]
        assert table.to_pylist() == expected
        assert table.schema == SCHEMAS[kind]
        assert all(column.num_chunks <= 1 for column in table.columns)


def test_no_shard_says_anything() -> None:
    empty: dict[str, Any] = {name: [] for name in PACKED_OUTPUTS.fieldNames()}
    tallies, outputs = unpack_outputs(pa.table(empty))
    assert tallies == {}
    assert [len(rows) for rows in outputs] == [0] * len(SCHEMAS)


def test_what_every_row_says_travels_once() -> None:
    (_, (_, _, value)) = pack_outputs(0, Tally(4, 1), [ROWS["numbers that rise and a copied column"]])
    with pa.ipc.open_stream(value) as reader:
        assert reader.schema.names == ["ts", "request_id"]
