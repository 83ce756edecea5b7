"""What a start does after a loss of power, and what it refuses to go on from."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Final

from coordinator_udf.log.history import history_uri
from coordinator_udf.streaming.checkpoint_files import CheckpointFiles
from coordinator_udf.streaming.durable_checkpoint import drop_torn_end
from coordinator_udf.streaming.lease import StartError, has_lost_power
from coordinator_udf.tables.delta import WRITE_ORDER, OutputTables
from coordinator_udf.tables.durability import cut_torn_end
from coordinator_udf.tables.places import is_uri

_log: Final = logging.getLogger(__name__)


def repair_after_power_loss(tables: str, checkpoint: str) -> None:
    """Takes away what a loss of power left half written on this machine's disks: nothing of it was told to anybody."""
    if is_uri(tables) or not has_lost_power(tables):
        return
    _log.warning("the machine went down while a coordinator ran on %s; what was left half written goes", tables)
    for table in (*(Path(tables, name) for name in WRITE_ORDER), Path(history_uri(tables))):
        cut_torn_end(table, Path(tables, "_coordinator", "torn"))
    if not is_uri(checkpoint):
        drop_torn_end(Path(checkpoint))


def refuse_tables_ahead(tables: OutputTables, checkpoint: CheckpointFiles) -> None:
    """Refuses a checkpoint that lacks a micro-batch which the tables have.

    It would be planned anew under the same number, maybe with other requests, and taken for written.

    Raises:
        StartError: the checkpoint is such a one.
    """
    metadata = checkpoint.read("metadata")
    if not metadata:
        return
    query_id = json.loads(metadata)["id"]
    planned = max((int(name) for name in checkpoint.names("offsets") if name.isdigit()), default=-1)
    for name in WRITE_ORDER:
        written = tables.newest_batch(name, query_id)
        if written > planned:
            raise StartError(
                f"the table {tables.folder}/{name} has micro-batch {written} of the query on the checkpoint "
                f"{checkpoint.place}, which ends with {planned}: it is an older copy, or files of it are lost. Start "
                "with --recover-from-offsets and a new --checkpoint to load the groups from consumer_offsets"
            )
