"""Runs a read source through its shards in this process: the whole of a recorded log is one task."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from coordinator_udf.protocol.log_row import Output, Request
from coordinator_udf.replay.recording import ReplaySource
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.run import process_rows
from coordinator_udf.shard.shard import Shard
from coordinator_udf.tables.assignment_join import complete_assignments
from schemas.outputs import OUTPUT_COLUMNS, shard_output_arrow

_REQUEST_FIELDS = Request._fields
#: The control row that only a shard with a log of its own can follow.
FAILOVER = "Failover"
#: A row that makes its handler raise has the rows of its slice before it run again, so slices are short.
_SLICE_ROWS = 5_000


def run_in_process(source: ReplaySource) -> pa.Table:
    """The completed outputs of a source, the answers of spanning requests merged: rows of SHARD_OUTPUT by shard."""
    shards: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for row in source.rows:
        shards[row["partition"]].append(row)
    outputs = [
        output for partition, rows in sorted(shards.items()) for output in _outputs(source.settings, partition, rows)
    ]
    return complete_assignments(outputs_table(source.source, outputs), lambda refs: {})


def run_shard(source: str, settings: Settings, partition: int, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The completed outputs of one shard; the answers to parts of spanning requests stay parts."""
    return complete_assignments(outputs_table(source, _outputs(settings, partition, rows)), lambda refs: {})


def _outputs(settings: Settings, partition: int, rows: Sequence[Mapping[str, Any]]) -> list[Output]:
    requests = [Request(*(row[name] for name in _REQUEST_FIELDS)) for row in rows]
    shard = Shard(partition, settings, keep_log=any(request.api == FAILOVER for request in requests))
    outputs: list[Output] = []
    for start in range(0, len(requests), _SLICE_ROWS):
        outputs += process_rows(shard, requests[start : start + _SLICE_ROWS])
    return outputs


def outputs_table(source: str, outputs: list[Output]) -> pa.Table:
    """A shard's outputs as an Arrow table of SHARD_OUTPUT."""
    columns: dict[str, list[Any]] = {name: [] for name in OUTPUT_COLUMNS}
    columns["source"] = [source] * len(outputs)
    for name, values in zip(Output._fields, zip(*outputs, strict=True) if outputs else (), strict=bool(outputs)):
        columns[name] = list(values)
    return pa.table(columns, schema=shard_output_arrow())
