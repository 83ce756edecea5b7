"""Folds the embedded log away: what the stream needs no more is moved to the table request_log.

A piece of the log is written to the table first and leaves the log then, so that it is in one of them at any moment,
and for a moment in both; who reads both goes by the offsets (request_log). After a kill between the two steps the
table says how far it got, and only the second step is done.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from coordinator_udf.background import BackgroundThread
from coordinator_udf.log.dataframe import gathered
from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.log.history import LogHistory, as_found, as_kept, history_uri, next_offsets
from coordinator_udf.streaming.checkpoint import append_needed
from coordinator_udf.streaming.checkpoint_files import CheckpointFiles
from coordinator_udf.user_errors import UserError

_log: Final = logging.getLogger(__name__)

#: How many rows that the stream needs no more stay in the embedded log before they are folded, if nothing else is said.
#: A fold of 216,000 rows takes 0.75 s (docs/performance.md); half as many take half as long twice as often, and with
#: double the file and a pause of its appenders are twice as large.
DEFAULT_FOLD_AFTER_ROWS: Final = 200_000

#: The most rows, and about the most bytes in memory, that are moved at once.
_PIECE_ROWS: Final = 100_000
_PIECE_BYTES: Final = 64 * 1024 * 1024

#: The longest pause before a fold that failed is tried again, in seconds; pauses double up to it. At 10,000 requests/s
#: the log grows by three million rows meanwhile, with half and double by as much less and more.
_RETRY_MAX_S: Final = 300.0


class FoldError(UserError):
    """The log can't be folded to where it should; the message says why and what to do."""


def claim_history(log: EmbeddedLog, tables: str, epoch: int | None = None) -> LogHistory:
    """Makes the table request_log in a folder the history of a log, if it isn't.

    Args:
        epoch: of the coordinator that is to write it.

    Raises:
        FoldError: the log has another history, or the table holds another log's rows.
    """
    uri = history_uri(tables)
    snapshot = log.snapshot()
    instead = "or start with --fold-after 0, and the log stays as it is"
    if snapshot.history is not None:
        kept = as_found(snapshot.history.uri, log.path)
        until = LogHistory(uri, snapshot.history.id).until()
        if until > snapshot.next:
            raise FoldError(
                f"the table {uri} holds {log.path} up to append {until}, but the log ends before append "
                f"{snapshot.next}, so it is an older copy: bring the newer one back, choose other --tables, {instead}"
            )
        if until < snapshot.first:
            raise FoldError(
                f"what was in the request log {log.path} before append {snapshot.first} is in {kept}, but the tables "
                f"are in {tables}: name the folder of that table, {instead}"
            )
        if until == 0 and kept != as_found(as_kept(uri, log.path), log.path):
            there = LogHistory(kept, snapshot.history.id).until()
            if there:
                raise FoldError(
                    f"the history of the request log {log.path} is {kept}, but the tables are in {tables}: name the "
                    f"folder of that table, {instead}"
                )
    elif any(end > first for end, first in zip(next_offsets(uri), snapshot.first_offsets, strict=False)):
        raise FoldError(
            f"the table {uri} has the rows of another request log than {log.path}: choose other --tables, move that "
            f"table away, {instead}"
        )
    history = LogHistory(uri, log.keep_history(as_kept(uri, log.path)).id, epoch)
    history.take()
    return history


def fold(log: EmbeddedLog, history: LogHistory, before: int, stop: threading.Event | None = None) -> int:
    """Moves the appends numbered below `before` to the history, piece by piece; returns how many left the log.

    Args:
        stop: ends it after the piece that is under way.

    Raises:
        DeltaError: the table can't be written.
        sqlite3.OperationalError: the log can't be written.
    """
    # What was written, but had not left the log when somebody died.
    moved = log.trim(history.until())
    at = log.extent().first
    for rows, until in gathered(log.read(at, before), at, rows_max=_PIECE_ROWS, bytes_max=_PIECE_BYTES):
        if stop is not None and stop.is_set():
            break
        history.append(rows, until)
        moved += log.trim(until, rows)
        history.keep_up()
    return moved


class Folder:
    """Folds a log from time to time, beside the stream that reads it.

    Args:
        log: the log; the folder opens it once more for itself.
        tables: the folder of the tables.
        checkpoint: the stream's checkpoint, which tells what is needed no more.
        after_rows: how many rows that are needed no more stay in the log before they are folded.
        epoch: of the coordinator.
        interval_s: how often it is looked whether they are so many.

    Attributes:
        trouble: why the log isn't folded at the moment; None if it is.
    """

    def __init__(
        self,
        log: EmbeddedLog,
        tables: str,
        checkpoint: CheckpointFiles,
        after_rows: int,
        *,
        epoch: int | None = None,
        interval_s: float = 5.0,
    ) -> None:
        self.trouble: str | None = None
        self._history = claim_history(log, tables, epoch)
        self._log = EmbeddedLog.open(log.path)
        self._checkpoint = checkpoint
        self._after_rows = after_rows
        self._interval_s = interval_s
        self._thread = BackgroundThread(self._run, "log-folder")

    def start(self) -> None:
        """Starts folding in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Stops the thread after the piece that is under way."""
        self._thread.stop()

    def close(self) -> None:
        """Stops the thread, and closes the log."""
        self.stop()
        self._log.close()

    def fold_due(self, stop: threading.Event | None = None) -> int:
        """Folds if enough rows are needed no more; returns how many appends left the log.

        Args:
            stop: ends it after the piece that is under way.

        Raises:
            CheckpointError: the checkpoint has a file that isn't as Spark writes it.
            DeltaError: the table can't be written.
            sqlite3.OperationalError: the log can't be written.
        """
        needed = append_needed(self._checkpoint)
        if needed is None:
            return 0
        first = self._log.extent().first
        if self._log.rows_until(needed) - self._log.rows_until(first) < self._after_rows:
            return 0
        return fold(self._log, self._history, needed, stop)

    def _run(self, stop: threading.Event) -> None:
        pause_s = self._interval_s
        while not stop.wait(pause_s):
            try:
                self.fold_due(stop)
            except Exception as error:  # noqa: BLE001 - the log can grow; that nobody is answered is worse
                # Each status line tells it until it is over.
                self.trouble = f"{type(error).__name__}: {error}"
                pause_s = min(2 * pause_s, _RETRY_MAX_S)
                _log.exception("the request log is not folded, it grows; tried again in %.0f s", pause_s)
            else:
                self.trouble = None
                pause_s = self._interval_s
