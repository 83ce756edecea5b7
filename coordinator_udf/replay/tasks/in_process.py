"""Runs a read source through its shards in this process: the whole of a recorded log is one task."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from coordinator_udf.replay.recording import ReplaySource
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.batches import process_batch
from coordinator_udf.shard.control_rows import loaded_assignments
from coordinator_udf.shard.shard import Shard
from coordinator_udf.tables.assignment_join import RecordAt, complete_assignments
from coordinator_udf.tables.outputs import OutputRows, Outputs
from schemas.requests import REQUEST_COLUMNS, request_log_arrow

_SCHEMA = request_log_arrow()
#: The control row that only a shard with a log of its own can follow.
FAILOVER = "Failover"
LOAD_GROUP = "LoadGroup"
#: A row that makes its handler raise has the rows of its slice before it run again, so slices are short.
_SLICE_ROWS = 5_000


class Runs:
    """Runs a source again and again as its rows change: of its shards those alone whose rows did."""

    def __init__(self, source: ReplaySource) -> None:
        self._source = source
        #: By shard the rows that were run, as their values, and what came out.
        self._known: dict[int, tuple[list[tuple[Any, ...]], list[OutputRows]]] = {}

    def outputs(self) -> Outputs:
        """Returns the completed outputs of the source as its rows are now, the answers of spanning requests merged."""
        source = self._source
        shards: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
        for row in source.rows:
            shards[row["partition"]].append(row)
        said = [rows for partition, of_shard in sorted(shards.items()) for rows in self._said(partition, of_shard)]
        loaded = _loaded(source.source, source.rows)
        return complete_assignments(Outputs.of(said), lambda refs: {ref: loaded[ref] for ref in refs if ref in loaded})

    def _said(self, partition: int, rows: Sequence[Mapping[str, Any]]) -> list[OutputRows]:
        values = [tuple(row.values()) for row in rows]
        known = self._known.get(partition)
        if known is None or known[0] != values:
            known = values, _said(self._source.source, self._source.settings, partition, rows)
            self._known[partition] = known
        return known[1]


def _loaded(source: str, rows: Sequence[Mapping[str, Any]]) -> dict[RecordAt, dict[str, bytes]]:
    """Returns the assignments in the records that the source's shards begin with, by record and member."""
    found: dict[RecordAt, dict[str, bytes]] = {}
    for row in rows:
        if row["api"] == LOAD_GROUP and row["body"] is not None:
            offset, assignments = loaded_assignments(row["body"])
            found[source, row["partition"], offset] = assignments
    return found


def _said(source: str, settings: Settings, partition: int, rows: Sequence[Mapping[str, Any]]) -> list[OutputRows]:
    shard = Shard(partition, settings, keep_log=any(row["api"] == FAILOVER for row in rows))
    said: list[OutputRows] = []
    for start in range(0, len(rows), _SLICE_ROWS):
        said += process_batch(shard, source, request_batch(source, rows[start : start + _SLICE_ROWS])).all()
    return said


def request_batch(source: str, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Returns rows of the request log, which need no ``source``, as a record batch under that source."""
    columns: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in REQUEST_COLUMNS if name != "source"}
    columns["source"] = [source] * len(rows)
    return pa.record_batch([pa.array(columns[field.name], field.type) for field in _SCHEMA], schema=_SCHEMA)
