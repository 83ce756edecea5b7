"""Members that an administrator removes, and members that subscribe to other topics."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_udf.members.inputs import Subscribe
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.invariants import violations
from coordinator_udf.simulation.plan import MemberPlan, NetworkPlan, Removal, TopicPlan, WorldPlan
from coordinator_udf.simulation.scenario import draw_world, read_scenario
from coordinator_udf.simulation.shrink import event_list, shrink
from coordinator_udf.simulation.world import World
from tests.conftest import ROOT
from tests.simulation.short_sessions import SHORT_SESSIONS

_SCENARIO = ROOT / "conf" / "scenarios" / "removed-and-resubscribed.toml"
_KINDS: dict[str, dict[str, Any]] = {
    "classic": {},
    "consumer": {"group.protocol": "consumer"},
    "static": {"group.instance.id": "i1"},
    "static consumer": {"group.instance.id": "i1", "group.protocol": "consumer"},
}


def _world(properties: dict[str, Any]) -> WorldPlan:
    protocol = {name: value for name, value in properties.items() if name == "group.protocol"}
    members = (MemberPlan("c0", 1, "g", ("t",), 0, protocol), MemberPlan("c1", 1, "g", ("t",), 100, properties))
    topics = TopicPlan("t", 4, records_s=1.0), TopicPlan("u", 2, records_s=1.0)
    return WorldPlan(
        members,
        topics,
        120_000,
        SHORT_SESSIONS,
        NetworkPlan((1, 5)),
        removals=(Removal(40_000, "c1/1"),),
        quiet_ms=60_000,
    )


def _told(history: History, process: str, since_ms: int) -> list[tuple[str, int]]:
    after = 1_700_000_000_000 + since_ms
    events = (event for event in history.events if event.process == process and event.ts_ms >= after)
    return [(event.event, len(event.partitions)) for event in events]


@pytest.mark.parametrize("kind", _KINDS)
def test_who_is_removed_hears_of_it_loses_what_it_has_and_comes_back(kind: str) -> None:
    history = World(_world(_KINDS[kind]), 1).run()
    told = [one for one in _told(history, "c1/1", 40_000) if one[1]]
    assert told[0] == ("lost", 2)
    assert sum(partitions for event, partitions in told if event == "assigned") == 2
    (removed,) = history.dismissals
    assert (removed.ts_ms, history.process_of[removed.member_id]) == (1_700_000_040_000, "c1/1")
    # The coordinator's timers had nothing to do with it.
    assert history.removals == []
    assert violations(history) == []


def test_who_was_removed_may_read_on_until_it_hears_of_it() -> None:
    plan = draw_world(read_scenario(_SCENARIO), 0)
    history = World(plan, 0).run()
    assert history.dismissals
    assert violations(history) == []
    history.dismissals = []
    assert {one.kind for one in violations(history)} == {"two owners"}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_what_a_member_subscribes_to_later_it_is_given(protocol: str) -> None:
    plan = draw_world(read_scenario(_SCENARIO), 3)
    history = World(plan, 3).run()
    of_protocol = [one for one in plan.members if (one.properties["group.protocol"] == protocol) and one.resubscribes]
    assert of_protocol
    for member in of_protocol:
        assert history.subscribed[member.name] == Subscribe(max(member.resubscribes)[1])
    assert violations(history) == []


@pytest.mark.parametrize("seed", range(3))
def test_what_is_left_out_of_such_a_world_changes_nothing(seed: int) -> None:
    plan = draw_world(read_scenario(_SCENARIO), seed)
    shortened, whole = World(plan, seed).run(), World(plan, seed, skips=False).run()
    assert shortened.events == whole.events
    assert shortened.requests == whole.requests
    assert shortened.commits == whole.commits


def test_removals_and_subscriptions_are_among_the_events_that_show_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the members are that are left out, nobody removes them."""
    monkeypatch.setattr("coordinator_udf.simulation.measures.dismissals", lambda *_: [])
    plan = draw_world(read_scenario(_SCENARIO), 0)
    short = shrink(plan, 0, "two owners")
    assert 1 <= len(short.removals) < len(plan.removals)
    assert {one.process for one in short.removals} <= {member.name for member in short.members}
    assert any("an administrator removes" in line for line in event_list(short))
    lines = "\n".join(event_list(plan))
    assert "subscribes to orders, payments" in lines
