"""On executors of their own processes, started by spark-submit with the package as --py-files, one of them killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.nightly import only_at_night
from tests.spark.conftest import Scenario, assert_same_tables
from tests.spark.local_cluster import assert_ends_well, kill_executor, submitted

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_SPARK = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.databricks.delta.snapshotPartitions": "1",
    # Executors die in this test, more often than a cluster would forgive.
    "spark.task.maxFailures": "10",
}


@only_at_night("test_kills.py kills a driver and its workers, test_stream.py runs what was begun once more")
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds executors by /proc")
def test_an_executor_dies_on_a_cluster(coordinator_spark: SparkSession, tmp_path: Path, sample: Scenario) -> None:
    sample.make_log(tmp_path / "log", [20]).close()
    settings = sample.settings
    job = [
        # The executors write the tables, too, but for the last rows, which are fewer.
        *("coordinator_stream.py", "--root", str(tmp_path), "--available-now", "--max-rows", "80"),
        *("--large-batch", "80"),
        *("--set", f"group.initial.rebalance.delay.ms={settings.group_initial_rebalance_delay_ms}"),
        *("--set", f"offsets.topic.partition.check={str(settings.offsets_topic_partition_check).lower()}"),
    ]

    def two_batches_are_done() -> bool:
        return len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))) >= 2

    with submitted(tmp_path, 1024, _SPARK, *job) as driver:
        kill_executor(driver, tmp_path, two_batches_are_done)
        assert_ends_well(driver, tmp_path)
    assert_same_tables(coordinator_spark, tmp_path / "tables", sample.expected)
