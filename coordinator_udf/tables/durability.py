"""Puts commits of Delta tables on the disk, which delta-rs leaves to the operating system.

A commit is durable when its file, the files that it adds, and the names of both are on the disk, and when all that is
so of every commit before it: then what a loss of power can take or tear is the end of a table's log alone.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

_log: Final = logging.getLogger(__name__)

_LOG: Final = "_delta_log"
_LAST_CHECKPOINT: Final = "_last_checkpoint"

#: So many commits are looked for by their names. A log has those of ten minutes, and listing 1,200 takes 2 ms.
_FEW_COMMITS: Final = 64

#: A file system that keeps a journal puts what several threads sync at once on the disk at one go. Measured with twelve
#: files of 20 kB on ext4 (the median of fifteen): 39 ms one after the other, 3.6 with half as many threads, 2.6 with
#: these, 2.4 with double.
_THREADS: Final = 8
_pool: Final = ThreadPoolExecutor(_THREADS, "sync")


def sync(path: Path) -> None:
    """Sees to it that a file is on the disk, or of a directory the names in it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(paths: Iterable[Path]) -> None:
    """Sees to it that files, and the names in directories, are on the disk; what is gone by now is left out."""
    list(_pool.map(_sync, paths))


def _sync(path: Path) -> None:
    with suppress(FileNotFoundError):
        sync(path)


def paths_of_commits(table: Path, first: int, last: int) -> Iterator[Path]:
    """Yields what must be on the disk for the commits of a table between two versions, both included, to be durable."""
    found = _commits(table, first, last)
    for commit in found:
        # One that was deleted since is in a checkpoint of the log that is on the disk.
        with suppress(FileNotFoundError):
            yield from (table / unquote(add["path"]) for add in _adds(commit))
            yield commit
    if found:
        yield from (table, table / _LOG)


def sync_checkpoint(table: Path) -> None:
    """Puts the newest checkpoint of a table's log on the disk. What it stands for can be deleted after that."""
    log = table / _LOG
    newest = max(log.glob("*.checkpoint*.parquet"), default=None)
    sync_all([path for path in (newest, log / _LAST_CHECKPOINT) if path is not None])
    sync(log)


def cut_torn_end(table: Path, aside: Path) -> int:
    """Moves the torn end of a table's log aside, after a loss of power; returns how many commits it had.

    No commit from a torn one on was durable, and so none was told of.

    Args:
        aside: a directory for the commits that are cut off.
    """
    _drop_torn_checkpoint(table / _LOG)
    # Before a checkpoint was written, all that it stands for was on the disk.
    known = max((int(path.name.split(".")[0]) for path in (table / _LOG).glob("*.checkpoint*.parquet")), default=-1)
    commits = _commits(table, known + 1)
    torn = next((place for place, commit in enumerate(commits) if _is_torn(table, commit)), len(commits))
    for commit in reversed(commits[torn:]):
        aside.mkdir(parents=True, exist_ok=True)
        commit.rename(aside / f"{table.name}-{commit.name}")
        _log.warning("the loss of power tore commit %s of %s: it is in %s now", commit.stem, table, aside)
    if torn < len(commits):
        sync(table / _LOG)
    return len(commits) - torn


def _drop_torn_checkpoint(log: Path) -> None:
    for checkpoint in log.glob("*.checkpoint*.parquet"):
        try:
            pq.read_metadata(checkpoint)
        except (pa.ArrowInvalid, OSError):
            # The commits that it stands for are deleted only after it is on the disk.
            _log.warning("the loss of power tore %s: the commits before it are read instead", checkpoint)
            checkpoint.unlink()
            (log / _LAST_CHECKPOINT).unlink(missing_ok=True)
    last = log / _LAST_CHECKPOINT
    with suppress(FileNotFoundError):
        try:
            json.loads(last.read_text("utf-8"))
        except ValueError:
            last.unlink()


def _is_torn(table: Path, commit: Path) -> bool:
    try:
        adds = _adds(commit)
    except (ValueError, KeyError):
        return True
    if commit.stat().st_size == 0:
        return True
    # One that isn't there was deleted by compaction, or never got a name; the size tells where its bytes are missing.
    files = [(table / unquote(add["path"]), add["size"]) for add in adds]
    return any(not path.is_file() or path.stat().st_size != size for path, size in files)


def _adds(commit: Path) -> list[dict[str, Any]]:
    actions = [json.loads(line) for line in commit.read_text("utf-8").splitlines()]
    return [action["add"] for action in actions if "add" in action]


def _commits(table: Path, first: int, last: int | None = None) -> list[Path]:
    """Returns the files of a table's commits that are there, in their order."""
    if last is not None and last - first < _FEW_COMMITS:
        named = (table / _LOG / f"{version:020d}.json" for version in range(first, last + 1))
        return [path for path in named if path.exists()]
    found = sorted((int(path.stem), path) for path in (table / _LOG).glob("[0-9]*.json"))
    return [path for version, path in found if first <= version and (last is None or version <= last)]
