"""Packed outputs come back as they were, and leave out what every row says."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from coordinator_udf.streaming.packing import pack_outputs, unpack_outputs
from schemas.outputs import shard_output_arrow

_SCHEMA = shard_output_arrow()


def beat(seq: int, **said: Any) -> dict[str, Any]:
    name = f"request-{seq}"
    return {
        "kind": "response", "source": "live", "partition": 0, "seq": seq, "ts": 1_000 + seq, "request_id": name,
        "by": name, "api": "Heartbeat", "api_version": 4, "group_id": "g", "member_id": f"m{seq}", "error_code": 0,
        "body": '{"errorCode":0}', "parts": 1, **said,
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, _SCHEMA)


def unpacked(*parts: list[dict[str, Any]]) -> pa.Table:
    values = [pack_outputs(table(rows)) for rows in parts]
    return unpack_outputs(pa.table({"outputs": pa.array(values, pa.binary())}))


RECORD = {"kind": "record", "by": None, "payload": b"\x00", "record_offset": 7, "body": None}

CASES = {
    "nothing": [],
    "one row": [beat(0)],
    "heartbeats": [beat(seq) for seq in range(100)],
    "numbers with gaps": [beat(seq) for seq in (3, 5, 6)],
    "numbers out of order": [beat(seq) for seq in (5, 4, 3)],
    "answers by another request": [beat(0), beat(1, by="request-0"), beat(2, by=None)],
    "answers by nobody": [beat(0, by=None, request_id=None), beat(1, by=None, request_id=None)],
    "other first and last": [beat(0, error_code=27), *[beat(seq) for seq in range(1, 9)], beat(9, error_code=27)],
    "a null in between": [beat(0), beat(1, member_id=None, error_code=None), beat(2)],
    "all kinds": [beat(0), beat(1, **RECORD), beat(2, **RECORD), beat(3, kind="rejected", body='"\u2603"')],
    "the same bytes": [beat(seq, **RECORD) for seq in range(3)],
}


@pytest.mark.parametrize("rows", CASES.values(), ids=CASES.keys())
def test_outputs_come_back_as_they_were(rows: list[dict[str, Any]]) -> None:
    assert unpacked(rows).equals(table(sorted(rows, key=lambda row: row["seq"])))


def test_outputs_of_shards_are_put_together() -> None:
    other = [beat(seq, partition=1, api="LeaveGroup", body=None, by=None) for seq in range(7)]
    nothing: list[dict[str, Any]] = []
    for parts in (CASES["heartbeats"], other), (other, nothing, CASES["heartbeats"]), (other, CASES["all kinds"]):
        found = unpacked(*parts)
        assert found.to_pylist() == [row for rows in parts for row in table(rows).to_pylist()]
        assert all(column.num_chunks <= 1 for column in found.columns)


def test_a_partition_in_several_values_is_ordered() -> None:
    heartbeats = CASES["heartbeats"]
    assert unpacked(heartbeats[50:], heartbeats[:50]).equals(table(heartbeats))


def test_no_shard_says_anything() -> None:
    assert unpack_outputs(pa.table({"outputs": pa.array([], pa.binary())})).equals(_SCHEMA.empty_table())


def test_what_every_row_says_is_left_out() -> None:
    rows = [beat(seq) for seq in range(1_000)]
    value = pack_outputs(table(rows))
    with pa.ipc.open_stream(value) as reader:
        assert reader.schema.names == ["ts", "request_id", "member_id"]
