"""What an embedded log says of its contents."""

from __future__ import annotations

from typing import NamedTuple


class Extent(NamedTuple):
    """What the log holds: appends ``[first, next)``, and the number of rows ever appended."""

    first: int
    next: int
    rows: int


class History(NamedTuple):
    """Where the appends go that leave the log.

    Attributes:
        id: names the log in the transactions of that table.
        uri: the table.
    """

    id: str
    uri: str


class LogSnapshot(NamedTuple):
    """What the log holds at one moment.

    Attributes:
        first: the number of its first append.
        next: the number that the next append will get.
        first_offsets: for each partition, the offset of its first row in the log; all before are in the history.
        next_offsets: for each partition, the offset that its next row will get.
        history: where the appends before are; None as long as nobody takes them.
    """

    first: int
    next: int
    first_offsets: tuple[int, ...]
    next_offsets: tuple[int, ...]
    history: History | None
