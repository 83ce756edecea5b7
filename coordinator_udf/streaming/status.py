"""The status line of a running coordinator."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from pyspark.sql.streaming.listener import StreamingQueryListener

from coordinator_udf.streaming.sink import Totals

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )


class StatusLine(StreamingQueryListener):
    """Prints one line at most each few seconds: batch, requests a second, groups, lag.

    Args:
        totals: counts of what the sink did.
        lag: says how far the query is behind, given where it is (the source's offsets as Spark has them).
        interval_s: the least time between two lines.
        out: where to print.
    """

    def __init__(
        self, totals: Totals, lag: Callable[[Any], str], *, interval_s: float = 5.0, out: TextIO = sys.stderr
    ) -> None:
        self._totals = totals
        self._lag = lag
        self._interval_s = interval_s
        self._out = out
        self._printed = time.monotonic()
        self._lock = threading.Lock()
        self._is_over = False
        self._requests = 0
        self._rejected = 0

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing to say: the job says what it reads and writes."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing to say."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Prints the line if it is time for one."""
        now = time.monotonic()
        with self._lock:
            if self._is_over or now - self._printed < self._interval_s:
                return
            self._print(event.progress, now)

    def close(self) -> None:
        """Nothing is printed, and the lag is not asked for, after this returns."""
        with self._lock:
            self._is_over = True

    def _print(self, progress: StreamingQueryProgress, now: float) -> None:
        totals = self._totals
        rate = (totals.requests - self._requests) / (now - self._printed)
        rejected = f", {totals.rejected} rejected" if totals.rejected > self._rejected else ""
        self._printed, self._requests, self._rejected = now, totals.requests, totals.rejected
        took_ms = progress.durationMs.get("triggerExecution", 0)
        line = (
            f"batch {progress.batchId} ({took_ms} ms), {rate:,.0f} requests/s, {sum(totals.groups.values()):,} groups, "
            f"lag {self._lag(progress)}{rejected}"
        )
        print(line, file=self._out, flush=True)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Nothing to say: the job tells how it ended."""
