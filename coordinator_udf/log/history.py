"""The history of an embedded log: the Delta table request_log, which takes the appends that leave the log.

Each commit holds the rows of a run of appends and carries the application transaction (log, number after the last
append). So the table says itself up to where it holds a log, and a run that is written twice counts once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from coordinator_udf.tables.delta import compact, next_numbers, opened_or_made
from coordinator_udf.tables.durability import paths_of_commits, sync_all
from coordinator_udf.tables.epoch import FencedError, epoch_of, raise_epoch, refuse_fenced
from coordinator_udf.tables.places import is_uri
from coordinator_udf.tables.queries import literal, query
from schemas.requests import LIVE, REQUEST_LOG_TABLE, request_log_arrow

#: After how many commits small files are packed, and after how many packings those that were replaced are deleted. A
#: commit is a fold, of 200,000 rows by default; a reader opens up to so many small files beside the packed ones.
_COMPACT_AFTER_COMMITS: Final = 16
_VACUUM_AFTER_COMPACTIONS: Final = 4

_SCHEMA: Final = request_log_arrow()


def history_uri(tables: str) -> str:
    """Returns where the history is whose other tables are in a folder."""
    return f"{tables.rstrip('/')}/{REQUEST_LOG_TABLE}" if is_uri(tables) else str(Path(tables) / REQUEST_LOG_TABLE)


def as_kept(uri: str, log: Path) -> str:
    """Returns a table's place as the log keeps it: from where the log is, so that both can be moved together."""
    return uri if is_uri(uri) else os.path.relpath(Path(uri).absolute(), log.absolute().parent)


def as_found(kept: str, log: Path) -> str:
    """Returns the place that a log keeps, for those who read the table."""
    return kept if is_uri(kept) else os.path.normpath(log.absolute().parent / kept)


class LogHistory:
    """The history of one embedded log.

    Args:
        uri: the table; made when it is first written to.
        log_id: names the log in the table's transactions.
        epoch: of the coordinator that writes it, which takes the table over with its first append; None: nobody else
            writes it.
    """

    def __init__(self, uri: str, log_id: str, epoch: int | None = None) -> None:
        self.uri = uri
        self.log_id = log_id
        self.epoch = epoch
        self._table: DeltaTable | None = None
        self._until: int | None = None

    def take(self) -> None:
        """Takes the table over, if it is there by now; its coordinator before can't write to it any more.

        Raises:
            FencedError: another coordinator has taken it over.
        """
        if self._table is not None or DeltaTable.is_deltatable(self.uri):
            self._taken()

    def until(self) -> int:
        """Returns up to which append the table holds the log: the number after the last."""
        is_there = self._table is not None or DeltaTable.is_deltatable(self.uri)
        self._until = (self._opened().transaction_version(self.log_id) or 0) if is_there else 0
        return self._until

    def append(self, rows: pa.Table, until: int) -> None:
        """Writes the rows of the next run of appends in one commit; they are durable on return.

        Args:
            rows: columns of REQUEST_LOG.
            until: the number after the run's last append.

        Raises:
            FencedError: another coordinator has taken the table over.
            CommitFailedError: it does so, or writes the same, at this moment.
        """
        transaction = CommitProperties(app_transactions=[Transaction(self.log_id, until)])
        table = self._taken()
        # Of the same version as the epoch. The first append of another coordinator may have made the table.
        held = table.transaction_version(self.log_id) or 0
        if self._until not in (None, held):
            raise FencedError(f"{self.uri} holds the log up to append {held}; this coordinator knows of {self._until}")
        version = table.version() + 1
        write_deltalake(table, rows, mode="append", commit_properties=transaction)
        self._until = until
        if not is_uri(self.uri):
            # The log forgets the rows next, and of that SQLite makes sure.
            sync_all(paths_of_commits(Path(self.uri), version, table.version()))

    def keep_up(self) -> None:
        """Packs small files and deletes what was replaced, each time that enough commits were made."""
        version = self._opened().version()
        if version % _COMPACT_AFTER_COMMITS == 0:
            compact(
                self._taken(),
                is_durable=not is_uri(self.uri),
                vacuum=version % (_COMPACT_AFTER_COMMITS * _VACUUM_AFTER_COMPACTIONS) == 0,
            )

    def rows(self, begin: Sequence[int], end: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Yields the rows from some offsets of each partition (by its number) on to before some others."""
        wanted = [
            f'("partition" = {partition} AND "offset" >= {start} AND "offset" < {stop})'
            for partition, (start, stop) in enumerate(zip(begin, end, strict=True))
            if start < stop
        ]
        if not wanted:
            return
        columns = ", ".join(f'"{name}"' for name in _SCHEMA.names)
        where = f"source = {literal(LIVE)} AND ({' OR '.join(wanted)})"
        for batch in query(DeltaTable(self.uri), f"SELECT {columns} FROM rows WHERE {where}"):
            if batch.num_rows:
                yield from pa.Table.from_batches([batch]).cast(_SCHEMA).to_batches()

    def _taken(self) -> DeltaTable:
        """Returns the table's newest version, once it has this coordinator's epoch."""
        table = self._opened()
        if self.epoch is not None and epoch_of(table) < self.epoch:
            raise_epoch(table, self.epoch)
        refuse_fenced(table, self.epoch)
        return table

    def _opened(self) -> DeltaTable:
        if self._table is None:
            self._table = opened_or_made(self.uri, _SCHEMA)
        self._table.update_incremental()
        return self._table


def next_offsets(uri: str) -> list[int]:
    """Returns for each partition the offset after the last row that a history holds; nothing where there is none."""
    return next_numbers(uri, "offset") if DeltaTable.is_deltatable(uri) else []
