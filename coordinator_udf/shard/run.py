"""Handles the rows of a batch in order. Nothing that comes in gets lost here.

A row that can't be read becomes a rejected output. A row whose handling raises is answered UNKNOWN_SERVER_ERROR, what
it did to its group is undone, and it becomes a rejected output with the traceback; the shard lives on.

Most rows are heartbeats of stable groups: those take a short way (heartbeat_fast_path);
`Shard.handle_row` does the same.
"""

from __future__ import annotations

from coordinator_udf.groups.decisions import Decisions
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.protocol.requests import VERSIONS
from coordinator_udf.shard.batch_rows import BatchRows
from coordinator_udf.shard.heartbeat_fast_path import HeartbeatAnswers, run_leading, run_long_way, run_short_way
from coordinator_udf.shard.shard import PoisonRow, Shard
from coordinator_udf.shard.state_row.codec import StateRow, encode, restore


def process(shard: Shard, rows: BatchRows, *, short_way: bool = True) -> tuple[Decisions, HeartbeatAnswers]:
    """Handles rows in order, whatever is in them; takes what the shard says.

    After a row that makes a handler raise the shard is put back to where the call (or the last such row) began, and
    the rows before it are handled again: they give the same outputs, which is what makes this right.
    """
    answers = HeartbeatAnswers()
    count = len(rows)
    unreadable = rows.unreadable()
    start = 0
    while start < count:
        end = next((index for index in unreadable if index >= start), count)
        if end > start:
            start = _process_readable(shard, rows, (start, end), answers, short_way=short_way)
            continue
        row = rows.row(start)
        shard.reject(_repaired(shard, row), unreadable[start], raw=row)
        start += 1
    decisions, shard.ctx.decisions = shard.ctx.decisions, Decisions()
    return decisions, answers


def _process_readable(
    shard: Shard, rows: BatchRows, span: tuple[int, int], answers: HeartbeatAnswers, *, short_way: bool
) -> int:
    """Handles a run of rows up to the first that is poison, if any; the index of the row to go on with."""
    start, end = span
    if short_way and shard.origin is None:
        start = run_leading(shard, rows, span, answers)
        if start == end:
            return end
    before: StateRow = shard.origin or encode(shard, all_to_columns=False)
    decided, answered = shard.ctx.decisions.mark(), answers.mark()
    run = run_short_way if short_way else run_long_way
    try:
        run(shard, rows, (start, end), answers)
        return end
    except PoisonRow as poison:
        shard.ctx.decisions.cut(decided)
        answers.cut(answered)
        restore(shard, before)
        if poison.timer is not None:
            shard.poisoned[poison.timer] = poison.details
            return start
        run(shard, rows, (start, poison.index), answers)
        row = rows.row(poison.index)
        shard.run_timers(row.log_ts, poison.index)
        shard.reject(row, str(poison.__cause__), poison.details)
        return poison.index + 1


def _repaired(shard: Shard, row: Request) -> Request:
    """Returns a row that can stand in an output: what is missing or out of bounds is replaced.

    It says nothing of the time.
    """
    api = row.api or ""
    # What answers it has to have a shape that there is.
    first, last = VERSIONS.get(api, (0, 0))
    version = min(max(row.api_version or 0, first), last)
    return row._replace(partition=shard.partition, log_ts=shard.ctx.now_ms, api=api, api_version=version)
