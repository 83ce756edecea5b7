"""A coordinator that stands still for a while: what comes to it waits, and its timers are late."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coordinator_udf.groups.decisions import PLACES
from coordinator_udf.groups.model.classic_states import GroupEvent
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.invariants import violations
from coordinator_udf.simulation.plan import Failover, MemberPlan, NetworkPlan, Pause, Removal, TopicPlan, WorldPlan
from coordinator_udf.simulation.shrink import event_list
from coordinator_udf.simulation.world import World
from tests.simulation.short_sessions import SHORT_SESSIONS

_TRANSITION = PLACES["transitions"]
_CLASSIC = {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 1_000}
_CONSUMER = {"group.protocol": "consumer"}
_LONG = Pause(30_000, 15_000)


def _plan(properties: dict[str, Any] = _CLASSIC, **changes: Any) -> WorldPlan:
    members = tuple(MemberPlan(f"c{number}", 1, "g", ("t",), 300 * number, properties) for number in range(2))
    plan = WorldPlan(members, (TopicPlan("t", 4, records_s=2.0),), 90_000, SHORT_SESSIONS, NetworkPlan((2, 2)))
    return replace(plan, quiet_ms=30_000, keeps_requests=True, **changes)


def _run(plan: WorldPlan) -> History:
    return World(plan, 1).run()


def _rules_ms(plan: WorldPlan, history: History, rule: GroupEvent) -> list[int]:
    """Returns when a rule was applied to members, in milliseconds from the world's start."""
    return [
        row[_TRANSITION["ts"]] - plan.start_ms
        for row in history.transitions()
        # Those that say who is in the group tell of what it did to that.
        if row[_TRANSITION["rule"]] == rule and row[_TRANSITION["members"]] is None
    ]


@pytest.mark.parametrize("properties", [_CLASSIC, _CONSUMER])
def test_nothing_is_answered_in_a_pause_and_all_that_waited_after_it(properties: dict[str, Any]) -> None:
    plan = _plan(properties, pauses=(Pause(30_000, 4_000),))
    history = _run(plan)
    arrived = [one for one in history.answered if 30_000 <= one.arrived_ms - plan.start_ms < 34_000]
    assert {one.api for one in arrived} == {
        "OffsetCommit",
        "ConsumerGroupHeartbeat" if properties == _CONSUMER else "Heartbeat",
    }
    assert {one.answered_ms - plan.start_ms for one in arrived} == {34_000}
    # Too short for a session: nobody notices.
    assert history.events == _run(_plan(properties)).events
    assert violations(history) == []


@pytest.mark.parametrize("properties", [_CLASSIC, _CONSUMER])
def test_whose_session_is_over_in_a_pause_is_out_or_heard_first_by_chance(properties: dict[str, Any]) -> None:
    plan = _plan(properties, pauses=(_LONG,))
    outs = set()
    for seed in range(40):
        history = World(plan, seed).run()
        out_ms = _rules_ms(plan, history, GroupEvent.SESSION_EXPIRED)
        assert set(out_ms) <= {45_000}
        assert [event.event for event in history.events].count("lost") >= len(out_ms)
        assert history.is_stable("c0/1")
        assert history.is_stable("c1/1")
        assert violations(history) == []
        outs.add(len(out_ms))
    assert outs == {0, 1, 2}


@pytest.mark.parametrize("properties", [_CLASSIC, _CONSUMER])
def test_a_micro_batch_that_takes_long_ends_no_session(properties: dict[str, Any]) -> None:
    """Muster's requests have the times at which they came, whenever they are handled."""
    plan = _plan(properties, pauses=(Pause(30_000, 8_000),), cadence_ms=500)
    history = _run(plan)
    assert not _rules_ms(plan, history, GroupEvent.SESSION_EXPIRED)
    answered = {one.answered_ms - plan.start_ms for one in history.answered}
    assert not [at_ms for at_ms in answered if 30_000 < at_ms < 38_000]
    assert 38_000 in answered
    assert violations(history) == []


@pytest.mark.parametrize("properties", [_CLASSIC, _CONSUMER])
@pytest.mark.parametrize("at_ms", [32_000, 43_000, 45_000])
def test_a_coordinator_that_goes_away_in_a_pause_answers_who_waits_and_fires_no_timer(
    at_ms: int, properties: dict[str, Any]
) -> None:
    plan = _plan(properties, pauses=(_LONG,), failovers=(Failover(at_ms, 1_000),))
    history = _run(plan)
    came = (one for one in history.answered if 30_000 <= one.arrived_ms - plan.start_ms < at_ms)
    waited = [one for one in came if one.api != "FindCoordinator"]
    # What came on connections that were made meanwhile is sent when their handshakes are over.
    answered_ms = {one.answered_ms - plan.start_ms for one in waited}
    assert at_ms in answered_ms
    assert answered_ms <= {at_ms, at_ms + 4}
    # It is there again after a second, and doesn't stand still: the broker that pauses has it no more.
    assert [one for one in history.answered if at_ms + 1_000 < one.answered_ms - plan.start_ms < at_ms + 5_000]
    # Who is loaded has a session anew.
    assert not _rules_ms(plan, history, GroupEvent.SESSION_EXPIRED)
    assert violations(history) == []


@pytest.mark.parametrize("failovers", [(), (Failover(44_000, 500),)])
def test_a_coordinator_hears_of_topics_when_it_goes_on_or_away(failovers: tuple[Failover, ...]) -> None:
    topics = TopicPlan("t", 4, records_s=2.0), TopicPlan("t", 6, 42_000, records_s=2.0)
    plan = _plan(_CONSUMER, pauses=(_LONG,), failovers=failovers, topics=topics)
    history = _run(plan)
    assert _rules_ms(plan, history, GroupEvent.SESSION_EXPIRED) in ([], [45_000], [45_000, 45_000])
    in_pause = [row for row in history.transitions() if 30_000 < row[_TRANSITION["ts"]] - plan.start_ms < 44_000]
    assert in_pause == []
    assert history.partitions["t"] == 6
    assert violations(history) == []


def test_pauses_that_overlap_end_with_the_last() -> None:
    plan = _plan(pauses=(Pause(30_000, 4_000), Pause(31_000, 5_000), Pause(32_000, 1_000)))
    history = _run(plan)
    arrived = [one for one in history.answered if 30_000 <= one.arrived_ms - plan.start_ms < 36_000]
    assert {one.answered_ms - plan.start_ms for one in arrived} == {36_000}


def test_a_coordinator_that_is_away_does_not_pause() -> None:
    away = (Failover(30_000, 2_000),)
    assert _run(_plan(failovers=away, pauses=(Pause(31_000, 20_000),))).events == _run(_plan(failovers=away)).events


@pytest.mark.parametrize(("failovers", "at_ms"), [((), 34_000), ((Failover(32_000, 1_000),), 32_000)])
def test_an_administrator_waits_too(failovers: tuple[Failover, ...], at_ms: int) -> None:
    plan = _plan(pauses=(Pause(30_000, 4_000),), removals=(Removal(31_000, "c0/1"),), failovers=failovers)
    history = _run(plan)
    assert [one.arrived_ms - plan.start_ms for one in history.answered if one.api == "LeaveGroup"] == [at_ms]
    assert violations(history) == []


def test_one_shard_pauses_and_the_others_answer() -> None:
    plan = _plan(shards=3)
    members = tuple(
        replace(member, group_id=group_id, client_id=f"{group_id}{member.client_id}")
        for group_id in ("orders", "billing")
        for member in plan.members
    )
    calm = replace(plan, members=members)
    disturbed = replace(calm, pauses=(replace(_LONG, shard=1),))
    before, after = ({event for event in _run(one).events if event.group_id == "orders"} for one in (calm, disturbed))
    assert before == after
    assert "   30.000 s  shard 1 pauses for 15000 ms" in list(event_list(disturbed))
    answered = [one for one in _run(disturbed).answered if 30_002 < one.answered_ms - plan.start_ms < 45_000]
    assert {one.group_id for one in answered if one.api != "FindCoordinator"} == {"orders"}


@pytest.mark.parametrize("cadence_ms", [0, 500])
def test_stretches_are_left_out_around_pauses(cadence_ms: int) -> None:
    plan = replace(_plan(pauses=(_LONG,), cadence_ms=cadence_ms), end_ms=1_800_000, keeps_requests=False)
    short, whole = World(plan, 1).run(), World(plan, 1, skips=False).run()
    assert (short.events, short.requests, short.commits) == (whole.events, whole.requests, whole.commits)
