"""The same seeds are the same tables when an executor is killed while it simulates: its task is run once more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyspark
import pytest
from deltalake import DeltaTable

from coordinator_udf.simulation.invariants import violations
from coordinator_udf.simulation.scenario import draw_world, read_scenario
from coordinator_udf.simulation.tasks import world_tables
from coordinator_udf.simulation.world import World
from coordinator_udf.tables.spark_session import resolved_jars
from tests.conftest import ROOT
from tests.spark.test_cluster import executors, package

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_SCENARIO = ROOT / "conf" / "scenarios" / "crash-loop.toml"
_SEEDS = 44
_TABLES = ("member_events", "group_transitions", "consumer_offsets")
#: Of a bound that only a machine that stands still would reach.
_PATIENCE_S = 400


def _submit(folder: Path, out: Path) -> subprocess.Popen[bytes]:
    jars = resolved_jars()
    delta = ["--jars", jars] if jars else ["--packages", f"io.delta:delta-spark_4.2_2.13:{version('delta-spark')}"]
    command = [
        *(str(Path(pyspark.__path__[0]) / "bin" / "spark-submit"), "--master", "local-cluster[2,1,512]"),
        *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"),
        *("--conf", "spark.executor.memory=512m", "--conf", "spark.ui.enabled=false", *delta),
        *("--py-files", str(package(folder)), str(ROOT / "jobs" / "simulate_groups.py"), str(_SCENARIO)),
        *("--out", str(out), "--seeds", str(_SEEDS)),
    ]
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")}
    environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with (folder / "driver.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=folder, start_new_session=True)


def _kill_one_at_work(driver: subprocess.Popen[bytes], folder: Path, out: Path) -> None:
    """Kills an executor once both have begun to write files."""
    deadline = time.monotonic() + _PATIENCE_S
    while len(list(out.glob("member_events/*.parquet"))) < 2:
        assert driver.poll() is None, (folder / "driver.log").read_text()[-4000:]
        assert time.monotonic() < deadline, (folder / "driver.log").read_text()[-4000:]
        time.sleep(0.05)
    victims = executors(driver)
    assert victims, "there is no executor"
    os.kill(victims[0], signal.SIGKILL)


def _expected() -> dict[str, list[dict[str, Any]]]:
    scenario = read_scenario(_SCENARIO)
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in _TABLES}
    for seed in range(_SEEDS):
        history = World(draw_world(scenario, seed), seed).run()
        tables = world_tables(f"{_SCENARIO.stem}/{seed}", history, violations(history))
        for name in _TABLES:
            rows[name] += tables[name].to_pylist()
    return rows


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds executors by /proc")
def test_the_same_seeds_are_the_same_tables_after_an_executor_was_killed(tmp_path: Path) -> None:
    out = tmp_path / "tables"
    driver = _submit(tmp_path, out)
    try:
        _kill_one_at_work(driver, tmp_path, out)
        assert driver.wait(timeout=_PATIENCE_S) == 0, (tmp_path / "driver.log").read_text()[-4000:]
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    assert "Lost executor" in (tmp_path / "driver.log").read_text()
    for name, rows in _expected().items():
        found = DeltaTable(str(out / name)).to_pyarrow_table().to_pylist()
        assert sorted(found, key=str) == sorted(rows, key=str)
