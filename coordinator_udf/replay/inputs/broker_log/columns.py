"""A broker's log as columns: of each line a few numbers, from which the order of its requests is found."""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coordinator_udf.replay.inputs.broker_log.line import Entry

Numbers = NDArray[np.int64]
SmallNumbers = NDArray[np.int32]

#: Of each column the type of its numbers: what is below 2 to the 31st takes half as much memory.
_TYPES: Final = {
    "number": "i", "connection": "i", "correlation": "i", "written_us": "q", "exact_us": "i", "total_us": "q",
    "queue_us": "q", "local_us": "q", "remote_us": "q", "asks": "i",
}  # fmt: skip


class Columns(NamedTuple):
    """The lines of a log in the order of the file, a column a number; times in microseconds as in `Entry`.

    Attributes:
        connection: a number for each of ``connections``.
        correlation: the request's number on its connection.
        asks: which shards are asked (`portion.asks`).
    """

    number: SmallNumbers
    connection: SmallNumbers
    correlation: SmallNumbers
    written_us: Numbers
    exact_us: SmallNumbers
    total_us: Numbers
    queue_us: Numbers
    local_us: Numbers
    remote_us: Numbers
    asks: SmallNumbers
    connections: tuple[str, ...]

    @property
    def handled_us(self) -> Numbers:
        """As `Entry.handled_us`."""
        return self.written_us - self.total_us + self.queue_us

    @property
    def answered_us(self) -> Numbers:
        """As `Entry.answered_us`."""
        return self.handled_us + self.local_us + self.remote_us


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

    def columns(self) -> Columns:
        """Returns the lines so far."""
        arrays = {name: np.array(column) for name, column in self._columns.items()}
        return Columns(**arrays, connections=tuple(self._connections))


def joined(parts: list[Columns]) -> Columns:
    """Joins the columns of stretches of one log, one behind the other; the list of them is emptied meanwhile."""
    codes: dict[str, int] = {}
    lines = sum(len(part.number) for part in parts)
    columns = {name: np.empty(lines, code) for name, code in _TYPES.items()}
    first = 0
    parts.reverse()
    while parts:
        part = parts.pop()
        last = first + len(part.number)
        for name, column in columns.items():
            column[first:last] = getattr(part, name)
        own = np.array([codes.setdefault(name, len(codes)) for name in part.connections], np.int32)
        columns["connection"][first:last] = own[part.connection]
        first = last
    return Columns(**columns, connections=tuple(codes))
