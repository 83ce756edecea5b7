"""Runs a read source through its shards in this process: the whole of a recorded log is one task."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa

from coordinator_udf.assignments import complete_assignments
from coordinator_udf.protocol.rows import Output, Request
from coordinator_udf.replay.recording import ReplaySource
from coordinator_udf.shard import Shard
from coordinator_udf.shard_rows import process_rows
from schemas.outputs import OUTPUT_COLUMNS, shard_output_arrow

_REQUEST_FIELDS = Request._fields
#: The control row that only a shard with a log of its own can follow.
FAILOVER = "Failover"
#: A row that makes its handler raise has the rows of its slice before it run again, so slices are short.
_SLICE_ROWS = 5_000


def run_in_process(source: ReplaySource) -> pa.Table:
    """The completed outputs of a source, the answers of spanning requests merged: rows of SHARD_OUTPUT by shard."""
    shards: dict[int, list[Request]] = defaultdict(list)
    for row in source.rows:
        shards[row["partition"]].append(Request(*(row[name] for name in _REQUEST_FIELDS)))
    outputs: list[Output] = []
    for partition, rows in sorted(shards.items()):
        shard = Shard(partition, source.settings, keep_log=any(row.api == FAILOVER for row in rows))
        for start in range(0, len(rows), _SLICE_ROWS):
            outputs += process_rows(shard, rows[start : start + _SLICE_ROWS])
    return complete_assignments(outputs_table(source.source, outputs), lambda refs: {})


def outputs_table(source: str, outputs: list[Output]) -> pa.Table:
    """A shard's outputs as an Arrow table of SHARD_OUTPUT."""
    columns: dict[str, list[Any]] = {name: [] for name in OUTPUT_COLUMNS}
    columns["source"] = [source] * len(outputs)
    for name, values in zip(Output._fields, zip(*outputs, strict=True) if outputs else (), strict=bool(outputs)):
        columns[name] = list(values)
    return pa.table(columns, schema=shard_output_arrow())
