"""One task of a long log's replay: some of the log's shards, as a log by themselves.

Answers to requests that shards of other tasks were asked as well are put together by the driver (`shared_answers`).
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_udf.replay.explain.expiry_bounds import Bound
from coordinator_udf.replay.explain.setting_bounds import bounds_of
from coordinator_udf.replay.explain.tables import unexplained_rows
from coordinator_udf.replay.inputs.broker_log.outline import Outline
from coordinator_udf.replay.inputs.broker_log.reader import read_portion
from coordinator_udf.replay.inputs.broker_log.spool import Spool
from coordinator_udf.replay.judge.compare import Difference, Verdict, answer_place
from coordinator_udf.replay.judge.excluded import excluded_by
from coordinator_udf.replay.judge.report import SourceReport
from coordinator_udf.replay.recording import ReplaySource
from coordinator_udf.replay.tasks.recorded import Job, look_for_garbage_rarely, write_results
from coordinator_udf.replay.tasks.run_and_compare import run_and_compare
from coordinator_udf.tables.outputs import Outputs
from coordinator_udf.tables.parquet_files import TableFile, TableFiles


class Portion(msgspec.Struct, frozen=True):
    """Some shards of a log that was put on disk.

    Attributes:
        job: of the log; its scratch directory and files are the portion's own.
        spool: where the log's entries are.
        lines: how many ask these shards alone.
    """

    job: Job
    spool: Path
    outline: Outline
    shards: tuple[int, ...]
    lines: int


class SharedAnswer(msgspec.Struct, frozen=True):
    """What a portion found of an answer in which other portions had a part.

    Attributes:
        compared: whether nothing that isn't served had a hand in it.
        difference: where the portion's part differs.
        unexplained: the row of the table ``unexplained`` for it.
    """

    request_id: str
    compared: bool
    difference: Difference | None
    unexplained: dict[str, Any] | None


class PortionResult(msgspec.Struct):
    """What a task did.

    Attributes:
        shared: the answers in which other portions had a part.
        parts: what our coordinator said in them, as Arrow IPC.
        groups: those that did something.
        bounds: what answers say of settings, `pack_bounds`.
    """

    report: SourceReport
    files: list[TableFile] = []
    shared: list[SharedAnswer] = []
    parts: bytes = b""
    groups: set[str] = set()
    bounds: dict[str, bytes] = {}


def run_portion(portion: Portion) -> PortionResult:
    """Replays some shards of a log. What breaks the replay is reported."""
    job = portion.job
    look_for_garbage_rarely()
    try:
        entries = Spool(portion.spool).of_shards(portion.outline.partitions, portion.shards, portion.outline.touched)
        source = read_portion(entries, portion.outline, job.source, job.options, portion.shards)
        return _replay(job, source)
    except Exception as error:  # noqa: BLE001 - one input must not take the others down with it; it is reported
        details = "".join(traceback.format_exception(error))
        return PortionResult(SourceReport(job.source, failure=f"the replay broke: {details}"))


def _replay(job: Job, source: ReplaySource) -> PortionResult:
    outputs, verdict = run_and_compare(source)
    assert source.facts is not None, "a broker's log has facts"
    own_outputs, parts = _cut_outputs(source, outputs)
    own_verdict, shared = _cut_verdict(source, verdict)
    files = TableFiles(job.out)
    report = write_results(job, source, own_outputs, own_verdict, files)
    return PortionResult(
        report,
        files.close(),
        shared,
        to_ipc(parts),
        set(own_outputs.transitions.column("group_id").to_pylist()) if job.info_paths else set(),
        pack_bounds(bounds_of(source.facts)),
    )


def _cut_outputs(source: ReplaySource, outputs: Outputs) -> tuple[Outputs, pa.Table]:
    """Returns what was said, without the answers in which other portions have a part; and those."""
    if not source.asked_elsewhere:
        return outputs, outputs.responses.slice(0, 0)
    ids = pa.array(list(source.asked_elsewhere), pa.string())
    is_shared = pc.is_in(outputs.responses.column("request_id"), value_set=ids)
    own = outputs._replace(responses=outputs.responses.filter(pc.invert(is_shared)))
    return own, outputs.responses.filter(is_shared)


def _cut_verdict(source: ReplaySource, verdict: Verdict) -> tuple[Verdict, list[SharedAnswer]]:
    """Returns the verdict, without the answers in which other portions have a part; and those."""
    answers = [answer for answer in source.recording.answers if answer.request_id in source.asked_elsewhere]
    if not answers:
        return verdict, []
    excluded = excluded_by(source).request_ids
    differing = {d.request_id: d for d in verdict.differences}
    counts = verdict._replace(
        identical=Counter(verdict.identical),
        different=Counter(verdict.different),
        incomparable=Counter(verdict.incomparable),
        undecided={reason: Counter(places) for reason, places in verdict.undecided.items()},
    )
    shared = []
    for answer in answers:
        difference = differing.get(answer.request_id)
        is_compared = answer.request_id not in excluded
        _counter(counts, is_compared, difference)[answer_place(answer)] -= 1
        rows = () if difference is None else unexplained_rows(source, [difference])
        shared.append(SharedAnswer(answer.request_id, is_compared, difference, next(iter(rows), None)))
    own = [d for d in verdict.differences if d.request_id not in source.asked_elsewhere]
    return (
        counts._replace(
            identical=+counts.identical,
            different=+counts.different,
            incomparable=+counts.incomparable,
            undecided={reason: +places for reason, places in counts.undecided.items() if +places},
            differences=own,
        ),
        shared,
    )


def _counter(verdict: Verdict, is_compared: bool, difference: Difference | None) -> Counter[tuple[str, str, str]]:
    if not is_compared:
        return verdict.incomparable
    if difference is None:
        return verdict.identical
    return verdict.different if difference.undecided is None else verdict.undecided[difference.undecided]


def to_ipc(table: pa.Table) -> bytes:
    """Returns a table as Arrow IPC; nothing of an empty one."""
    if not len(table):
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def pack_bounds(bounds: Iterable[Bound]) -> dict[str, bytes]:
    """Returns what answers say of settings, by setting, 24 bytes each."""
    by_name: dict[str, list[tuple[int, int, int]]] = {}
    for ts, name, least, most in bounds:
        by_name.setdefault(name, []).append((ts, least, most))
    return {name: np.array(rows, np.int64).tobytes() for name, rows in by_name.items()}


def unpack_bounds(packed: dict[str, bytes]) -> Iterable[Bound]:
    """Reads what `pack_bounds` wrote."""
    for name, rows in packed.items():
        for ts, least, most in np.frombuffer(rows, np.int64).reshape(-1, 3).tolist():
            yield Bound(ts, name, least, most)
