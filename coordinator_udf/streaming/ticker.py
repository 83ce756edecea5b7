"""The clock of a log: a thread that appends ticks, so that timers fire though no request comes."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from typing import Final

from coordinator_udf.background import BackgroundThread
from coordinator_udf.log.embedded import DOWNTIME_AFTER_MS, EmbeddedLog
from coordinator_udf.log.file import LogError
from coordinator_udf.log.gateway_lock import is_gateway_there
from coordinator_udf.log.opening import AppendableLog
from coordinator_udf.log.rows import control_rows

_log: Final = logging.getLogger(__name__)

#: After how long without an append but its own a ticker ticks less often, in milliseconds: each tick costs a
#: micro-batch. Who waits for an answer for so long doesn't feel that it comes a second later; half would be felt by who
#: joins with others that are dead (sessions of 10 s and more), double saves no more.
IDLE_AFTER_MS: Final = 30_000
#: How often it ticks then, in milliseconds: time stands still where two ticks don't come.
IDLE_INTERVAL_MS: Final = DOWNTIME_AFTER_MS // 2


class Ticker:
    """Appends a tick to every partition each `interval_ms`.

    A tick is an append like any other: it comes after every request that is in the log, and the log stamps it not
    earlier than them. Where the stream lags behind, ticks wait in the log with the requests.

    While nobody takes requests for the log, there are no ticks: members can't be heard then, so time stands still.
    While nobody else appends, ticks are rarer: a coordinator that has no clients costs little.

    Args:
        log: the log, shared with others.
        interval_ms: the time between two ticks: by so much a timer fires later at most.
        only_when_quiet: whether a tick is left out while others append.

    Attributes:
        idle_after_ms: after how long without an append but its own ticks are rarer.
    """

    idle_after_ms = IDLE_AFTER_MS

    def __init__(self, log: AppendableLog, interval_ms: int, *, only_when_quiet: bool = False) -> None:
        self._log = log
        self._only_when_quiet = only_when_quiet
        self._interval_ms = interval_ms
        self._thread = BackgroundThread(self._run, "ticker")
        self._stands_still = False
        #: The number of the last tick of the embedded log, and since when nobody else has appended to it.
        self._last: int | None = None
        self._alone_since_s = time.monotonic()

    def start(self) -> None:
        """Starts ticking, with a tick at once."""
        self._thread.start()

    def stop(self) -> None:
        """Stops; no tick is appended after this returns."""
        self._thread.stop()

    def tick(self) -> int:
        """Appends one tick; returns the append's number."""
        number = self._log.append(control_rows(partitions=self._log.partitions, log_ts=self._log.now_ms(), api="Tick"))
        if self._last is None or number != self._last + 1:
            self._alone_since_s = time.monotonic()
        self._last = number
        return number

    def _is_gateway_there(self) -> bool:
        if not isinstance(self._log, EmbeddedLog):
            return True
        is_there = is_gateway_there(self._log.path)
        if not is_there and not self._stands_still:
            _log.warning(
                "no gateway serves the request log %s any more: time stands still until one does", self._log.path
            )
            # Its clients were refused meanwhile, which is more than that they weren't read.
            self._log.note_absence()
        self._stands_still = not is_there
        return is_there

    def _is_quiet(self) -> bool:
        if not isinstance(self._log, EmbeddedLog):
            # Each partition of a topic is to be heard of.
            return True
        newest = self._log.newest_log_ts()
        return newest is None or self._log.now_ms() - newest >= self._interval_ms

    def _wait_s(self) -> float:
        """Returns how long it is until the next tick."""
        is_idle = (
            isinstance(self._log, EmbeddedLog) and time.monotonic() - self._alone_since_s >= self.idle_after_ms / 1_000
        )
        return (max(self._interval_ms, IDLE_INTERVAL_MS) if is_idle else self._interval_ms) / 1_000

    def _run(self, stop: threading.Event) -> None:
        while True:
            try:
                if self._is_gateway_there() and (not self._only_when_quiet or self._is_quiet()):
                    self.tick()
            except (sqlite3.OperationalError, LogError) as error:
                # Somebody holds the log for a minute, the disk is full, or no broker is there. A tick that is missed is
                # no loss, the next one says the later time; that time stands still has to be said.
                _log.error("the log can't be appended to, time stands still: %s", error)
            if stop.wait(self._wait_s()):
                return
