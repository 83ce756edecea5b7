"""The shipped scenarios: nothing that must not be; and what must not be is found where somebody puts it in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from coordinator_udf.assignors.uniform import UniformAssignor
from coordinator_udf.settings.coordinator import SettingsError
from coordinator_udf.simulation.invariants import KAFKAS_OWN, violations
from coordinator_udf.simulation.scenario import draw_world, read_scenario
from coordinator_udf.simulation.seed_search import search_some
from coordinator_udf.simulation.tasks import SimulationRequest, simulate
from coordinator_udf.simulation.world import World
from coordinator_udf.sql.in_process import ViewsInProcess
from coordinator_udf.user_errors import InputError
from tests.conftest import ROOT
from tests.nightly import some_or_many

#: A hundred worlds of each; of a thousand members, which takes ten seconds, one, and ten in the night. Searches
#: (jobs/search_worlds.py) run thousands.
_WORLDS = 100
LARGE = {"thundering-restart"}
_LARGE_WORLDS = some_or_many(1, 10)
SCENARIOS = sorted((ROOT / "conf" / "scenarios").glob("*.toml"))


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.slow] if path.stem in LARGE else []) for path in SCENARIOS],
    ids=lambda path: path.stem,
)
def test_a_shipped_scenario_has_nothing_that_must_not_be(path: Path) -> None:
    found = search_some(path, "", 0, _LARGE_WORLDS if path.stem in LARGE else _WORLDS).found
    assert [one for one in found if one.kind not in KAFKAS_OWN] == []


def _found(name: str, seeds: int = 5) -> set[str]:
    scenario = read_scenario(ROOT / "conf" / "scenarios" / f"{name}.toml")
    worlds = (World(draw_world(scenario, seed), seed).run() for seed in range(seeds))
    return {violation.kind for history in worlds for violation in violations(history)}


def test_a_coordinator_that_gives_a_partition_to_two_members_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assign = UniformAssignor.assign

    def to_two(self: UniformAssignor, spec: Any) -> Any:
        given = assign(self, spec)
        topic_id = next(iter(spec.partitions))
        return {member_id: {**target, topic_id: (0, *target.get(topic_id, ()))} for member_id, target in given.items()}

    monkeypatch.setattr(UniformAssignor, "assign", to_two)
    assert "unsettled" in _found("rolling-deploy", 1)


def test_a_coordinator_that_never_ends_a_session_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator_udf.groups.timer_handlers.session_expired", lambda *_: None)
    assert "unsettled" in _found("crash-loop")


def test_worlds_are_rows_of_the_tables_however_they_are_spread(spark: SparkSession, tmp_path: Path) -> None:
    def run(out: Path, parts: tuple[tuple[int, int], ...]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for number, (first, seeds) in enumerate(parts):
            folder = out / str(number)
            request = SimulationRequest((SCENARIOS[0],), folder, first, seeds)
            assert simulate(spark, request, lambda _: None) == []
            for table in ("member_events", "group_transitions", "consumer_offsets"):
                rows += DeltaTable(str(folder / table)).to_pyarrow_table().to_pylist()
            asked = ViewsInProcess(str(folder))
            (told,) = asked.ask("SELECT count(*) AS events FROM application_events")
            assert told["events"] == DeltaTable(str(folder / "member_events")).count() > 0
            assert asked.ask("SELECT kind FROM violations") == []
            asked.close()
        return sorted(rows, key=str)

    together = run(tmp_path / "together", ((0, 2),))
    assert together == run(tmp_path / "apart", ((0, 1), (1, 1)))
    assert {row["source"] for row in together} == {f"{SCENARIOS[0].stem}/0", f"{SCENARIOS[0].stem}/1"}


@pytest.mark.slow
def test_the_same_seeds_are_the_same_tables_on_one_task_and_on_eight(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(out: Path, tasks: int) -> dict[str, list[dict[str, Any]]]:
        monkeypatch.setattr("coordinator_udf.simulation.tasks._WORLDS_A_TASK", 8 // tasks)
        crash_loop = ROOT / "conf" / "scenarios" / "crash-loop.toml"
        assert simulate(spark, SimulationRequest((crash_loop,), out, 0, 8), lambda _: None) == []
        tables = {log.parent.name: DeltaTable(str(log.parent)) for log in out.glob("*/_delta_log")}
        # Each task writes files of its own.
        assert len(tables["member_events"].file_uris()) == tasks
        return {name: sorted(table.to_pyarrow_table().to_pylist(), key=str) for name, table in tables.items()}

    on_one = run(tmp_path / "one", 1)
    assert {row["source"] for row in on_one["member_events"]} == {f"crash-loop/{seed}" for seed in range(8)}
    assert on_one == run(tmp_path / "eight", 8)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("title = 1", "title"),
        (
            "title = 'x'\nend_s = 1\nmembers = [{count = 1}]\ntopics = [{name = 't', partitions = 1}]\nquite_s = 1",
            "quite_s",
        ),
        ("title =", "is no scenario"),
    ],
)
def test_a_file_that_is_no_scenario_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        read_scenario(path)


def test_a_setting_of_the_coordinator_that_there_is_not_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(f"{SCENARIOS[0].read_text()}\n[coordinator]\n'no.such.setting' = 1\n")
    with pytest.raises(SettingsError) as refused:
        read_scenario(path)
    assert str(refused.value).startswith(f"{path}: coordinator: unknown setting 'no.such.setting'")


_SMALL = """
title = "x"
end_s = 100
quiet_s = {quiet_s}
topics = [{{ name = "t", partitions = 4 }}]
faults = [{{ kind = "crash", at_s = 80, count = 9, back_s = 5 }}]
members = [
    {{ count = 2, poll_s = 0.5, process_s = [1, 3], callback_s = 0.1 }},
    {{ count = 1, name = "z", habit = "zombie", every_s = 0.5, until_s = {until_s} }},
]
"""


def test_a_world_goes_on_after_its_last_fault(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(_SMALL.format(quiet_s=60, until_s=20))
    plan = draw_world(read_scenario(path), 3)
    assert plan.end_ms == 145_000
    path.write_text(_SMALL.format(quiet_s=10, until_s=20))
    assert draw_world(read_scenario(path), 3).end_ms == 100_000


@pytest.mark.parametrize("kind", ["deploy", "restart", "crash", "stall", "hang", "cut", "slow", "scale", "migrate"])
def test_a_fault_of_one_group_leaves_the_others_alone(tmp_path: Path, kind: str) -> None:
    needed = {"stall": ", length_s = 5", "hang": ", length_s = 5", "cut": ", length_s = 5",
              "slow": ", length_s = 5, by_s = 1", "migrate": ", back_s = 1"}  # fmt: skip
    path = tmp_path / "two.toml"
    told = (
        "title = 'x'\nend_s = 100\ntopics = [{ name = 't', partitions = 4 }]\n"
        "members = [{ count = 3, group = 'g' }, { count = 3, group = 'h', name = 'h' }]\n"
    )
    path.write_text(told)
    before = draw_world(read_scenario(path), 1).members
    count = "" if kind in {"deploy", "restart", "migrate"} else ", count = 2"
    path.write_text(f"{told}faults = [{{ kind = '{kind}', at_s = 20, group = 'h'{count}{needed.get(kind, '')} }}]")
    after = draw_world(read_scenario(path), 1).members
    assert [member for member in after if member.group_id == "g"] == [m for m in before if m.group_id == "g"]
    changed = [member for member in after if member.group_id == "h" and member not in before]
    assert {member.client_id for member in changed} == (
        {"h1-more1", "h1-more2"} if kind == "scale" else {member.client_id for member in changed if member.run == 1}
    )
    assert len({member.client_id for member in changed}) == (3 if not count else 2)


def test_members_are_set_up_as_a_scenario_says_and_those_that_misbehave_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(_SMALL.format(quiet_s=60, until_s="[20, 30]"))
    *decent, zombie = sorted(draw_world(read_scenario(path), 3).members, key=lambda member: member.client_id)
    assert {(member.client_id, member.run) for member in decent} == {("c1", 1), ("c1", 2), ("c2", 1), ("c2", 2)}
    assert {(member.poll_ms, member.callback_ms, member.habit) for member in decent} == {(500, 100, None)}
    assert all(1_000 <= member.process_ms <= 3_000 for member in decent)
    assert (zombie.habit, zombie.habit_every_ms) == ("zombie", 500)
    assert 20_000 <= (zombie.crash_at_ms or 0) <= 30_000
    path.write_text(_SMALL.format(quiet_s=60, until_s=20).replace("zombie", "naughty"))
    with pytest.raises(InputError, match="naughty"):
        read_scenario(path)
