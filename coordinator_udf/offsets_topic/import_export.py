"""Import and export of ``__consumer_offsets``: files to and from the Delta tables of a directory, by delta-rs."""

from __future__ import annotations

import gzip
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from coordinator_udf.offsets_topic.codec import CodecError
from coordinator_udf.offsets_topic.lines import line_to_row, read_line, row_to_line
from coordinator_udf.offsets_topic.records import END_TXN_MARKER
from coordinator_udf.offsets_topic.rows import TYPED_COLUMNS
from coordinator_udf.tables.places import is_uri
from coordinator_udf.tables.queries import literal, query
from coordinator_udf.user_errors import InputError
from schemas.tables import table_arrow

OFFSETS: Final = "consumer_offsets"
REJECTED: Final = "rejected_requests"

#: ``api`` of the rejected rows that came from a file.
IMPORT_API: Final = "ImportOffsets"

#: How many rows of a file are Python objects at once, before they become a record batch.
_ROWS_A_BATCH: Final = 10_000
#: How often an append is tried that meets a deletion of rows: as often in a row nothing but a compaction that runs all
#: the time would win.
_APPEND_ATTEMPTS: Final = 10


#: A folder of tables: a path or a URI.
Folder = Path | str


class StoreError(InputError):
    """An import or export that can't be done. Says what is in the way and what to do."""


@dataclass
class Imported:
    """What an import did.

    Attributes:
        records: by record type.
        tombstones: how many of them.
        kept_bytes: records whose bytes had to be kept beside the typed columns.
        rejected: line number and reason.
    """

    records: Counter[str] = field(default_factory=Counter)
    tombstones: int = 0
    kept_bytes: int = 0
    rejected: list[tuple[int, str]] = field(default_factory=list)


def import_file(file: Path, tables: Folder, source: str) -> Imported:
    """Appends a file's records to consumer_offsets as one commit; lines that can't be read go to rejected_requests.

    The rows are held in memory as Arrow until the file is read whole.

    Raises:
        StoreError: the tables have that source already, or the file can't be read.
    """
    if source in sources(tables, OFFSETS):
        table = table_in(tables, OFFSETS)
        raise StoreError(
            f"{table} has rows of source {source!r} already. Choose another name with --source, "
            f"or delete them first (DELETE FROM delta.`{table}` WHERE source = {literal(source)})."
        )
    if source in sources(tables, REJECTED):
        # An import that was killed before it had any record in, or that had none: this one begins anew.
        mine = f"source = {literal(source)} AND api = {literal(IMPORT_API)}"
        DeltaTable(table_in(tables, REJECTED)).delete(mine)
    report = Imported()
    rejected: list[dict[str, Any]] = []
    batches = list(_batches(_lines(file), source, report, rejected))
    # The rejected first: should this stop here, nothing was imported and nothing is lost.
    if rejected:
        _append(table_in(tables, REJECTED), pa.Table.from_pylist(rejected, schema=table_arrow(REJECTED)))
    if batches:
        _append(table_in(tables, OFFSETS), pa.Table.from_batches(batches))
    return report


def export_lines(tables: Folder, source: str) -> Iterator[str]:
    """Yields the lines of a source, by partition and offset, with those that its import had rejected in their places.

    A rejected line that tells no partition and offset comes last.

    Raises:
        StoreError: there is no such table or source.
        CodecError: a row holds no record that Kafka can write.
    """
    if source not in sources(tables, OFFSETS) | sources(tables, REJECTED):
        raise StoreError(f"{tables} has no records of source {source!r}, but of: {_listed(tables)}")
    rejected = sorted(_rejected_lines(tables, source))
    for batch in _scan(table_in(tables, OFFSETS), source):
        for row in batch.to_pylist():
            place = (0, row["partition"], row["offset"])
            while rejected and rejected[0][0] < place:
                yield rejected.pop(0)[1]
            yield row_to_line(row)
    for _, raw in rejected:
        yield raw


def table_in(tables: Folder, name: str) -> str:
    """Returns where a table is."""
    return f"{str(tables).rstrip('/')}/{name}"


def sources(tables: Folder, name: str = OFFSETS) -> set[str]:
    """Returns the sources that a table has rows of; none where there is no such table."""
    # A rejected request is no record, whatever its source.
    only = f" WHERE api = {literal(IMPORT_API)}" if name == REJECTED else ""
    batches = _query(table_in(tables, name), f"SELECT DISTINCT source FROM rows{only}")
    return {row["source"] for batch in batches for row in batch.to_pylist()}


def only_source(tables: Folder) -> str:
    """Returns the source of a directory that has just one.

    Raises:
        StoreError: it has none, or several.
    """
    found = sources(tables) | sources(tables, REJECTED)
    if not found:
        raise StoreError(f"{tables} holds no records: expected a folder with the Delta table consumer_offsets")
    if len(found) != 1:
        raise StoreError(f"{tables} has the sources: {_listed(tables)}. Name one with --source.")
    return found.pop()


def write_lines(lines: Iterable[str], out: IO[str]) -> int:
    """Writes lines; how many."""
    count = 0
    for line in lines:
        out.write(line + "\n")
        count += 1
    return count


def write_file(lines: Iterable[str], file: Path) -> int:
    """Writes lines to a new file, gzipped where its name ends in .gz; the file appears when it is complete.

    Raises:
        StoreError: the file exists.
    """
    if file.exists():
        raise StoreError(f"{file} exists. Name another file with --out, or delete it first.")
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with aside.open("wb") as raw:
            if file.suffix == ".gz":
                # Without a time in its header, so that the same records make the same file.
                with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as zipped:
                    count = _write_bytes(lines, zipped)
            else:
                count = _write_bytes(lines, raw)
        aside.rename(file)
    finally:
        aside.unlink(missing_ok=True)
    return count


def _write_bytes(lines: Iterable[str], out: IO[bytes] | gzip.GzipFile) -> int:
    count = 0
    for line in lines:
        out.write(line.encode() + b"\n")
        count += 1
    return count


def _listed(tables: Folder) -> str:
    return ", ".join(sorted(sources(tables) | sources(tables, REJECTED))) or "none"


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    try:
        with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield number, line.rstrip("\n")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise StoreError(
            f"{file} can't be read: {error}. Expected JSON lines, gzipped if its name ends in .gz."
        ) from error


def _batches(
    lines: Iterable[tuple[int, str]], source: str, report: Imported, rejected: list[dict[str, Any]]
) -> Iterator[pa.RecordBatch]:
    schema = table_arrow(OFFSETS)
    rows: list[dict[str, Any]] = []
    seen: set[tuple[int, int]] = set()
    for number, text in lines:
        try:
            line = read_line(text)
            if (line.partition, line.offset) in seen:
                raise CodecError(f"partition {line.partition} has a second record at offset {line.offset}")
            seen.add((line.partition, line.offset))
            row = line_to_row(line, source)
        except CodecError as error:
            report.rejected.append((number, str(error)))
            rejected.append({"source": source, "seq": number, "api": IMPORT_API, "reason": str(error), "raw": text})
            continue
        _count(row, report)
        rows.append(row)
        if len(rows) == _ROWS_A_BATCH:
            yield pa.RecordBatch.from_pylist(rows, schema=schema)
            rows = []
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _count(row: dict[str, Any], report: Imported) -> None:
    name = row["record_type"]
    report.records[name] += 1
    if name != END_TXN_MARKER and row[TYPED_COLUMNS.get(name, "other_value")] is None:
        report.tombstones += 1
    stored = row["stored"]
    if stored is not None and (stored["key"] is not None or stored["value"] is not None):
        report.kept_bytes += 1


def _append(table: str, rows: pa.Table) -> None:
    if not is_uri(table):
        Path(table).mkdir(parents=True, exist_ok=True)
    for attempt in range(1, _APPEND_ATTEMPTS + 1):
        try:
            write_deltalake(table, rows, mode="append")
            return
        except CommitFailedError:
            # delta-rs takes rows that were deleted meanwhile for a conflict, though an append reads none.
            if attempt == _APPEND_ATTEMPTS:
                raise


def _scan(table: str, source: str) -> Iterator[pa.RecordBatch]:
    return _query(table, f"SELECT * FROM rows WHERE source = {literal(source)} ORDER BY partition, offset")


def _rejected_lines(tables: Folder, source: str) -> Iterator[tuple[tuple[int, int, int], str]]:
    mine = f"source = {literal(source)} AND api = {literal(IMPORT_API)}"
    for batch in _query(table_in(tables, REJECTED), f"SELECT seq, raw FROM rows WHERE {mine}"):
        for row in batch.to_pylist():
            try:
                line = read_line(row["raw"])
                place = (0, line.partition, line.offset)
            except CodecError:
                # No record at all: after all others, in the order of the file.
                place = (1, 0, row["seq"])
            yield place, row["raw"]


def _query(table: str, sql: str) -> Iterator[pa.RecordBatch]:
    """Yields the answer to a query on the table ``rows``; nothing where there is no such table."""
    if DeltaTable.is_deltatable(table):
        yield from query(DeltaTable(table), sql)
