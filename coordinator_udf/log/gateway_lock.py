"""Whether anybody takes clients' requests for an embedded log: while nobody does, time stands still.

A gateway holds a lock on a file beside the log, which the system gives back whatever ends its process.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coordinator_udf.file_locks import is_locked


@contextmanager
def hold_gateway_lock(log: Path) -> Iterator[None]:
    """Takes clients' requests for as long as the context lasts, beside any number of others.

    Raises:
        OSError: the file beside the log can't be made.
    """
    descriptor = os.open(_file(log), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def is_gateway_there(log: Path) -> bool:
    """Returns whether somebody takes requests, or nobody ever has: then they come in another way."""
    try:
        return is_locked(_file(log))
    except FileNotFoundError:
        return True


def _file(log: Path) -> Path:
    return log.with_name(f"{log.name}.gateways")
