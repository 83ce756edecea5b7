"""How a gateway in a process of its own gets its answers: it follows the group_responses table, commit by commit."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileType, PyFileSystem

from coordinator_udf.background import BackgroundThread
from coordinator_udf.gateway.partition_ends import RECORD_COLUMNS, PartitionEnds

_log = logging.getLogger(__name__)

_ANSWER_COLUMNS: Final = ("request_id", "body")

#: How often a quiet table is looked up anew, in seconds: it may have been replaced, or its next commit cleaned away. As
#: long as a client's request timeout: double would let every request of one time out, half lists the table's log twice
#: as often.
_LOOK_UP_S: Final = 30.0
#: The pause after a read of the table that failed, in seconds; as in log_member.
_RETRY_S: Final = 1.0
#: How long a stop waits for the read that is under way, in seconds; as in gateway.
_STOP_S: Final = 30.0


class NewRows:
    """Reads what is new in a Delta table that is appended to. Only commits after the first look are read.

    A commit is a file whose name is its number, so the next one can be asked for by its name, and it names the data
    files that it added: neither the table's listing nor its old files are read, however large the table has become.

    Args:
        uri: where the table is, a path or a URL.
        columns: what is read of each row; by default of an answer in group_responses.
        storage_options: as delta-rs takes them.
    """

    def __init__(
        self, uri: str, columns: Sequence[str] = _ANSWER_COLUMNS, storage_options: dict[str, str] | None = None
    ) -> None:
        self._uri = uri
        self._columns = list(columns)
        self._options = storage_options
        self._files: PyFileSystem | None = None
        self._next: int | None = None
        self._looked_at = float("-inf")

    def read(self) -> list[pa.Table]:
        """Returns the rows of the commits that came since the last call.

        The first call looks where the table ends and finds nothing; of a table that isn't there yet all is new.

        Raises:
            OSError, DeltaError: the table can't be read now; the next call goes on where this one began.
        """
        if self._files is None:
            self._look_up()
        if self._next is None or self._files is None:
            return []
        found: list[pa.Table] = []
        number = self._next
        while (added := _added(self._files, number)) is not None:
            found += [_read(self._files, path, self._columns) for path in added]
            number += 1
        self._next = number
        if found:
            self._looked_at = time.monotonic()
        elif time.monotonic() - self._looked_at > _LOOK_UP_S:
            self._look_up()
        return found

    def _look_up(self) -> None:
        self._looked_at = time.monotonic()
        try:
            version = DeltaTable(self._uri, storage_options=self._options).version()
            files = PyFileSystem(DeltaStorageHandler(self._uri, self._options))
        except TableNotFoundError:
            # All that it will ever have is new.
            self._next = 0
            return
        expected, self._files = self._next, files
        if expected is None:
            self._next = version + 1
        elif expected > version + 1 or (expected <= version and _added(files, expected) is None):
            _log.warning(
                "%s is at version %d where commit %d was expected next: it was replaced, or its log cleaned; "
                "rows in between are lost to here, and requests that they answered time out",
                self._uri,
                version,
                expected,
            )
            self._next = version + 1


def _added(files: PyFileSystem, number: int) -> list[str] | None:
    """Returns the data files that a commit added; None if it isn't there."""
    path = f"_delta_log/{number:020d}.json"
    if files.get_file_info(path).type is FileType.NotFound:
        return None
    with files.open_input_file(path) as source:
        lines = source.read().splitlines()
    adds = [msgspec.json.decode(line).get("add") for line in lines if line]
    return [unquote(add["path"]) for add in adds if add is not None and add["dataChange"]]


def _read(files: PyFileSystem, path: str, columns: list[str]) -> pa.Table:
    return pq.read_table(path, columns=columns, filesystem=files, partitioning=None)


class Answers(Protocol):
    """Where a coordinator's answers are read."""

    def read(self) -> list[pa.Table]:
        """Returns the answers that came since the last call."""


class ResponsesFollower:
    """A thread that hands the new answers of a coordinator to a gateway.

    Args:
        tables: the folder of the coordinator's tables; None where nobody asks the gateway where partitions end.
        deliver: what takes the answers: `Gateway.answers`.
        ends: learns of offsets that were committed before their commits are answered.
        interval_ms: the pause between two looks.
        answers: where the answers are, if not in the table group_responses.
    """

    def __init__(
        self,
        tables: str | None,
        deliver: Callable[[pa.Table], None],
        ends: PartitionEnds,
        interval_ms: int = 25,
        *,
        answers: Answers | None = None,
    ) -> None:
        self._answers = answers or NewRows(f"{tables}/group_responses")
        self._offsets_uri = None if tables is None else f"{tables}/consumer_offsets"
        self._offsets = None if self._offsets_uri is None else NewRows(self._offsets_uri, RECORD_COLUMNS)
        self._deliver = deliver
        self._ends = ends
        self._interval_s = interval_ms / 1000
        self._thread = BackgroundThread(self._run, "gateway-responses")

    def start(self) -> None:
        """Looks where the tables end, so that rows from now on are seen, and follows them from there."""
        self._answers.read()
        if self._offsets is not None and self._offsets_uri is not None:
            self._offsets.read()
            self._ends.load(self._offsets_uri)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._thread.stop(_STOP_S)

    def _run(self, stop: threading.Event) -> None:
        found: list[pa.Table] = []
        while not stop.wait(self._interval_s):
            try:
                # Those that were read stay until the records before them are, too: they are read once.
                found += self._answers.read()
                # A micro-batch writes its records before its answers.
                for records in self._offsets.read() if found and self._offsets is not None else ():
                    self._ends.add(records)
                while found:
                    self._deliver(found.pop(0))
            except (OSError, DeltaError) as error:
                _log.warning("the answers can't be read now, trying again in %g s: %s", _RETRY_S, error)
                stop.wait(_RETRY_S)
