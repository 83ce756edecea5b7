"""kill -9 of the real driver, at random moments and at the worst ones: the tables end as if nothing had happened."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conftest import ROOT
from tests.spark.conftest import Scenario, assert_same_tables

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KILLS = 20
MAX_ROWS = 6
DRIVER = ROOT / "tests" / "spark" / "killed_driver.py"


def start(
    root: Path, point: str, after: int, scenario: Scenario, *, fold_after: int = 0, recover: bool = False
) -> subprocess.Popen[bytes]:
    """A driver in a process group of its own, so that its JVM dies with it."""
    which = [str(root), str(MAX_ROWS), point, str(after), str(fold_after), str(int(recover))]
    settings = [f"offsets.topic.partition.check={str(scenario.settings.offsets_topic_partition_check).lower()}"]
    settings += [f"group.initial.rebalance.delay.ms={scenario.settings.group_initial_rebalance_delay_ms}"]
    with (root / "driver.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, str(DRIVER), *which, *settings],
            stdout=log,
            stderr=log,
            # Drivers that are to die soon have no time to be compiled well.
            env={**os.environ, "PYTHONPATH": str(ROOT), "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"},
            start_new_session=True,
        )


def kill(driver: subprocess.Popen[bytes]) -> None:
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


def batches_done(root: Path) -> int:
    return max((int(path.name) for path in (root / "checkpoint" / "commits").glob("[0-9]*")), default=-1)


def wait_for_progress(root: Path, driver: subprocess.Popen[bytes], done: int) -> bool:
    """Whether the driver did another batch; False if it ended."""
    deadline = time.monotonic() + 180
    while batches_done(root) <= done:
        if driver.poll() is not None:
            return False
        assert time.monotonic() < deadline, (root / "driver.log").read_text()[-4000:]
        time.sleep(0.02)
    return True


def finish(root: Path, driver: subprocess.Popen[bytes]) -> None:
    try:
        assert driver.wait(timeout=300) == 0, (root / "driver.log").read_text()[-4000:]
    finally:
        if driver.poll() is None:
            kill(driver)


def test_twenty_kills_change_nothing(coordinator_spark: SparkSession, tmp_path: Path, sample: Scenario) -> None:
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    sample.make_log(tmp_path / "log", [3, 1, 2]).close()
    killed = 0
    points = ["commit", "random", "answer", "stage", "random", "write"]
    while killed < KILLS:
        point = points[killed % len(points)]
        driver = start(tmp_path, "none" if point == "random" else point, chance.randrange(3), sample)
        done = batches_done(tmp_path)
        try:
            if point == "random":
                assert wait_for_progress(tmp_path, driver, done), (tmp_path / "driver.log").read_text()[-4000:]
                time.sleep(chance.random() * 0.8)
            else:
                driver.wait(timeout=180)
                assert driver.returncode == -signal.SIGKILL, (tmp_path / "driver.log").read_text()[-4000:]
        finally:
            kill(driver)
        killed += 1
    finish(tmp_path, start(tmp_path, "none", 0, sample))
    print(f"seed {seed}: {killed} kills, {batches_done(tmp_path) + 1} batches")
    assert_same_tables(coordinator_spark, tmp_path / "tables", sample.expected)
