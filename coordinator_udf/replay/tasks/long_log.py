"""Replays a long log of a broker in several tasks, each with some of its shards, within a bound of memory.

The log is read once, by several processes, and put on disk; what its shards share is told from a few numbers a line.
Then each task takes the lines of its shards from the disk. What comes out is the same however the shards are shared.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np

from coordinator_udf.replay.explain.proposals import proposed_settings
from coordinator_udf.replay.explain.tables import table_of_unexplained, unexplained_line
from coordinator_udf.replay.explain.told_expiries import with_told_session
from coordinator_udf.replay.inputs.broker_log.outline import Outline, outline_of
from coordinator_udf.replay.inputs.broker_log.reader import BROKER_SETTINGS
from coordinator_udf.replay.inputs.broker_log.spool import Block, Mapped, ReadBlock, Spool, Spooled, write_spool
from coordinator_udf.replay.inputs.info_log.reader import InfoLog
from coordinator_udf.replay.judge.report import SourceReport, total
from coordinator_udf.replay.tasks.portions import Portion, PortionResult, unpack_bounds
from coordinator_udf.replay.tasks.process_tasks import mapped_in_processes, workers_here
from coordinator_udf.replay.tasks.progress import Progress
from coordinator_udf.replay.tasks.recorded import (
    Job,
    TaskResult,
    append_lines,
    counts,
    difference_table,
    read_info,
    rejection_table,
    write_info_log,
)
from coordinator_udf.replay.tasks.shard_runner import answered_requests
from coordinator_udf.replay.tasks.shared_answers import judge_shared, merged_responses
from coordinator_udf.tables.outputs import Outputs
from coordinator_udf.tables.parquet_files import TableFile, TableFiles
from coordinator_udf.tables.rows import to_tables
from coordinator_udf.user_errors import InputError
from schemas.explanations import UNEXPLAINED_TABLE
from schemas.replay_differences import REPLAY_DIFFERENCES_TABLE

Say = Callable[[str], None]
RunPortions = Callable[[Sequence[Portion], Callable[[Portion], None]], list[PortionResult]]

#: A log with more lines is replayed by several tasks, which have about so many each: a line takes 20 KiB or so. One
#: shard can't be shared among tasks.
TASK_LINES: Final = 20_000
#: Tasks have fewer lines if that gives each process some: with three a process is idle for a third of its work at most,
#: at the end; each more reads the log's outline once more.
_TASKS_A_PROCESS: Final = 3


def run_long_log(
    job: Job,
    run: RunPortions,
    say: Say,
    *,
    mapped: Mapped[Block, ReadBlock] = mapped_in_processes,
    task_lines: int = TASK_LINES,
) -> TaskResult:
    """Replays a broker's request log.

    Args:
        run: runs portions, and says each as it is done.
        mapped: reads blocks of lines, several at once.
        task_lines: how many lines a task has at most, if it has several shards.
    """
    directory = job.scratch / "entries"
    directory.mkdir(parents=True)
    try:
        with Progress(f"{job.source}: lines read", job.lines, say) as progress:
            spooled = write_spool(job.paths, directory, job.options, mapped, progress.advance)
        if spooled is None:
            return TaskResult(SourceReport(job.source, failure=f"{job.source} holds no line that could be read"))
        info = read_info(job) if job.info_paths else None
        taken = None if info is None else with_told_session(job.options, info.lines, spooled.spool.all())
        if taken is not None:
            job = msgspec.structs.replace(job, options=taken.options)
        outline = outline_of(spooled.order, spooled.traces, spooled.spool.all, job.options)
        portions = _portions(job, spooled.spool, outline, task_lines)
        with Progress(f"{job.source}: lines replayed", sum(each.lines for each in portions), say) as progress:
            results = run(portions, lambda portion: progress.advance(portion.lines))
        done = _together(job, spooled, outline, results, info)
        done.report.taken = [] if taken is None else [taken.line]
        return done
    except InputError as error:
        return TaskResult(SourceReport(job.source, failure=str(error)))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _portions(job: Job, spool: Spool, outline: Outline, task_lines: int) -> list[Portion]:
    """Shares the shards among tasks, the largest first, so that none of them is left alone at the end."""
    lines = spool.lines_of_shards(outline.partitions)
    most = min(task_lines, max(int(lines.sum()) // (_TASKS_A_PROCESS * workers_here()), 1))
    shares: list[tuple[int, list[int]]] = []
    for shard in np.argsort(-lines, kind="stable").tolist():
        count = int(lines[shard])
        share = next((place for place, (has, _) in enumerate(shares) if has + count <= most), None)
        if share is None:
            shares.append((count, [shard]))
        else:
            has, shards = shares[share]
            shares[share] = (has + count, [*shards, shard])
    return [
        Portion(
            msgspec.structs.replace(job, scratch=job.scratch / str(number)),
            job.scratch / "entries",
            outline,
            tuple(sorted(shards)),
            count,
        )
        for number, (count, shards) in enumerate(shares)
    ]


def _together(
    job: Job, spooled: Spooled, outline: Outline, results: Sequence[PortionResult], info: InfoLog | None
) -> TaskResult:
    """Puts what the tasks did together.

    Args:
        info: the broker's own log beside it.
    """
    failure = next((result.report.failure for result in results if result.report.failure is not None), None)
    if failure is not None:
        return TaskResult(SourceReport(job.source, failure=failure))
    extra = TableFiles(job.out)
    shared = _shared_report(job, spooled, outline, results, extra)
    report = total([*(result.report for result in results), shared])
    report.source = job.source
    report.requests, report.foreign = outline.requests, dict(outline.foreign)
    report.notes = dict(Counter(report.notes) + spooled.notes + outline.notes)
    report.rejection = shared.rejection
    bounds = (bound for result in results for bound in unpack_bounds(result.bounds))
    report.proposals = proposed_settings(bounds, job.options.settings(BROKER_SETTINGS))
    _gather(job, len(results))
    if info is not None:
        write_info_log(job, info, set().union(*(result.groups for result in results)), report, extra)
    files: list[TableFile] = [file for result in results for file in result.files]
    return TaskResult(report, [*files, *extra.close()])


def _shared_report(
    job: Job, spooled: Spooled, outline: Outline, results: Sequence[PortionResult], files: TableFiles
) -> SourceReport:
    """Returns what is of several tasks, or of the log as a whole."""
    responses = merged_responses(results, outline.partitions)
    verdict, unexplained = judge_shared(job.source, outline, spooled.spool.that_ask_several(), responses, results)
    outputs = Outputs.of(())._replace(responses=responses)
    files.write(to_tables(outputs))
    files.write({"rejected_requests": rejection_table(job.source, spooled.rejections)})
    files.write(
        {REPLAY_DIFFERENCES_TABLE: difference_table(verdict), UNEXPLAINED_TABLE: table_of_unexplained(unexplained)}
    )
    append_lines(job, outputs, verdict)
    return SourceReport(
        job.source,
        answered=answered_requests(responses),
        rejected=len(spooled.rejections),
        rejection=spooled.rejections[0].reason if spooled.rejections else None,
        explanations=[*map(unexplained_line, unexplained)],
        **counts(verdict),
    )


def _gather(job: Job, portions: int) -> None:
    """Puts the tasks' files of JSON lines before what is of several of them."""
    for name, target in (("lines", job.lines_file), ("differences", job.differences_file)):
        if target is None:
            continue
        last = target.read_bytes()
        with target.open("wb") as out:
            for number in range(portions):
                with (job.scratch / str(number) / name).open("rb") as lines:
                    shutil.copyfileobj(lines, out)
            out.write(last)
