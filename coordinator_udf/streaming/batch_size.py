"""How large a micro-batch is, before it is run: from what the checkpoint says that its source has planned."""

from __future__ import annotations

from collections.abc import Callable

from coordinator_udf.streaming.checkpoint_files import CheckpointFiles

#: Tells how many rows of the log lie between two offsets of its source (JSON, as Spark keeps them); None where the
#: source doesn't say. The first is None where nothing tells where the query began.
RowsBetween = Callable[[str | None, str], int | None]


class PlannedRows:
    """Asks the checkpoint how many rows of the log micro-batches take, one after the other.

    Args:
        checkpoint: of the query. Spark writes there where a micro-batch ends before it runs it.
        rows_between: asked of a micro-batch that takes something.
    """

    def __init__(self, checkpoint: CheckpointFiles, rows_between: RowsBetween) -> None:
        self._checkpoint = checkpoint
        self._rows_between = rows_between
        self._before: tuple[int, str | None] = (-1, None)

    def of(self, batch_id: int) -> int | None:
        """Returns the number of rows of the log that a micro-batch takes, ticks among them.

        Returns None where that isn't known.
        """
        number, start = self._before
        if number != batch_id - 1:
            start = self._end(batch_id - 1)
        end = self._end(batch_id)
        self._before = batch_id, end
        if end is None:
            return None
        return 0 if start == end else self._rows_between(start, end)

    def _end(self, batch_id: int) -> str | None:
        """Returns where a micro-batch ends in the log, which is the last of a query's sources."""
        text = self._checkpoint.read(f"offsets/{batch_id}") if batch_id >= 0 else None
        return text.splitlines()[-1] if text else None


def unknown(_start: str | None, _end: str) -> int | None:
    """Says that the size isn't known: a source of files tells only how many there are."""
    return None
