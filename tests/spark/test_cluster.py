"""On executors of their own processes, started by spark-submit with the package as --py-files, one of them killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import zipfile
from importlib.metadata import version
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from coordinator_udf.tables.spark_session import resolved_jars
from tests.conftest import ROOT
from tests.spark.conftest import Scenario, assert_same_tables

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"


def package(folder: Path) -> Path:
    target = folder / "muster.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for name in ("coordinator_udf", "schemas"):
            for path in sorted((ROOT / name).rglob("*.py")):
                archive.write(path, path.relative_to(ROOT))
    return target


def submit(root: Path, scenario: Scenario) -> subprocess.Popen[bytes]:
    jars = resolved_jars()
    delta = ["--jars", jars] if jars else ["--packages", f"io.delta:delta-spark_4.2_2.13:{version('delta-spark')}"]
    settings = scenario.settings
    command = [
        *(str(Path(pyspark.__path__[0]) / "bin" / "spark-submit"), "--master", "local-cluster[2,1,1024]"),
        *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"),
        *("--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.ui.enabled=false"),
        *("--conf", "spark.sql.codegen.wholeStage=false", "--conf", "spark.databricks.delta.snapshotPartitions=1"),
        # Executors die in this test, more often than a cluster would forgive.
        *("--conf", "spark.task.maxFailures=10"),
        *(*delta, "--py-files", str(package(root)), str(ROOT / "jobs" / "coordinator_stream.py")),
        # The executors write the tables, too, but for the last rows, which are fewer.
        *("--root", str(root), "--available-now", "--max-rows", "40", "--large-batch", "40"),
        *("--set", f"group.initial.rebalance.delay.ms={settings.group_initial_rebalance_delay_ms}"),
        *("--set", f"offsets.topic.partition.check={str(settings.offsets_topic_partition_check).lower()}"),
    ]
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")}
    environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with (root / "driver.log").open("wb") as log:
        # From elsewhere, so that nothing is found by being where the package lies.
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=root, start_new_session=True)


def executors(driver: subprocess.Popen[bytes]) -> list[int]:
    """The executors of this driver alone: processes of its session."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if EXECUTOR in (path / "cmdline").read_bytes() and os.getsid(int(path.name)) == driver.pid:
                found.append(int(path.name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def batches_done(root: Path) -> int:
    return len(list((root / "checkpoint" / "commits").glob("[0-9]*")))


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds executors by /proc")
def test_an_executor_dies_on_a_cluster(coordinator_spark: SparkSession, tmp_path: Path, sample: Scenario) -> None:
    sample.make_log(tmp_path / "log", [20]).close()
    driver = submit(tmp_path, sample)
    try:
        deadline = time.monotonic() + 300
        while batches_done(tmp_path) < 2:
            assert driver.poll() is None, (tmp_path / "driver.log").read_text()[-4000:]
            assert time.monotonic() < deadline, (tmp_path / "driver.log").read_text()[-4000:]
            time.sleep(0.05)
        victims = executors(driver)
        assert victims, "there is no executor"
        os.kill(victims[0], signal.SIGKILL)
        assert driver.wait(timeout=400) == 0, (tmp_path / "driver.log").read_text()[-4000:]
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    assert_same_tables(coordinator_spark, tmp_path / "tables", sample.expected)
