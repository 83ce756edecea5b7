"""Runs whole shards over Arrow batches of the request log, in one task, and writes what they say to the tables' files.

The batches come ordered by (source, partition, offset), so that a shard's rows stand together: the runner walks from
boundary to boundary and hands each stretch to its shard column by column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_udf.assignments import complete_assignments
from coordinator_udf.protocol.settings import Settings
from coordinator_udf.replay.json_lines import json_lines
from coordinator_udf.replay.table_files import TableFile, TableFiles
from coordinator_udf.shard import Shard
from coordinator_udf.shard_rows import process_columns
from coordinator_udf.table_rows import to_tables
from schemas.outputs import OUTPUT_COLUMNS, shard_output_arrow
from schemas.requests import CONTROL_APIS, REQUEST_COLUMNS

#: How many rows a shard is handed at a time: enough to be worth Arrow's while, few enough to stay small in memory.
SLICE_ROWS = 50_000

_OUTPUTS = shard_output_arrow()
_CONTROLS = pa.array(CONTROL_APIS)
RecordAt = tuple[str, int, int]


class ShardRunner:
    """The shards of one task, one after the other.

    Args:
        settings: of all sources, which are the live coordinator's own logs.
        keep_log: whether shards remember their records, as rows of kind Failover need.
        out: where the tables lie.
        lines: where to write the answers and records as JSON lines, if wanted.
    """

    def __init__(self, settings: Settings, keep_log: bool, out: Path, lines: BinaryIO | None = None) -> None:
        self._settings = settings
        self._keep_log = keep_log
        self._files = TableFiles(out)
        self._lines = lines
        self._place: tuple[str, int] | None = None
        self._shard: Shard | None = None
        self._assignments: dict[RecordAt, Mapping[str, bytes]] = {}
        #: Answers to parts of a request of which other parts were put to other shards.
        self.parts: list[pa.Table] = []
        self.requests = 0.0
        self.answered = 0
        self.rejected = 0

    def run(self, batches: Iterable[pa.RecordBatch]) -> list[TableFile]:
        """Handles all rows; the files that hold what came of them."""
        for source, partition, rows in shard_slices(batches):
            self._write(self._handle(source, partition, rows))
        return self._files.close()

    def _handle(self, source: str, partition: int, rows: pa.RecordBatch) -> pa.Table:
        if self._place != (source, partition) or self._shard is None:
            self._place = (source, partition)
            self._shard = Shard(partition, self._settings, keep_log=self._keep_log)
            self._assignments = {}
        columns = {name: rows.column(name).to_pylist() for name in REQUEST_COLUMNS if name != "source"}
        requests = rows.filter(pc.invert(pc.fill_null(pc.is_in(rows.column("api"), value_set=_CONTROLS), False)))
        # A request that asks several shards is as many rows, each a part of one.
        parts = pc.fill_null(requests.column("parts"), 1).cast(pa.float64())
        self.requests += pc.sum(pc.divide(1.0, parts)).as_py() or 0.0
        said = process_columns(self._shard, source, columns)
        outputs = pa.table(
            [pa.array(said[name], _OUTPUTS.field(name).type) for name in OUTPUT_COLUMNS], schema=_OUTPUTS
        )
        return self._completed(source, partition, outputs)

    def _completed(self, source: str, partition: int, outputs: pa.Table) -> pa.Table:
        brought = outputs.filter(pc.equal(outputs.column("kind"), "assignment"))
        completed = complete_assignments(
            outputs, lambda wanted: {place: self._assignments[place] for place in wanted if place in self._assignments}
        )
        for row in brought.select(["record_offset", "member_id", "payload"]).to_pylist():
            place = (source, partition, row["record_offset"])
            known = self._assignments.setdefault(place, {})
            self._assignments[place] = {**known, row["member_id"]: row["payload"] or b""}
        return completed

    def _write(self, outputs: pa.Table) -> None:
        is_part = pc.fill_null(
            pc.and_(pc.equal(outputs.column("kind"), "response"), pc.greater(outputs.column("parts"), 1)), False
        )
        if pc.any(is_part).as_py():
            self.parts.append(outputs.filter(is_part))
            outputs = outputs.filter(pc.invert(is_part))
        tables = to_tables(outputs)
        self.answered += len(tables["group_responses"])
        self.rejected += len(tables["rejected_requests"])
        self._files.write(tables)
        if self._lines is not None and self._place is not None:
            self._lines.writelines(json_lines(self._place[0], outputs))


def shard_slices(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """Cuts ordered batches where the shard changes, and into slices of at most `SLICE_ROWS`."""
    for batch in batches:
        if batch.num_rows == 0:
            continue
        bounds = _boundaries(batch)
        sources, partitions = batch.column("source"), batch.column("partition")
        for start, end in pairwise(bounds):
            source, partition = sources[start].as_py(), partitions[start].as_py()
            for first in range(start, end, SLICE_ROWS):
                yield source, partition, batch.slice(first, min(SLICE_ROWS, end - first))


def _boundaries(batch: pa.RecordBatch) -> list[int]:
    """Where a shard begins in the batch, and the end."""
    partition = np.asarray(batch.column("partition"))
    source = np.asarray(pc.dictionary_encode(batch.column("source")).indices)
    change = np.flatnonzero((np.diff(partition) != 0) | (np.diff(source) != 0)) + 1
    return [0, *change.tolist(), batch.num_rows]
