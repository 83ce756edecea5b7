"""The whole request log as a DataFrame: what is in the embedded log, and before it its history."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from coordinator_udf.log.contents import LogSnapshot
from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.log.file import LogError
from coordinator_udf.log.history import LogHistory, as_found
from coordinator_udf.log.stored_appends import TrimmedError
from schemas.requests import LIVE, REQUEST_LOG, request_log_arrow

#: About how many rows of the embedded log are handed to Spark at once, some MB: as in
#: spark.sql.execution.arrow.maxRecordsPerBatch.
_ROWS_MAX = 10_000

_SCHEMA = request_log_arrow()


def request_log(spark: SparkSession, path: Path, snapshot: LogSnapshot | None = None) -> DataFrame:
    """Returns what a request log holds, a row a request (columns: REQUEST_LOG).

    Each row comes once, also where the log is folded while the rows are read.

    The tasks read the embedded log's file; so it must be on a disk that they see.

    Args:
        path: the embedded log, or a table with what a topic held.
        snapshot: what the log held at the moment that is meant; by default that is now.

    Raises:
        LogError: the log can't be read, or its history isn't where the log says.
    """
    if path.is_dir():
        return spark.read.format("delta").load(str(path.absolute())).select(*REQUEST_LOG.fieldNames())
    if snapshot is None:
        log = EmbeddedLog.open(path)
        snapshot = log.snapshot()
        log.close()
    # What the log has no more is in the history by now, and stays there.
    rows = spark.range(0, 1, 1, 1).mapInArrow(partial(_read_snapshot, path.absolute(), snapshot), REQUEST_LOG)
    before = history_of(path, snapshot)
    if before is None:
        return rows
    firsts = ", ".join(f"{offset}L" for offset in snapshot.first_offsets)
    return (
        spark.read.format("delta")
        .load(before.uri)
        .select(*REQUEST_LOG.fieldNames())
        # A partition beyond the log's is of an earlier log.
        .where(f"source <> '{LIVE}' OR coalesce(offset < try_element_at(array({firsts}), partition + 1), true)")
        .unionByName(rows)
    )


def request_log_table(path: Path) -> pa.Table:
    """Returns what a request log holds now, with its history, in this process's memory (columns: REQUEST_LOG).

    Args:
        path: the embedded log, or a table with what a topic held.

    Raises:
        LogError: the log can't be read, or its history isn't where the log says.
    """
    if path.is_dir():
        return DeltaTable(str(path)).to_pyarrow_table(columns=_SCHEMA.names).cast(_SCHEMA)
    log = EmbeddedLog.open(path)
    snapshot = log.snapshot()
    log.close()
    rows = pa.Table.from_batches(_read_snapshot(path, snapshot, iter(())), _SCHEMA)
    before = history_of(path, snapshot)
    if before is None:
        return rows
    folded = DeltaTable(before.uri).to_pyarrow_table(columns=_SCHEMA.names).cast(_SCHEMA)
    partitions = folded.column("partition").to_numpy()
    # Of a partition beyond the log's, which is of an earlier log, all.
    firsts = np.full(max(partitions.max(initial=-1) + 1, len(snapshot.first_offsets)), np.iinfo(np.int64).max)
    firsts[: len(snapshot.first_offsets)] = snapshot.first_offsets
    is_before = folded.column("offset").to_numpy() < firsts[partitions]
    is_other = folded.column("source").to_numpy(zero_copy_only=False) != LIVE
    return pa.concat_tables([folded.filter(pa.array(is_before | is_other)), rows])


def history_of(path: Path, snapshot: LogSnapshot) -> LogHistory | None:
    """Returns the history of a log; None where nothing is in it yet.

    Raises:
        LogError: the history isn't where the log says.
    """
    if snapshot.history is None:
        return None
    uri = as_found(snapshot.history.uri, path)
    if DeltaTable.is_deltatable(uri):
        return LogHistory(uri, snapshot.history.id)
    if any(snapshot.first_offsets):
        raise LogError(
            f"what was in {path} before append {snapshot.first} is in the table {uri}, which isn't there: put the log "
            "back beside its tables"
        )
    return None


def _read_snapshot(path: Path, snapshot: LogSnapshot, _: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the rows that the log held at a moment, in order; those that were folded since come from the history."""
    log = EmbeddedLog.open(path)
    try:
        at, offsets = snapshot.first, np.array(snapshot.first_offsets)
        while at < snapshot.next:
            try:
                for rows, until in gathered(log.read(at, snapshot.next), at):
                    np.maximum.at(offsets, np.asarray(rows.column("partition")), np.asarray(rows.column("offset")) + 1)
                    at = until
                    yield from rows.to_batches()
            except TrimmedError:
                now = log.snapshot()
                before = history_of(path, now)
                if before is None:
                    raise
                stop = np.minimum(now.first_offsets, snapshot.next_offsets)
                yield from before.rows(offsets.tolist(), stop.tolist())
                at, offsets = min(now.first, snapshot.next), np.maximum(offsets, stop)
    finally:
        log.close()


def gathered(
    appends: Iterator[pa.RecordBatch], first: int, *, rows_max: int = _ROWS_MAX, bytes_max: int = 2**25
) -> Iterator[tuple[pa.Table, int]]:
    """Appends in pieces of about so many rows or bytes, each with the number after its last append.

    Args:
        appends: consecutive appends.
        first: the number of the first of them.
    """
    piece: list[pa.RecordBatch] = []
    rows = size = 0
    until = first
    for append in appends:
        piece.append(append)
        rows, size, until = rows + append.num_rows, size + append.nbytes, until + 1
        if rows >= rows_max or size >= bytes_max:
            yield pa.Table.from_batches(piece, _SCHEMA).combine_chunks(), until
            piece, rows, size = [], 0, 0
    if piece:
        yield pa.Table.from_batches(piece, _SCHEMA).combine_chunks(), until
