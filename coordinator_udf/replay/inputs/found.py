"""Which files inputs are: a file itself, those in a directory at any depth, those that fit a pattern."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from coordinator_udf.tables.places import is_directory
from coordinator_udf.user_errors import InputError

#: The directory by which a Delta table is told.
DELTA_LOG: Final = "_delta_log"
_NO_FILE: Final = "a pipe, a socket or a device"


class Found(msgspec.Struct):
    """What inputs are.

    Attributes:
        paths: the files and tables in their order, and in it those that can't be read.
        failures: why these can't.
        passed_over: what lies in a directory and isn't read, for it to be said, a line each.
    """

    paths: list[Path] = []
    failures: dict[Path, str] = {}
    passed_over: list[str] = []

    def fail(self, path: Path, why: OSError | str) -> None:
        """Takes an input that can't be read."""
        self.paths.append(path)
        self.failures[path] = f"{path} can't be read: {why if isinstance(why, str) else why.strerror}"


def expand(inputs: Iterable[Path]) -> Found:
    """Returns the files and Delta tables that are meant.

    Of a directory that is no table the files in it and in its directories, at any depth.

    Raises:
        InputError: there is no such input, or a directory has no files.
    """
    found = Found()
    for path in inputs:
        for named in _named(path):
            _add(named, found)
    return found


def _named(path: Path) -> list[Path]:
    """Returns a path that is there, or those that fit it as a pattern."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        if not glob.has_magic(str(path)):
            raise InputError(f"there is no input {path}") from None
        matching = sorted(Path(name) for name in glob.glob(str(path)))  # noqa: PTH207 - Path.glob takes no absolute one
        if not matching:
            raise InputError(f"no file fits {path}") from None
        return matching
    except OSError:
        # It is told of as one that can't be read.
        return [path]
    return [path]


def _add(path: Path, found: Found) -> None:
    try:
        mode = path.stat().st_mode
        is_directory = stat.S_ISDIR(mode) and not (path / DELTA_LOG).is_dir()
    except OSError as error:
        found.fail(path, error)
        return
    if is_directory:
        _add_directory(path, found)
    elif stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        found.paths.append(path)
    else:
        found.fail(path, f"it is no file, but {_NO_FILE}")


def _add_directory(path: Path, found: Found) -> None:
    """Adds the files in a directory, and those in its directories after them, both by name.

    What is hidden is left out, and so is the content of Delta tables. What links lead to as well counts once.
    """
    files: dict[tuple[int, int], Path] = {}
    inside = Found()
    for folder, names in _walk(path, inside):
        for name in sorted(names):
            file = folder / name
            try:
                status = file.stat()
            except OSError as error:
                inside.fail(file, error)
                continue
            if not stat.S_ISREG(status.st_mode):
                inside.passed_over.append(f"{file}: {_NO_FILE}: passed over")
                continue
            place = status.st_dev, status.st_ino
            if place not in files or (files[place].is_symlink() and not file.is_symlink()):
                files[place] = file
    if not files and not inside.paths:
        raise InputError(
            f"{path} is a directory without files, and no Delta table (it has no {DELTA_LOG}){_inside(path, inside)}"
        )
    found.paths += [*files.values(), *inside.paths]
    found.failures |= inside.failures
    found.passed_over += inside.passed_over


def _inside(path: Path, inside: Found) -> str:
    """Tells what else a directory has, and which table in it can be replayed."""
    told = "".join(f"; {line}" for line in inside.passed_over)
    logs = sorted(log.parent for log in path.rglob(f"request_log/{DELTA_LOG}"))
    return f"{told}; name the table that is meant: {logs[0]}" if logs else told


def _walk(top: Path, found: Found) -> Iterator[tuple[Path, list[str]]]:
    """Yields a directory and those in it, each with the names of its files; each once, whatever links lead to it."""

    def fail(error: OSError) -> None:
        found.fail(Path(error.filename), error)

    seen: set[tuple[int, int]] = set()
    for name, directories, files in os.walk(top, onerror=fail, followlinks=True):
        folder = Path(name)
        try:
            status = folder.stat()
        except OSError as error:
            fail(error)
            directories.clear()
            continue
        if (status.st_dev, status.st_ino) in seen:
            directories.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        tables = [each for each in sorted(directories) if is_directory(folder / each / DELTA_LOG)]
        if tables:
            found.passed_over.append(f"{folder}: Delta tables ({', '.join(tables)}): passed over")
        directories[:] = [each for each in directories if not each.startswith(".") and each not in tables]
        # Links last, so that what they lead to has its own name.
        directories.sort(key=lambda each: ((folder / each).is_symlink(), each))
        yield folder, [each for each in files if not each.startswith(".")]
