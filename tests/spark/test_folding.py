"""A job that folds its log away leaves the tables that one leaves that doesn't, also when it is killed."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from coordinator_udf.streaming.coordinator import StartError
from coordinator_udf.streaming.embedded_log import EmbeddedLog
from coordinator_udf.streaming.request_log import request_log
from schemas.requests import REQUEST_COLUMNS
from tests.spark.conftest import Run, Scenario, assert_same_tables
from tests.spark.test_kills import batches_done, finish, kill, start, wait_for_progress

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FOLD_AFTER = 20


@pytest.fixture
def short_checkpoints(coordinator_spark: SparkSession) -> Iterator[None]:
    """Checkpoints that retain few micro-batches, so that most of a short log is needed no more."""
    name = "spark.sql.streaming.minBatchesToRetain"
    coordinator_spark.conf.set(name, 2)
    yield
    coordinator_spark.conf.unset(name)


def assert_whole(spark: SparkSession, path: Path, scenario: Scenario) -> None:
    """The log and its history hold each row of the scenario once, in order."""
    found = [row.asDict() for row in request_log(spark, path).orderBy("partition", "offset").collect()]
    expected = []
    for partition in range(scenario.partitions):
        rows = [row for row in scenario.rows if row["partition"] == partition]
        expected += [{"source": "live", **row, "offset": offset} for offset, row in enumerate(rows)]
    assert found == [{name: row[name] for name in REQUEST_COLUMNS} for row in expected]


@pytest.mark.usefixtures("short_checkpoints")
def test_a_job_that_folds_leaves_what_one_leaves_that_does_not(
    coordinator_spark: SparkSession, tmp_path: Path, sample: Scenario, run: Run
) -> None:
    log = sample.make_log(tmp_path / "log", [3, 1, 2])
    run(sample.settings, max_rows=15, fold_after_rows=FOLD_AFTER)
    extent = log.extent()
    assert extent.first > 0
    assert extent.rows - log.rows_until(extent.first) < FOLD_AFTER + 4 * 15
    assert_same_tables(coordinator_spark, tmp_path / "tables", sample.expected)
    assert_whole(coordinator_spark, tmp_path / "log", sample)
    with pytest.raises(StartError, match=r"goes on with append 0 of .* which holds what came from append"):
        run(sample.settings, checkpoint=str(tmp_path / "new"), tables=str(tmp_path / "other"))


def test_kills_while_the_log_is_folded_change_nothing(
    coordinator_spark: SparkSession, tmp_path: Path, sample: Scenario
) -> None:
    chance = random.Random(7)
    sample.make_log(tmp_path / "log", [3, 1, 2]).close()
    for point in ("fold", "random", "fold", "commit"):
        driver = start(tmp_path, "none" if point == "random" else point, 1, sample, fold_after=FOLD_AFTER)
        try:
            if point == "random":
                assert wait_for_progress(tmp_path, driver, batches_done(tmp_path))
                time.sleep(chance.random() * 3)
            else:
                driver.wait(timeout=180)
                assert driver.returncode == -signal.SIGKILL, (tmp_path / "driver.log").read_text()[-4000:]
        finally:
            kill(driver)
    finish(tmp_path, start(tmp_path, "none", 0, sample, fold_after=FOLD_AFTER))
    assert EmbeddedLog.open(tmp_path / "log").extent().first > 0
    assert_same_tables(coordinator_spark, tmp_path / "tables", sample.expected)
    assert_whole(coordinator_spark, tmp_path / "log", sample)
