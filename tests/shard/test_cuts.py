"""However the log is cut into micro-batches, the shard says the same: thousands of cuts, with the state row between."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_udf.protocol.log_row import Request
from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.shard import Shard
from coordinator_udf.shard.state_row.codec import decode, encode
from tests.conftest import SAMPLE_LOG
from tests.nightly import some_or_many
from tests.shard.edge import Output, process_rows
from tests.shard.samples import SAMPLES

#: Traces, and the two partitions of a broker's log.
LOGS = [*((path, 0) for path in SAMPLES), (SAMPLE_LOG, 0), (SAMPLE_LOG, 1)]

Log = tuple[Settings, list[Request], list[Output]]


def read(path: Path, partition: int) -> Log:
    """A log's settings, a partition's rows but those that load the shard from its own log, and what is said."""
    source = read_source(path, path.name, ReplayOptions(partitions=2) if path == SAMPLE_LOG else ReplayOptions())
    given = [row for row in source.rows if row["partition"] == partition and row["api"] != "Failover"]
    rows = [Request(*(row[name] for name in Request._fields)) for row in given]
    return source.settings, rows, process_rows(Shard(partition, source.settings), rows, short_way=False)


@pytest.fixture(scope="module", params=LOGS, ids=lambda log: f"{log[0].name.split('.')[0]}-{log[1]}")
def log(request: pytest.FixtureRequest) -> Log:
    return read(*request.param)


def run_cut(log: Log, ends: list[int]) -> list[Output]:
    """The outputs of the rows cut before each of ``ends``, the shard encoded and decoded between two pieces."""
    coordinator, rows, _ = log
    state = None
    outputs: list[Output] = []
    start = 0
    for end in [*sorted(ends), len(rows)]:
        shard = decode(rows[0].partition, coordinator, state)
        outputs += process_rows(shard, rows[start:end])
        state = encode(shard)
        start = end
    return outputs


@pytest.mark.parametrize(
    "size", [*(pytest.param(size, marks=pytest.mark.slow) for size in some_or_many((2,), (1, 2))), 7, 40]
)
def test_pieces_of_one_size_say_what_the_whole_says(log: Log, size: int) -> None:
    assert run_cut(log, list(range(size, len(log[1]), size))) == log[2]


@pytest.mark.slow
def test_random_cuts_say_what_the_whole_says(log: Log) -> None:
    dice = random.Random(4)
    for _ in range(some_or_many(2, 50)):
        ends = sorted(dice.sample(range(len(log[1])), dice.randrange(1, 12)))
        assert run_cut(log, ends) == log[2]


ONE = read(*LOGS[0])


@pytest.mark.slow
@settings(max_examples=some_or_many(10, 400))
@given(st.sets(st.integers(0, len(ONE[1])), max_size=30))
def test_any_cut_says_what_the_whole_says(ends: set[int]) -> None:
    assert run_cut(ONE, sorted(ends)) == ONE[2]


def test_a_batch_that_runs_twice_from_the_same_state_says_the_same(log: Log) -> None:
    coordinator, rows, _ = log
    half = len(rows) // 2
    shard = decode(rows[0].partition, coordinator, None)
    process_rows(shard, rows[:half])
    state = encode(shard)
    once = decode(rows[0].partition, coordinator, state)
    twice = decode(rows[0].partition, coordinator, state)
    assert process_rows(once, rows[half:]) == process_rows(twice, rows[half:])
    assert encode(once) == encode(twice)
