"""A micro-batch whose rows stay on the executors: tasks write the tables' files, the driver learns their names.

What needs nothing else is written by the task that has it, without a shuffle. What refers to an assignment, or is a
part of an answer, goes through Spark's joins and is written by the tasks that come out of them. No file is in a table
until the driver commits it (`OutputTables.write`): Spark's own Delta writer can't be told to commit only in the
coordinator's epoch, and on S3 it doesn't see other writers (tables.epoch).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from coordinator_udf.streaming.packing import TALLY, Tally, read_tally, unpack_kind
from coordinator_udf.tables.assignment_frames import join_assignments, merge_parts_of, written_again
from coordinator_udf.tables.parquet_files import TableFile, TableFiles
from coordinator_udf.tables.rows import TABLE_OF, to_table
from schemas.outputs import KINDS
from schemas.requests import LIVE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log: Final = logging.getLogger(__name__)

#: What bounds how much a job may bring to the driver, which Spark names where it fails one for that.
_RESULT_LIMIT: Final = "spark.driver.maxResultSize"

#: What a task says at its end: a `_Report` as JSON.
_REPORTS: Final = "report binary"

#: How many rows go from Python to the JVM at a time, as one Arrow batch: half of Spark's own default
#: (spark.sql.execution.arrow.maxRecordsPerBatch), for a row may hold an assignment.
_ROWS_AT_ONCE: Final = 5_000


class _Report(msgspec.Struct):
    """What the driver learns of a task: no row of the micro-batch.

    Attributes:
        tallies: of the shards that the task had.
        files: what it wrote.
        referring: how many rows wait for assignments, by kind.
        parts: how many rows are parts of answers.
        earlier: between which offsets, both included, the records lie that the task's outputs refer to and don't bring;
            by partition.
        again: whether an answer refers to a record of this micro-batch that names the assignments of an earlier one.
    """

    tallies: dict[int, Tally] = {}
    files: list[TableFile] = []
    referring: dict[str, int] = {}
    parts: int = 0
    earlier: dict[int, tuple[int, int]] = {}
    again: bool = False


_encode: Final = msgspec.json.Encoder().encode
_read_report: Final = msgspec.json.Decoder(_Report).decode


def collected_if_small(batch: DataFrame) -> pa.Table | None:
    """Returns a micro-batch's outputs on the driver.

    Returns None if they are more than it may collect (spark.driver.maxResultSize).

    How many there are is only known once the shards have run. Where they were too many, they run again from the same
    state and say the same.

    Raises:
        PySparkException, Py4JJavaError: a task failed.
    """
    try:
        return batch.toArrow()
    except (PySparkException, Py4JJavaError) as error:
        if _RESULT_LIMIT not in str(error):
            raise
    _log.warning("a micro-batch has more outputs than %s lets the driver collect: executors write them", _RESULT_LIMIT)
    return None


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """A micro-batch that is in files, and in no table yet.

    Attributes:
        tallies: by shard.
        files: by the table's name, all tables.
    """

    tallies: Mapping[int, Tally]
    files: Mapping[str, Sequence[TableFile]]

    def rows(self, table: str) -> int:
        """Returns how many rows a table gets."""
        return sum(file.rows for file in self.files[table])


class LargeBatch:
    """What shards said in a micro-batch, kept by Spark while the context lasts.

    Args:
        batch: rows of packing.PACKED_OUTPUTS; all of a shard are in one partition, as the stateful stage leaves them.
        folder: of the tables.
    """

    def __init__(self, batch: DataFrame, folder: str) -> None:
        self._batch = batch
        self._folder = folder

    def __enter__(self) -> LargeBatch:
        # Each action would run the stateful stage again.
        self._batch.persist()
        return self

    def __exit__(self, *_: object) -> None:
        self._batch.unpersist()

    @property
    def spark(self) -> SparkSession:
        """The session in which it runs."""
        return self._batch.sparkSession

    def requests(self) -> int:
        """Returns how many requests the shards handled."""
        tallies = self._batch.where(self._batch["kind"] == TALLY).select("packed").collect()
        return sum(read_tally(row["packed"]).requests for row in tallies)

    def write_files(self) -> WrittenFiles:
        """Has executors write the tables' files.

        Raises:
            PySparkException: a task failed for good, of a MissingAssignmentError among others.
        """
        first = _reports(self._batch.mapInArrow(partial(_write_finished, self._folder), _REPORTS))
        reports = [*first]
        if any(report.referring or report.parts for report in first):
            reports += self._write_joined(first)
        tallies: dict[int, Tally] = {}
        files: dict[str, list[TableFile]] = {table: [] for table in TABLE_OF.values()}
        for report in reports:
            tallies.update(report.tallies)
            for file in report.files:
                files[file.table].append(file)
        return WrittenFiles(tallies, files)

    def _write_joined(self, first: Sequence[_Report]) -> list[_Report]:
        assignments, stored = self._unpacked("assignments"), self._stored(first)
        reports = []
        known = assignments
        if any("records" in report.referring for report in first):
            records = join_assignments(self._unpacked("records"), assignments, stored)
            reports += self._write("records", records)
            if any(report.again for report in first):
                known = _known(assignments).unionByName(written_again(records))
        responses = self._unpacked("responses")
        if any("responses" in report.referring for report in first):
            whole = responses.where("NOT coalesce(parts > 1, false)")
            reports += self._write("responses", join_assignments(whole, known, stored))
        if any(report.parts for report in first):
            parts = responses.where("parts > 1")
            reports += self._write("responses", merge_parts_of(join_assignments(parts, known, stored)))
        return reports

    def _unpacked(self, kind: str) -> DataFrame:
        """Returns the rows of one kind that aren't written yet."""
        packed = self._batch.where(self._batch["kind"] == kind)
        return packed.mapInArrow(partial(_unpack_unfinished, kind), KINDS[kind])

    def _write(self, kind: str, rows: DataFrame) -> list[_Report]:
        ordered = rows.sortWithinPartitions("partition", "seq")
        return _reports(ordered.mapInArrow(partial(_write_rows, self._folder, kind), _REPORTS))

    def _stored(self, reports: Iterable[_Report]) -> DataFrame | None:
        """Returns the records of consumer_offsets that may be referred to from earlier micro-batches."""
        earlier = {number: ends for report in reports for number, ends in report.earlier.items()}
        if not earlier:
            return None
        ranges = " OR ".join(
            f"(partition = {number} AND offset BETWEEN {first} AND {last})"
            for number, (first, last) in sorted(earlier.items())
        )
        table = self.spark.read.format("delta").load(f"{self._folder}/{TABLE_OF['records']}")
        # A file's least and greatest offsets tell which files need to be read.
        return table.where(table["source"] == LIVE).where(ranges)


def _known(assignments: DataFrame) -> DataFrame:
    return assignments.select("source", "partition", "record_offset", "member_id", "payload")


def _reports(reports: DataFrame) -> list[_Report]:
    return [_read_report(row["report"]) for row in reports.collect()]


def _told(report: _Report) -> pa.RecordBatch:
    return pa.record_batch({"report": pa.array([_encode(report)], pa.binary())})


def _values(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, str, pa.Buffer]]:
    """Yields rows of PACKED_OUTPUTS, their packed values not copied."""
    for batch in batches:
        partitions, kinds = batch.column("partition").to_pylist(), batch.column("kind").to_pylist()
        for partition, kind, value in zip(partitions, kinds, batch.column("packed"), strict=True):
            yield partition, kind, value.as_buffer()


def _write_finished(folder: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Writes the rows that need no other, and says what the others need."""
    files = TableFiles(folder)
    report = _Report()
    needs: defaultdict[int, _Needs] = defaultdict(_Needs)
    for partition, kind, value in _values(batches):
        if kind == TALLY:
            report.tallies[partition] = read_tally(value)
            continue
        rows = unpack_kind(kind, value)
        if kind == "assignments":
            needs[partition].brought.update(pc.unique(rows.column("record_offset")).to_pylist())
            continue
        unfinished = _unfinished(kind, rows)
        if unfinished is not None:
            left = rows.filter(unfinished)
            rows = rows.filter(pc.invert(unfinished))
            _note(report, needs[partition], kind, left)
        files.write({TABLE_OF[kind]: to_table(kind, rows)})
    for partition, need in needs.items():
        if elsewhere := (need.records | need.responses) - need.brought:
            report.earlier[partition] = min(elsewhere), max(elsewhere)
        report.again = report.again or bool((need.responses - need.brought) & need.offsets)
    report.files = files.close()
    yield _told(report)


@dataclass(slots=True)
class _Needs:
    """The records whose assignments a shard's outputs bring and refer to, by their offsets.

    Attributes:
        brought: those of which it brings the assignments.
        records: those to which its records refer.
        responses: those to which its answers refer.
        offsets: its own records that refer to some.
    """

    brought: set[int] = field(default_factory=set)
    records: set[int] = field(default_factory=set)
    responses: set[int] = field(default_factory=set)
    offsets: set[int] = field(default_factory=set)


def _note(report: _Report, need: _Needs, kind: str, left: pa.Table) -> None:
    texts = pc.unique(left.column("assignment_refs").drop_null()).to_pylist()
    refs = {int(ref) for text in texts for ref in text.split(",")}
    if kind == "records":
        need.records |= refs
        need.offsets.update(left.column("offset").to_pylist())
    else:
        need.responses |= refs
        report.parts += pc.sum(_are_parts(left)).as_py() or 0
    if refs:
        report.referring[kind] = report.referring.get(kind, 0) + len(left)


def _unfinished(kind: str, rows: pa.Table) -> pa.ChunkedArray | None:
    """Returns which rows need others; None where none can."""
    if kind not in ("records", "responses"):
        return None
    referring = pc.is_valid(rows.column("assignment_refs"))
    return referring if kind == "records" else pc.or_(referring, _are_parts(rows))


def _are_parts(responses: pa.Table) -> pa.ChunkedArray:
    return pc.fill_null(pc.greater(responses.column("parts"), 1), False)


def _unpack_unfinished(kind: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _, _, value in _values(batches):
        rows = unpack_kind(kind, value)
        unfinished = _unfinished(kind, rows)
        yield from (rows if unfinished is None else rows.filter(unfinished)).to_batches(_ROWS_AT_ONCE)


def _write_rows(folder: str, kind: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    files = TableFiles(folder)
    for batch in batches:
        files.write({TABLE_OF[kind]: to_table(kind, pa.Table.from_batches([batch]))})
    yield _told(_Report(files=files.close()))
