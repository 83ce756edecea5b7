"""Runs one read source through its shards in this process, without Spark: for checks, tests and small questions."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa

from coordinator_udf.assignments import complete_assignments
from coordinator_udf.protocol.rows import Output, Request
from coordinator_udf.protocol.settings import Settings
from coordinator_udf.replay.recording import ReplaySource
from coordinator_udf.shard import Shard
from schemas.outputs import OUTPUT_COLUMNS, shard_output_arrow

_REQUEST_FIELDS = Request._fields


def run_in_process(source: ReplaySource) -> pa.Table:
    """The completed outputs of a source: the rows of SHARD_OUTPUT, shard by shard."""
    rows: dict[int, list[Request]] = defaultdict(list)
    for row in source.rows:
        rows[row["partition"]].append(Request(*(row[name] for name in _REQUEST_FIELDS)))
    outputs: list[Output] = []
    for partition in sorted(rows):
        outputs += _shard(partition, source.settings, rows[partition]).process(rows[partition])
    return complete_assignments(outputs_table(source.source, outputs), lambda refs: {})


def _shard(partition: int, settings: Settings, rows: list[Request]) -> Shard:
    return Shard(partition, settings, keep_log=any(row.api == "Failover" for row in rows))


def outputs_table(source: str, outputs: list[Output]) -> pa.Table:
    """A shard's outputs as an Arrow table of SHARD_OUTPUT."""
    columns: dict[str, list[Any]] = {name: [] for name in OUTPUT_COLUMNS}
    columns["source"] = [source] * len(outputs)
    for name, values in zip(Output._fields, zip(*outputs, strict=True) if outputs else (), strict=bool(outputs)):
        columns[name] = list(values)
    return pa.table(columns, schema=shard_output_arrow())
