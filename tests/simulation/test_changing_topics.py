"""Topics that come and go in a world, under subscriptions to their names and to patterns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.invariants import violations
from coordinator_udf.simulation.plan import MemberPlan, NetworkPlan, TopicPlan, WorldPlan
from coordinator_udf.simulation.scenario import draw_world, read_scenario
from coordinator_udf.simulation.world import World
from tests.conftest import ROOT
from tests.simulation.short_sessions import SHORT_SESSIONS

_CLASSIC = {"session.timeout.ms": 10_000, "max.poll.interval.ms": 30_000, "metadata.max.age.ms": 10_000}
_KIP_848 = {"group.protocol": "consumer", "max.poll.interval.ms": 30_000}
_DELETED_MS = 70_000


def _plan(properties: dict[str, Any], regex: str | None = None, **changes: Any) -> WorldPlan:
    """Three members; t-2 comes after 40 s, and t-1 is deleted after 70 s."""
    members = tuple(
        MemberPlan(f"c{number}", 1, "g", ("t-1", "t-2"), 500 * number, properties, regex) for number in range(3)
    )
    topics = (
        TopicPlan("t-1", 4, records_s=1.0),
        TopicPlan("u", 3, records_s=1.0),
        TopicPlan("t-2", 3, 40_000, records_s=1.0),
        TopicPlan("t-1", 0, _DELETED_MS),
    )
    settings = {**SHORT_SESSIONS, "offsets.topic.partition.check": True}
    plan = WorldPlan(members, topics, 180_000, settings, NetworkPlan((1, 5)), quiet_ms=100_000, fetches_fail=True)
    return replace(plan, **changes)


def _given(history: History) -> set[str]:
    return {partition.topic for event in history.events if event.event == "assigned" for partition in event.partitions}


@pytest.mark.parametrize("properties", [_CLASSIC, _KIP_848], ids=["classic", "consumer"])
def test_a_pattern_matches_topics_that_come_and_no_others(properties: dict[str, Any]) -> None:
    history = World(_plan(properties, "t-.*"), 1).run()
    assert _given(history) == {"t-1", "t-2"}
    assert violations(history) == []


@pytest.mark.parametrize("regex", [None, "t-.*"])
@pytest.mark.parametrize("fetches_fail", [False, True])
@pytest.mark.parametrize("properties", [_CLASSIC, _KIP_848], ids=["classic", "consumer"])
def test_what_only_repeats_itself_may_be_left_out_where_topics_go(
    properties: dict[str, Any], regex: str | None, fetches_fail: bool
) -> None:
    """A leader that was long about to join sees only after that what it has learned of topics meanwhile."""
    plan = _plan(properties, regex, fetches_fail=fetches_fail)
    whole, short = World(plan, 1, skips=False).run(), World(plan, 1).run()
    assert whole.events == short.events
    assert whole.requests == short.requests
    assert len(short.decisions) < len(whole.decisions)


def test_a_deleted_topic_holds_a_classic_group_up_that_commits_automatically() -> None:
    plan = _plan(_CLASSIC)
    history = World(plan, 1).run()
    told = [
        (event.event, event.ts_ms - plan.start_ms - _DELETED_MS)
        for event in history.events
        if event.ts_ms > plan.start_ms + _DELETED_MS
    ]
    # The leader tries to commit for as long as max.poll.interval.ms before it joins; then the others do, who hear of
    # it, and are expelled for it.
    assert told[0][0] == "revoked"
    assert 30_000 < told[0][1] < 31_500
    lost_ms = [at_ms for event, at_ms in told if event == "lost"]
    assert len(lost_ms) == 2
    assert all(60_000 < at_ms < 65_000 for at_ms in lost_ms)
    assert violations(history) == []


@pytest.mark.parametrize(
    "properties", [{**_CLASSIC, "enable.auto.commit": "false"}, _KIP_848], ids=["no automatic commits", "consumer"]
)
def test_a_deleted_topic_holds_no_other_group_up(properties: dict[str, Any]) -> None:
    plan = _plan(properties)
    history = World(plan, 1).run()
    last_ms = max(event.ts_ms for event in history.events) - plan.start_ms
    assert _DELETED_MS < last_ms < _DELETED_MS + 10_000
    assert violations(history) == []


def test_the_scenario_has_topics_that_come_go_and_come_again() -> None:
    scenario = read_scenario(ROOT / "conf" / "scenarios" / "topics-come-and-go.toml")
    plan = draw_world(scenario, 0)
    assert plan.fetches_fail
    assert {topic.name for topic in plan.topics if 0 < topic.at_ms < 61_000} == {"orders-2", "orders-3"}
    assert [name for _, name in plan.topics_made_again()] == ["orders-1"]
    assert _given(World(plan, 0).run()) == {"orders-1", "orders-2", "orders-3"}


def test_partitions_that_classic_members_neednt_know_of_yet_need_no_owner_yet() -> None:
    """Classic members see that a topic grew when their metadata is five minutes old, the default."""

    def world(end_ms: int, **properties: Any) -> History:
        member = MemberPlan("c", 1, "g", ("t",), 0, {"session.timeout.ms": 10_000, **properties})
        topics = TopicPlan("t", 2), TopicPlan("t", 4, 30_000)
        return World(WorldPlan((member,), topics, end_ms, SHORT_SESSIONS, quiet_ms=60_000), 1).run()

    def given(history: History) -> set[int]:
        return {one.partition for event in history.events if event.event == "assigned" for one in event.partitions}

    def unsettled(history: History) -> list[str]:
        return [one.detail.split()[0] for one in violations(history) if one.kind == "unsettled"]

    early = world(120_000)
    assert given(early) == {0, 1}
    assert violations(early) == []
    # What it knows of counts.
    assert unsettled(replace(early, events=early.events[:1])) == ["t-0", "t-1"]
    # All of them count where members ask sooner, or when the time is over.
    for late in (world(120_000, **{"metadata.max.age.ms": 20_000}), world(500_000)):
        assert given(late) == {0, 1, 2, 3}
        assert unsettled(replace(late, events=late.events[:1])) == ["t-0", "t-1", "t-2", "t-3"]


@pytest.mark.parametrize("age_ms", [5_000, 300_000])
def test_a_topic_that_is_made_again_needs_no_owner_before_members_hear_of_it(age_ms: int) -> None:
    """They hear at once that it was deleted, by their fetches, and of the next one when their metadata is old."""
    properties = {"session.timeout.ms": 10_000, "enable.auto.commit": False, "metadata.max.age.ms": age_ms}
    members = tuple(MemberPlan(f"c{number}", 1, "g", (), 0, properties, regex="t.*") for number in range(2))
    topics = TopicPlan("t0", 2), TopicPlan("t1", 2), TopicPlan("t0", 0, 30_000), TopicPlan("t0", 2, 45_000)
    plan = WorldPlan(members, topics, 120_000, SHORT_SESSIONS, quiet_ms=60_000, fetches_fail=True)
    history = World(plan, 1).run()
    had = {process: set[str]() for process in ("c0/1", "c1/1")}
    for event in history.events:
        topics_of = {partition.topic for partition in event.partitions}
        had[event.process] = topics_of if event.event == "assigned" else had[event.process] - topics_of
    assert ("t0" in set.union(*had.values())) == (age_ms == 5_000)
    assert violations(history) == []
