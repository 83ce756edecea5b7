"""Looks whether what a command makes can be written where it is to be, before the work for it is done."""

from __future__ import annotations

import os
from pathlib import Path

from coordinator_udf.user_errors import InputError


def check_folder(out: Path) -> None:
    """Looks whether tables can be made in a folder, which need not be there.

    Raises:
        InputError: they can't.
    """
    there = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
    if not there.is_dir():
        raise InputError(f"tables can't be made in {out}: {there} is a file")
    if not _is_writable(there, os.X_OK):
        raise InputError(f"tables can't be made in {out}: {there} can't be written to")


def check_file(path: Path, option: str) -> None:
    """Looks whether a file can be written, which need not be there; its folder has to be.

    Args:
        option: which option names it.

    Raises:
        InputError: it can't.
    """
    folder = path.absolute().parent
    if path.is_dir():
        raise InputError(f"{option} is {path}, which is a folder; expected the name of a file")
    if not folder.is_dir():
        raise InputError(f"{option} is {path}, but there is no folder {folder}; make it, or name another file")
    if not (_is_writable(path) if path.exists() else _is_writable(folder, os.X_OK)):
        raise InputError(f"{option} is {path}, which can't be written; name another file")


def write_file(path: Path, content: bytes, option: str) -> None:
    """Writes a whole file.

    Raises:
        InputError: it can't be written after all.
    """
    try:
        path.write_bytes(content)
    except OSError as error:
        raise InputError(f"{option} is {path}, which can't be written: {error.strerror}") from error


def _is_writable(there: Path, also: int = 0) -> bool:
    return os.access(there, os.W_OK | also) and not there.is_relative_to("/proc")
