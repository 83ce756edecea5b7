"""The status line of a running coordinator."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from coordinator_udf.background import BackgroundThread
from coordinator_udf.monitoring import tell
from coordinator_udf.streaming.sink import Totals

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery


class StatusLine:
    """Prints one line each few seconds in which requests were handled: batch, requests a second, groups, lag.

    The first micro-batch has one, and where nobody asks, a line a minute says that the coordinator lives.

    It asks the query for its progress as often as it prints. A listener of Spark's would be told of each micro-batch,
    and turning that into Python objects costs some hundred calls to the JVM, as much as a micro-batch's own Python.

    Args:
        query: what runs.
        totals: counts of what the sink did.
        lag: says how far the query is behind, given where it is (the source's offsets as Spark has them).
        clients: says what else is to be told, of who brings the requests.
        interval_s: the time between two lines.
        idle_interval_s: that between two lines where no request was handled.
    """

    def __init__(
        self,
        query: StreamingQuery,
        totals: Totals,
        lag: Callable[[Any], str],
        *,
        clients: Callable[[], str] = str,
        interval_s: float = 5.0,
        idle_interval_s: float = 60.0,
    ) -> None:
        self._query = query
        self._totals = totals
        self._lag = lag
        self._clients = clients
        self._interval_s = interval_s
        self._idle_interval_s = idle_interval_s
        self._printed = time.monotonic()
        self._batch = -1
        self._requests = 0
        self._rejected = 0
        self._thread = BackgroundThread(self._run, "status-line")

    def start(self) -> None:
        """Starts printing."""
        self._thread.start()

    def close(self) -> None:
        """Stops; nothing is printed, and the lag is not asked for, after this returns."""
        self._thread.stop()

    def _run(self, stop: threading.Event) -> None:
        while not stop.wait(self._interval_s):
            if not self._query.isActive:
                return
            progress = self._query.lastProgress
            if progress is not None and progress.batchId != self._batch and self._is_news(time.monotonic()):
                self._batch = progress.batchId
                self._print(progress, time.monotonic())

    def _is_news(self, now: float) -> bool:
        handled = (self._totals.requests, self._totals.rejected) != (self._requests, self._rejected)
        return self._batch < 0 or handled or now - self._printed >= self._idle_interval_s

    def _print(self, progress: StreamingQueryProgress, now: float) -> None:
        totals = self._totals
        rate = (totals.requests - self._requests) / (now - self._printed)
        rejected = f", {totals.rejected} rejected" if totals.rejected > self._rejected else ""
        self._printed, self._requests, self._rejected = now, totals.requests, totals.rejected
        took_ms = progress.durationMs.get("triggerExecution", 0)
        line = (
            f"batch {progress.batchId} ({took_ms} ms), {rate:,.0f} requests/s, {sum(totals.groups.values()):,} groups, "
            f"lag {self._lag(progress)}{rejected}{self._clients()}"
        )
        tell(line)
