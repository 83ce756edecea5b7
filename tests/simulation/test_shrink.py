"""What can be left out of a world is, in few worlds; what is left is told in full."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coordinator_udf.commands import simulate
from coordinator_udf.commands.job import as_app
from coordinator_udf.simulation import shrink as shrinking
from coordinator_udf.simulation.invariants import LOST_JOIN
from coordinator_udf.simulation.plan import Cut, Failover, MemberPlan, NetworkPlan, Slow, Stall, TopicPlan, WorldPlan
from coordinator_udf.simulation.shrink import event_list, shrink
from coordinator_udf.simulation.telling import replay_command
from coordinator_udf.simulation.violation import Violation
from tests.conftest import ROOT

_STALL = Stall(5_000, 1_000)


def _fleet() -> WorldPlan:
    """Returns ten groups of two families of twenty, each member with two stalls."""
    members = tuple(
        MemberPlan(f"{family}{number}", 1, f"g{group}", ("t",), number, stalls=(_STALL, Stall(9_000, number)))
        for group in range(10)
        for family in (f"a{group}-", f"b{group}-")
        for number in range(1, 21)
    )
    topics = TopicPlan("t", 4), TopicPlan("t", 6, 20_000), TopicPlan("t", 0, 30_000)
    failovers = tuple(Failover(1_000 * number, 10) for number in range(1, 9))
    return WorldPlan(members, topics, 60_000, network=NetworkPlan((1, 20), 0.0015), failovers=failovers, cadence_ms=500)


def _shows_if(monkeypatch: pytest.MonkeyPatch, is_shown: Callable[[WorldPlan], bool]) -> list[WorldPlan]:
    """Lets worlds have a violation if their plans are so, and returns the list of plans that will have been tried."""
    tried = []

    def run(plan: WorldPlan, _: int) -> list[Violation]:
        tried.append(plan)
        return [Violation(0, "g", "two owners", "so it is")] if is_shown(plan) else []

    monkeypatch.setattr(shrinking, "run", run)
    return tried


def test_whole_groups_and_families_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_shown(plan: WorldPlan) -> bool:
        names = {member.name: member for member in plan.members}
        return "b3-7/1" in names and "b3-19/1" in names and _STALL in names["b3-7/1"].stalls

    tried = _shows_if(monkeypatch, is_shown)
    said: list[str] = []
    short = shrink(_fleet(), 1, "two owners", said.append)
    assert [(member.name, member.stalls) for member in short.members] == [("b3-7/1", (_STALL,)), ("b3-19/1", ())]
    assert (short.failovers, len(short.topics), short.cadence_ms, short.network) == ((), 1, 0, NetworkPlan())
    # One member at a time, and each from the beginning again, would be thousands of worlds.
    assert len(tried) < 70
    assert said[-1] == f"4 events left after {re.findall('[0-9]+', said[-1])[1]} worlds"


def test_it_is_said_where_not_all_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = _shows_if(monkeypatch, lambda plan: len(plan.members) > 300)
    monkeypatch.setattr(shrinking, "_MAX_WORLDS", 25)
    said: list[str] = []
    shrink(_fleet(), 1, "two owners", said.append)
    assert len(tried) == 25
    assert said[-1] == "25 worlds were tried, and not all that could be left out: fewer events may show it"
    assert sum("worlds were tried" in line for line in said) == 1


def test_the_network_and_the_coordinators_pace_are_told() -> None:
    member = MemberPlan("a1", 1, "g", ("t",), 500, cuts=(Cut(7_000, 10),), slow=(Slow(8_000, 20, 30),))
    topics = TopicPlan("t", 4), TopicPlan("t", 0, 30_000)
    plan = WorldPlan((member,), topics, 60_000, network=NetworkPlan((1, 20), 0.0015), cadence_ms=500)
    assert [line.split("s  ", 1)[1] for line in event_list(plan)] == [
        "messages take 1 to 20 ms from now on",
        "t has 4 partitions",
        "the coordinator answers once in 500 ms from now on",
        "with 0.1500% of requests the connection is lost from now on",
        "a1/1 starts, in the group g (classic)",
        "a1/1 is cut off for 10 ms",
        "a1/1's messages take 30 ms longer for 20 ms",
        "t is deleted",
    ]


def test_a_command_can_be_typed_where_it_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.executable", str(ROOT / ".venv/bin/python"))
    monkeypatch.chdir(ROOT)
    assert replay_command(Path("my worlds.toml"), 7) == ".venv/bin/muster simulate 'my worlds.toml' --replay 7"
    monkeypatch.chdir(tmp_path)
    assert replay_command(Path("x.toml"), 7) == f"{ROOT}/.venv/bin/muster simulate x.toml --replay 7"


def test_a_command_is_told_that_runs_where_the_package_came_without_its_commands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = sys.executable
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    command = replay_command(ROOT / "conf" / "scenarios" / "crash-loop.toml", 7)
    assert command.startswith(f"{tmp_path}/python -m coordinator_udf.commands.app simulate ")
    ran = subprocess.run([python, *command.split()[1:]], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout == "crash-loop, seed 7: 0 violations\n"


@pytest.mark.parametrize(("kind", "status"), [(LOST_JOIN, 0), ("two owners", 1)])
def test_a_replay_of_what_is_kafkas_own_is_no_failure(monkeypatch: pytest.MonkeyPatch, kind: str, status: int) -> None:
    monkeypatch.setattr(simulate, "run", lambda *_: [Violation(0, "g", kind, "so it is")])
    monkeypatch.setattr(simulate, "fewest_events", lambda *_: iter(["in short"]))
    scenario = str(ROOT / "conf" / "scenarios" / "crash-loop.toml")
    result: Any = CliRunner().invoke(as_app(simulate.main), [scenario, "--replay", "3"])
    assert (result.exit_code, result.stdout) == (status, "crash-loop, seed 3: 1 violations\nin short\n")
