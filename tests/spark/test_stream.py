"""The stream from the embedded log to the tables: the same as an undisturbed replay, however the log is cut."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from coordinator_udf.log_rows import request_rows
from coordinator_udf.protocol.settings import Settings
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.read_source import read_source
from coordinator_udf.settings_file import CoordinatorConfig
from coordinator_udf.streaming.coordinator import Coordinator, StartError, StreamOptions
from coordinator_udf.streaming.embedded_log import LIVE, EmbeddedLog
from tests.conftest import shared
from tests.spark.conftest import Run, Scenario, assert_same_tables, read_tables, scenario

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("cut", [([1_000_000], 1_000_000), ([1, 7, 40], 150), ([3], 61)], ids=["one", "some", "many"])
def test_any_cut_leaves_the_same_tables(
    coordinator_spark: SparkSession, tmp_path: Path, sample: Scenario, run: Run, cut: tuple[list[int], int]
) -> None:
    sizes, max_rows = cut
    sample.make_log(tmp_path / "log", sizes).close()
    run(sample.settings, max_rows=max_rows)
    assert_same_tables(coordinator_spark, tmp_path / "tables", sample.expected)


@pytest.mark.parametrize("trace", ["classic-0003", "static-0002", "offsets-0001", "admin-0004"])
def test_traces_leave_the_tables_of_their_replay(
    coordinator_spark: SparkSession, tmp_path: Path, run: Run, trace: str
) -> None:
    recorded = scenario(read_source(shared("oracle", "traces", f"{trace}.jsonl.gz"), LIVE, ReplayOptions()))
    recorded.make_log(tmp_path / "log", [11]).close()
    run(recorded.settings, max_rows=97)
    assert_same_tables(coordinator_spark, tmp_path / "tables", recorded.expected)


def test_a_restart_goes_on_where_the_checkpoint_is(
    coordinator_spark: SparkSession, tmp_path: Path, sample: Scenario, run: Run
) -> None:
    log = EmbeddedLog.create(tmp_path / "log", sample.partitions, clock_skew_max_ms=None)
    for start in range(0, len(sample.rows), 200):
        sample.append(log, [13], start, start + 200)
        run(sample.settings)
    assert_same_tables(coordinator_spark, tmp_path / "tables", sample.expected)


def test_a_batch_that_runs_twice_counts_once(
    coordinator_spark: SparkSession, tmp_path: Path, sample: Scenario, run: Run
) -> None:
    sample.make_log(tmp_path / "log", [50]).close()
    run(sample.settings, max_rows=200)
    # As if the driver had died before the last batches were marked as done, twice.
    for _ in range(2):
        commits = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        for path in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
            path.unlink(missing_ok=True)
        run(sample.settings, max_rows=200)
    assert_same_tables(coordinator_spark, tmp_path / "tables", sample.expected)


def test_a_tick_fires_timers_and_a_stop_ends_between_two_batches(
    coordinator_spark: SparkSession, tmp_path: Path
) -> None:
    settings = Settings.from_kafka({"group.initial.rebalance.delay.ms": 500, "group.min.session.timeout.ms": 100})
    path = tmp_path / "log"
    log = EmbeddedLog.create(path, 2)
    answers: list[str] = []
    options = StreamOptions(str(path), str(tmp_path / "tables"), str(tmp_path / "checkpoint"), tick_ms=100)
    body = {"groupId": "g", "sessionTimeoutMs": 1500, "rebalanceTimeoutMs": 2000, "memberId": "", "protocolType": "x"}
    body |= {"protocols": [{"name": "p", "metadata": "AA=="}]}
    with Coordinator(
        coordinator_spark,
        options,
        CoordinatorConfig(settings),
        lambda table: answers.extend(table.column("request_id").to_pylist()),
    ) as coordinator:
        log.append(
            request_rows(
                partitions=2,
                log_ts=log.now_ms(),
                request_id="join",
                api="JoinGroup",
                api_version=3,
                client_id="c",
                client_host="/10.0.0.1",
                body=body,
            )
        )
        transitions = wait_for(tmp_path / "tables", "group_transitions", lambda states: len(states) == 5)
        assert answers == ["join"]
        coordinator.stop()
        assert not coordinator.query.isActive
    # The member joined alone, was silent, and went at its own deadline.
    assert transitions == ["Empty", "PreparingRebalance", "CompletingRebalance", "PreparingRebalance", "Empty"]
    rows = read_tables(tmp_path / "tables")["group_transitions"].to_pylist()
    assert rows[2]["ts"] - rows[1]["ts"] == 500


def wait_for(folder: Path, table: str, done: object, timeout_s: float = 60.0) -> list[str]:
    assert callable(done)
    deadline = time.monotonic() + timeout_s
    while True:
        states = [row["to_state"] for row in read_tables(folder)[table].to_pylist()]
        if done(states):
            return states
        assert time.monotonic() < deadline, states
        time.sleep(0.2)


def test_what_cannot_be_started_says_why(
    coordinator_spark: SparkSession, tmp_path: Path, sample: Scenario, run: Run
) -> None:
    with pytest.raises(StartError, match="there is no request log at"):
        run(sample.settings)
    sample.make_log(tmp_path / "log", [1000]).close()
    with pytest.raises(StartError, match=r"--partitions is 5, but the request log .* was made with 2"):
        run(sample.settings, partitions=5)
    run(sample.settings)
    with pytest.raises(StartError, match="--recover-from-offsets"):
        run(sample.settings, checkpoint=str(tmp_path / "other"))
    options = StreamOptions(str(tmp_path / "log"), str(tmp_path / "tables"), str(tmp_path / "checkpoint"))
    with Coordinator(coordinator_spark, options, CoordinatorConfig(sample.settings)) as coordinator:
        with pytest.raises(StartError, match="another coordinator runs on the checkpoint"):
            run(sample.settings)
        coordinator.wait(_set())


def _set() -> threading.Event:
    event = threading.Event()
    event.set()
    return event
