"""Columns of numbers of a log's lines: in memory, or in a file, where those of a log of any length take no memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

#: So many lines' numbers are in memory at once: some 50 bytes each for an array, 80 as Python's numbers.
LINES_AT_ONCE: Final = 50_000


class Column(Protocol):
    """A number for each line: an array, or `ColumnOnDisk`. What is taken from it by a slice or places is an array."""

    def __len__(self) -> int:
        """Returns how many lines there are."""

    def __getitem__(self, places: Any, /) -> Any:
        """Returns the numbers of some lines."""

    def __setitem__(self, places: Any, numbers: Any, /) -> None:
        """Sets the numbers of some lines."""


#: Makes a column for so many lines, whose numbers aren't set yet, by a name of its own.
NewColumn = Callable[[str, int], Column]


def in_memory(_: str, lines: int) -> Column:
    """Makes a column in memory."""
    return np.empty(lines, np.int64)


class ColumnOnDisk:
    """A column in a file, of which nothing stays in memory: it is mapped anew for each part that is read or written."""

    def __init__(self, path: Path, kind: np.dtype[Any]) -> None:
        """Takes the file as it is."""
        self._path, self._kind = path, kind

    @classmethod
    def new(cls, path: Path, lines: int) -> ColumnOnDisk:
        """Makes a file for so many lines."""
        with path.open("wb") as file:
            file.truncate(lines * np.dtype(np.int64).itemsize)
        return cls(path, np.dtype(np.int64))

    def __len__(self) -> int:
        return self._path.stat().st_size // self._kind.itemsize

    def __getitem__(self, places: Any) -> NDArray[Any]:
        return np.array(np.memmap(self._path, self._kind, "r")[places])

    def __setitem__(self, places: Any, numbers: Any) -> None:
        np.memmap(self._path, self._kind, "r+")[places] = numbers


def parts_of(lines: int) -> Iterator[slice]:
    """Yields the lines in parts, of which one is looked at at a time."""
    for first in range(0, lines, LINES_AT_ONCE):
        yield slice(first, min(first + LINES_AT_ONCE, lines))


def shares_of(lines: int) -> int:
    """Returns among how many shares the lines are divided, for one to be looked at at a time."""
    return lines // LINES_AT_ONCE + 1


def runs_of(column: Column) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yields a column in parts that end where its number changes: where each begins, and its numbers."""
    first, most = 0, LINES_AT_ONCE
    while first < len(column):
        part = column[first : first + most]
        if first + most < len(column):
            changes = np.flatnonzero(np.diff(part))
            if not len(changes):
                most *= 2
                continue
            part = part[: changes[-1] + 1]
        yield first, part
        first, most = first + len(part), LINES_AT_ONCE


def sorted_places(keys: Column, new: NewColumn) -> Column:
    """Returns the lines' places in the order of their keys; lines of one key stay in theirs.

    The keys are shared out by ranges that hold about as many lines each, and each range is sorted.
    """
    places = new("places", len(keys))
    if not len(keys):
        return places
    ranges = shares_of(len(keys))
    sample = np.sort(np.concatenate([keys[part][::ranges] for part in parts_of(len(keys))]))
    least = [np.iinfo(np.int64).min, *sample[len(sample) // ranges :: max(len(sample) // ranges, 1)][: ranges - 1]]
    filled = 0
    for low, high in zip(least, [*least[1:], None], strict=True):
        found = np.concatenate([part.start + _within(keys[part], low, high) for part in parts_of(len(keys))])
        found = found[np.argsort(keys[found], kind="stable")]
        places[filled : filled + len(found)] = found
        filled += len(found)
    return places


def _within(keys: NDArray[Any], low: int, high: int | None) -> NDArray[np.intp]:
    return np.flatnonzero((keys >= low) & (keys < high) if high is not None else keys >= low)
