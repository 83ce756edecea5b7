"""The embedded log's own clock: rows may lag behind it freely, but hardly run ahead of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

#: How far ahead of the log's clock a row may be, in milliseconds (the setting ``log.clock.skew.max.ms``).
DEFAULT_SKEW_MAX_MS = 5_000

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Anchor(NamedTuple):
    """Where the log's clock was set: a wall clock reading, and the steady clock of that boot at the same moment."""

    boot_id: str
    wall_ms: int
    steady_ms: int


def wall_ms() -> int:
    """Returns milliseconds since the epoch by the machine's clock, which may be stepped."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """Returns milliseconds since the machine's boot; goes on while it sleeps and is never stepped."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1_000_000


def boot_id() -> str:
    """Names this boot of the machine, since steady clocks of two boots can't be compared."""
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except FileNotFoundError:  # not Linux: the boot is known by its moment, to ten minutes
        return f"boot-{(wall_ms() - steady_ms()) // 600_000}"


class LogClock:
    """The latest time that a row may claim.

    The log's clock is set once a boot, by the wall clock of the first appender, and from then on goes by the machine's
    steady clock. So a wall clock that is stepped forward, or an appender that stamps its rows with the clock of another
    machine, moves the log by at most ``skew_max_ms`` in all and not by as much each time. Time that passes while
    nobody appends is counted. (Rows that claim too little need no bound: the log never goes back.)

    Args:
        skew_max_ms: how far ahead a row may be; None for a log of recorded requests, whose times are what they are.
        wall: reads the wall clock in milliseconds since the epoch.
        steady: reads a clock in milliseconds that is never stepped.
    """

    def __init__(
        self,
        skew_max_ms: int | None = DEFAULT_SKEW_MAX_MS,
        *,
        wall: Callable[[], int] = wall_ms,
        steady: Callable[[], int] = steady_ms,
        boot: Callable[[], str] = boot_id,
    ) -> None:
        self.skew_max_ms = skew_max_ms
        self.wall = wall
        self._steady = steady
        self._boot = boot()

    def anchor(self, stored: Anchor | None) -> Anchor:
        """Returns the anchor to go by: the stored one if it is of this boot, else a new one to store."""
        if stored is not None and stored.boot_id == self._boot:
            return stored
        return Anchor(self._boot, self.wall(), self._steady())

    def latest(self, anchor: Anchor) -> int | None:
        """Returns the latest ``log_ts`` that a row may have now; None is no bound."""
        if self.skew_max_ms is None:
            return None
        return anchor.wall_ms + (self._steady() - anchor.steady_ms) + self.skew_max_ms
