"""The same seeds are the same tables when an executor is killed while it simulates: its task is run once more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from coordinator_udf.simulation.invariants import violations
from coordinator_udf.simulation.scenario import draw_world, read_scenario
from coordinator_udf.simulation.tasks import world_tables
from coordinator_udf.simulation.world import World
from tests.conftest import ROOT
from tests.nightly import only_at_night
from tests.spark.local_cluster import assert_ends_well, kill_executor, submitted

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    only_at_night("test_scenarios.py runs the same seeds in one task and in eight, without a kill"),
]

_SCENARIO = ROOT / "conf" / "scenarios" / "crash-loop.toml"
_SEEDS = 44
_TABLES = ("member_events", "group_transitions", "consumer_offsets")


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
    job = ("simulate_groups.py", str(_SCENARIO), "--out", str(out), "--seeds", str(_SEEDS))

    def both_write() -> bool:
        return len(list(out.glob("member_events/*.parquet"))) >= 2

    with submitted(tmp_path, 512, {"spark.executor.memory": "512m"}, *job) as driver:
        kill_executor(driver, tmp_path, both_write)
        assert_ends_well(driver, tmp_path)
    assert "Lost executor" in (tmp_path / "driver.log").read_text()
    for name, rows in _expected().items():
        found = DeltaTable(str(out / name)).to_pyarrow_table().to_pylist()
        assert sorted(found, key=str) == sorted(rows, key=str)
