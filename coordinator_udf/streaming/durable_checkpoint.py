"""Puts what Spark wrote to a checkpoint on this machine's disk, before the tables know of a micro-batch.

Spark closes and renames the files of a checkpoint, and leaves the rest to the operating system. The tables must never
be ahead of it: a micro-batch that is planned anew under a number that they know, with more requests in it, would be
taken for the one that they have. So which requests a micro-batch has (``offsets``), and the state that it began with
and made (``state``), are on the disk first.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from coordinator_udf.tables.durability import sync_all

_log: Final = logging.getLogger(__name__)


class DurableCheckpoint:
    """A checkpoint on this machine's disks, and what of it is known to be on them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._synced: dict[Path, set[tuple[str, int]]] = {}

    def sync(self) -> None:
        """Puts all files on the disk that are new since the last time, and their names."""
        above = () if self._synced else (self._root.absolute().parent,)
        sync_all([*self._new(self._root), *above])

    def _new(self, folder: Path) -> Iterator[Path]:
        """Yields the new files of a folder and of those in it, and the folders with new names."""
        known = self._synced.get(folder, set())
        found = set()
        try:
            entries = list(os.scandir(folder))
        except FileNotFoundError:
            return
        for entry in entries:
            is_new = (entry.name, entry.inode()) not in known
            found.add((entry.name, entry.inode()))
            if entry.is_dir(follow_symlinks=False):
                yield from self._new(Path(entry.path))
            elif is_new:
                yield Path(entry.path)
        self._synced[folder] = found
        if found - known:
            yield folder


def drop_torn_end(root: Path) -> list[str]:
    """Deletes what a loss of power tore of a checkpoint's newest micro-batches, and returns the files' names.

    Of a micro-batch that is in the tables nothing can be torn. What is deleted Spark makes anew.
    """
    dropped = []
    for log in ("offsets", "commits"):
        for file in (root / log).glob("[0-9]*"):
            if file.name.isdigit() and _is_torn(file):
                dropped.append(f"{log}/{file.name}")
                _drop(file)
    for file in (root / "state").rglob("*"):
        if file.is_file() and not file.name.startswith(".") and file.stat().st_size == 0:
            dropped.append(str(file.relative_to(root)))
            _drop(file)
    if dropped:
        _log.warning("the loss of power tore files of the checkpoint %s, which are made anew: %s", root, dropped)
    return dropped


def _drop(file: Path) -> None:
    file.unlink()
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def _is_torn(file: Path) -> bool:
    with suppress(ValueError):
        version, *rest = file.read_text("utf-8").splitlines()
        json.loads(rest[-1])
        return not version.startswith("v")
    return True
