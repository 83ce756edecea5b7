"""One task of a replay: reads one recorded log, runs it, compares it with its recording, writes its tables' files."""

from __future__ import annotations

import gc
import traceback
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_udf.replay.explain.proposals import proposed_settings
from coordinator_udf.replay.explain.setting_bounds import bounds_of
from coordinator_udf.replay.explain.tables import (
    explanation_lines,
    explanation_tables,
    unexplained_line,
    unexplained_rows,
)
from coordinator_udf.replay.explain.told_expiries import with_told_session
from coordinator_udf.replay.inputs.cut_lines import whole_lines
from coordinator_udf.replay.inputs.detect import Format, read_source
from coordinator_udf.replay.inputs.info_log.reader import InfoLog, read_info_log
from coordinator_udf.replay.inputs.offsets_dump.reader import read_dumps
from coordinator_udf.replay.inputs.text_lines import Line, read_lines
from coordinator_udf.replay.inputs.wrapped import unwrap
from coordinator_udf.replay.judge.compare import Verdict
from coordinator_udf.replay.judge.json_lines import json_lines
from coordinator_udf.replay.judge.report import SourceReport
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import Rejection, ReplaySource, clip
from coordinator_udf.replay.tasks.in_process import request_batch
from coordinator_udf.replay.tasks.run_and_compare import run_and_compare
from coordinator_udf.replay.tasks.shard_runner import answered_requests
from coordinator_udf.settings.coordinator import SettingsError
from coordinator_udf.tables.outputs import Outputs
from coordinator_udf.tables.parquet_files import TableFile, TableFiles
from coordinator_udf.tables.rows import to_tables
from coordinator_udf.user_errors import InputError
from schemas.coordinator_log import COORDINATOR_LOG_TABLE, coordinator_log_arrow
from schemas.replay_differences import REPLAY_DIFFERENCES, REPLAY_DIFFERENCES_TABLE, replay_differences_arrow
from schemas.requests import REQUEST_LOG_TABLE
from schemas.tables import REJECTED_REQUESTS, table_arrow

#: At least so many new objects, and so many looks at the younger ones, between two looks for garbage.
_GC_THRESHOLDS: Final = (100_000, 50, 100)
#: How much of a line that can't be read is shown.
_SHOWN_CHARS: Final = 120


class Job(msgspec.Struct, frozen=True):
    """What a task needs to know: the input, and where its results go.

    ``path`` is the input; of a broker's logs ``paths`` are the parts of its request log and ``info_paths`` those of its
    own log. ``scratch`` is a directory of this input alone, which need not exist yet. ``lines_file`` and
    ``differences_file`` are the input's own, which the driver puts together. ``gaps_are_downtime`` is so of a log that
    was a topic (log.kafka.downtime).
    """

    path: Path
    source: str
    form: Format
    paths: tuple[Path, ...]
    info_paths: tuple[Path, ...]
    options: ReplayOptions
    out: Path
    scratch: Path
    #: How many lines of a request log there are, as far as it is known.
    lines: int = 0
    wants_lines: bool = False
    wants_differences: bool = False
    gaps_are_downtime: bool = False

    @property
    def lines_file(self) -> Path | None:
        """Where the answers and records go as JSON lines."""
        return self.scratch / "lines" if self.wants_lines else None

    @property
    def differences_file(self) -> Path | None:
        """Where the differences go."""
        return self.scratch / "differences" if self.wants_differences else None


class TaskResult(msgspec.Struct):
    """What a task did: its report, and the files that wait to be committed."""

    report: SourceReport
    files: list[TableFile] = []


def look_for_garbage_rarely() -> None:
    """Lets this process look for garbage more rarely than usual.

    Nearly all of the many objects of a log live until the end: looking through them often costs a sixth of the time.
    """
    gc.set_threshold(*_GC_THRESHOLDS)


def run_recorded(job: Job) -> TaskResult:
    """Replays one recorded log. An input that can't be read, or that breaks the replay, is reported; others go on."""
    look_for_garbage_rarely()
    try:
        if job.form is Format.INFO:
            return run_info_log(job)
        if job.form is Format.OFFSETS:
            return run_offsets_dump(job)
        return _replay(job)
    except (InputError, SettingsError) as error:
        return TaskResult(SourceReport(job.source, failure=str(error)))
    except Exception as error:  # noqa: BLE001 - one input must not take the others down with it; it is reported
        details = "".join(traceback.format_exception(error))
        return TaskResult(SourceReport(job.source, failure=f"the replay broke: {details}"))


def _replay(job: Job) -> TaskResult:
    source = read_source(job.paths, job.source, job.options, job.form)
    info = read_info(job) if job.info_paths else None
    taken = None
    if info is not None and source.facts is not None:
        taken = with_told_session(job.options, info.lines, source.facts.entries.values())
    if taken is not None:
        source = read_source(job.paths, job.source, taken.options, job.form)
    outputs, verdict = run_and_compare(source)
    files = TableFiles(job.out)
    report = write_results(job, source, outputs, verdict, files)
    if source.facts is not None:
        report.proposals = proposed_settings(bounds_of(source.facts), source.settings)
    if taken is not None:
        report.taken = [taken.line]
    if info is not None:
        known = set(outputs.transitions.column("group_id").to_pylist())
        write_info_log(job, info, known, report, files)
    return TaskResult(report, files.close())


def write_results(
    job: Job, source: ReplaySource, outputs: Outputs, verdict: Verdict, files: TableFiles
) -> SourceReport:
    """Writes what came of a source to the tables, and to the files that were asked for; what is reported of it."""
    report = _report(source, outputs, verdict)
    unexplained = list(unexplained_rows(source, verdict.differences))
    tables = to_tables(outputs)
    if source.ends_ms is not None:
        # The clock runs on after the last line, so that all that waits is answered; nobody saw what it did then.
        for name in ("group_transitions", "consumer_offsets"):
            seen = pc.less_equal(tables[name].column("ts"), source.ends_ms)
            tables[name] = tables[name].filter(seen)
    files.write(tables)
    # The rows that the coordinator was given, for what is unanswered to be seen.
    requests = pa.Table.from_batches([request_batch(source.source, _with_all_parts(source))])
    files.write({"rejected_requests": rejection_table(source.source, source.rejections), REQUEST_LOG_TABLE: requests})
    files.write({REPLAY_DIFFERENCES_TABLE: difference_table(verdict)})
    files.write(explanation_tables(source, unexplained))
    if source.explained is not None:
        report.explained, report.put_right = source.explained.moved, source.explained.rebased
    report.explanations = [*explanation_lines(source), *map(unexplained_line, unexplained)]
    job.scratch.mkdir(parents=True, exist_ok=True)
    report.rejected = len(source.rejections) + len(tables["rejected_requests"])
    report.rejection = source.rejections[0].reason if source.rejections else None
    append_lines(job, outputs, verdict)
    return report


def append_lines(job: Job, outputs: Outputs, verdict: Verdict) -> None:
    """Adds what came out and what differs to the input's files of lines, as far as those are asked for."""
    if job.lines_file is not None:
        with job.lines_file.open("ab") as lines:
            lines.writelines(json_lines(job.source, outputs))
    if job.differences_file is not None:
        with job.differences_file.open("ab") as lines:
            lines.writelines(msgspec.json.encode(difference) + b"\n" for difference in verdict.differences)


def _with_all_parts(source: ReplaySource) -> list[dict[str, Any]]:
    """Returns the rows; those of requests that other parts' shards were asked too with the number of all."""
    others = source.asked_elsewhere
    if not others:
        return source.rows
    return [
        {**row, "parts": row["parts"] + others[row["request_id"]]} if row["request_id"] in others else row
        for row in source.rows
    ]


def write_info_log(job: Job, info: InfoLog, known: Collection[str], report: SourceReport, files: TableFiles) -> None:
    """Writes what a broker's own log tells beside its request log.

    Args:
        known: groups whose transitions the request log tells.
    """
    files.write(info_tables(info, job.source, known))
    _tell(info, report)


def difference_table(verdict: Verdict) -> pa.Table:
    """Returns the differences from the recording, without what both sides said."""
    names = REPLAY_DIFFERENCES.fieldNames()
    columns = {name: [getattr(difference, name) for difference in verdict.differences] for name in names}
    return pa.table(columns, schema=replay_differences_arrow())


def run_info_log(job: Job) -> TaskResult:
    """Writes what a broker's own log tells, where there is no request log that tells more.

    Raises:
        InputError: it can't be opened.
    """
    info = read_info(job)
    files = TableFiles(job.out)
    files.write(info_tables(info, job.source))
    report = SourceReport(job.source)
    _tell(info, report)
    return TaskResult(report, files.close())


def read_info(job: Job) -> InfoLog:
    """Reads a broker's own log.

    Raises:
        InputError: it can't be opened.
    """
    rejections: list[Rejection] = []
    info = read_info_log(_texts(job, rejections), job.options.zone())
    info.unreadable.extend((rejection.reason, rejection.raw or "") for rejection in rejections)
    return info


def _tell(info: InfoLog, report: SourceReport) -> None:
    """Adds to a report what a broker's own log has."""
    report.info_events = dict(info.events)
    report.rejected += len(info.unreadable)
    if info.unreadable and report.rejection is None:
        reason, text = info.unreadable[0]
        report.rejection = f"{reason}: {text[:_SHOWN_CHARS]}"


def run_offsets_dump(job: Job) -> TaskResult:
    """Writes what dumps of ``__consumer_offsets`` tell.

    Raises:
        InputError: one can't be opened.
    """
    dump = read_dumps(job.paths, job.source)
    files = TableFiles(job.out)
    transitions = [{**row, "source": job.source} for row in dump.transitions]
    files.write(
        {
            "consumer_offsets": pa.Table.from_pylist(dump.rows, table_arrow("consumer_offsets")),
            "group_transitions": pa.Table.from_pylist(transitions, table_arrow("group_transitions")),
            "rejected_requests": rejection_table(job.source, dump.rejections),
        }
    )
    report = SourceReport(job.source, records=dict(dump.record_types), rejected=len(dump.rejections))
    return TaskResult(report, files.close())


def _texts(job: Job, rejections: list[Rejection]) -> Iterator[str]:
    """The lines of a broker's own log; what isn't text becomes a rejection, unless that of the request log has it."""
    for path in job.info_paths:
        for line in whole_lines(read_lines(path)):
            if isinstance(line, Line):
                yield unwrap(line.text)
            elif path not in job.paths:
                rejections.append(line)


def info_tables(info: InfoLog, source: str, known: Collection[str] = ()) -> dict[str, pa.Table]:
    """Returns what a broker's own log tells, as tables.

    Args:
        known: groups whose transitions the request log tells.
    """
    lines = [{**row, "source": source} for row in info.lines]
    transitions = [{**row, "source": source} for row in info.transitions if row["group_id"] not in known]
    rejections = [Rejection(reason, clip(text)) for reason, text in info.unreadable]
    return {
        COORDINATOR_LOG_TABLE: pa.Table.from_pylist(lines, coordinator_log_arrow()),
        "group_transitions": pa.Table.from_pylist(transitions, table_arrow("group_transitions")),
        "rejected_requests": rejection_table(source, rejections),
    }


def rejection_table(source: str, rejections: Sequence[Rejection]) -> pa.Table:
    """Returns the lines that never became a request, as rows of the table rejected_requests."""
    names = ("ts", "request_id", "api", "group_id", "reason", "raw")
    columns: dict[str, list[object]] = {field: [None] * len(rejections) for field in REJECTED_REQUESTS.fieldNames()}
    columns["source"] = [source] * len(rejections)
    for name in names:
        columns[name] = [getattr(rejection, name) for rejection in rejections]
    return pa.table(columns, schema=table_arrow("rejected_requests"))


def _report(source: ReplaySource, outputs: Outputs, verdict: Verdict) -> SourceReport:
    return SourceReport(
        source.source,
        requests=source.requests,
        answered=answered_requests(outputs.responses),
        unsupported=dict(source.unsupported),
        foreign=dict(source.foreign),
        notes=dict(source.notes),
        **counts(verdict),
    )


def counts(verdict: Verdict) -> dict[str, Any]:
    """Returns the counts of a verdict, as a report has them."""
    return {
        "identical": _places(verdict.identical),
        "different": _places(verdict.different),
        "undecided": {reason: _places(places) for reason, places in verdict.undecided.items()},
        "incomparable": _places(verdict.incomparable),
    }


def _places(counter: Mapping[tuple[str, str, str], int]) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for place, count in counter.items():
        counted[" ".join(place)] += count
    return dict(counted)
