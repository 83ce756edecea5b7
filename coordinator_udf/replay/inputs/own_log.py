"""The project's own request log as the input of a replay: a Delta table, or the file of an embedded log.

Where a table's files each hold one partition, and the files of a partition don't overlap in their offsets, its shards
are read straight from the files in that order. Any other table is shuffled by shard and sorted by Spark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.log.partition_bytes import gathered_batches
from coordinator_udf.user_errors import InputError
from schemas.requests import ADDED_LATER, REQUEST_COLUMNS, request_log_arrow

#: Table features that change what a data file's rows mean; files are then not read without Delta.
_FEATURES_NOT_READ = ("deletionVectors", "columnMapping", "typeWidening")

_SCHEMA = request_log_arrow()

#: How many rows are read and a shard is handed at a time: enough to be worth Arrow's while, few enough to stay small in
#: memory.
SLICE_ROWS = 50_000


class ShardFiles(msgspec.Struct, frozen=True):
    """The rows of one or more whole shards: Parquet files to be read one after the other."""

    source: str
    files: tuple[str, ...]
    rows: int


def ordered_shards(path: Path, source: str) -> list[ShardFiles] | None:
    """Returns a table's shards as files in order; None where the table isn't laid out so.

    Raises:
        InputError: the table isn't a request log.
    """
    table = DeltaTable(str(path))
    _check_columns(path, table)
    metadata = table.metadata()
    if any(metadata.configuration.get(f"delta.{name}") for name in ("columnMapping.mode", "enableDeletionVectors")):
        return None
    if set(table.protocol().reader_features or ()) & set(_FEATURES_NOT_READ):
        return None
    if metadata.partition_columns not in ([], ["partition"]):
        return None
    spans = _spans(table)
    if spans is None:
        return None
    shards = []
    for files in spans.values():
        files.sort()
        if any(later[0] <= earlier[1] for earlier, later in pairwise(files)):
            return None
        names = tuple(str(path / name) for _, _, name, _ in files)
        shards.append(ShardFiles(source, names, sum(rows for *_, rows in files)))
    return shards


Span = tuple[int, int, str, int]


def _spans(table: DeltaTable) -> dict[int, list[Span]] | None:
    """Returns for each partition its files' offsets, least and greatest; None where statistics don't tell."""
    actions = pa.table(table.get_add_actions(flatten=True))
    spans: dict[int, list[Span]] = defaultdict(list)
    for action in actions.to_pylist():
        least, greatest = action.get("min.partition"), action.get("max.partition")
        partition = action.get("partition.partition", least if least == greatest else None)
        offsets = action.get("min.offset"), action.get("max.offset")
        sources = action.get("min.source"), action.get("max.source")
        if partition is None or None in offsets or sources[0] is None or sources[0] != sources[1]:
            return None
        spans[partition].append((offsets[0], offsets[1], action["path"], action["num_records"]))
    names = {(action.get("min.source")) for action in actions.to_pylist()}
    return spans if len(names) <= 1 else None


def _check_columns(path: Path, table: DeltaTable) -> None:
    found = {field.name for field in table.schema().fields} | ADDED_LATER
    missing = [name for name in REQUEST_COLUMNS if name not in found]
    if missing:
        raise InputError(f"{path} is no request log: the table has no column {', '.join(missing)}")


def read_shard_files(unit: ShardFiles) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a unit in order, in batches, under the unit's source name."""
    for name in unit.files:
        offsets = pq.read_table(name, columns=["offset"]).column("offset").to_numpy()
        if bool(np.all(offsets[1:] > offsets[:-1])):
            batches = pq.ParquetFile(name).iter_batches(batch_size=SLICE_ROWS)
        else:
            batches = iter(pq.read_table(name, partitioning=None).sort_by("offset").to_batches(SLICE_ROWS))
        for batch in batches:
            yield _as_request_log(batch, unit.source, Path(name))


def _as_request_log(batch: pa.RecordBatch, source: str, file: Path) -> pa.RecordBatch:
    columns: list[Any] = []
    for field in _SCHEMA:
        if field.name == "source":
            columns.append(pa.repeat(source, batch.num_rows))
        elif field.name in batch.schema.names:
            columns.append(batch.column(field.name).cast(field.type))
        elif field.name in ADDED_LATER:
            columns.append(pa.nulls(batch.num_rows, field.type))
        else:
            columns.append(_partition_of(file, field, batch.num_rows))
    return pa.record_batch(columns, schema=_SCHEMA)


def _partition_of(file: Path, field: pa.Field, rows: int) -> pa.Array:
    """Returns the value that a table partitioned by a column keeps in the directory's name: ``partition=3``."""
    name, _, value = file.parent.name.partition("=")
    if name != field.name:
        raise InputError(f"{file} has no column {field.name}")
    return pa.repeat(pa.scalar(int(value), field.type), rows)


def stage_embedded_log(path: Path, source: str, directory: Path) -> list[ShardFiles]:
    """Writes an embedded log's rows to one Parquet file a partition, in order.

    Raises:
        LogError: the log can't be read.
    """
    log = EmbeddedLog.open(path)
    directory.mkdir(parents=True, exist_ok=True)
    writers: dict[int, tuple[pq.ParquetWriter, str, list[int]]] = {}
    try:
        extent = log.extent()
        for gathered in gathered_batches(log.read(extent.first, extent.next), SLICE_ROWS):
            batch = pa.Table.from_batches(gathered, _SCHEMA)
            for partition in batch.column("partition").unique().to_pylist():
                writer = writers.get(partition) or _writer(writers, directory, partition)
                rows = batch.filter(pc.equal(batch.column("partition"), partition))
                writer[0].write_table(rows)
                writer[2].append(len(rows))
    finally:
        for opened, _, _ in writers.values():
            opened.close()
        log.close()
    return [ShardFiles(source, (name,), sum(rows)) for _, name, rows in writers.values()]


def _writer(
    writers: dict[int, tuple[pq.ParquetWriter, str, list[int]]], directory: Path, partition: int
) -> tuple[pq.ParquetWriter, str, list[int]]:
    name = str(directory / f"{partition}.parquet")
    writers[partition] = (pq.ParquetWriter(name, _SCHEMA, compression="lz4"), name, [])
    return writers[partition]
