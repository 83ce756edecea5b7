"""A violation is told in as few events as show it, with the command that shows them again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coordinator_udf.commands.job import as_app
from coordinator_udf.commands.search_worlds import main as search_worlds
from coordinator_udf.commands.simulate import main as simulate
from coordinator_udf.simulation.scenario import draw_world, read_scenario
from coordinator_udf.simulation.shrink import event_list, run, shrink
from tests.conftest import ROOT
from tests.simulation import shard_mutations


def test_a_violation_is_shown_by_the_fewest_events(monkeypatch: pytest.MonkeyPatch) -> None:
    shard_mutations.give_away_what_is_not_revoked(monkeypatch)
    plan = draw_world(read_scenario(ROOT / "conf" / "scenarios" / "rolling-deploy.toml"), 0)
    short = shrink(plan, 0, "two owners")
    # Two members suffice: one that has everything, and one that is given some of it at once.
    assert len(short.members) == 2
    assert [line.split("s  ", 1)[1].split(",")[0] for line in event_list(short)][1:] == [
        f"{member.name} starts" for member in sorted(short.members, key=lambda member: member.start_ms)
    ]
    assert any(violation.kind == "two owners" for violation in run(short, 0))


def test_the_job_replays_one_world() -> None:
    scenario = str(ROOT / "conf" / "scenarios" / "crash-loop.toml")
    result: Any = CliRunner().invoke(as_app(simulate), [scenario, "--replay", "3"])
    assert result.exit_code == 0, result.output
    assert "crash-loop, seed 3: 0 violations" in result.output


def test_a_search_tells_the_fewest_events_and_the_command_that_shows_them_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shard_mutations.give_away_what_is_not_revoked(monkeypatch)
    monkeypatch.chdir(ROOT)
    scenario = "conf/scenarios/rolling-deploy.toml"
    arguments = [scenario, "--seeds", "0:1", "--done", str(tmp_path / "done")]
    result: Any = CliRunner().invoke(as_app(search_worlds), arguments)
    assert result.exit_code == 1, result.output
    command = f".venv/bin/muster simulate {scenario} --replay 0"
    assert f"{command})" in next(line for line in result.stdout.splitlines() if "two owners in g" in line)
    fewest = result.stdout[result.stdout.index("rolling-deploy, seed 0, in as few events") :].splitlines()
    assert fewest[0].endswith(f"{command}):")
    assert fewest[1].startswith("two owners: ")
    assert sum("starts, in the group g848 (consumer)" in line for line in fewest) == 2

    # What it says to type tells the same.
    again: Any = CliRunner().invoke(as_app(simulate), [scenario, "--replay", "0"])
    assert again.exit_code == 1
    assert again.stdout.splitlines()[1:] == fewest[1:]
