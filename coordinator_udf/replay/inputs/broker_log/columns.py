"""A broker's log as columns: of each line a few numbers, from which the order of its requests is found."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coordinator_udf.replay.inputs.broker_log.line import Entry

Numbers = NDArray[np.int64]

_NAMES: Final = (
    "number", "connection", "correlation", "written_us", "exact_us", "total_us", "queue_us", "local_us", "remote_us",
    "asks",
)  # fmt: skip


class Columns(NamedTuple):
    """The lines of a log in the order of the file, a column a number; times in microseconds as in `Entry`.

    Attributes:
        connection: a number for each of ``connections``.
        correlation: the request's number on its connection.
        asks: which shards are asked (`portion.asks`).
    """

    number: Numbers
    connection: Numbers
    correlation: Numbers
    written_us: Numbers
    exact_us: Numbers
    total_us: Numbers
    queue_us: Numbers
    local_us: Numbers
    remote_us: Numbers
    asks: Numbers
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
        self._columns = {name: array("q") for name in _NAMES}
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
        arrays = {name: np.array(column, dtype=np.int64) for name, column in self._columns.items()}
        return Columns(**arrays, connections=tuple(self._connections))


def joined(parts: Sequence[Columns]) -> Columns:
    """Joins the columns of stretches of one log, one behind the other."""
    codes: dict[str, int] = {}
    connections = [
        np.array([codes.setdefault(name, len(codes)) for name in part.connections], dtype=np.int64)[part.connection]
        for part in parts
    ]
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _NAMES}
    return Columns(**{**columns, "connection": np.concatenate(connections)}, connections=tuple(codes))
