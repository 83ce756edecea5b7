"""The appends that the file of an embedded log holds: how many there are, their bytes, and how they leave it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from coordinator_udf.log.contents import Extent
from coordinator_udf.log.file import LogError, delete_appends, read_rows_until
from coordinator_udf.log.record_batches import decode, next_offsets
from coordinator_udf.log.shared_connection import SharedConnection

#: How many appends leave the log in one transaction, for which appenders wait.
_TRIMMED_AT_ONCE: Final = 1_000
#: The most pages of the file that are given back while appenders wait.
_VACUUM_PAGES: Final = 500


class TrimmedError(LogError):
    """Appends that are asked for were moved away from the log."""


class StoredAppends:
    """Reads appends from a log's file, and deletes those that nobody needs any more."""

    def __init__(self, path: Path, file: SharedConnection) -> None:
        self._path = path
        self._file = file

    def extent(self) -> Extent:
        """Returns which appends there are, and how many rows there ever were."""
        return Extent(*self._file.one("SELECT first, next, rows FROM log"))

    def rows_until(self, number: int) -> int:
        """Returns how many rows lie before append `number`, trimmed ones included.

        For a trimmed append, all trimmed rows.
        """
        with self._file.lock:
            return read_rows_until(self._file.connection, number)

    def end_within(self, start: int, end: int, max_rows: int) -> int:
        """Returns the greatest bound of appends from `start` that hold at most `max_rows` rows.

        That is one append at the least.
        """
        budget = self.rows_until(start) + max_rows
        low, high = min(start + 1, end), end
        while low < high:
            middle = (low + high + 1) // 2
            if self.rows_until(middle) <= budget:
                low = middle
            else:
                high = middle - 1
        return low

    def read(self, start: int, end: int) -> Iterator[bytes]:
        """Yields the bytes of the appends in ``[start, end)``, in order.

        Raises:
            TrimmedError: some of them were trimmed.
            LogError: some of them are not there yet.
        """
        with self._file.lock:
            cursor = self._file.connection.cursor()
        expected = start
        while expected < end:
            # In portions, each read to its end, so that no reader's snapshot holds back SQLite's checkpoint for long.
            with self._file.lock:
                portion = cursor.execute(
                    "SELECT number, data FROM appends WHERE number >= ? AND number < ? ORDER BY number LIMIT 256",
                    (expected, end),
                ).fetchall()
            for number, data in portion:
                if number != expected:
                    break
                yield data
                expected += 1
            if not portion or portion[-1][0] != expected - 1:
                extent = self.extent()
                gone = f"append {expected} is not in {self._path}, which holds {extent.first} to {extent.next - 1}"
                if expected >= extent.first:
                    raise LogError(gone)
                raise TrimmedError(
                    f"{gone}: those before are in its history, the table request_log. A coordinator that needs them "
                    "can't go on from its checkpoint: start it with --recover-from-offsets and a new --checkpoint"
                )

    def trim(self, before: int, rows: pa.Table | None = None) -> int:
        """Deletes the appends numbered below `before` and gives their space back; returns how many were deleted.

        Args:
            rows: the rows of these appends, in order, where they are at hand; else they are read again.
        """
        extent = self.extent()
        before = min(before, extent.next)
        known = self.rows_until(extent.first) if rows is not None and before > extent.first else 0
        if rows is not None and len(rows) != self.rows_until(before) - known:
            rows = None  # some of them are gone already
        for start in range(extent.first, before, _TRIMMED_AT_ONCE):
            stop = min(start + _TRIMMED_AT_ONCE, before)
            if rows is None:
                ends = next_offsets(map(decode, self.read(start, stop)))
            else:
                until = self.rows_until(stop)
                ends = next_offsets(rows.slice(0, until - known).to_batches())
                rows, known = rows.slice(until - known), until
            # In portions, so that appenders never wait for long.
            with self._file.transaction() as connection:
                delete_appends(connection, stop, ends)
            self._give_back()
        return max(before - extent.first, 0)

    def _give_back(self) -> None:
        free = int(self._file.one("PRAGMA freelist_count")[0])
        while free > 0:
            with self._file.lock:
                # By `execute` it would be one page and one transaction a call: Python ends a statement without columns
                # at its first row.
                self._file.connection.executescript(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})")
            left = int(self._file.one("PRAGMA freelist_count")[0])
            if left >= free:
                return  # appended to as fast; what is free is used again
            free = left
