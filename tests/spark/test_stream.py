"""The stream from the embedded log to the tables: the same as an undisturbed replay, however the log is cut."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.log.rows import control_rows
from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.settings.file import CoordinatorConfig
from coordinator_udf.streaming.coordinator import Coordinator
from coordinator_udf.streaming.lease import StartError
from coordinator_udf.streaming.options import StreamOptions
from schemas.requests import LIVE
from tests.conftest import SAMPLE_LOG
from tests.nightly import some_or_many
from tests.shard.edge import rows_of
from tests.shard.samples import SAMPLES
from tests.spark.conftest import Run, Scenario, assert_same_tables, changes_of_state, read_tables, scenario
from tests.waiting import wait

pytestmark = pytest.mark.spark


CUTS = {
    "one": ([1_000_000], 1_000_000, 0),
    "one, large": ([1_000_000], 1_000_000, 1),
    "some": ([1, 7, 40], 150, 0),
    # Batches of that many rows are small and large in turn.
    "some, large": ([99, 100, 3, 101], 1, 100),
}


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_any_cut_leaves_the_same_tables(
    coordinator_spark: SparkSession, tmp_path: Path, sample: Scenario, run: Run, cut: tuple[list[int], int, int]
) -> None:
    sizes, max_rows, large_batch_rows = cut
    sample.make_log(tmp_path / "log", sizes).close()
    answered: list[str] = []
    run(
        sample.settings,
        lambda rows: answered.extend(rows.column("request_id").to_pylist()),
        max_rows=max_rows,
        large_batch_rows=large_batch_rows,
    )
    assert sorted(answered) == sorted(sample.expected["group_responses"].column("request_id").to_pylist())
    assert_same_tables(coordinator_spark, tmp_path / "tables", sample.expected)


def test_executors_write_what_is_more_than_the_driver_may_collect(
    coordinator_spark: SparkSession, tmp_path: Path, sample: Scenario, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    # Of a few rows, too: how much is said of them is known once the shards have run.
    sample.make_log(tmp_path / "log", [1_000_000]).close()
    answered: list[str] = []
    with setting(coordinator_spark, "spark.driver.maxResultSize", "40k"):
        run(
            sample.settings,
            lambda rows: answered.extend(rows.column("request_id").to_pylist()),
            large_batch_rows=1_000_000,
        )
    assert "executors write them" in caplog.text
    assert sorted(answered) == sorted(sample.expected["group_responses"].column("request_id").to_pylist())
    assert_same_tables(coordinator_spark, tmp_path / "tables", sample.expected)


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """A setting of Spark's context that is looked up whenever a job begins."""
    context: Any = spark.sparkContext
    conf = context._jsc.sc().conf()
    conf.set(name, value)
    yield
    conf.remove(name)


#: One of each kind in the night, and a broker's log.
_KINDS = some_or_many(("consumer848-0011",), ("consumer848-0011", "offsets-0014", "static-0005"))
LOGS = [*some_or_many([], [SAMPLE_LOG]), *(path for path in SAMPLES if path.name.startswith(_KINDS))]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name.partition(".")[0])
def test_random_cuts_with_ticks_apart_leave_the_tables_of_a_replay(
    coordinator_spark: SparkSession, tmp_path: Path, run: Run, path: Path
) -> None:
    recorded = scenario(read_source(path, LIVE, ReplayOptions(partitions=2 if path == SAMPLE_LOG else None)))
    log = EmbeddedLog.create(tmp_path / "log", recorded.partitions, clock_skew_max_ms=None)
    batches = 0
    for piece in random_pieces(recorded.rows, random.Random(path.name)):
        log.append(piece)
        batches += 1
        if batches % 3 == 0:
            log.append(control_rows(partitions=recorded.partitions, log_ts=piece[-1]["log_ts"], api="Tick"))
            batches += 1
    # An append is never split, so that each is a micro-batch. The largest pieces make large ones.
    run(recorded.settings, max_rows=1, large_batch_rows=len(recorded.rows) // 7)
    assert len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))) == batches
    assert_same_tables(coordinator_spark, tmp_path / "tables", recorded.expected)


def random_pieces(rows: list[dict[str, Any]], chance: random.Random) -> Iterator[list[dict[str, Any]]]:
    """Cuts of one row to many, never between the parts of a request, which are appended together."""
    at = 0
    while at < len(rows):
        end = at + chance.choice([1, 1, 2, 5, len(rows) // 7, len(rows) // 4])
        while end < len(rows) and rows[end]["request_id"] == rows[end - 1]["request_id"] is not None:
            end += 1
        yield rows[at:end]
        at = end


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
    first: list[dict[str, Any]] = []
    again: list[dict[str, Any]] = []
    run(sample.settings, lambda rows: first.extend(rows.to_pylist()), max_rows=200)
    assert len(first) == len(sample.expected["group_responses"])
    # As if the driver had died before the last batches were marked as done, twice.
    for _ in range(2):
        commits = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        for path in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
            path.unlink(missing_ok=True)
        again.clear()
        run(sample.settings, lambda rows: again.extend(rows.to_pylist()), max_rows=200)
        assert again, "who was not told before the driver died is told now"
        assert again == first[-len(again) :], "and who was told twice was told the same"
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
        log.append(rows_of("JoinGroup", 3, body, log.now_ms(), "join", partitions=2))
        tables = tmp_path / "tables"
        wait(
            lambda: len(states_in(tables)) == 5, "the group is empty again", lambda: f"{states_in(tables)}", every_s=0.2
        )
        transitions = states_in(tables)
        assert answers == ["join"]
        coordinator.stop()
        assert not coordinator.query.isActive
    # The member joined alone, was silent, and went at its own deadline.
    assert transitions == ["Empty", "PreparingRebalance", "CompletingRebalance", "PreparingRebalance", "Empty"]
    rows = changes_of_state(read_tables(tmp_path / "tables")["group_transitions"].to_pylist())
    assert rows[2]["ts"] - rows[1]["ts"] == 500


def states_in(folder: Path) -> list[str]:
    return [row["to_state"] for row in changes_of_state(read_tables(folder)["group_transitions"].to_pylist())]


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
        with pytest.raises(StartError, match="another coordinator runs on the folder of tables"):
            run(sample.settings)
        with pytest.raises(StartError, match="another coordinator runs on the checkpoint"):
            run(sample.settings, tables=str(tmp_path / "other tables"))
        with pytest.raises(StartError, match="another coordinator runs on the folder of tables"):
            run(sample.settings, checkpoint=str(tmp_path / "other"), recover=True)
        coordinator.wait(_set())


def _set() -> threading.Event:
    event = threading.Event()
    event.set()
    return event
