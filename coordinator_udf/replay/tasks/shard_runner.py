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

from coordinator_udf.log.kafka.downtime import with_downtime
from coordinator_udf.log.rows import are_controls
from coordinator_udf.replay.inputs.own_log import SLICE_ROWS
from coordinator_udf.replay.judge.json_lines import json_lines
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.batches import process_batch
from coordinator_udf.shard.shard import Shard
from coordinator_udf.tables.assignment_join import RecordAt, brought, complete_assignments
from coordinator_udf.tables.outputs import Outputs
from coordinator_udf.tables.parquet_files import TableFile, TableFiles
from coordinator_udf.tables.rows import to_tables


class ShardRunner:
    """The shards of one task, one after the other.

    Args:
        settings: of all sources, which are the live coordinator's own logs.
        keep_log: whether shards remember their records, as rows of kind Failover need.
        out: where the tables lie.
        lines: where to write the answers and records as JSON lines, if wanted.
    """

    def __init__(
        self,
        settings: Settings,
        keep_log: bool,
        out: Path,
        lines: BinaryIO | None = None,
        *,
        gaps_are_downtime: bool = False,
    ) -> None:
        self._settings = settings
        self._gaps_are_downtime = gaps_are_downtime
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
            shard = self._of(source, partition)
            self.requests += count_requests(rows)
            handled = rows
            if self._gaps_are_downtime:
                found = with_downtime(pa.Table.from_batches([rows]), shard.ctx.now_ms)
                handled = found.combine_chunks().to_batches()[0]
            said = process_batch(shard, source, handled)
            completed = self._completed(Outputs.of(said.decisions))
            self._write(source, completed, Outputs.of([] if said.heartbeats is None else [said.heartbeats]))
        return self._files.close()

    def _of(self, source: str, partition: int) -> Shard:
        """Returns the shard of the rows at hand; a new one where they are the first of theirs."""
        if self._place != (source, partition) or self._shard is None:
            self._place = (source, partition)
            self._shard = Shard(partition, self._settings, keep_log=self._keep_log)
            self._assignments = {}
        return self._shard

    def _completed(self, outputs: Outputs) -> Outputs:
        completed = complete_assignments(
            outputs, lambda wanted: {place: self._assignments[place] for place in wanted if place in self._assignments}
        )
        for record, members in brought(outputs.assignments).items():
            self._assignments[record] = {**self._assignments.get(record, {}), **members}
        return completed

    def _write(self, source: str, outputs: Outputs, heartbeats: Outputs) -> None:
        is_part = pc.fill_null(pc.greater(outputs.responses.column("parts"), 1), False)
        if pc.any(is_part).as_py():
            self.parts.append(outputs.responses.filter(is_part))
            outputs = outputs._replace(responses=outputs.responses.filter(pc.invert(is_part)))
        for said in (outputs, heartbeats):
            tables = to_tables(said)
            self.answered += answered_requests(said.responses)
            self.rejected += len(tables["rejected_requests"])
            self._files.write(tables)
        if self._lines is not None:
            self._lines.writelines(json_lines(source, Outputs.joined([outputs, heartbeats])))


def count_requests(rows: pa.RecordBatch) -> float:
    """Returns how many requests rows are; one that asks several shards is as many rows, each a part of it."""
    is_control = are_controls(rows.column("api"))
    parts = pc.fill_null(rows.column("parts").filter(pc.invert(is_control)), 1).cast(pa.float64())
    return float(pc.sum(pc.divide(1.0, parts)).as_py() or 0.0)


def answered_requests(responses: pa.Table) -> int:
    """Returns how many requests were answered; control rows don't count."""
    is_control = are_controls(responses.column("api"))
    return len(responses) - int(pc.sum(is_control).as_py() or 0)


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
    """Returns where a shard begins in the batch, and the end."""
    partition = np.asarray(batch.column("partition"))
    source = np.asarray(pc.dictionary_encode(batch.column("source")).indices)
    change = np.flatnonzero((np.diff(partition) != 0) | (np.diff(source) != 0)) + 1
    return [0, *change.tolist(), batch.num_rows]
