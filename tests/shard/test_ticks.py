"""A clock that ticks while nobody asks: timers fire in other batches, at the same times, with the same outputs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from coordinator_udf.protocol.log_row import Request
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.shard import Shard
from coordinator_udf.shard.state_row.codec import StateRow, decode, encode
from tests.shard.edge import process_rows
from tests.shard.samples import SAMPLES, rows_of


@pytest.mark.parametrize("trace", SAMPLES, ids=lambda trace: trace.name.partition(".")[0])
def test_ticks_between_the_rows_of_a_trace_change_nothing(trace: Path) -> None:
    config, rows = rows_of(trace)
    pick = random.Random(trace.name)
    ticked: list[Request] = []
    for before, row in zip([rows[0], *rows], rows, strict=False):
        times = sorted(pick.randrange(before.log_ts, row.log_ts + 1) for _ in range(pick.choice([0, 1, 3])))
        ticked += [Request(0, -1, ts, None, "Tick", 0) for ts in times]
        ticked.append(row)
    assert process_rows(Shard(0, config), ticked) == process_rows(Shard(0, config), rows)


@pytest.mark.slow
@pytest.mark.parametrize("trace", SAMPLES, ids=lambda trace: trace.name.partition(".")[0])
def test_what_a_shard_holds_after_a_trace_does_not_depend_on_the_cuts(trace: Path) -> None:
    config, rows = rows_of(trace)
    ends = {}
    for size in (1, 13, len(rows)):
        state: StateRow | None = None
        for start in range(0, len(rows), size):
            shard = decode(0, config, state)
            process_rows(shard, rows[start : start + size])
            state = encode(shard)
        ends[size] = _inside(config, state)
    assert ends[1] == ends[13] == ends[len(rows)]


def _inside(config: Settings, state: StateRow | None) -> object:
    """The shard's content, whatever of it was decoded before."""
    shard = decode(0, config, state)
    groups = {group_id: shard.store.get(group_id) for group_id in shard.store.groups}
    timers = sorted((entry[0], entry[4]) for entry in shard.ctx.timers.entries())
    offsets = {group_id: shard.store.offsets.committed[group_id] for group_id in shard.store.offsets.committed}
    return (
        groups,
        offsets,
        shard.store.offsets.pending,
        timers,
        shard.ctx.next_seq,
        shard.ctx.end_offset,
        shard.ctx.now_ms,
    )
