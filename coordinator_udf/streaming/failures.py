"""Errors that a person can do something about, in words; all others with their traceback."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import StreamingQueryException

from coordinator_udf.log.file import LogError
from coordinator_udf.log.stored_appends import TrimmedError
from coordinator_udf.monitoring import tell
from coordinator_udf.shard.state_row.codec import StateVersionError
from coordinator_udf.tables.epoch import FencedError
from coordinator_udf.user_errors import UserError, says_disk_is_full

#: Errors that are raised on workers, by their names in what Spark tells of them.
_TOLD_BY_SPARK = (
    StateVersionError.__name__,
    LogError.__name__,
    TrimmedError.__name__,
    "MissingAssignmentError",
    FencedError.__name__,
)


@contextmanager
def told_in_words(job: str) -> Iterator[None]:
    """Ends the process with one line on stderr for an error that says itself what to do, and with its status."""
    try:
        yield
    except UserError as error:
        tell(f"{job}: {error}", logging.ERROR)
        raise SystemExit(error.status) from None
    except StreamingQueryException as error:
        tell(f"{job}: the query failed: {_words_of(str(error))}", logging.ERROR)
        raise SystemExit(1) from None


#: How Spark calls a checkpoint whose shards have keys or states of another kind.
_OTHER_KEYS = "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE"
_OTHER_STATES = "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE"


def _words_of(text: str) -> str:
    if says_disk_is_full(text):
        return "a disk is full; make room for its tables, checkpoint and log, and start it again: it goes on from there"
    for error, otherwise in ((_OTHER_KEYS, "named its shards"), (_OTHER_STATES, "kept their state")):
        if error in text:
            return (
                f"the checkpoint is of another release, which {otherwise} otherwise; start with a new --checkpoint and "
                "--recover-from-offsets to load the groups from consumer_offsets"
            )
    for line in text.splitlines():
        for name in _TOLD_BY_SPARK:
            if line.strip().startswith(name) or f".{name}: " in line:
                return line.partition(f"{name}: ")[2] or line
    return text
