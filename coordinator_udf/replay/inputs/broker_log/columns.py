"""A broker's log as columns: of each line a few numbers, from which the order of its requests is found."""

from __future__ import annotations

from array import array
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.inputs.broker_log.numbers_on_disk import Column, ColumnOnDisk

Numbers = NDArray[np.int64]
Places = slice | Numbers

#: Of each column the type of its numbers: what is below 2 to the 31st takes half as much memory.
_TYPES: Final = {
    "number": "i", "connection": "i", "correlation": "i", "written_us": "q", "exact_us": "i", "total_us": "q",
    "queue_us": "q", "local_us": "q", "remote_us": "q", "asks": "i",
}  # fmt: skip


class Columns(NamedTuple):
    """The lines of a log in the order of the file, a column a number; times in microseconds as in `Entry`.

    Attributes:
        connection: a number for each connection.
        correlation: the request's number on its connection.
        asks: which shards are asked (`portion.asks`).
    """

    number: Column
    connection: Column
    correlation: Column
    written_us: Column
    exact_us: Column
    total_us: Column
    queue_us: Column
    local_us: Column
    remote_us: Column
    asks: Column

    def handled_us(self, places: Places) -> Numbers:
        """As `Entry.handled_us`, of some lines."""
        handled: Numbers = self.written_us[places] - self.total_us[places] + self.queue_us[places]
        return handled

    def answered_us(self, places: Places) -> Numbers:
        """As `Entry.answered_us`, of some lines."""
        answered: Numbers = self.handled_us(places) + self.local_us[places] + self.remote_us[places]
        return answered


class Stretch(NamedTuple):
    """The columns of a stretch of lines, and the names of the connections that they number."""

    columns: Columns
    connections: tuple[str, ...]


class ColumnBuilder:
    """Collects the columns of lines."""

    def __init__(self) -> None:
        self._columns = {name: array(code) for name, code in _TYPES.items()}
        self._connections: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._columns["number"])

    def add(self, entry: Entry, asks: int) -> None:
        """Adds a line behind the others."""
        code = self._connections.setdefault(entry.connection, len(self._connections))
        correlation = int(entry.request_id[len(entry.connection) + 1 :])
        values = (
            entry.number,
            code,
            correlation,
            entry.written_us,
            entry.exact_us,
            entry.total_us,
            entry.queue_us,
            entry.local_us,
            entry.remote_us,
            asks,
        )
        for column, value in zip(self._columns.values(), values, strict=True):
            column.append(value)

    def stretch(self) -> Stretch:
        """Returns the lines so far."""
        arrays = {name: np.array(column) for name, column in self._columns.items()}
        return Stretch(Columns(**arrays), tuple(self._connections))


class ColumnFiles:
    """Puts the columns of stretches of one log on disk, one behind the other, while the context lasts."""

    def __init__(self, directory: Path) -> None:
        """Begins with none."""
        self._directory = directory
        self._files: list[BinaryIO] = []
        self._codes: dict[str, int] = {}

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            self._files = [opened.enter_context((self._directory / name).open("wb")) for name in _TYPES]
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def add(self, stretch: Stretch) -> None:
        """Puts a stretch behind the others."""
        codes = [self._codes.setdefault(name, len(self._codes)) for name in stretch.connections]
        columns = stretch.columns._replace(connection=np.array(codes, np.int32)[stretch.columns.connection[:]])
        for file, numbers in zip(self._files, columns, strict=True):
            file.write(np.asarray(numbers).tobytes())

    def columns(self) -> Columns:
        """Returns the lines; to be called after the context."""
        return Columns(**{name: ColumnOnDisk(self._directory / name, np.dtype(kind)) for name, kind in _TYPES.items()})
