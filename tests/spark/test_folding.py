"""A job folds away what its checkpoint needs no more. What such a one leaves when it is killed is in test_kills.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.streaming.lease import StartError
from tests.spark.conftest import Run, Scenario

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FOLD_AFTER = 20
MAX_ROWS = 15
#: More than the few micro-batches that are retained.
ROWS = 300


@pytest.fixture
def short_checkpoints(coordinator_spark: SparkSession) -> Iterator[None]:
    """Checkpoints that retain few micro-batches, so that most of a short log is needed no more."""
    name = "spark.sql.streaming.minBatchesToRetain"
    coordinator_spark.conf.set(name, 2)
    yield
    coordinator_spark.conf.unset(name)


@pytest.mark.usefixtures("short_checkpoints")
def test_a_job_leaves_of_its_log_what_it_may_need_again(tmp_path: Path, sample: Scenario, run: Run) -> None:
    log = EmbeddedLog.create(tmp_path / "log", sample.partitions, clock_skew_max_ms=None)
    sample.append(log, [3, 1, 2], stop=ROWS)
    run(sample.settings, max_rows=MAX_ROWS, fold_after_rows=FOLD_AFTER)
    extent = log.extent()
    assert extent.first > 0
    assert extent.rows - log.rows_until(extent.first) < FOLD_AFTER + 4 * MAX_ROWS
    with pytest.raises(StartError, match=r"goes on with append 0 of .* which holds what came from append"):
        run(sample.settings, checkpoint=str(tmp_path / "new"), tables=str(tmp_path / "other"))
