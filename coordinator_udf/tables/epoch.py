"""The epoch of the coordinator that may write: a property of each table, which every commit checks.

A coordinator that takes tables over raises the property. A commit is made on the version of the table whose property
its writer looked at, and Delta lets no commit through that was begun before a change of a table's metadata and ends
after it. So from that change on every commit of the coordinator before fails, appends and compactions alike, wherever
it was stopped and for however long. This needs commits of delta-rs: Spark's Delta writer begins with whatever version
is the newest by then, and on S3 it doesn't see another writer at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from coordinator_udf.user_errors import UserError

#: The property that holds the epoch; a table without it has epoch 0.
EPOCH_PROPERTY: Final = "muster.coordinator.epoch"

#: How often a claim is tried whose table somebody else changes meanwhile: a coordinator that still runs commits some
#: times a second, and each table that is claimed stops it.
_CLAIM_ATTEMPTS: Final = 100


class FencedError(UserError):
    """Another coordinator has taken the tables over; the message names the table and both epochs."""


def epoch_of(table: DeltaTable) -> int:
    """Returns the epoch in the version of a table that is loaded."""
    return int(table.metadata().configuration.get(EPOCH_PROPERTY, 0))


def refuse_fenced(table: DeltaTable, epoch: int | None) -> None:
    """Looks whether a writer of this epoch may still write to the version of the table that is loaded.

    Args:
        epoch: the writer's; None: it is no coordinator's, and not fenced.

    Raises:
        FencedError: another coordinator's epoch is in the table.
    """
    if epoch is not None and (found := epoch_of(table)) != epoch:
        raise FencedError(
            f"another coordinator has taken over the table {table.table_uri}: its epoch is {found}, this one's "
            f"{epoch}, so nothing of this one is written any more"
        )


def claim(tables: Sequence[DeltaTable]) -> int:
    """Takes tables over for a new coordinator and returns its epoch; the tables are at their newest version then.

    Whoever claims the same tables takes them in the same order, so that of two at once one gets all of them.

    Raises:
        FencedError: somebody else took them meanwhile.
    """
    for table in tables:
        table.update_incremental()
    epoch = 1 + max(epoch_of(table) for table in tables)
    for table in tables:
        raise_epoch(table, epoch)
    return epoch


def raise_epoch(table: DeltaTable, epoch: int) -> None:
    """Puts a greater epoch into a table.

    Raises:
        FencedError: the table has this epoch already, or a greater one.
        CommitFailedError: others changed the table all the time.
    """
    for attempt in range(1, _CLAIM_ATTEMPTS + 1):
        table.update_incremental()
        if epoch_of(table) >= epoch:
            raise FencedError(
                f"another coordinator took over the table {table.table_uri} at the same time, with epoch "
                f"{epoch_of(table)}; this one would have had {epoch}"
            )
        try:
            table.alter.set_table_properties({EPOCH_PROPERTY: str(epoch)}, raise_if_not_exists=False)
            return
        except CommitFailedError:
            if attempt == _CLAIM_ATTEMPTS:
                raise
