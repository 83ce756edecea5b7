"""Where numbers go on is read from the rows, whatever a file's statistics say or leave out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from coordinator_udf.log.history import LogHistory
from coordinator_udf.tables.delta import next_numbers
from schemas.requests import LIVE, request_log_arrow

#: What writers say of a file; the last is of one that counts no column.
STATISTICS: list[dict[str, Any] | None] = [
    None,
    {},
    {"numRecords": 4},
    {"numRecords": 4, "minValues": {"source": LIVE}, "maxValues": {"source": "replay"}, "nullCount": {"source": 0}},
    {"numRecords": 4, "minValues": {}, "maxValues": {}, "nullCount": {}},
]


def table_with(path: Path, statistics: dict[str, Any] | None) -> str:
    """A request log in one file with these statistics."""
    rows = [(LIVE, 0, 4), (LIVE, 0, 5), (LIVE, 2, 7), ("replay", 1, 99)]
    given = [
        {"source": source, "partition": partition, "offset": offset, "log_ts": 1, "api": "Tick", "api_version": 0}
        for source, partition, offset in rows
    ]
    write_deltalake(str(path), pa.Table.from_pylist(given, schema=request_log_arrow()))
    commit = path / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in commit.read_text("utf-8").splitlines()]
    for action in actions:
        if "add" in action:
            action["add"]["stats"] = None if statistics is None else json.dumps(statistics)
    commit.write_text("".join(f"{json.dumps(action)}\n" for action in actions), "utf-8")
    return str(path)


@pytest.mark.parametrize("statistics", STATISTICS)
def test_numbers_go_on_after_the_greatest_row(tmp_path: Path, statistics: dict[str, Any] | None) -> None:
    assert next_numbers(table_with(tmp_path / "table", statistics), "offset") == [6, 0, 8]


@pytest.mark.parametrize("statistics", STATISTICS)
def test_a_history_gives_all_its_rows(tmp_path: Path, statistics: dict[str, Any] | None) -> None:
    history = LogHistory(table_with(tmp_path / "table", statistics), "log")
    batches = list(history.rows([0, 0, 0], [5, 0, 9]))
    assert sorted((row["partition"], row["offset"]) for batch in batches for row in batch.to_pylist()) == [
        (0, 4),
        (2, 7),
    ]
    assert {batch.schema for batch in batches} == {request_log_arrow()}
