"""The batch driver: gives each input to tasks of a Spark job, commits what they wrote, and puts their reports together.

A recorded log (Kafka's request log, a trace) is one task, unless it is long: then its shards are shared among tasks, as
those of the project's own log are. Tasks write Parquet files of the tables
themselves and the driver commits them, one Delta version a table: measured against one pass of Spark's writer for each
of the four tables, that saves moving every output row to the JVM and reading it there four times.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from coordinator_udf import stopping
from coordinator_udf.replay.inputs.detect import Format, detect_format
from coordinator_udf.replay.inputs.offsets_dump.reader import state_dumps
from coordinator_udf.replay.inputs.plan import SourceInput, plan
from coordinator_udf.replay.judge.report import SourceReport
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.long_log import TASK_LINES, run_long_log
from coordinator_udf.replay.tasks.own import run_own_log
from coordinator_udf.replay.tasks.portions import Portion, PortionResult, run_portion
from coordinator_udf.replay.tasks.process_tasks import in_processes
from coordinator_udf.replay.tasks.recorded import Job, TaskResult, run_recorded
from coordinator_udf.replay.tasks.session import OWN_FORMS
from coordinator_udf.replay.tasks.spark_tasks import in_tasks
from coordinator_udf.tables.output_places import check_folder
from coordinator_udf.tables.parquet_files import commit, nothing_left_behind, refuse_existing
from coordinator_udf.user_errors import InputError

Say = Callable[[str], None]


class ReplayRequest(msgspec.Struct, frozen=True):
    """One run of the replay: what goes in and where all of it goes.

    Args:
        inputs: files, directories, patterns and tables; parts of one coordinator's logs are told by what is in them.
        out: the directory of the tables.
        form: the format of all inputs; by default each is looked at.
        lines: where to write all answers, records and descriptions as JSON lines.
        differences: where to write each difference from the recording as a JSON line.
        one_broker: whether all inputs are parts of one broker's logs.
        overwrite: whether tables that are there already are replaced.
        topics: those of the inputs that hold what was in a Kafka topic.
    """

    inputs: tuple[Path, ...]
    out: Path
    options: ReplayOptions
    form: Format = Format.AUTO
    lines: Path | None = None
    differences: Path | None = None
    overwrite: bool = False
    one_broker: bool = False
    topics: frozenset[Path] = frozenset()


def check_request(request: ReplayRequest) -> list[SourceInput]:
    """Finds what is wrong with a request before a session is started for it; the coordinators that the inputs are of.

    Raises:
        InputError: an input isn't there or is named twice, none can be read, or there are tables in the way.
        SettingsError: the settings make no sense.
    """
    request.options.settings()
    _look_at_state(request.options.state)
    check_folder(request.out)
    refuse_existing(request.out, request.overwrite)
    found = plan(request.inputs, request.form, request.options.zone(), one_broker=request.one_broker)
    if all(source.failure is not None for source in found):
        raise InputError("; ".join(source.failure for source in found if source.failure is not None))
    return found


def _look_at_state(state: Sequence[Path]) -> None:
    """Sees that there is something to begin with.

    Raises:
        InputError: there isn't.
    """
    for dump in state_dumps(state) if state else ():
        if detect_format(dump) is not Format.OFFSETS:
            raise InputError(f"{dump} is no dump of __consumer_offsets, as --state needs it")


def replay(
    spark: SparkSession | None, request: ReplayRequest, say: Say, checked: Sequence[SourceInput] | None = None
) -> list[SourceReport]:
    """Runs a replay; a report for each coordinator, in the order of their first inputs.

    Args:
        spark: without it recorded logs are read by processes of this machine; see `session_if_needed`.
        checked: what `check_request` found, if that was asked already.

    Raises:
        InputError, SettingsError: as `check_request`. Nothing was written then.
    """
    sources = check_request(request) if checked is None else checked
    request.out.mkdir(parents=True, exist_ok=True)
    with stopping.temporary_directory(".replay-", request.out) as scratch:
        jobs = [
            _job(request, source, Path(scratch) / str(number))
            for number, source in enumerate(sources)
            if source.failure is None
        ]
        with nothing_left_behind(request.out):
            results = _run(spark, jobs, say)
        # Tables of which some were there would be in the way of a repetition.
        with stopping.deferred():
            commit(request.out, (file for result in results for file in result.files))
        _gather(request.lines, [job.lines_file for job in jobs])
        _gather(request.differences, [job.differences_file for job in jobs])
    return _reports(sources, results)


def _reports(sources: Sequence[SourceInput], results: Sequence[TaskResult]) -> list[SourceReport]:
    by_source = {result.report.source: result.report for result in results}
    reports = []
    for source in sources:
        report = by_source.get(source.source) or SourceReport(source.source, failure=source.failure)
        report.warnings, report.passed_over = source.warnings, source.passed_over
        report.is_empty = source.is_empty
        reports.append(report)
    return reports


def _job(request: ReplayRequest, source: SourceInput, scratch: Path) -> Job:
    paths = tuple(path.absolute() for path in source.paths)
    info_paths = tuple(path.absolute() for path in source.info_paths)
    return Job(
        (paths or info_paths)[0],
        source.source,
        source.form,
        paths,
        info_paths,
        request.options,
        request.out.absolute(),
        scratch.absolute(),
        source.lines,
        wants_lines=request.lines is not None,
        wants_differences=request.differences is not None,
        gaps_are_downtime=not request.topics.isdisjoint(source.paths),
    )


def _run(spark: SparkSession | None, jobs: Sequence[Job], say: Say) -> list[TaskResult]:
    # The largest first, so that none of them is left alone at the end.
    recorded = sorted((job for job in jobs if job.form not in OWN_FORMS), key=_size, reverse=True)
    long = [job for job in recorded if job.lines > TASK_LINES]
    short = [job for job in recorded if job.lines <= TASK_LINES]
    done = in_processes(short, run_recorded, say) if spark is None else in_tasks(spark, short, run_recorded, say)
    results = {result.report.source: result for result in done}

    def run_portions(portions: Sequence[Portion], finished: Callable[[Portion], None]) -> list[PortionResult]:
        if spark is None:
            return in_processes(portions, run_portion, say, finished)
        return in_tasks(spark, portions, run_portion, say)

    for job in long:
        results[job.source] = run_long_log(job, run_portions, say)
    for job in jobs:
        if job.form in OWN_FORMS:
            assert spark is not None, "shards of our own log are shared among Spark's tasks"
            say(f"{job.source}: a request log of our own")
            results[job.source] = run_own_log(spark, job, say)
    return [results[job.source] for job in jobs]


def _size(job: Job) -> int:
    return sum(_bytes_of(path) for path in {*job.paths, *job.info_paths})


def _bytes_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        # It was there a moment ago: its task tells of it.
        return 0


def _gather(target: Path | None, parts: Iterable[Path | None]) -> None:
    """Puts the tasks' files together in the order of the inputs."""
    if target is None:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as out:
        for part in parts:
            if part is not None and part.exists():
                with part.open("rb") as lines:
                    shutil.copyfileobj(lines, out)
