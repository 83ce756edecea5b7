"""Worlds whose coordinator has several shards: groups are spread as Kafka does it, and shards go away one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest

from coordinator_udf.groups.decisions import PLACES
from coordinator_udf.groups.model.classic_states import GroupEvent
from coordinator_udf.protocol.partitioner import partition_for
from coordinator_udf.simulation import shrink as shrinking
from coordinator_udf.simulation.history import ApplicationEvent, History
from coordinator_udf.simulation.invariants import violations
from coordinator_udf.simulation.plan import Failover, MemberPlan, NetworkPlan, Pause, TopicPlan, WorldPlan
from coordinator_udf.simulation.scenario import draw_world, read_scenario
from coordinator_udf.simulation.scenario_fields import Scenario
from coordinator_udf.simulation.shrink import event_list, shrink
from coordinator_udf.simulation.tasks import world_tables
from coordinator_udf.simulation.violation import Violation
from coordinator_udf.simulation.world import World
from tests.conftest import ROOT
from tests.nightly import some_or_many
from tests.simulation import shard_mutations
from tests.simulation.drawn_scenarios import drawn_scenarios
from tests.simulation.short_sessions import SHORT_SESSIONS

_TRANSITION = PLACES["transitions"]
#: One group on each of three shards.
_GROUPS = {"orders": "classic", "billing": "consumer", "mail": "classic"}
_AWAY = Failover(30_000, 4_000, shard=1)


def _plan(*failovers: Failover, shards: int = 3) -> WorldPlan:
    members = tuple(
        MemberPlan(f"{group}{number}", 1, group, ("t",), 300 * number, {"group.protocol": protocol})
        for group, protocol in _GROUPS.items()
        for number in range(2)
    )
    topics = (TopicPlan("t", 4, records_s=2.0),)
    return WorldPlan(members, topics, 60_000, SHORT_SESSIONS, NetworkPlan((2, 2)), failovers, shards=shards)


def _of_group(history: History, group_id: str) -> list[ApplicationEvent]:
    return [event for event in history.events if event.group_id == group_id]


def _of_several_groups(count: int) -> Iterator[Scenario]:
    for scenario in drawn_scenarios(range(count)):
        if len({family.group for family in scenario.members}) > 1:
            # Where latencies are drawn, the order of what shards do in one millisecond says whose is whose.
            yield msgspec.structs.replace(
                scenario,
                faults=tuple(msgspec.structs.replace(fault, shard=None) for fault in scenario.faults),
                network=msgspec.structs.replace(scenario.network, latency_ms=(3, 3)),
            )


def test_each_of_these_groups_has_a_shard_of_its_own() -> None:
    assert [partition_for(group, 3) for group in _GROUPS] == [0, 1, 2]


@pytest.mark.parametrize("scenario", list(_of_several_groups(some_or_many(10, 200))), ids=lambda one: one.title)
def test_members_make_no_difference_between_one_shard_and_three_that_go_away_together(scenario: Scenario) -> None:
    one, three = (World(draw_world(msgspec.structs.replace(scenario, shards=shards), 0), 0).run() for shards in (1, 3))
    assert (one.events, one.requests, one.commits) == (three.events, three.requests, three.commits)
    assert len(one.decided_by_each) == 1
    assert len(three.decided_by_each) == 3


def test_where_a_shard_goes_away_only_its_own_groups_notice() -> None:
    calm, disturbed = World(_plan(), 1).run(), World(_plan(_AWAY), 1).run()
    noticed = {
        row[_TRANSITION["group_id"]] for row in disturbed.transitions() if row[_TRANSITION["rule"]] == GroupEvent.LOADED
    }
    assert noticed == {"billing"}
    # Its two members look for it again and again while it is away; the others have no cause to.
    assert calm.requests["FindCoordinator"] == len(calm.always_heard) == 6
    assert disturbed.requests["FindCoordinator"] > 8
    for group_id in ("orders", "mail"):
        assert _of_group(disturbed, group_id) == _of_group(calm, group_id)
    assert violations(calm) == violations(disturbed) == []


def test_stretches_are_left_out_though_a_shard_goes_away() -> None:
    plan = _plan(_AWAY)
    short, whole = World(plan, 1).run(), World(plan, 1, skips=False).run()
    assert (short.events, short.requests, short.commits) == (whole.events, whole.requests, whole.commits)


def test_what_a_shard_decided_has_its_number_in_tables() -> None:
    history = World(_plan(_AWAY), 1).run()
    tables = world_tables("several/1", history, [])
    for name in ("group_transitions", "consumer_offsets", "group_responses"):
        table = tables[name]
        told = zip(table["group_id"].to_pylist(), table["partition"].to_pylist(), strict=True)
        assert {one for one in told if one[0] is not None} == {("orders", 0), ("billing", 1), ("mail", 2)}, name


def test_an_acknowledged_commit_that_one_shard_loses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    shard_mutations.load_without_offsets(monkeypatch)
    found = violations(World(_plan(_AWAY), 1).run())
    assert {(one.kind, one.group_id) for one in found} == {("lost commit", "billing")}


def test_an_event_list_says_which_shard_goes_away_and_where_groups_are() -> None:
    lines = list(event_list(_plan(_AWAY)))
    assert "    0.000 s  the coordinator has 3 shards, with group orders in 0, billing in 1, mail in 2" in lines
    assert "   30.000 s  shard 1 is away for 4000 ms" in lines


def test_what_one_shard_shows_is_told_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(plan: WorldPlan, _: int) -> list[Violation]:
        return [Violation(0, "billing", "waiting", "so it is")] if plan.failovers else []

    monkeypatch.setattr(shrinking, "run", run)
    left = shrink(_plan(_AWAY), 1, "waiting")
    assert (left.shards, left.failovers) == (1, (Failover(30_000, 4_000, shard=0),))


def test_what_all_shards_do_at_once_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(plan: WorldPlan, _: int) -> list[Violation]:
        return [Violation(0, "billing", "waiting", "so it is")] if plan.failovers and plan.pauses else []

    monkeypatch.setattr(shrinking, "run", run)
    away, pauses = zip(*((Failover(30_000, 4_000, shard=it), Pause(20_000, 4_000, it)) for it in range(3)), strict=True)
    left = list(event_list(shrink(replace(_plan(*away), pauses=pauses), 1, "waiting")))
    assert [line for line in left if "the coordinator" in line] == [
        "   30.000 s  the coordinator is away for 4000 ms",
        "   20.000 s  the coordinator pauses for 4000 ms",
    ][::-1]


def test_a_part_that_is_given_up_before_all_is_lost_is_given_up_twice() -> None:
    """After a pause the answers to a commit and a heartbeat come at once: one gives a partition up, the other all."""
    scenario = read_scenario(ROOT / "conf" / "scenarios" / "several-shards.toml")
    assert {one.kind for one in violations(World(draw_world(scenario, 3884), 3884).run())} == {"given up twice"}


def test_shards_go_away_one_by_one_in_the_scenario_that_is_shipped() -> None:
    scenario = read_scenario(ROOT / "conf" / "scenarios" / "several-shards.toml")
    plan = draw_world(scenario, 0)
    assert plan.shards == 3
    assert {failover.shard for failover in plan.failovers} == {0, 1, 2}
    assert {partition_for(member.group_id, 3) for member in plan.members} == {0, 1, 2}
    assert len({failover.at_ms for failover in plan.failovers if failover.shard == 0}) > 1
