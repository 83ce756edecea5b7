"""Replays the project's own request log: its shards as Spark tasks, and what they say put together again."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from coordinator_udf.log.dataframe import history_of, request_log
from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.log.file import LogError
from coordinator_udf.replay.inputs.detect import Format
from coordinator_udf.replay.inputs.own_log import ShardFiles, ordered_shards, read_shard_files, stage_embedded_log
from coordinator_udf.replay.judge.json_lines import json_lines
from coordinator_udf.replay.judge.report import SourceReport
from coordinator_udf.replay.tasks.in_process import FAILOVER
from coordinator_udf.replay.tasks.recorded import Job, TaskResult
from coordinator_udf.replay.tasks.shard_runner import ShardRunner, answered_requests
from coordinator_udf.replay.tasks.spark_tasks import in_tasks, progress
from coordinator_udf.settings.coordinator import Settings, SettingsError
from coordinator_udf.tables.assignment_join import merge_answers
from coordinator_udf.tables.outputs import SCHEMAS, Outputs
from coordinator_udf.tables.parquet_files import TableFile, TableFiles
from coordinator_udf.tables.rows import to_tables
from coordinator_udf.user_errors import InputError
from schemas.requests import ADDED_LATER, REQUEST_COLUMNS

Say = Callable[[str], None]

_RESPONSES = SCHEMAS["responses"]

_RESULT = "result binary"
_RESULT_ARROW = pa.schema([pa.field("result", pa.binary())])


class ShardsResult(msgspec.Struct):
    """What one task did."""

    files: list[TableFile]
    requests: float
    answered: int
    rejected: int
    #: Arrow IPC: answers to parts of requests that other shards were asked, too.
    parts: bytes | None
    lines_file: str | None


def run_own_log(spark: SparkSession, job: Job, say: Say) -> TaskResult:
    """Replays one log of our own. A log that can't be read or that breaks the replay is reported; others go on."""
    try:
        settings = job.options.settings()
        units = _units(job)
        if units is not None:
            results = in_tasks(spark, units, _FilesWork(job, settings), say)
        else:
            say(f"{job.source}: not laid out by shard and offset, so Spark shuffles and sorts it")
            results = _shuffled(spark, _table(spark, job), job, settings, say)
        return _together(job, results)
    except (InputError, SettingsError, LogError) as error:
        return TaskResult(SourceReport(job.source, failure=str(error)))
    except Exception as error:  # noqa: BLE001 - one input must not take the others down with it; it is reported
        return TaskResult(
            SourceReport(job.source, failure="the replay broke: " + "".join(traceback.format_exception(error)))
        )


def _units(job: Job) -> list[ShardFiles] | None:
    if job.form is Format.LOG:
        log = EmbeddedLog.open(job.path)
        snapshot = log.snapshot()
        log.close()
        if history_of(job.path, snapshot) is not None:
            return None
        return stage_embedded_log(job.path, job.source, job.scratch / "shards")
    return ordered_shards(job.path, job.source)


class _FilesWork:
    """Replays the shards of some files; runs in a worker."""

    def __init__(self, job: Job, settings: Settings) -> None:
        self._job = job
        self._settings = settings

    def __call__(self, unit: ShardFiles) -> ShardsResult:
        keep_log = any(_mentions_failover(name) for name in unit.files)
        return _run_shards(self._job, self._settings, keep_log, read_shard_files(unit))


def _mentions_failover(file: str) -> bool:
    apis = pq.read_table(file, columns=["api"], read_dictionary=["api"], partitioning=None).column("api")
    return any(FAILOVER in chunk.dictionary.to_pylist() for chunk in apis.chunks)


def _run_shards(job: Job, settings: Settings, keep_log: bool, batches: Iterable[pa.RecordBatch]) -> ShardsResult:
    runner, lines = None, None
    if job.wants_lines:
        job.scratch.mkdir(parents=True, exist_ok=True)
        lines = (job.scratch / f"{TableFiles.new_name()}.lines").open("wb")
    try:
        runner = ShardRunner(settings, keep_log, job.out, lines, gaps_are_downtime=job.gaps_are_downtime)
        files = runner.run(batches)
    finally:
        _close(lines)
    parts = None
    if runner.parts:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, _RESPONSES) as writer:
            for table in runner.parts:
                writer.write_table(table)
        parts = sink.getvalue().to_pybytes()
    name = lines.name if lines is not None else None
    return ShardsResult(files, runner.requests, runner.answered, runner.rejected, parts, name)


def _close(lines: BinaryIO | None) -> None:
    if lines is not None:
        lines.close()


def _table(spark: SparkSession, job: Job) -> DataFrame:
    if job.form is Format.LOG:
        return request_log(spark, job.path)
    return spark.read.format("delta").load(str(job.path))


def _shuffled(spark: SparkSession, table: DataFrame, job: Job, settings: Settings, say: Say) -> list[ShardsResult]:
    """Replays any other table: rows go to their shard by a shuffle and are sorted there."""
    table = table.withColumns({name: F.lit(None).cast("string") for name in ADDED_LATER - {*table.columns}})
    missing = [name for name in REQUEST_COLUMNS if name not in table.columns]
    if missing:
        raise InputError(f"{job.path} is no request log: the table has no column {', '.join(missing)}")
    rows = _named(table.select(*REQUEST_COLUMNS), job.source)
    keep_log = not rows.filter(F.col("api") == FAILOVER).isEmpty()
    tasks = 2 * spark.sparkContext.defaultParallelism
    ordered = rows.repartition(tasks, "source", "partition").sortWithinPartitions("source", "partition", "offset")

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        result = _run_shards(job, settings, keep_log, batches)
        yield pa.record_batch([pa.array([msgspec.msgpack.encode(result)], pa.binary())], schema=_RESULT_ARROW)

    with progress(spark.sparkContext, say):
        collected = ordered.mapInArrow(work, _RESULT).collect()
    return [msgspec.msgpack.decode(row["result"], type=ShardsResult) for row in collected]


def _named(rows: DataFrame, source: str) -> DataFrame:
    """Returns the rows under the input's name; a table of several coordinators keeps theirs behind it."""
    several = rows.select("source").distinct().limit(2).count() > 1
    name = F.concat(F.lit(f"{source}/"), F.col("source")) if several else F.lit(source)
    return rows.withColumn("source", name)


def _together(job: Job, results: Sequence[ShardsResult]) -> TaskResult:
    files = [file for result in results for file in result.files]
    answered = sum(result.answered for result in results)
    merged = Outputs.of(())._replace(responses=_merged_parts(results))
    if len(merged.responses):
        extra = TableFiles(job.out)
        extra.write(to_tables(merged))
        files += extra.close()
        answered += answered_requests(merged.responses)
    if job.lines_file is not None:
        with job.lines_file.open("wb") as out:
            for result in results:
                if result.lines_file is not None:
                    out.write(Path(result.lines_file).read_bytes())
            sources = merged.responses.column("source")
            for source in sources.unique().to_pylist():
                mine = merged.responses.filter(pc.equal(sources, source))
                out.writelines(json_lines(source, merged._replace(responses=mine)))
    report = SourceReport(
        job.source,
        requests=round(sum(result.requests for result in results)),
        answered=answered,
        rejected=sum(result.rejected for result in results),
    )
    return TaskResult(report, files)


def _merged_parts(results: Sequence[ShardsResult]) -> pa.Table:
    tables = []
    for result in results:
        if result.parts is not None:
            with pa.ipc.open_stream(result.parts) as reader:
                tables.append(reader.read_all())
    if not tables:
        return _RESPONSES.empty_table()
    return merge_answers(pa.concat_tables(tables).combine_chunks())
