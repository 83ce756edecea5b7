"""The embedded request log: one SQLite file that any number of local processes append to and read from.

An append is one row holding an Arrow record batch of schemas.requests.REQUEST_LOG, and it is one transaction: it is
in the log whole or not at all, and on the disk when `EmbeddedLog.append` returns (WAL, ``synchronous=FULL``). Appends
are numbered densely from 0; these numbers are the offsets of the stream that reads the log, so that a micro-batch
never splits an append. Rows get their own dense offsets, one sequence a partition, within the transaction.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from coordinator_udf.protocol.errors import BadRequest
from coordinator_udf.streaming.log_clock import DEFAULT_SKEW_MAX_MS, Anchor, LogClock
from schemas.requests import REQUEST_COLUMNS, request_log_arrow

#: The format of the file; a change of the tables or of the blobs raises it.
FORMAT: Final = 1

#: What `source` is in every row of an embedded log.
LIVE: Final = "live"

BUSY_TIMEOUT_S: Final = 60.0

_SCHEMA: Final = request_log_arrow()
_GIVEN: Final = tuple(name for name in REQUEST_COLUMNS if name not in ("source", "offset"))
_IPC: Final = pa.ipc.IpcWriteOptions(compression="lz4")

_TABLES: Final = """
CREATE TABLE log (format INTEGER, partitions INTEGER, first INTEGER, next INTEGER, rows INTEGER,
                  boot_id TEXT, wall_ms INTEGER, steady_ms INTEGER, skew_max_ms INTEGER);
CREATE TABLE heads (partition INTEGER PRIMARY KEY, next_offset INTEGER NOT NULL, log_ts INTEGER);
CREATE TABLE appends (number INTEGER PRIMARY KEY, rows_until INTEGER NOT NULL, log_ts INTEGER NOT NULL,
                      data BLOB NOT NULL);
"""


class LogError(Exception):
    """The embedded log can't be used as asked; the message says what is wrong and what to do."""


class Extent(NamedTuple):
    """What the log holds: appends ``[first, next)``, and the number of rows ever appended."""

    first: int
    next: int
    rows: int


class EmbeddedLog:
    """An open embedded log. Safe to share between threads; other processes open the same path.

    Attributes:
        path: the SQLite file.
        partitions: how many partitions (coordinator shards) the log has; fixed at its creation.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, partitions: int, clock: LogClock) -> None:
        self.path = path
        self.partitions = partitions
        self._connection = connection
        self._clock = clock
        # One connection for all threads: SQLite serialises writers anyhow.
        self._lock = threading.Lock()

    @classmethod
    def create(
        cls,
        path: Path,
        partitions: int = 8,
        *,
        clock_skew_max_ms: int | None = DEFAULT_SKEW_MAX_MS,
        clock: LogClock | None = None,
    ) -> EmbeddedLog:
        """Makes a new, empty log.

        Args:
            path: where; its directory is made if need be.
            partitions: the number of coordinator shards, for good.
            clock_skew_max_ms: how far a row may be ahead of the log's clock; None for recorded requests. It stays
                with the log.

        Raises:
            LogError: there is something at the path already, or the number of partitions isn't positive.
        """
        if not 1 <= partitions <= 10_000:
            raise LogError(f"partitions of a request log is {partitions}, expected 1 to 10000")
        if path.exists():
            raise LogError(f"{path} exists already; open it, or choose another path for a new request log")
        path.parent.mkdir(parents=True, exist_ok=True)
        # Made aside and renamed, so that nobody ever opens half a log.
        draft = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.new")
        draft.unlink(missing_ok=True)
        connection = sqlite3.connect(draft)
        with connection:
            connection.executescript("PRAGMA auto_vacuum=INCREMENTAL;" + _TABLES)
            connection.execute(
                "INSERT INTO log VALUES (?, ?, 0, 0, 0, NULL, NULL, NULL, ?)", (FORMAT, partitions, clock_skew_max_ms)
            )
            connection.executemany("INSERT INTO heads VALUES (?, 0, NULL)", [(i,) for i in range(partitions)])
        connection.close()
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            raise LogError(f"{path} was made by somebody else just now; open it") from None
        finally:
            draft.unlink()
        _sync_directory(path.parent)
        return cls.open(path, clock=clock)

    @classmethod
    def open(cls, path: Path, *, clock: LogClock | None = None) -> EmbeddedLog:
        """Opens an existing log.

        Raises:
            LogError: there is no log at the path, or it is of a format that isn't known here.
        """
        if not path.is_file():
            raise LogError(f"there is no request log at {path}; whoever appends first makes it (EmbeddedLog.create)")
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            version, partitions, skew = connection.execute("SELECT format, partitions, skew_max_ms FROM log").fetchone()
        except (sqlite3.DatabaseError, TypeError) as error:
            connection.close()
            raise LogError(f"{path} is not a request log: {error}") from error
        if version != FORMAT:
            connection.close()
            raise LogError(
                f"the request log {path} has format {version}, expected {FORMAT}: use the release that wrote it"
            )
        return cls(path, connection, partitions, clock or LogClock(skew))

    def close(self) -> None:
        """Closes the log; what was appended stays."""
        with self._lock:
            self._connection.close()

    def now_ms(self) -> int:
        """The wall clock by which rows are to be stamped, in milliseconds since the epoch."""
        return self._clock.wall()

    def append(self, rows: Sequence[Mapping[str, Any]]) -> int:
        """Appends rows as one append and returns its number; they are durable on return.

        ``log_ts`` of a row is raised to the greatest so far in its partition, and lowered to the log's clock plus the
        skew that is allowed (`LogClock`), so that within a partition time never goes back and hardly runs ahead.

        Args:
            rows: every column of REQUEST_LOG but ``source`` and ``offset`` (coordinator_udf.log_rows makes them).

        Raises:
            BadRequest: a column is missing, has a wrong type, or names a partition that isn't there. Nothing is
                appended.
        """
        try:
            given = {name: pa.array([row[name] for row in rows], _SCHEMA.field(name).type) for name in _GIVEN}
        except KeyError as error:
            raise BadRequest("a row of the request log", f"lacking {error}", "every column of REQUEST_LOG") from None
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise BadRequest("a row of the request log", str(error), "the column types of REQUEST_LOG") from error
        return self.append_columns(given)

    def append_columns(self, columns: Mapping[str, pa.Array]) -> int:
        """`append` for rows that are Arrow columns already."""
        missing = [name for name in _GIVEN if name not in columns]
        if missing:
            raise BadRequest("columns of the request log", sorted(columns), "also " + ", ".join(missing))
        partition = self._checked(columns["partition"], "partition")
        log_ts = self._checked(columns["log_ts"], "log_ts")
        if len(partition) == 0:
            raise BadRequest("rows", "none", "at least one row an append")
        if partition.min() < 0 or partition.max() >= self.partitions:
            wrong = partition.min() if partition.min() < 0 else partition.max()
            raise BadRequest("partition", int(wrong), f"0 to {self.partitions - 1}, the partitions of {self.path}")
        with self._transaction() as connection:
            return self._insert(connection, columns, partition, log_ts)

    def extent(self) -> Extent:
        """Which appends there are, and how many rows there ever were."""
        return Extent(*self._one("SELECT first, next, rows FROM log"))

    def end(self) -> int:
        """The number that the next append will get."""
        return self.extent().next

    def newest_log_ts(self) -> int | None:
        """The greatest ``log_ts`` so far; None in an empty log."""
        newest: int | None = self._one("SELECT MAX(log_ts) FROM heads")[0]
        return newest

    def rows_until(self, number: int) -> int:
        """How many rows lie before append `number`, trimmed ones included."""
        extent = self.extent()
        if number >= extent.next:
            return extent.rows
        found = self._one("SELECT MAX(rows_until) FROM appends WHERE number = ?", (number - 1,))[0]
        return 0 if found is None else int(found)

    def end_within(self, start: int, end: int, max_rows: int) -> int:
        """The greatest bound of appends from `start` that hold at most `max_rows` rows; one append at the least."""
        budget = self.rows_until(start) + max_rows
        low, high = min(start + 1, end), end
        while low < high:
            middle = (low + high + 1) // 2
            if self.rows_until(middle) <= budget:
                low = middle
            else:
                high = middle - 1
        return low

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The appends in ``[start, end)``, in order, one record batch of REQUEST_LOG each.

        Raises:
            LogError: some of them were trimmed, or are not there yet.
        """
        with self._lock:
            cursor = self._connection.cursor()
        expected = start
        while expected < end:
            # In portions, each read to its end, so that no reader's snapshot holds back SQLite's checkpoint for long.
            with self._lock:
                portion = cursor.execute(
                    "SELECT number, data FROM appends WHERE number >= ? AND number < ? ORDER BY number LIMIT 256",
                    (expected, end),
                ).fetchall()
            for number, data in portion:
                if number != expected:
                    break
                yield _decode(data)
                expected += 1
            if not portion or portion[-1][0] != expected - 1:
                extent = self.extent()
                raise LogError(
                    f"append {expected} is not in {self.path}, which holds {extent.first} to {extent.next - 1}; "
                    "a reader that starts there needs the log's history, or --recover-from-offsets"
                )

    def trim(self, before: int) -> int:
        """Deletes the appends numbered below `before` and gives their space back; returns how many were deleted."""
        extent = self.extent()
        before = min(before, extent.next)
        for start in range(extent.first, before, 1_000):
            stop = min(start + 1_000, before)
            # In portions, so that appenders never wait for long.
            with self._transaction() as connection:
                connection.execute("DELETE FROM appends WHERE number < ?", (stop,))
                connection.execute("UPDATE log SET first = MAX(first, ?)", (stop,))
            with self._lock:
                self._connection.execute("PRAGMA incremental_vacuum").fetchall()
        return max(before - extent.first, 0)

    def _insert(
        self, connection: sqlite3.Connection, columns: Mapping[str, pa.Array], partition: np.ndarray, log_ts: np.ndarray
    ) -> int:
        number, rows, *stored = connection.execute("SELECT next, rows, boot_id, wall_ms, steady_ms FROM log").fetchone()
        anchor = self._clock.anchor(None if stored[0] is None else Anchor(*stored))
        latest = self._clock.latest(anchor)
        offsets = np.empty(len(partition), np.int64)
        stamped = log_ts if latest is None else np.minimum(log_ts, latest)
        for index in np.unique(partition).tolist():
            mine = np.flatnonzero(partition == index)
            next_offset, head = connection.execute(
                "SELECT next_offset, log_ts FROM heads WHERE partition = ?", (index,)
            ).fetchone()
            offsets[mine] = next_offset + np.arange(len(mine))
            times = np.maximum.accumulate(stamped[mine])
            stamped[mine] = times if head is None else np.maximum(times, head)
            connection.execute(
                "UPDATE heads SET next_offset = ?, log_ts = ? WHERE partition = ?",
                (next_offset + len(mine), int(stamped[mine[-1]]), index),
            )
        full = {**columns, "source": pa.array([LIVE] * len(offsets)), "offset": offsets, "log_ts": stamped}
        batch = pa.record_batch([full[name] for name in REQUEST_COLUMNS], schema=_SCHEMA)
        connection.execute(
            "INSERT INTO appends VALUES (?, ?, ?, ?)", (number, rows + len(offsets), int(stamped.max()), _encode(batch))
        )
        connection.execute(
            "UPDATE log SET next = ?, rows = ?, boot_id = ?, wall_ms = ?, steady_ms = ?",
            (number + 1, rows + len(offsets), *anchor),
        )
        return int(number)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _one(self, query: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...]:
        with self._lock:
            row: tuple[Any, ...] = self._connection.execute(query, parameters).fetchone()
        return row

    @staticmethod
    def _checked(column: pa.Array, name: str) -> np.ndarray:
        if column.null_count:
            raise BadRequest(name, None, "a whole number in every row")
        return np.array(column, dtype=np.int64)


def _sync_directory(directory: Path) -> None:
    # A new name is on the disk only when its directory is.
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _encode(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA, options=_IPC) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _decode(data: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()
