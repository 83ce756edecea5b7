"""What a fleet asks of its coordinators: reckoned from a few of its groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coordinator_udf.commands.job import as_app
from coordinator_udf.commands.simulate import main
from coordinator_udf.simulation.charts import load_rows, state_rows
from coordinator_udf.simulation.planning import FleetLoad, FleetSecond, fleet_load, load_lines
from coordinator_udf.simulation.scenario_fields import Fault, MembersFields, Scenario, TopicFields

_SMALL = """
title = "small"
end_s = 5
topics = [{ name = "t", partitions = 2 }]
members = [{ count = 2 }]
"""


def test_a_fleet_sends_what_its_groups_send() -> None:
    scenario = Scenario(
        title="fleet",
        end_s=80,
        members=(MembersFields(count=4, properties={"heartbeat.interval.ms": 1000, "enable.auto.commit": False}),),
        topics=(TopicFields("t", 8),),
        faults=(Fault("failover", at_s=30, length_s=2),),
    )
    load = fleet_load(scenario, 4_000, 2)
    assert load.sampled == 8
    # Each of 4,000 members sends a heartbeat a second.
    assert len(load.seconds) == 80
    assert 3_900 <= load.steady <= 4_100
    second, most = load.peak
    assert most > load.steady
    assert second < 60
    # All are settled before the failover; nobody has a group then, and it is found as it was.
    assert load.seconds[25].settled == 1
    before, away, after = (load.seconds[second].state_bytes for second in (25, 31, -1))
    assert away < before == pytest.approx(after, rel=0.1)
    assert 5 < load.unsettled_s < 40
    # When they were assigned theirs, not when the last thing happened.
    assert 3 < load.settled_s < 10
    assert any("4,000 members" in line for line in load_lines(load))


def test_a_plot_has_each_second_of_each_api() -> None:
    seconds = FleetSecond({"Heartbeat": 3.0}, 1.0, 2e6), FleetSecond({"JoinGroup": 1.0}, 0.5, 3e6)
    load = FleetLoad(10, 1, seconds, 1.0)
    found = [(row["second"], row["api"], row["requests"]) for row in load_rows(load)]
    assert found == [(0, "Heartbeat", 3), (0, "JoinGroup", 0), (1, "Heartbeat", 0), (1, "JoinGroup", 1)]
    assert [(row["settled"], row["state_mb"]) for row in state_rows(load)] == [(1, 2), (0.5, 3)]
    assert (load.unsettled_s, load.most_state_bytes) == (1, 3e6)


def test_the_job_draws_the_load(tmp_path: Path) -> None:
    scenario, plot = tmp_path / "small.toml", tmp_path / "load.svg"
    scenario.write_text(_SMALL)
    arguments = [str(scenario), "--members", "5000", "--seeds", "1", "--plot", str(plot)]
    result: Any = CliRunner().invoke(as_app(main), arguments)
    assert result.exit_code == 0, result.output
    drawn = plot.read_text()
    texts = ("5,000 members", "JoinGroup", "requests/s", "settled members", "state, MB")
    assert all(text in drawn for text in texts)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--members", "5", "--plot", "load.bmp"], "expected a file that ends in .svg"),
        (["--members", "5", "--plot", "/nowhere/load.svg"], "there is no folder /nowhere"),
        (["--plot", "load.svg"], "--plot is of the load that --members reckons"),
    ],
)
def test_a_plot_that_can_not_be_drawn_is_refused_first(tmp_path: Path, arguments: list[str], said: str) -> None:
    scenario = tmp_path / "small.toml"
    scenario.write_text(_SMALL)
    result: Any = CliRunner().invoke(as_app(main), [str(scenario), *arguments])
    assert result.exit_code == 2
    assert said in result.stderr


def test_the_loads_of_two_scenarios_have_their_names(tmp_path: Path) -> None:
    paths = [tmp_path / "small.toml", tmp_path / "other.toml"]
    for path in paths:
        path.write_text(_SMALL)
    result: Any = CliRunner().invoke(as_app(main), [*map(str, paths), "--members", "5", "--seeds", "1"])
    assert [line for line in result.stdout.splitlines() if line.endswith(":") and " " not in line] == [
        "small:",
        "other:",
    ]
    alone: Any = CliRunner().invoke(as_app(main), [str(paths[0]), "--members", "5", "--seeds", "1"])
    assert alone.stdout.startswith("5 members, ")


@pytest.mark.parametrize(
    ("alone", "other"),
    [
        (("--replay", "1"), ("--members", "5")),
        (("--replay", "1"), ("--out", "worlds")),
        (("--replay", "1"), ("--seeds", "100")),
        (("--members", "5"), ("--out", "worlds")),
    ],
)
def test_what_would_do_nothing_is_refused(tmp_path: Path, alone: tuple[str, ...], other: tuple[str, ...]) -> None:
    scenario = tmp_path / "small.toml"
    scenario.write_text(_SMALL)
    result: Any = CliRunner().invoke(as_app(main), [str(scenario), *other, *alone])
    assert result.exit_code == 2
    assert f"{alone[0]} doesn't go with {other[0]}: " in result.stderr
