"""Processes with all that they started: which there are, whether any of them runs, and their end."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.waiting import wait


def with_title(text: bytes) -> list[tuple[int, int]]:
    """Processes whose command line has a text, each with the session that it is of: who started that has its number."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text in path.read_bytes():
                found.append((int(path.parent.name), os.getsid(int(path.parent.name))))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def is_group_running(number: int) -> bool:
    """Whether any process of a group runs; who is dead and not yet buried by process 1 doesn't."""
    return any(_is_running_in(number, stat) for stat in Path("/proc").glob("[0-9]*/stat"))


def _is_running_in(number: int, stat: Path) -> bool:
    try:
        state, _, group, *_ = stat.read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return int(group) == number and state not in ("Z", "X")


def kill_group(leader: subprocess.Popen[Any]) -> None:
    """Kills a process and all that it started with SIGKILL; returns when nobody of them can do anything any more."""
    with suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
    leader.wait()
    wait(lambda: not is_group_running(leader.pid), "all of its processes have ended")
