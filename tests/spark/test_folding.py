"""A job that folds its log away leaves the tables that one leaves that doesn't. It is killed in test_kills.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.nightly import only_at_night
from tests.spark.conftest import Run, Scenario, assert_same_tables, assert_whole_log

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FOLD_AFTER = 20


@pytest.fixture
def short_checkpoints(coordinator_spark: SparkSession) -> Iterator[None]:
    """Checkpoints that retain few micro-batches, so that most of a short log is needed no more."""
    name = "spark.sql.streaming.minBatchesToRetain"
    coordinator_spark.conf.set(name, 2)
    yield
    coordinator_spark.conf.unset(name)


@only_at_night("test_kills.py kills one that folds")
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
    assert_whole_log(coordinator_spark, tmp_path / "log", sample)
