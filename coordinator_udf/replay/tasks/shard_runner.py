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

from coordinator_udf.replay.judge.json_lines import json_lines
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.batches import process_batch
from coordinator_udf.shard.shard import Shard
from coordinator_udf.tables.assignment_join import complete_assignments
from coordinator_udf.tables.parquet_files import TableFile, TableFiles
from coordinator_udf.tables.rows import to_tables
from schemas.requests import CONTROL_APIS

#: How many rows a shard is handed at a time: enough to be worth Arrow's while, few enough to stay small in memory.
SLICE_ROWS = 50_000

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
            said = process_batch(self._of(source, partition), source, rows)
            self.requests += count_requests(rows)
            self._write(source, self._completed(source, partition, said.said), said.heartbeats)
        return self._files.close()

    def _of(self, source: str, partition: int) -> Shard:
        """The shard of the rows at hand; a new one where they are the first of theirs."""
        if self._place != (source, partition) or self._shard is None:
            self._place = (source, partition)
            self._shard = Shard(partition, self._settings, keep_log=self._keep_log)
            self._assignments = {}
        return self._shard

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

    def _write(self, source: str, outputs: pa.Table, heartbeats: pa.Table) -> None:
        is_part = pc.fill_null(
            pc.and_(pc.equal(outputs.column("kind"), "response"), pc.greater(outputs.column("parts"), 1)), False
        )
        if pc.any(is_part).as_py():
            self.parts.append(outputs.filter(is_part))
            outputs = outputs.filter(pc.invert(is_part))
        tables = to_tables(outputs)
        self.answered += answered_requests(outputs) + len(heartbeats)
        self.rejected += len(tables["rejected_requests"])
        self._files.write(tables)
        self._files.write(to_tables(heartbeats))
        if self._lines is not None:
            together = pa.concat_tables([outputs, heartbeats]).sort_by("seq")
            self._lines.writelines(json_lines(source, together))


def count_requests(rows: pa.RecordBatch) -> float:
    """How many requests rows are; one that asks several shards is as many rows, each a part of it."""
    is_control = pc.fill_null(pc.is_in(rows.column("api"), value_set=_CONTROLS), False)
    parts = pc.fill_null(rows.column("parts").filter(pc.invert(is_control)), 1).cast(pa.float64())
    return float(pc.sum(pc.divide(1.0, parts)).as_py() or 0.0)


def answered_requests(outputs: pa.Table) -> int:
    """How many requests were answered; control rows don't count."""
    is_answer = pc.equal(outputs.column("kind"), "response")
    is_control = pc.fill_null(pc.is_in(outputs.column("api"), value_set=_CONTROLS), False)
    return int(pc.sum(pc.and_not(is_answer, is_control)).as_py() or 0)


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
