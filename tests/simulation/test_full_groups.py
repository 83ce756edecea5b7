"""Groups that are as large as they may be: who is turned away, and what Kafka's coordinator does at that limit."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from coordinator_udf.simulation.full_groups import NO_WAY_BACK, OVER_FULL, PUT_OUT
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.invariants import violations
from coordinator_udf.simulation.plan import MemberPlan, NetworkPlan, TopicPlan, WorldPlan
from coordinator_udf.simulation.scenario import draw_world, read_scenario
from coordinator_udf.simulation.world import World
from tests.conftest import ROOT
from tests.simulation.short_sessions import SHORT_SESSIONS

_CLASSIC: dict[str, Any] = {
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 1_000,
    "max.poll.interval.ms": 20_000,
}
_PROTOCOLS = {"classic": _CLASSIC, "consumer": {"group.protocol": "consumer"}}


def _member(name: str, start_ms: int, properties: dict[str, Any], **other: Any) -> MemberPlan:
    return MemberPlan(name, 1, "g", ("t",), start_ms, properties, **{"again_ms": 2_000, **other})


def _static(name: str, start_ms: int, properties: dict[str, Any], **other: Any) -> MemberPlan:
    return _member(name, start_ms, {**properties, "group.instance.id": name}, **other)


def _run(size: int, *members: MemberPlan, end_ms: int = 120_000) -> History:
    settings = {**SHORT_SESSIONS, "group.max.size": size, "group.consumer.max.size": size}
    plan = WorldPlan(members, (TopicPlan("t", 6, records_s=1.0),), end_ms, settings, NetworkPlan((1, 5)))
    return World(replace(plan, quiet_ms=40_000), 1).run()


def _told(history: History, process: str) -> list[tuple[int, str]]:
    return [(one.ts_ms - 1_700_000_000_000, one.event) for one in history.events if one.process == process]


def test_nobody_waits_for_who_was_given_an_id_and_is_turned_away_again_and_again() -> None:
    leave = _member("a", 0, _CLASSIC, crash_at_ms=19_500), _member("b", 100, _CLASSIC, close_at_ms=20_000)
    times_ms = {"c": 20_100, "d": 20_100, "e": 20_101}
    come = tuple(_member(name, at_ms, _CLASSIC, again_ms=None) for name, at_ms in times_ms.items())
    settings = {**SHORT_SESSIONS, "group.max.size": 2}
    history = World(WorldPlan((*leave, *come), (TopicPlan("t", 4),), 60_000, settings, NetworkPlan((2, 2))), 1).run()
    assert len([one for one in history.turned_away if one.process == "e/1"]) > 100
    assert "didn't wait" not in {one.kind for one in violations(history)}


def test_who_is_turned_away_is_given_the_id_of_its_plan_when_it_comes_in() -> None:
    third = _member("c", 1_000, _CLASSIC, member_ids=("c-first", "c-second"))
    history = _run(2, _member("a", 0, _CLASSIC), _member("b", 100, _CLASSIC, close_at_ms=60_000), third)
    assert len([one for one in history.turned_away if one.process == "c/1"]) > 10
    assert [key for key, name in history.process_of.items() if name == "c/1"] == ["c-first"]


@pytest.mark.parametrize("protocol", _PROTOCOLS)
def test_who_is_turned_away_from_a_full_group_comes_in_when_there_is_room(protocol: str) -> None:
    of_all = _PROTOCOLS[protocol]
    third = _member("c", 1_000, of_all)
    history = _run(2, _member("a", 0, of_all), _member("b", 100, of_all, close_at_ms=60_000), third)
    starts = [at_ms for at_ms, event in _told(history, "c/1") if event == "start"]
    assert all(2_000 <= later - earlier < 2_200 for earlier, later in pairwise(starts))
    assert 60_000 < starts[-1] < 62_300
    assert _told(history, "c/1")[-1][1] == "assigned"
    assert next(one.detail for one in history.events if one.event == "error") == (
        "poll: GroupMaxSizeReachedException: "
        + (
            "GROUP_MAX_SIZE_REACHED"
            if protocol == "classic"
            else "The consumer group has reached its maximum capacity of 2 members."
        )
    )
    assert violations(history) == []
    # So long as nobody goes it waits, and that is how it should be.
    assert violations(_run(2, _member("a", 0, of_all), _member("b", 100, of_all), third)) == []


def test_a_member_of_kip_848_that_polls_on_when_it_was_turned_away_does_nothing_for_good() -> None:
    of_all = _PROTOCOLS["consumer"]
    third = _member("c", 1_000, of_all, again_ms=None)
    history = _run(2, _member("a", 0, of_all), _member("b", 100, of_all, close_at_ms=60_000), third)
    assert [(one.kind, one.detail) for one in violations(history)] == [
        ("waiting", "c/1 waits at the end, long after the last fault")
    ]


@pytest.mark.parametrize("protocol", _PROTOCOLS)
def test_a_static_member_that_is_restarted_has_no_way_back_into_its_own_place_in_a_full_group(protocol: str) -> None:
    """KAFKA-20601 for a group of KIP-848, in 4.3.1 too; a classic group has no issue of its own."""
    of_all = _PROTOCOLS[protocol]
    first, second = _static("a", 0, of_all), _static("b", 100, of_all, close_at_ms=30_000)
    back = replace(_static("b", 31_000, of_all), run=2)
    history = _run(2, first, second, back)
    (found,) = violations(history)
    assert (found.kind, found.detail) == (
        NO_WAY_BACK, "b/2 is turned away from a full group that its instance is a member of"
    )  # fmt: skip
    # It comes in when the session of its own last process is over, and the group was assigned anew for that.
    (expelled,) = history.removals
    assigned_ms = next(at_ms for at_ms, event in _told(history, "b/2") if event == "assigned")
    assert expelled.ts_ms - 1_700_000_000_000 < assigned_ms
    # With a place to spare nothing happens at all.
    roomy = _run(3, first, second, back)
    assert violations(roomy) == []
    assert roomy.removals == []


def test_a_member_is_put_out_by_others_that_join_before_it_and_its_group_waits_for_it_all_the_same() -> None:
    late = {**_CLASSIC, "heartbeat.interval.ms": 3_000}
    members = [
        _member("a", 0, _CLASSIC),
        _member("b", 100, late),
        _member("c", 20_000, _CLASSIC),
        _member("d", 20_050, _CLASSIC),
    ]
    history = _run(3, *members)
    kinds = [(one.kind, one.detail.split(",")[0]) for one in violations(history)]
    assert (PUT_OUT, "b/1 was a member") in kinds
    assert {kind for kind, _ in kinds} == {PUT_OUT}
    put_out_ms = next(at_ms for at_ms, event in _told(history, "b/1") if event == "error")
    (assigned_ms,) = [at_ms for at_ms, event in _told(history, "c/1") if event == "assigned"]
    assert 20_000 < put_out_ms < 24_000
    # All that are left have joined by then; the join phase ends when max.poll.interval.ms is over.
    assert 40_000 < assigned_ms < 40_200


def test_static_members_that_are_away_keep_their_places_beside_as_many_others_as_may_join() -> None:
    patient = {"session.timeout.ms": 30_000, "heartbeat.interval.ms": 1_000, "max.poll.interval.ms": 10_000}
    history = _run(
        3,
        _static("a", 0, patient),
        _static("away", 500, patient, crash_at_ms=25_000),
        _member("leaves", 1_000, patient, close_at_ms=30_000),
        _member("c", 29_500, patient),
        _member("d", 29_600, patient),
    )
    assert [(one.kind, one.detail) for one in violations(history)] == [
        (OVER_FULL, "the group has 4 members, expected 3 at most")
    ]


@pytest.mark.parametrize("seed", range(3))
def test_what_is_left_out_of_a_world_of_full_groups_changes_nothing(seed: int) -> None:
    plan = draw_world(read_scenario(ROOT / "conf" / "scenarios" / "full-groups.toml"), seed)
    shortened, whole = World(plan, seed).run(), World(plan, seed, skips=False).run()
    assert shortened.events == whole.events
    assert shortened.requests == whole.requests
    assert violations(shortened) == violations(whole)


def test_a_member_that_is_put_out_and_polls_on_is_not_an_owner() -> None:
    """Each of its polls throws, so that it reads nothing of what it isn't told that it has lost."""
    cooperative = _CLASSIC | {
        "partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    }
    slow = cooperative | {"heartbeat.interval.ms": 3_000}
    members = [_member("a", 0, cooperative), _member("b", 100, slow, again_ms=None)]
    newcomers = [_member(name, 20_000, cooperative) for name in ("c", "d")]
    history = _run(3, *members, *newcomers)
    kinds = {one.kind for one in violations(history)}
    assert kinds == {PUT_OUT}
    told = _told(history, "b/1")
    first_error_ms = next(at_ms for at_ms, event in told if event == "error")
    lost_ms = next(at_ms for at_ms, event in told if event == "lost")
    (assigned_ms,) = [at_ms for at_ms, event in _told(history, "c/1") if event == "assigned" and at_ms < lost_ms]
    assert first_error_ms < assigned_ms < lost_ms


def test_a_classic_group_is_full_for_members_of_kip_848_when_it_would_be_as_one_of_theirs() -> None:
    settings = {**SHORT_SESSIONS, "group.consumer.max.size": 2}
    members = [_member(name, number * 100, _CLASSIC) for number, name in enumerate("ab")]
    newcomer = _member("c", 20_000, _PROTOCOLS["consumer"])
    plan = WorldPlan(
        (*members, newcomer), (TopicPlan("t", 6),), 120_000, settings, NetworkPlan((1, 5)), quiet_ms=40_000
    )
    history = World(plan, 1).run()
    assert {one.process for one in history.turned_away} == {"c/1"}
    assert violations(history) == []
    # A classic one finds a place.
    history = World(replace(plan, members=(*members, _member("c", 20_000, _CLASSIC))), 1).run()
    assert history.turned_away == []


def test_what_only_those_want_that_find_no_place_needs_no_owner() -> None:
    of_all = _PROTOCOLS["consumer"]
    members = [_member("a", 0, of_all), _member("b", 100, of_all)]
    third = replace(_member("c", 10_000, of_all, again_ms=None), topics=("u",))
    settings = {**SHORT_SESSIONS, "group.consumer.max.size": 2}
    topics = (TopicPlan("t", 6), TopicPlan("u", 2))
    plan = WorldPlan((*members, third), topics, 120_000, settings, NetworkPlan((1, 5)), quiet_ms=40_000)
    assert violations(World(plan, 1).run()) == []
    # With room for it, somebody is to have them.
    roomy = replace(plan, settings=SHORT_SESSIONS)
    assert "u" in {place.topic for event in World(roomy, 1).run().events for place in event.partitions}
