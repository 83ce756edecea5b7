"""The sink: write what the shards decided, then answer.

A small micro-batch is collected once, as Arrow; the assignments are joined in; the tables are written in an order in
which nothing is told before it is decided; only then the answers are handed on. Of a large one executors do the same,
and the driver only commits what they wrote (`large_batch`). A batch that runs again, because the driver died between
two of these steps, says the same, by either way, and is written where it isn't yet, and its answers are handed on
again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from coordinator_udf.groups.records.classic import GROUP_METADATA, OFFSET_COMMIT
from coordinator_udf.groups.records.consumer import GROUP_EPOCH
from coordinator_udf.streaming.answers_topic import AnswersTopic
from coordinator_udf.streaming.batch_size import PlannedRows
from coordinator_udf.streaming.large_batch import LargeBatch, collected_if_small
from coordinator_udf.streaming.packing import Tally, unpack_outputs
from coordinator_udf.tables.assignment_join import complete_assignments
from coordinator_udf.tables.delta import OutputTables
from coordinator_udf.tables.parquet_files import TableFile, Wanted, read_back, read_shard
from coordinator_udf.tables.rows import to_tables
from coordinator_udf.tables.stored_assignments import StoredAssignments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUERY_ID: Final = "sql.streaming.queryId"

#: From how many rows of the log on a micro-batch is large where nothing else is said. Collected, so many take a quarter
#: of a gigabyte of the driver, and less of its time than Spark's joins take for a few (docs/performance.md).
DEFAULT_LARGE_BATCH_ROWS: Final = 500_000

#: How many rows of a large micro-batch are told at a time: the driver holds no more of them. Clients of the first get
#: their answers while the others are read.
_TOLD_AT_ONCE: Final = 10_000


class GivenUp(Exception):
    """A micro-batch that had not begun when the coordinator was stopped."""


#: Is given the rows of a micro-batch that are in their table by now.
Rows = Callable[[pa.Table], None]


#: Is given the rows of a micro-batch by the tables in which they are; of a large one those of a shard at a time, and no
#: more of them than SEEN_OF_LARGE.
Written = Callable[[Mapping[str, pa.Table]], None]


#: What is told of a large micro-batch to who counts groups and offsets (metrics).
SEEN_OF_LARGE: Final = {
    "consumer_offsets": Wanted(
        ("offset", "record_type", "value_version", "group_id", "key", "request_id", "other_value"),
        pc.is_in(pc.field("record_type"), pa.array([OFFSET_COMMIT, GROUP_METADATA, GROUP_EPOCH])),
    ),
    "group_transitions": Wanted(("seq", "group_id", "from_state", "to_state", "generation", "rule")),
    "group_responses": Wanted(("seq", "api", "request_id"), pc.field("api") == "OffsetDelete"),
}


@dataclass
class Totals:
    """What the query did since it started, for the status line.

    Attributes:
        requests: requests that were handled, control rows not counted.
        answers: rows of group_responses.
        rejected: rows of rejected_requests.
        groups: groups of each shard that was heard of.
        sink_ms: what the sink took for its last batch.
    """

    requests: int = 0
    answers: int = 0
    rejected: int = 0
    groups: dict[int, int] = field(default_factory=dict)
    sink_ms: float = 0.0


class CoordinatorSink:
    """The ``foreachBatch`` of the stream.

    Args:
        tables: where to write.
        answers: is given the rows of group_responses after each write.
        topic: where they go then, for gateways of other processes.
        records: is given the rows of consumer_offsets, before the answers.
        written: is given the rows of all tables by the table's name, before the answers.
        sync: puts on the disk what the tables must not be ahead of.
        large_rows: from how many rows of the log on a micro-batch is large; 0: none is.
        planned: tells how many a micro-batch takes.

    Attributes:
        is_holding: whether a micro-batch waits to be given up.
    """

    def __init__(
        self,
        tables: OutputTables,
        answers: Rows | None = None,
        records: Rows | None = None,
        written: Written | None = None,
        *,
        topic: AnswersTopic | None = None,
        sync: Callable[[], None] | None = None,
        large_rows: int = 0,
        planned: PlannedRows | None = None,
    ) -> None:
        self._large_rows = large_rows
        self._planned = planned
        self._written = written
        self._topic = topic
        self._sync = sync
        self.tables = tables
        self.totals = Totals()
        self.is_holding = False
        self._held = threading.Event()
        self._given_up = threading.Event()
        self._answers = answers
        self._records = records
        self._stored = StoredAssignments(lambda: tables.table("consumer_offsets"))
        # The disk takes its time while the rows are made.
        self._syncing = ThreadPoolExecutor(1, "checkpoint-sync")

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Takes one micro-batch of packing.PACKED_OUTPUTS."""
        if self._held.is_set():
            self.is_holding = True
            self._given_up.wait()
            raise GivenUp(f"batch {batch_id} will run when the coordinator starts again")
        # Stays the same when the query starts again from its checkpoint.
        query_id = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        if query_id is None:
            raise RuntimeError(
                f"Spark's local property {_QUERY_ID} is missing: a batch can't be told from another query's"
            )
        if not self._large_rows:
            self._timed(self.write, batch.toArrow(), query_id, batch_id)
            return
        rows = 0 if self._planned is None else self._planned.of(batch_id)
        if rows is not None and rows < self._large_rows:
            # Of a few rows, a tick among them, may come more than the driver can bear: all that expires, for instance.
            packed = collected_if_small(batch)
            if packed is not None:
                self._timed(self.write, packed, query_id, batch_id)
                return
        with LargeBatch(batch, self.tables.folder) as kept:
            is_small = rows is None and kept.requests() < self._large_rows
            packed = collected_if_small(batch) if is_small else None
            if packed is not None:
                self._timed(self.write, packed, query_id, batch_id)
            else:
                self._timed(self.write_large, kept, query_id, batch_id)

    def _timed(self, write: Callable[..., None], *given: Any) -> None:
        started = time.perf_counter()
        write(*given)
        self.totals.sink_ms = (time.perf_counter() - started) * 1_000

    def hold(self) -> None:
        """Keeps micro-batches from beginning: the next one waits."""
        self._held.set()

    def give_up(self) -> None:
        """Fails the micro-batch that waits. It runs again when the query starts again."""
        self._given_up.set()

    def write(self, packed: pa.Table, query_id: str, batch_id: int) -> None:
        """Writes a collected micro-batch and hands its answers on.

        Args:
            query_id: names the query in the tables' transactions.
        """
        synced = None if self._sync is None else self._syncing.submit(self._sync)
        tallies, outputs = unpack_outputs(packed)
        tables = to_tables(complete_assignments(outputs, self._stored.find))
        self._stored.remember(outputs.assignments)
        if synced is not None:
            synced.result()
        self.tables.write(tables, query_id, batch_id)
        self._count(tallies, len(tables["group_responses"]), len(tables["rejected_requests"]))
        if self._written is not None:
            self._written(tables)
        if self._records is not None and len(tables["consumer_offsets"]):
            self._records(tables["consumer_offsets"])
        if len(answers := tables["group_responses"]):
            if self._answers is not None:
                self._answers(answers)
            if self._topic is not None:
                self._topic.write(answers)

    def write_large(self, batch: LargeBatch, query_id: str, batch_id: int) -> None:
        """Has executors write a micro-batch, commits it, and hands its answers on, some at a time.

        Args:
            query_id: names the query in the tables' transactions.
        """
        with self.tables.keeping_new_files():
            written = batch.write_files()
            if self._sync is not None:
                self._sync()
            self.tables.write(written.files, query_id, batch_id)
        self._count(written.tallies, written.rows("group_responses"), written.rows("rejected_requests"))
        if self._written is not None:
            # What rows say of each other, they say of those of their shard.
            for partition in sorted(written.tallies):
                self._written(read_shard(self.tables.folder, written.files, partition, SEEN_OF_LARGE))
        self._tell(self._records, written.files["consumer_offsets"])
        answers = written.files["group_responses"]
        self._tell(self._answers, answers)
        if self._topic is not None and answers:
            self._topic.write_files(batch.spark, [f"{self.tables.folder}/{file.table}/{file.name}" for file in answers])

    def _tell(self, told: Rows | None, files: Sequence[TableFile]) -> None:
        if told is not None:
            for rows in read_back(self.tables.folder, files, _TOLD_AT_ONCE):
                told(rows)

    def _count(self, tallies: Mapping[int, Tally], answers: int, rejected: int) -> None:
        self.totals.requests += sum(tally.requests for tally in tallies.values())
        self.totals.answers += answers
        self.totals.rejected += rejected
        self.totals.groups.update({partition: tally.groups for partition, tally in tallies.items()})
