"""What the query's checkpoint tells: where it began, and which appends of the embedded log it may need again."""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from coordinator_udf.streaming.checkpoint_files import CheckpointFiles
from coordinator_udf.user_errors import UserError

#: Where a checkpoint that doesn't start with the oldest append says where it starts. Spark asks again until the first
#: micro-batch is done.
_START: Final = "muster-start.json"


class CheckpointError(UserError):
    """A checkpoint's files aren't as Spark writes them; the message names the file."""


class RecoveryStart(NamedTuple):
    """Where a recovery begins: the number of its first append, and of the one that ends the load."""

    append: int
    load_end: int


def read_start(checkpoint: CheckpointFiles) -> RecoveryStart | None:
    """Returns where a query on this checkpoint begins, if it begins with a recovery."""
    note = checkpoint.read(_START)
    if note is None:
        return None
    found = json.loads(note)
    return RecoveryStart(int(found["append"]), int(found.get("load_end", found["append"])))


def write_start(checkpoint: CheckpointFiles, start: RecoveryStart) -> None:
    """Lets a query on a new checkpoint begin with a recovery, whose load is on the log for good by now."""
    checkpoint.write(_START, json.dumps(start._asdict()))


def is_begun(checkpoint: CheckpointFiles) -> bool:
    """Returns whether a query ever planned a micro-batch on this checkpoint, or is about to."""
    return checkpoint.read(_START) is not None or bool(_numbers(checkpoint, "offsets"))


def committed_append(checkpoint: CheckpointFiles) -> int | None:
    """Returns up to which append of the embedded log the newest committed micro-batch went; None before the first."""
    return _end_of(checkpoint, newest=True)


def append_needed(checkpoint: CheckpointFiles) -> int | None:
    """Returns the first append that a micro-batch can need again.

    Returns None where nothing is known, so that all may be needed.

    That is where the oldest committed micro-batch ends that the checkpoint has (it has as many as
    ``spark.sql.streaming.minBatchesToRetain`` says): the batches after it can run again, the batch itself can't, since
    what says where it began is gone or it was the first.

    Raises:
        CheckpointError: the checkpoint has a file that isn't as Spark writes it.
    """
    return _end_of(checkpoint, newest=False)


def _end_of(checkpoint: CheckpointFiles, *, newest: bool) -> int | None:
    while True:
        batches = _numbers(checkpoint, "offsets") & _numbers(checkpoint, "commits")
        if not batches:
            return None
        file = f"offsets/{max(batches) if newest else min(batches)}"
        text = checkpoint.read(file)
        if text is None:
            continue  # Spark retains it no longer, since just now
        try:
            return int(json.loads(text.splitlines()[-1])["append"])
        except (IndexError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{checkpoint.place}/{file} is not as expected, the offset of an embedded log ({error!r})"
            ) from error


def _numbers(checkpoint: CheckpointFiles, log: str) -> set[int]:
    return {int(name) for name in checkpoint.names(log) if name.isdigit()}
