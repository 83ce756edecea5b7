"""The batch driver: gives each input to tasks of a Spark job, commits what they wrote, and puts their reports together.

A recorded log (Kafka's request log, a trace) is one task: its order can be told only from the whole of it. The
project's own log is as many tasks as it has shards to share among them. Tasks write Parquet files of the tables
themselves and the driver commits them, one Delta version a table: measured against one pass of Spark's writer for each
of the four tables, that saves moving every output row to the JVM and reading it there four times.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from coordinator_udf.replay.inputs.detect import Format, detect_format
from coordinator_udf.replay.judge.report import SourceReport
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.own import run_own_log
from coordinator_udf.replay.tasks.recorded import Job, TaskResult, run_recorded
from coordinator_udf.replay.tasks.spark_tasks import in_tasks
from coordinator_udf.tables.parquet_files import commit, refuse_existing
from coordinator_udf.user_errors import InputError

Say = Callable[[str], None]

#: The project's own logs, which are shared among tasks shard by shard.
_OWN = frozenset({Format.TABLE, Format.LOG})


class ReplayRequest(msgspec.Struct, frozen=True):
    """One run of the replay: what goes in and where all of it goes.

    Args:
        inputs: files and tables; each is a coordinator of its own.
        out: the directory of the tables.
        form: the format of all inputs; by default each is looked at.
        lines: where to write all answers, records and descriptions as JSON lines.
        differences: where to write each difference from the recording as a JSON line.
        overwrite: whether tables that are there already are replaced.
    """

    inputs: tuple[Path, ...]
    out: Path
    options: ReplayOptions
    form: Format = Format.AUTO
    lines: Path | None = None
    differences: Path | None = None
    overwrite: bool = False


def check_request(request: ReplayRequest) -> None:
    """Finds what is wrong with a request before a session is started for it.

    Raises:
        InputError: an input isn't there or is named twice, or there are tables in the way.
        SettingsError: the settings make no sense.
    """
    request.options.settings()
    source_names(request.inputs)
    for path in request.inputs:
        _form(path, request.form)
    refuse_existing(request.out, request.overwrite)


def replay(spark: SparkSession, request: ReplayRequest, say: Say) -> list[SourceReport]:
    """Runs a replay; a report for each input, in their order.

    Raises:
        InputError, SettingsError: as `check_request`. Nothing was written then.
    """
    check_request(request)
    names = source_names(request.inputs)
    forms = [_form(path, request.form) for path in request.inputs]
    request.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".replay-", dir=request.out) as scratch:
        jobs = [
            _job(request, path, name, form, Path(scratch) / str(number))
            for number, (path, name, form) in enumerate(zip(request.inputs, names, forms, strict=True))
        ]
        results = _run(spark, jobs, say)
        commit(request.out, (file for result in results for file in result.files))
        _gather(request.lines, [job.lines_file for job in jobs])
        _gather(request.differences, [job.differences_file for job in jobs])
    return [result.report for result in results]


def source_names(inputs: Sequence[Path]) -> list[str]:
    """Each input's file name; where two are alike, with as much of their paths as tells them apart.

    Raises:
        InputError: an input is named twice.
    """
    paths = [path.absolute() for path in inputs]
    if len(set(paths)) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise InputError(f"{twice} is named twice; each input is a coordinator of its own, so name it once")
    names = []
    for path in paths:
        depth = 1
        while any(other.parts[-depth:] == path.parts[-depth:] for other in paths if other is not path):
            depth += 1
        names.append("/".join(path.parts[-depth:]))
    return names


def _form(path: Path, form: Format) -> Format:
    """The input's format; AUTO where only reading it will tell that it has none."""
    if not path.exists():
        raise InputError(f"there is no input {path}")
    if form is not Format.AUTO:
        return form
    if path.is_dir():
        return detect_format(path)
    try:
        return detect_format(path)
    except InputError:
        return Format.AUTO


def _job(request: ReplayRequest, path: Path, source: str, form: Format, scratch: Path) -> Job:
    return Job(
        path.absolute(),
        source,
        form,
        request.options,
        request.out.absolute(),
        scratch.absolute(),
        wants_lines=request.lines is not None,
        wants_differences=request.differences is not None,
    )


def _run(spark: SparkSession, jobs: Sequence[Job], say: Say) -> list[TaskResult]:
    # The largest first, so that none of them is left alone at the end.
    recorded = sorted((job for job in jobs if job.form not in _OWN), key=_size, reverse=True)
    results = {result.report.source: result for result in in_tasks(spark, recorded, run_recorded, say)}
    for job in jobs:
        if job.form in _OWN:
            say(f"{job.source}: a request log of our own")
            results[job.source] = run_own_log(spark, job, say)
    return [results[job.source] for job in jobs]


def _size(job: Job) -> int:
    return job.path.stat().st_size


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
