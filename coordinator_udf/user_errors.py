"""Errors that a person can do something about."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Final


class UserError(Exception):
    """An error whose message says what is wrong and what to do. A command prints it in one line."""

    #: What a command ends with: 1 where what was asked failed, 2 where it can't be, and nothing was done.
    status: ClassVar[int] = 1


class InputError(UserError):
    """An input that can't be read at all, or a place for output that can't be used; the message names it."""

    status: ClassVar[int] = 2


def status_of(error: Exception) -> int:
    """Returns what a command ends with for an error, which may be that of a library."""
    return error.status if isinstance(error, UserError) else UserError.status


#: How the system says that a disk is full, or a user's share of it; so do the JVM and libraries, but for SQLite.
_FULL_DISK: Final = ("no space left on device", "disk quota exceeded", "database or disk is full")


def says_disk_is_full(text: str) -> bool:
    """Tells whether the text of an error, whoever raised it, says that there is no more space on a disk."""
    lowered = text.lower()
    return any(words in lowered for words in _FULL_DISK)


@contextmanager
def telling_errors(command: str, *libraries: type[Exception]) -> Iterator[None]:
    """Ends a command that a UserError, or an error of some libraries, leaves, with one line on standard error.

    So does any error that says that a disk is full.

    Raises:
        SystemExit: with the error's status.
    """
    told: tuple[type[Exception], ...] = (UserError, *libraries)
    try:
        yield
    except told as error:
        sys.stderr.write(f"{command}: {error}\n")
        raise SystemExit(status_of(error)) from error
    except Exception as error:
        if not says_disk_is_full(str(error)):
            raise
        places = f"where it writes, or in {tempfile.gettempdir()} (TMPDIR names another place)"
        sys.stderr.write(f"{command}: a disk is full; make room {places}, and run it again\n")
        raise SystemExit(1) from error
