"""The Delta tables of a coordinator: made up-front, appended to exactly once a micro-batch, and kept from growing slow.

A commit carries the application transaction (query and table, batch), and a batch whose transaction is in the table
already is left out. It goes through only while the table has the epoch of the coordinator that makes it (`epoch`), so
all commits are delta-rs', large ones too.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

import pyarrow as pa
from deltalake import (
    ColumnProperties,
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    Schema,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from coordinator_udf.background import BackgroundThread
from coordinator_udf.tables.durability import paths_of_commits, sync_all, sync_checkpoint
from coordinator_udf.tables.epoch import FencedError, claim, refuse_fenced
from coordinator_udf.tables.packing import pack_files
from coordinator_udf.tables.parquet_files import TableFile, added
from coordinator_udf.tables.places import is_uri
from coordinator_udf.tables.queries import literal, query
from coordinator_udf.user_errors import UserError
from schemas.requests import LIVE
from schemas.tables import TABLES, table_arrow

_log: Final = logging.getLogger(__name__)

#: The order in which a micro-batch is written: what was decided before what is told.
WRITE_ORDER: Final = ("consumer_offsets", "group_transitions", "rejected_requests", "group_responses")

#: Properties of the tables. At two commits a second longer retentions would be many thousand files. A reader needs the
#: log of commits for a moment only, and each listing of it is paid by the file; the data files that compaction replaced
#: it needs until its query is over.
PROPERTIES: Final = {
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": "interval 10 minutes",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
}

#: After how many small commits a table is compacted. A commit costs 0.07 ms more for each file that the table has, so
#: 2.2 ms on average; with half as many 1.1 ms, and twice the compactions; with double 4.5 ms.
COMPACT_AFTER_COMMITS: Final = 64
#: How great files compaction makes; mostly small ones, or else each time it would write all rows anew that the greater
#: file doesn't have yet.
_SMALL_FILE_BYTES: Final = 2 * 1024 * 1024
_FILE_BYTES: Final = 32 * 1024 * 1024
#: After how many compactions all files are looked at, and those that are needed no more are deleted: with two
#: micro-batches a second each 8.5 minutes; as many more small files lie about with double.
_THOROUGH_AFTER_COMPACTIONS: Final = 16
#: Columns whose values hardly ever stand twice in a micro-batch, so that looking for those that do is work for nothing.
#: Measured with the answers of 7,752 heartbeats (CPU time of a commit, three times): with dictionaries of them 5.7 to
#: 5.9 ms and 181 kB, without 4.3 ms and 138 kB. Compaction, which has more rows, makes dictionaries.
_DIFFERENT: Final = ("seq", "request_id", "answered_by", "member_id")
#: Who names a property names the codec too: without properties delta-rs compresses so, with them it does not.
_MICRO_BATCH: Final = WriterProperties(
    compression="SNAPPY",
    column_properties={name: ColumnProperties(dictionary_enabled=False) for name in _DIFFERENT},
)
#: How often an append is tried that meets a deletion of rows, which an append is no part of: as often in a row nothing
#: but a compaction that runs all the time would win.
_APPEND_ATTEMPTS: Final = 10

#: Checkpoints and the clean-up of a table's log list the whole log; that is left to compaction, beside the stream.
_NO_UPKEEP: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


class TableError(UserError):
    """A table can't be used; the message says which and what to do."""


class OutputTables:
    """The four tables of schemas.tables in one folder. One thread at a time uses them.

    Args:
        folder: a path or URI that both delta-rs and Spark understand.
        is_durable: whether commits are on the disk when `write` returns, and what they replace is deleted only then.
            A URI's storage sees to that by itself.

    Attributes:
        epoch: the epoch in which they are written (`claim`); None: whoever writes them is no coordinator.
    """

    def __init__(self, folder: str, *, is_durable: bool = False) -> None:
        self.folder = folder.rstrip("/")
        self.is_durable = is_durable and not is_uri(folder)
        self.epoch: int | None = None
        self._tables = {name: opened_or_made(f"{self.folder}/{name}", table_arrow(name)) for name in TABLES}
        # Goes on from what earlier lives left, for each may be short.
        versions = {name: table.version() for name, table in self._tables.items()}
        self._commits = {name: version % COMPACT_AFTER_COMMITS for name, version in versions.items()}
        self._compactions = {name: version // COMPACT_AFTER_COMMITS for name, version in versions.items()}
        self._synced: dict[str, int] = {}
        self._newest: dict[tuple[str, str], int] = {}
        self._compacted: dict[str, DeltaTable] = {}
        self._upkeep: BackgroundThread | None = None
        self._deleting = threading.Lock()
        if self.is_durable:
            # What a life that was killed left to the operating system is taken for written.
            self._sync()
            place = Path(self.folder).absolute()
            sync_all((place, *place.parents[:2]))

    def table(self, name: str) -> DeltaTable:
        """Returns a table at its newest version."""
        table = self._tables[name]
        table.update_incremental()
        return table

    def claim(self) -> int:
        """Takes the tables over in a new epoch and returns it: who had them before can write nothing any more.

        Raises:
            FencedError: somebody else does at the same time.
        """
        self.epoch = claim([self._tables[name] for name in WRITE_ORDER])
        return self.epoch

    def refuse_fenced(self) -> None:
        """Looks whether the newest versions of all tables are still this coordinator's.

        Raises:
            FencedError: another one has taken them over.
        """
        for name in WRITE_ORDER:
            refuse_fenced(DeltaTable(f"{self.folder}/{name}"), self.epoch)

    def write(self, tables: Mapping[str, pa.Table | Sequence[TableFile]], app_id: str, batch: int) -> int:
        """Appends a micro-batch's rows to the tables that have any, each in one commit; returns how many commits.

        A table that holds the batch already is left alone, so that a batch that runs twice counts once.

        Args:
            tables: rows by the table's name, or the files in the table's folder that have them.
            app_id: whose batches are numbered; stays the same when the query restarts.
            batch: the batch's number; numbers rise.

        Raises:
            FencedError: another coordinator has taken the tables over.
        """
        commits = 0
        for name in WRITE_ORDER:
            rows = tables[name]
            if len(rows) == 0:
                continue
            if (name, app_id) not in self._newest:
                self._newest[name, app_id] = self.newest_batch(name, app_id)
            if self._newest[name, app_id] >= batch:
                continue
            self._take_compacted(name)
            self._append(name, rows, app_id, batch)
            self._newest[name, app_id] = batch
            commits += 1
            self._commits[name] += 1
        if self.is_durable and commits:
            self._sync()
        self._keep_up()
        return commits

    @contextmanager
    def keeping_new_files(self) -> Iterator[None]:
        """Lets no file be deleted while the context lasts: not those either that are written to be committed in it.

        They may be older by then than what is in no table is kept for: a machine may sleep meanwhile.
        """
        with self._deleting:
            yield

    def newest_batch(self, name: str, app_id: str) -> int:
        """Returns the greatest number of a batch that a table holds; -1 if none."""
        version = self.table(name).transaction_version(f"{app_id}-{name}")
        return -1 if version is None else version

    def close(self) -> None:
        """Waits for compaction that is under way."""
        if self._upkeep is not None:
            self._upkeep.stop()

    def _sync(self) -> None:
        # Compaction's commits, too: a table's log is durable up to a commit, or isn't.
        ends = {name: table.version() for name, table in self._tables.items()}
        sync_all(
            path
            for name, end in ends.items()
            for path in paths_of_commits(Path(self.folder, name), self._synced.get(name, -1) + 1, end)
        )
        self._synced = ends

    def _append(self, name: str, rows: pa.Table | Sequence[TableFile], app_id: str, batch: int) -> None:
        transaction = CommitProperties(app_transactions=[Transaction(f"{app_id}-{name}", batch)])
        for attempt in range(1, _APPEND_ATTEMPTS + 1):
            # Of the very version that the append is made on; a change of the epoch after it is a conflict.
            refuse_fenced(self._tables[name], self.epoch)
            try:
                _commit(self._tables[name], rows, transaction)
                return
            except CommitFailedError:
                newest = self.newest_batch(name, app_id)
                refuse_fenced(self._tables[name], self.epoch)
                # delta-rs takes rows that were deleted meanwhile (jobs/compact_offsets.py) for a conflict, though an
                # append reads none. Only if somebody else wrote this very batch it is one.
                if attempt == _APPEND_ATTEMPTS or newest >= batch:
                    raise

    def _keep_up(self) -> None:
        due = [name for name, commits in self._commits.items() if commits >= COMPACT_AFTER_COMMITS]
        if not due or (self._upkeep is not None and self._upkeep.is_running()):
            return
        for name in due:
            self._commits[name] = 0
        # Beside the stream: an append that a compaction fails is made again.
        self._upkeep = BackgroundThread(lambda _: self._compact(due), "table-upkeep")
        self._upkeep.start()

    def _compact(self, names: list[str]) -> None:
        thorough = [name for name in names if self._is_thorough_due(name)]
        steps = [partial(self._pack, name, _FILE_BYTES if name in thorough else _SMALL_FILE_BYTES) for name in names]
        # Last, for it may have to wait.
        steps += [partial(self._delete_unneeded, name) for name in thorough]
        for step in steps:
            try:
                step()
            except FencedError as error:
                _log.warning("compaction is left to another: %s", error)
                return
            except (CommitFailedError, DeltaError) as error:
                # Somebody else packs the same files. They are still all there, and the next time is soon.
                _log.warning("compaction of %s/%s is put off: %s", self.folder, step.args[0], error)

    def _pack(self, name: str, file_bytes: int) -> None:
        table = DeltaTable(f"{self.folder}/{name}")
        refuse_fenced(table, self.epoch)
        compact(table, file_bytes=file_bytes, is_durable=self.is_durable)
        self._compacted[name] = DeltaTable(f"{self.folder}/{name}")

    def _delete_unneeded(self, name: str) -> None:
        with self._deleting:
            # As it is by now: files of a batch that was waited for are in it.
            table = DeltaTable(f"{self.folder}/{name}")
            refuse_fenced(table, self.epoch)
            delete_unneeded(table)

    def _take_compacted(self, name: str) -> None:
        """Goes on with the table as it was opened after a compaction.

        One that was opened before doesn't know the new checkpoint, and goes through all commits since its own.
        """
        if (table := self._compacted.pop(name, None)) is not None:
            table.update_incremental()
            self._tables[name] = table

    def _is_thorough_due(self, name: str) -> bool:
        self._compactions[name] += 1
        return self._compactions[name] % _THOROUGH_AFTER_COMPACTIONS == 0


def _commit(table: DeltaTable, rows: pa.Table | Sequence[TableFile], properties: CommitProperties) -> None:
    """Appends rows, or files that are there already, in one commit on the version of the table that is loaded."""
    if isinstance(rows, pa.Table):
        write_deltalake(
            table,
            rows,
            mode="append",
            writer_properties=_MICRO_BATCH,
            commit_properties=properties,
            post_commithook_properties=_NO_UPKEEP,
        )
    else:
        table.create_write_transaction(
            [*added(rows)],
            mode="append",
            schema=table.schema(),
            commit_properties=properties,
            post_commithook_properties=_NO_UPKEEP,
        )


def compact(
    table: DeltaTable, *, file_bytes: int = _FILE_BYTES, vacuum: bool = False, is_durable: bool = False
) -> None:
    """Packs a table's small files, writes a checkpoint of its log and deletes what is past its retention.

    Args:
        file_bytes: which files are small, and how great those get that are made of them.
        vacuum: whether to also delete the data files that compaction replaced and whose retention is over.
        is_durable: whether what is deleted is so only when all that takes its place is on this machine's disk.
    """
    folder = Path(unquote(urlparse(table.table_uri).path))
    pack_files(table, file_bytes)
    if is_durable:
        # Those before, too: their commits may be deleted now, and who made them syncs them only when it is done.
        sync_all(paths_of_commits(folder, 0, table.version()))
    table.create_checkpoint()
    if is_durable:
        sync_checkpoint(folder)
    table.cleanup_metadata()
    if vacuum:
        delete_unneeded(table)


def delete_unneeded(table: DeltaTable) -> None:
    """Deletes the files that a table needs no more and whose retention is over.

    Also those that it never had, as of a batch that was killed before it was committed.
    """
    table.vacuum(dry_run=False, enforce_retention_duration=False, full=True)


def opened_or_made(uri: str, schema: pa.Schema) -> DeltaTable:
    """Returns a table with at least the columns of a schema.

    Raises:
        TableError: it can't be made, or the one that is there lacks a column.
    """
    try:
        table = DeltaTable(uri)
    except TableNotFoundError:
        try:
            return DeltaTable.create(uri, schema=Schema.from_arrow(schema), mode="ignore", configuration=PROPERTIES)
        except (DeltaError, OSError) as error:
            raise TableError(f"the table {uri} can't be made: {error}") from error
    found = pa.schema(table.schema().to_arrow())
    missing = [field.name for field in schema if field.name not in found.names]
    if missing:
        raise TableError(
            f"the table {uri} has no column {', '.join(missing)}: another release made it; choose new --tables"
        )
    return table


def next_numbers(uri: str, column: str) -> list[int]:
    """Returns for each partition of the log the number after the greatest in a column, of the live coordinator's rows.

    The one way to learn where numbers go on: what it overlooks is given again.

    Args:
        uri: a table with the columns ``source`` and ``partition``.
        column: numbers that rise within a partition: ``seq`` or ``offset``.
    """
    sql = f'SELECT "partition", MAX("{column}") AS last FROM rows WHERE source = {literal(LIVE)} GROUP BY "partition"'
    ends: dict[int, int] = {}
    for row in query(DeltaTable(uri), sql).read_all().to_pylist():
        if row["partition"] is not None and row["last"] is not None:
            ends[row["partition"]] = row["last"] + 1
    return [ends.get(partition, 0) for partition in range(max(ends, default=-1) + 1)]
