"""What a start takes, phase by phase: time, and CPU time of the driver, its JVM and Python's workers.

Where cores are shared, time says more of the others than of the start.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final, NamedTuple

_PROC: Final = Path("/proc")

#: Of /proc/PID/stat, after the name: the parent, and the ticks of the process and of its children that have ended.
_PARENT: Final = 1
_TICKS: Final = (11, 12, 13, 14)
_STARTED: Final = 19


class Phase(NamedTuple):
    """A part of a start, in seconds."""

    name: str
    seconds: float
    cpu_seconds: float


class StartupPhases:
    """The phases of this process's start, from its very beginning."""

    def __init__(self) -> None:
        self._phases: list[Phase] = []
        self._at = time.monotonic() - _age_s()
        self._cpu_s = 0.0

    def end(self, name: str) -> None:
        """Notes that a phase is over, and the next one begins."""
        now, cpu_s = time.monotonic(), tree_cpu_s(os.getpid())
        self._phases.append(Phase(name, now - self._at, cpu_s - self._cpu_s))
        self._at, self._cpu_s = now, cpu_s

    def line(self) -> str:
        """Returns all phases in one line: each with its time and, in brackets, its CPU time."""
        seconds = sum(phase.seconds for phase in self._phases)
        cpu_seconds = sum(phase.cpu_seconds for phase in self._phases)
        told = ", ".join(f"{phase.name} {phase.seconds:.1f} s ({phase.cpu_seconds:.1f})" for phase in self._phases)
        return f"started in {seconds:.1f} s, {cpu_seconds:.1f} s of CPU: {told}"


def tree_cpu_s(root: int) -> float:
    """Returns the CPU time that a process and all below it have taken, in seconds.

    Where there is no /proc, this process's.
    """
    if not _PROC.joinpath("self", "stat").is_file():
        return time.process_time()
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for stat in _PROC.glob("[0-9]*/stat"):
        fields = _fields(stat)
        if fields:
            pid = int(stat.parent.name)
            parents[pid] = int(fields[_PARENT])
            ticks[pid] = sum(int(fields[place]) for place in _TICKS)
    below = {root}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return sum(ticks.get(pid, 0) for pid in below) / os.sysconf("SC_CLK_TCK")


def _age_s() -> float:
    """Returns how long this process has been there, in seconds; 0 where nothing says so."""
    fields = _fields(_PROC / "self" / "stat")
    if not fields:
        return 0.0
    up_s = float((_PROC / "uptime").read_text().split()[0])
    return max(up_s - int(fields[_STARTED]) / os.sysconf("SC_CLK_TCK"), 0.0)


def _fields(stat: Path) -> list[str]:
    try:
        return stat.read_text().rpartition(")")[2].split()
    except OSError:
        return []  # it has ended
