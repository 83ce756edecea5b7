"""Locks on files, which the system gives back whatever ends the process that holds them."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def is_locked(path: Path) -> bool:
    """Returns whether a process holds a lock on a file (flock), its own or a shared one.

    Two that ask at one moment may take each other for one that holds it.

    Raises:
        FileNotFoundError: there is no such file.
    """
    return _is_refused(path, fcntl.LOCK_EX)


def is_locked_by_one(path: Path) -> bool:
    """Returns whether a process holds a lock of its own on a file (flock). Any number may ask at one moment.

    Raises:
        FileNotFoundError: there is no such file.
    """
    return _is_refused(path, fcntl.LOCK_SH)


def _is_refused(path: Path, lock: int) -> bool:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, lock | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
