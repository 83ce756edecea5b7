"""The embedded request log: one SQLite file that any number of local processes append to and read from.

An append is one row holding rows of schemas.requests.REQUEST_LOG, by partition and in the bytes in which they go to
their shard (log.partition_bytes), and it is one transaction: it is in the log whole or not at all, and on the disk when
`EmbeddedLog.append` returns (WAL, ``synchronous=FULL``). Appends are numbered densely from 0; these numbers are the
offsets of the stream that reads the log, so that a micro-batch never splits an append. Rows get their own dense
offsets, one sequence a partition, within the transaction.

What the stream needs no more is moved to a Delta table, the log's history (folding.Folder); request_log reads both.
"""

from __future__ import annotations

import logging
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from coordinator_udf.log.clock import DEFAULT_SKEW_MAX_MS, Anchor, LogClock
from coordinator_udf.log.contents import Extent, History, LogSnapshot
from coordinator_udf.log.file import (
    GroupConfigs,
    make_file,
    open_file,
    read_configured_topics,
    read_group_configs,
    read_snapshot,
    read_topics,
    take_places,
    write_append,
    write_configured_topics,
    write_group_configs,
    write_topics,
)
from coordinator_udf.log.gateway_lock import hold_gateway_lock
from coordinator_udf.log.record_batches import (
    SCHEMA,
    checked_columns,
    decode,
    encode,
    to_columns,
    unopened,
)
from coordinator_udf.log.rows import downtime_rows
from coordinator_udf.log.shared_connection import SharedConnection
from coordinator_udf.log.stored_appends import StoredAppends
from coordinator_udf.protocol.errors import BadRequest
from coordinator_udf.protocol.requests import Topic
from schemas.requests import LIVE, REQUEST_COLUMNS

_log: Final = logging.getLogger(__name__)

#: After how long without an append time is said to have stood still, in milliseconds: six ticks (`--tick`, 500 ms), and
#: half of the shortest session (group.min.session.timeout.ms, 6 s). With half three late ticks put all sessions off;
#: with double the shortest sessions end first.
DOWNTIME_AFTER_MS: Final = 3_000


class EmbeddedLog:
    """An open embedded log. Safe to share between threads; other processes open the same path.

    Attributes:
        path: the SQLite file.
        partitions: how many partitions (coordinator shards) the log has; fixed at its creation.
    """

    #: After how long without an append the next one says that time stood still; None: never, as in recorded logs.
    downtime_after_ms: int | None = DOWNTIME_AFTER_MS
    #: Whether a request's rows may come in different micro-batches; an append is never split.
    splits_requests = False
    #: Whether it keeps the topics that clients create and the settings that they give to groups.
    keeps_changes = True

    def __init__(self, path: Path, connection: sqlite3.Connection, partitions: int, clock: LogClock) -> None:
        self.path = path
        self.partitions = partitions
        self._file = SharedConnection(connection)
        self._appends = StoredAppends(path, self._file)
        self._clock = clock
        # Before this process's first row with a time nobody listened to clients; in a later gap they stay connected.
        self._has_listened = False

    @classmethod
    def create(
        cls,
        path: Path,
        partitions: int = 8,
        *,
        clock_skew_max_ms: int | None = DEFAULT_SKEW_MAX_MS,
        clock: LogClock | None = None,
        first_offsets: Sequence[int] = (),
    ) -> EmbeddedLog:
        """Makes a new, empty log.

        Args:
            path: where; its directory is made if need be.
            partitions: the number of coordinator shards, for good.
            clock_skew_max_ms: how far a row may be ahead of the log's clock; None for recorded requests. It stays
                with the log.
            first_offsets: for each partition the offset of its first row, where a history goes on; 0 by default.

        Raises:
            LogError: there is something at the path already, or the number of partitions isn't positive.
        """
        make_file(path, partitions, clock_skew_max_ms, first_offsets)
        return cls.open(path, clock=clock)

    @classmethod
    def open(cls, path: Path, *, clock: LogClock | None = None) -> EmbeddedLog:
        """Opens an existing log.

        Raises:
            LogError: there is no log at the path, or it is of a format that isn't known here.
        """
        connection, partitions, skew = open_file(path)
        return cls(path, connection, partitions, clock or LogClock(skew))

    def close(self) -> None:
        """Closes the log; what was appended stays."""
        self._file.close()

    def now_ms(self) -> int:
        """Returns the wall clock by which rows are to be stamped, in milliseconds since the epoch."""
        return self._clock.wall()

    def append(self, rows: Sequence[Mapping[str, Any]]) -> int:
        """Appends rows as one append and returns its number; they are durable on return.

        ``log_ts`` of a row is raised to the greatest so far in its partition, and lowered to the log's clock plus the
        skew that is allowed (`LogClock`), so that within a partition time never goes back and hardly runs ahead.

        Args:
            rows: every column of REQUEST_LOG but ``source`` and ``offset`` (coordinator_udf.log.rows makes them).

        Raises:
            BadRequest: a column is missing, has a wrong type, or names a partition that isn't there. Nothing is
                appended.
        """
        return self.append_columns(to_columns(rows))

    def append_columns(self, columns: Mapping[str, pa.Array]) -> int:
        """Appends rows that are Arrow columns already, as `append` does."""
        return self.append_all([columns]).start

    def append_all(self, appends: Iterable[Mapping[str, pa.Array]]) -> range:
        """Makes several appends, of Arrow columns each, of which the log gets all or none; returns their numbers.

        Other appenders wait for as long as the iterable takes. Where nobody has appended for `downtime_after_ms` before
        them, a Downtime row in each partition goes first.

        Raises:
            BadRequest: there is none, or one can't be appended. Nothing is.
        """
        numbers: list[int] = []
        with self._file.transaction() as connection:
            for columns in appends:
                partition, log_ts = checked_columns(columns, self.partitions)
                if not numbers:
                    self._note_downtime(connection, int(log_ts.max()))
                if log_ts.max() > 0:
                    self._has_listened = True
                numbers.append(self._insert(connection, columns, partition, log_ts))
        if not numbers:
            raise BadRequest("appends", "none", "at least one")
        return range(numbers[0], numbers[-1] + 1)

    def hold_gateway_lock(self) -> AbstractContextManager[None]:
        """Tells others, for as long as the context lasts, that somebody takes requests for this log."""
        return hold_gateway_lock(self.path)

    def note_absence(self) -> None:
        """Says that clients can't reach anybody: a gap before the next append is of a start, not of a pause."""
        with self._file.lock:
            self._has_listened = False

    def extent(self) -> Extent:
        """Returns which appends there are, and how many rows there ever were."""
        return self._appends.extent()

    def end(self) -> int:
        """Returns the number that the next append will get."""
        return self.extent().next

    def newest_log_ts(self) -> int | None:
        """Returns the greatest ``log_ts`` so far; None in an empty log."""
        newest: int | None = self._file.one("SELECT MAX(log_ts) FROM heads")[0]
        return newest

    def snapshot(self) -> LogSnapshot:
        """Returns what the log holds now, all of it as of one moment."""
        with self._file.snapshot() as connection:
            return read_snapshot(connection)

    def keep_history(self, uri: str) -> History:
        """Says where the appends go that leave the log, and returns that with the log's name there."""
        with self._file.transaction() as connection:
            found = connection.execute("SELECT id FROM history").fetchone()
            history = History(uuid.uuid4().hex if found is None else found[0], uri)
            connection.execute("DELETE FROM history")
            connection.execute("INSERT INTO history VALUES (?, ?)", history)
        return history

    def created_topics(self) -> tuple[Topic, ...]:
        """Returns the topics that clients created, beside those of the settings file."""
        with self._file.lock:
            return read_topics(self._file.connection)

    def configured_topics(self) -> dict[str, int]:
        """Returns the topics of the settings file that was read last, and how many partitions each had."""
        with self._file.lock:
            return read_configured_topics(self._file.connection)

    def keep_configured_topics(self, topics: Sequence[Topic]) -> None:
        """Keeps which topics the settings file has."""
        with self._file.transaction() as connection:
            write_configured_topics(connection, topics)

    def change_topics(
        self, expected: tuple[Topic, ...], topics: tuple[Topic, ...], rows: Sequence[Mapping[str, Any]]
    ) -> bool:
        """Changes the topics that clients created, and appends the rows that say so, both or neither.

        Args:
            expected: `created_topics` as the caller knows them.

        Returns:
            Whether it was done; not where others have changed them meanwhile.
        """
        return self._append_if(read_topics, expected, partial(write_topics, topics=topics), rows)

    def group_configs(self) -> GroupConfigs:
        """Returns the settings that clients gave to groups."""
        with self._file.lock:
            return read_group_configs(self._file.connection)

    def change_group_configs(
        self, expected: GroupConfigs, changed: GroupConfigs, rows: Sequence[Mapping[str, Any]]
    ) -> bool:
        """Gives groups other settings of their own, and appends the rows that say so, both or neither.

        Args:
            expected: `group_configs` as the caller knows them.
            changed: all that a group has from now on, of those groups for which something changes.

        Returns:
            Whether it was done; not where others have changed them meanwhile.
        """
        return self._append_if(read_group_configs, expected, partial(write_group_configs, changed=changed), rows)

    def _append_if(
        self,
        read: Callable[[sqlite3.Connection], Any],
        expected: object,
        change: Callable[[sqlite3.Connection], None],
        rows: Sequence[Mapping[str, Any]],
    ) -> bool:
        """Appends rows in one transaction with a change of the file, if it holds what is expected; whether it did."""
        columns = to_columns(rows)
        checked = checked_columns(columns, self.partitions)
        with self._file.transaction() as connection:
            if read(connection) != expected:
                return False
            change(connection)
            self._note_downtime(connection, int(checked[1].max()))
            self._insert(connection, columns, *checked)
        return True

    def rows_until(self, number: int) -> int:
        """Returns how many rows lie before append `number`, trimmed ones included.

        For a trimmed append, all trimmed rows.
        """
        return self._appends.rows_until(number)

    def end_within(self, start: int, end: int, max_rows: int) -> int:
        """Returns the greatest bound of appends from `start` that hold at most `max_rows` rows.

        That is one append at the least.
        """
        return self._appends.end_within(start, end, max_rows)

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Returns the appends in ``[start, end)``, in order, one record batch of REQUEST_LOG each.

        In a batch the rows of a partition stand together, in their order.

        Raises:
            TrimmedError: some of them were trimmed.
            LogError: some of them are not there yet.
        """
        return map(decode, self._appends.read(start, end))

    def read_packed(self, start: int, end: int) -> Iterator[dict[int, bytes]]:
        """Returns the appends in ``[start, end)``, in order, each partition's rows as bytes (log.partition_bytes).

        Raises:
            TrimmedError, LogError: as of `read`.
        """
        return map(unopened, self._appends.read(start, end))

    def trim(self, before: int, rows: pa.Table | None = None) -> int:
        """Deletes the appends numbered below `before` and gives their space back; returns how many were deleted.

        Args:
            rows: the rows of these appends, in order, where they are at hand; else they are read again.
        """
        return self._appends.trim(before, rows)

    def _note_downtime(self, connection: sqlite3.Connection, log_ts: int) -> None:
        """Says on the log that time stood still, if nobody has appended for long before a row of this time."""
        (head,) = connection.execute("SELECT MAX(log_ts) FROM heads").fetchone()
        after_ms = self.downtime_after_ms
        if after_ms is None or self._clock.skew_max_ms is None or not head or log_ts - head <= after_ms:
            return
        latest = self._clock.latest(self._anchor(connection))
        until_ms = log_ts if latest is None else min(log_ts, latest)
        if until_ms - head > after_ms:
            rows = downtime_rows(self.partitions, head, until_ms, stayed_connected=self._has_listened)
            columns = to_columns(rows)
            self._insert(connection, columns, *checked_columns(columns, self.partitions))
            _log.warning(
                "nobody could append for %.1f s; members have time to be heard again", (until_ms - head) / 1000
            )

    def _anchor(self, connection: sqlite3.Connection) -> Anchor:
        stored = connection.execute("SELECT boot_id, wall_ms, steady_ms FROM log").fetchone()
        return self._clock.anchor(None if stored[0] is None else Anchor(*stored))

    def _insert(
        self, connection: sqlite3.Connection, columns: Mapping[str, pa.Array], partition: np.ndarray, log_ts: np.ndarray
    ) -> int:
        anchor = self._anchor(connection)
        latest = self._clock.latest(anchor)
        stamped = log_ts if latest is None else np.minimum(log_ts, latest)
        offsets, stamped = take_places(connection, partition, stamped)
        full = {**columns, "source": pa.array([LIVE] * len(offsets)), "offset": offsets, "log_ts": stamped}
        batch = pa.record_batch([full[name] for name in REQUEST_COLUMNS], schema=SCHEMA)
        return write_append(connection, encode(batch, partition), len(offsets), int(stamped.max()), anchor)
