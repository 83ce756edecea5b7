"""Writes tables as Parquet files from many tasks at once, and commits all files of a table as one Delta version.

A task's files are nowhere to be seen until the driver commits those of the successful tasks; what a failed or repeated
attempt left behind stays unknown to the table (VACUUM removes it).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, create_table_with_add_actions

from coordinator_udf.tables.places import files_of
from coordinator_udf.user_errors import InputError
from schemas.coordinator_log import COORDINATOR_LOG_TABLE, coordinator_log_arrow
from schemas.explanations import EXPLANATIONS_TABLE, UNEXPLAINED_TABLE, explanations_arrow, unexplained_arrow
from schemas.replay_differences import REPLAY_DIFFERENCES_TABLE, replay_differences_arrow
from schemas.requests import REQUEST_LOG_TABLE, request_log_arrow
from schemas.simulation import MEMBER_EVENTS_TABLE, VIOLATIONS_TABLE, member_events_arrow, violations_arrow
from schemas.tables import TABLES, table_arrow

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

#: The tables that not every run writes, with their schemas: what a replay was given, what only a simulation knows.
_MORE: Final = {
    REQUEST_LOG_TABLE: request_log_arrow,
    COORDINATOR_LOG_TABLE: coordinator_log_arrow,
    REPLAY_DIFFERENCES_TABLE: replay_differences_arrow,
    EXPLANATIONS_TABLE: explanations_arrow,
    UNEXPLAINED_TABLE: unexplained_arrow,
    MEMBER_EVENTS_TABLE: member_events_arrow,
    VIOLATIONS_TABLE: violations_arrow,
}
#: Columns of which a file's least and greatest value are kept, so that readers can skip files.
_STATS_COLUMNS = ("partition", "offset", "seq", "ts")
#: Rows of a row group, at least; small tables are buffered until then. Measured with 400,000 answers (the best of
#: five): 55 ms to write and 5.9 MB, with half as many 57 ms and 6.1 MB, with double 50 ms and 5.1 MB, but each table
#: that a task writes may hold as many in memory.
_ROW_GROUP_ROWS = 100_000


class TableFile(msgspec.Struct, frozen=True):
    """One written file of a table, relative to the table's directory."""

    table: str
    name: str
    size: int
    rows: int
    stats: str


class Wanted(NamedTuple):
    """What is read of a table: columns, the first of which orders the rows of a partition, and of which rows."""

    columns: Sequence[str]
    where: pc.Expression | None = None


class TableFiles:
    """The files that one task writes: one a table, begun with the table's first row.

    Args:
        out: the folder of the tables, a path or a URI.
    """

    def __init__(self, out: Path | str) -> None:
        self._files = files_of(str(out))
        self._writers: dict[str, _Writer] = {}

    @staticmethod
    def new_name() -> str:
        """Returns a file name that no other task and no other attempt of this one will use."""
        return f"part-{uuid.uuid4()}"

    def write(self, tables: dict[str, pa.Table]) -> None:
        """Adds rows to tables, by the tables' names."""
        for name, rows in tables.items():
            if len(rows):
                writer = self._writers.get(name) or self._writers.setdefault(name, _Writer(self._files, name))
                writer.write(rows)

    def close(self) -> list[TableFile]:
        """Ends all files."""
        return [writer.close() for writer in self._writers.values()]


class _Writer:
    """One Parquet file of one table."""

    def __init__(self, files: FileSystem, table: str) -> None:
        self._files = files
        self._table = table
        files.create_dir(table, recursive=True)
        self._name = f"{TableFiles.new_name()}.parquet"
        self._schema = _schema(table)
        self._writer = pq.ParquetWriter(f"{table}/{self._name}", self._schema, compression="snappy", filesystem=files)
        self._buffered: list[pa.Table] = []
        self._buffered_rows = 0
        self._rows = 0
        self._least: dict[str, Any] = {}
        self._greatest: dict[str, Any] = {}

    def write(self, rows: pa.Table) -> None:
        self._note(rows)
        self._buffered.append(rows)
        self._buffered_rows += len(rows)
        if self._buffered_rows >= _ROW_GROUP_ROWS:
            self._flush()

    def close(self) -> TableFile:
        self._flush()
        self._writer.close()
        stats = {"numRecords": self._rows, "minValues": self._least, "maxValues": self._greatest, "nullCount": {}}
        size = self._files.get_file_info(f"{self._table}/{self._name}").size
        return TableFile(self._table, self._name, size, self._rows, msgspec.json.encode(stats).decode())

    def _flush(self) -> None:
        if self._buffered:
            self._writer.write_table(pa.concat_tables(self._buffered), row_group_size=_ROW_GROUP_ROWS)
            self._rows += self._buffered_rows
            self._buffered, self._buffered_rows = [], 0

    def _note(self, rows: pa.Table) -> None:
        for name in _STATS_COLUMNS:
            if name not in rows.column_names:
                continue
            bounds = pc.min_max(rows.column(name)).as_py()
            if bounds["min"] is not None:
                self._least[name] = min(bounds["min"], self._least.get(name, bounds["min"]))
                self._greatest[name] = max(bounds["max"], self._greatest.get(name, bounds["max"]))


def refuse_existing(out: Path | str, overwrite: bool, option: str = "--out") -> None:
    """Makes sure that nobody's tables are lost.

    Args:
        option: what the directory was named by.

    Raises:
        InputError: there are tables in the directory, and they are not to be overwritten.
    """
    if overwrite:
        return
    there = [name for name in (*TABLES, *_MORE) if DeltaTable.is_deltatable(f"{str(out).rstrip('/')}/{name}")]
    if there:
        raise InputError(f"{out} holds tables already ({', '.join(there)}); choose another {option} or say --overwrite")


@contextmanager
def nothing_left_behind(out: Path) -> Iterator[None]:
    """Removes the files that were written meanwhile if what writes them fails; to be left before they are committed."""
    before = set(out.glob("*/*.parquet"))
    try:
        yield
    except BaseException:
        for path in set(out.glob("*/*.parquet")) - before:
            path.unlink(missing_ok=True)
            with suppress(OSError):
                # Of a table that wasn't there nothing else is in it.
                path.parent.rmdir()
        raise


def commit(out: Path, files: Iterable[TableFile]) -> None:
    """Makes the files the whole content of the tables: one version for each table, tables without a file empty.

    A table that not every run writes is one of this run only if it wrote it, or if it has to be emptied.
    """
    by_table: dict[str, list[TableFile]] = {name: [] for name in TABLES}
    for file in files:
        by_table.setdefault(file.table, []).append(file)
    for name, written in by_table.items():
        (out / name).mkdir(parents=True, exist_ok=True)
        replace_content(str(out / name), added(written), Schema.from_arrow(_schema(name)))
    empty_others(str(out), by_table)


def empty_others(out: str, written: Container[str]) -> None:
    """Empties the tables of an earlier run that not every run writes, and this one didn't.

    Args:
        out: the folder of the tables, a path or a URI.
        written: the names of those that it did write.
    """
    for name, schema in _MORE.items():
        if name not in written and DeltaTable.is_deltatable(f"{out}/{name}"):
            replace_content(f"{out}/{name}", [], Schema.from_arrow(schema()))


def replace_content(uri: str, actions: Sequence[AddAction], schema: Schema) -> None:
    """Makes files the whole content of a table, which is made if need be, in one commit.

    Args:
        uri: of the table, a path or a URI; the files are there.
    """
    if DeltaTable.is_deltatable(uri):
        table = DeltaTable(uri)
        table.create_write_transaction(list(actions), mode="overwrite", schema=schema, partition_by=[])
    else:
        create_table_with_add_actions(uri, schema=schema, add_actions=list(actions), mode="error")


def added(files: Iterable[TableFile]) -> list[AddAction]:
    """Returns what a commit says of files that it adds to their table."""
    now_ms = int(time.time() * 1000)
    return [AddAction(file.name, file.size, {}, now_ms, True, file.stats) for file in files]


def read_back(out: str, files: Iterable[TableFile], max_rows: int) -> Iterator[pa.Table]:
    """Yields the rows of files, so many at a time."""
    there = files_of(out)
    for file in files:
        with pq.ParquetFile(f"{file.table}/{file.name}", filesystem=there) as rows:
            for batch in rows.iter_batches(batch_size=max_rows):
                yield pa.Table.from_batches([batch])


def read_shard(
    out: str, files: Mapping[str, Sequence[TableFile]], partition: int, wanted: Mapping[str, Wanted]
) -> dict[str, pa.Table]:
    """Returns the rows that one partition has in files, by table; in order."""
    there = files_of(out)
    found = {}
    for table, want in wanted.items():
        paths = [f"{file.table}/{file.name}" for file in files[table] if _may_hold(file, partition)]
        if paths:
            of_shard = pc.field("partition") == partition
            rows = pq.read_table(
                paths,
                columns=[*want.columns],
                filters=of_shard if want.where is None else of_shard & want.where,
                filesystem=there,
                partitioning=None,
            )
        else:
            rows = _schema(table).empty_table().select(want.columns)
        found[table] = rows.sort_by(want.columns[0])
    return found


def _may_hold(file: TableFile, partition: int) -> bool:
    """Returns whether rows of a partition are in a file for all that is known without opening it."""
    stats = msgspec.json.decode(file.stats)
    least, greatest = (stats[bound].get("partition") for bound in ("minValues", "maxValues"))
    return least is not None and least <= partition <= greatest


def _schema(table: str) -> pa.Schema:
    arrow = _MORE.get(table)
    return table_arrow(table) if arrow is None else arrow()
