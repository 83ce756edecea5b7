"""What every benchmark is told, and how it says how far it is."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class BenchmarkError(Exception):
    """A benchmark can't give a figure; the message says why."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a person chose.

    Attributes:
        scale: 1 for the sizes that the documentation tells of; 0.01 takes seconds.
        repeats: how often a short measurement is repeated; the median counts.
        seconds: how long requests are offered to the live job at each rate.
        data: where logs and tables are kept between runs.
        oracle_jar: a jar whose command ``bench`` measures Kafka's own coordinator; None to leave that out.
        plots: where plots go.
        kafka_log: a topic (``kafka://...``) that is the log of one more live job; None to leave that out.
        rates: requests a second that are offered to the live job, one rate after the other.
    """

    scale: float
    repeats: int
    seconds: float
    data: Path
    oracle_jar: Path | None
    plots: Path
    rates: tuple[int, ...] = (1_000, 10_000, 33_000)
    kafka_log: str | None = None

    def sized(self, full: int, least: int) -> int:
        """Returns a size at this scale."""
        return max(round(full * self.scale), least)


def say(line: str) -> None:
    """Prints a line of progress."""
    print(f"bench: {line}", file=sys.stderr, flush=True)


@dataclass(slots=True)
class Clock:
    """Sums up wall time and this process's CPU time, in seconds, over what runs inside ``with clock.running():``."""

    wall: float = 0.0
    cpu: float = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Counts what runs inside."""
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.wall += time.perf_counter() - wall
            self.cpu += time.process_time() - cpu


@dataclass(slots=True)
class Rates:
    """Rates of several runs of one thing, by two clocks."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def add(self, count: int, clock: Clock) -> None:
        """Adds one run."""
        self.wall.append(count / clock.wall)
        self.cpu.append(count / max(clock.cpu, 1e-9))


def median(values: list[float]) -> float:
    """Returns the middle value."""
    return statistics.median(values)


def percentile(values: list[float], share: float) -> float:
    """Returns the least value that ``share`` of all values don't exceed."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def wait_until(done: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Waits until a condition holds.

    Raises:
        BenchmarkError: it doesn't come true in time.
    """
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline:
            raise BenchmarkError(f"{what} took longer than {timeout_s:.0f} s")
        time.sleep(0.1)


class Used(NamedTuple):
    """What one process used: what it runs (java, python), its resident memory and its CPU time so far."""

    kind: str
    resident_bytes: int
    cpu_s: float


def tree_use(pid: int) -> dict[int, Used]:
    """Returns what a process and all its descendants use, by their ids."""
    stats: dict[int, list[str]] = {}
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
            except OSError:
                continue
            process = int(entry.name)
            stats[process] = [name, *rest.split()]
            children.setdefault(int(stats[process][2]), []).append(process)
    used: dict[int, Used] = {}
    waiting = [pid]
    while waiting:
        process = waiting.pop()
        waiting += children.get(process, [])
        if process in stats:
            name, stat = stats[process][0], stats[process]
            kind = "java" if name == "java" else "python" if name.startswith(("python", "pyspark")) else "other"
            ticks = int(stat[12]) + int(stat[13])
            resident = int(stat[22]) * os.sysconf("SC_PAGE_SIZE")
            used[process] = Used(kind, resident, ticks / os.sysconf("SC_CLK_TCK"))
    return used
