"""Control rows that a broker's log doesn't have: what is supposed to have happened to a shard, or to a group of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from coordinator_udf.replay.explain.steps import Row

LOOK: Final = "ExpireOffsets"
DELAY: Final = "DelayTimers"


def with_supposed(rows: Sequence[Row], supposed: Iterable[Row]) -> list[Row]:
    """Returns rows with control rows that are supposed, each in its shard at its time.

    Args:
        rows: of one shard or more, each in order.
        supposed: what `supposed_in` finds in rows later.
    """
    found = list(rows)
    for each in supposed:
        found.insert(next((place for place, row in enumerate(found) if _is_behind(row, each)), len(found)), each)
    return found


def supposed_in(rows: Iterable[Row]) -> Iterator[Row]:
    """Yields those of a shard's rows that are supposed: a broker's log itself has none of their kind."""
    return ({**row} for row in rows if row["api"] in {LOOK, DELAY})


def _is_behind(row: Row, supposed: Row) -> bool:
    # Where a shard is taken to be lost as its broker begins to hang, it may have been later: what is put off is first.
    is_first = supposed["api"] == LOOK or row["api"] == "Unload"
    return bool(row["partition"] == supposed["partition"] and row["log_ts"] >= supposed["log_ts"] + (not is_first))
