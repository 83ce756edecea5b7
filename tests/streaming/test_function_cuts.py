"""The function that Spark calls for a shard, with Spark's own state object: any cut of the log says what a replay says.

Ticks stand between the requests, as the live job appends them, and often are micro-batches of their own.
"""

from __future__ import annotations

import random
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from coordinator_udf.log.kafka.downtime import with_downtime
from coordinator_udf.log.rows import control_rows
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.in_process import FAILOVER
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.shard import Shard
from coordinator_udf.streaming.packing import pack_requests, unpack_outputs
from coordinator_udf.streaming.shard_function import shard_function
from schemas.requests import LIVE, request_log_arrow
from tests.conftest import SAMPLE_LOG
from tests.shard.edge import Output, in_order, process_rows
from tests.shard.samples import SAMPLES
from tests.streaming.states import group_state

Log = tuple[Settings, list[dict[str, Any]]]

CUTS = 3
#: One trace of each family, and the two partitions of a broker's log.
LOGS = [
    *((path, 0) for path in {path.name.split("-")[0]: path for path in SAMPLES}.values()),
    (SAMPLE_LOG, 0),
    (SAMPLE_LOG, 1),
]


@pytest.fixture(scope="module", params=LOGS, ids=lambda log: f"{log[0].name.partition('.')[0]}-{log[1]}")
def log(request: pytest.FixtureRequest) -> Log:
    """A partition of a trace or of a broker's log, with ticks; it begins before there is a time, as a live log does."""
    path, partition = request.param
    options = ReplayOptions(partitions=2) if path == SAMPLE_LOG else ReplayOptions()
    source = read_source(path, LIVE, options)
    rows = [row for row in source.rows if row["partition"] == partition and row["api"] not in (FAILOVER, "LoadEnd")]
    return source.settings, with_ticks(rows, random.Random(path.name))


def with_ticks(rows: list[dict[str, Any]], pick: random.Random) -> list[dict[str, Any]]:
    ticked: list[dict[str, Any]] = [{**rows[0], "log_ts": 0}]
    before_ms = rows[1]["log_ts"] - 1_234
    for row in rows[1:]:
        times = sorted(pick.randrange(before_ms, row["log_ts"] + 1) for _ in range(pick.choice([0, 0, 1, 2])))
        for ts in times if len(ticked) > 1 else [before_ms, *times]:
            tick = control_rows(partitions=1, log_ts=ts, api="Tick")[0]
            ticked.append({**tick, "partition": row["partition"]})
        ticked.append(row)
        before_ms = row["log_ts"]
    return [{**row, "source": LIVE, "offset": offset} for offset, row in enumerate(ticked)]


def replayed(log: Log) -> list[Output]:
    settings, rows = log
    requests = [Request(*(row[name] for name in Request._fields)) for row in rows]
    return process_rows(Shard(rows[0]["partition"], settings), requests)


def streamed(log: Log, ends: list[int], *, gaps_are_downtime: bool = False) -> list[Output]:
    """What the function says in micro-batches that end at the given rows."""
    settings, rows = log
    handle, state = shard_function(settings, gaps_are_downtime=gaps_are_downtime), group_state()
    said: list[Output] = []
    whole = pa.RecordBatch.from_pylist(rows, request_log_arrow())
    for start, end in zip([0, *ends], [*ends, len(rows)], strict=True):
        packed = pack_requests([whole.slice(start, end - start)])
        frames = (pd.DataFrame({"requests": batch.column("requests").to_pylist()}) for batch in packed)
        for frame in handle((rows[0]["partition"],), frames, state):
            said += in_order(unpack_outputs(pa.Table.from_pandas(frame))[1])
    return said


def cut(rows: list[dict[str, Any]], pick: random.Random) -> list[int]:
    """Random places, often around a run of ticks. The first rows stand alone, before there is a time and when it is."""
    rate, around = pick.choice([(0.0, 0.3), (0.01, 0.1), (0.05, 0.05)])
    is_tick = [row["api"] == "Tick" for row in rows]
    found = [at for at in range(3, len(rows)) if pick.random() < (around if is_tick[at] != is_tick[at - 1] else rate)]
    return [1, 2, *found]


def test_any_cut_says_what_a_replay_says(log: Log) -> None:
    pick = random.Random(len(log[1]))
    expected = replayed(log)
    for _ in range(CUTS):
        assert streamed(log, cut(log[1], pick)) == expected


def test_any_cut_of_a_log_whose_gaps_are_downtime_says_what_a_replay_says(log: Log) -> None:
    pick = random.Random(len(log[1]))
    settings, rows = log
    whole = with_downtime(pa.Table.from_pylist(rows, request_log_arrow()), 0).to_pylist()
    expected = replayed((settings, whole))
    for _ in range(CUTS):
        assert streamed(log, cut(rows, pick), gaps_are_downtime=True) == expected
