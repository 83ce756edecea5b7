"""Packing of a table's small files into large ones, so that two who do it at once don't both."""

from __future__ import annotations

from typing import Any, Final
from uuid import uuid4

from deltalake import DeltaTable

#: Names who began to pack the table last.
_PROPERTY: Final = "muster.packing"


def pack_files(table: DeltaTable, file_bytes: int | None = None) -> dict[str, Any]:
    """Rewrites many small files as few large ones, no row changed.

    delta-rs lets two commits go through that rewrite the same files, and their rows are in the table twice then. A
    change of the table's properties fails all commits that were begun before it. So each who packs makes one first: of
    two at once the one that began later goes through.

    Args:
        file_bytes: which files are small, and how great those get that are made of them; None: as the table has it.

    Returns:
        The metrics of delta-rs: numFilesRemoved, numFilesAdded and others.

    Raises:
        CommitFailedError: somebody else began to pack, or changed the table in another way, meanwhile.
    """
    table.alter.set_table_properties({_PROPERTY: uuid4().hex}, raise_if_not_exists=False)
    return table.optimize.compact(target_size=file_bytes)
