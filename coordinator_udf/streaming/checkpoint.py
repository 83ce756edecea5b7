"""What the query's checkpoint tells: where it began, and which appends of the embedded log it may need again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, NamedTuple

from coordinator_udf.log.file import sync
from coordinator_udf.user_errors import UserError

#: Where a checkpoint that doesn't start with the oldest append says where it starts. Spark asks again until the first
#: micro-batch is done.
_START: Final = "muster-start.json"


class CheckpointError(UserError):
    """A checkpoint's files aren't as Spark writes them; the message names the file."""


class Start(NamedTuple):
    """Where a recovery begins: the number of its first append, and of the one that ends the load."""

    append: int
    load_end: int


def read_start(checkpoint: str) -> Start | None:
    """Where a query on this checkpoint begins, if it begins with a recovery."""
    note = Path(checkpoint) / _START
    if not note.is_file():
        return None
    found = json.loads(note.read_text("utf-8"))
    return Start(int(found["append"]), int(found.get("load_end", found["append"])))


def write_start(checkpoint: str, start: Start) -> None:
    """Lets a query on a new checkpoint begin with a recovery."""
    note = Path(checkpoint) / _START
    note.parent.mkdir(parents=True, exist_ok=True)
    draft = note.with_suffix(".new")
    draft.write_text(json.dumps(start._asdict()), "utf-8")
    # The load is on the log for good by now.
    sync(draft)
    draft.rename(note)
    sync(note.parent)


def is_begun(checkpoint: str) -> bool:
    """Whether a query ever planned a micro-batch on this checkpoint, or is about to."""
    path = Path(checkpoint)
    return (path / _START).is_file() or any((path / "offsets").glob("[0-9]*"))


def committed_append(checkpoint: str) -> int | None:
    """Up to which append of the embedded log the newest committed micro-batch went; None before the first."""
    return _end_of(checkpoint, newest=True)


def append_needed(checkpoint: str) -> int | None:
    """The first append that a micro-batch can need again; None where nothing is known, so that all may be needed.

    That is where the oldest committed micro-batch ends that the checkpoint has (it has as many as
    ``spark.sql.streaming.minBatchesToRetain`` says): the batches after it can run again, the batch itself can't, since
    what says where it began is gone or it was the first.

    Raises:
        CheckpointError: the checkpoint has a file that isn't as Spark writes it.
    """
    return _end_of(checkpoint, newest=False)


def _end_of(checkpoint: str, *, newest: bool) -> int | None:
    while True:
        batches = _numbers(checkpoint, "offsets") & _numbers(checkpoint, "commits")
        if not batches:
            return None
        file = Path(checkpoint) / "offsets" / str(max(batches) if newest else min(batches))
        try:
            lines = file.read_text("utf-8").splitlines()
        except FileNotFoundError:
            continue  # Spark retains it no longer, since just now
        try:
            return int(json.loads(lines[-1])["append"])
        except (IndexError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{file} is not as expected, the offset of an embedded log ({error!r})") from error


def _numbers(checkpoint: str, log: str) -> set[int]:
    return {int(path.name) for path in (Path(checkpoint) / log).glob("[0-9]*") if path.name.isdigit()}
