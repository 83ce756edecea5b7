"""Processes that start before the ones go whose place they take: what becomes of a static member's instance id."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from coordinator_udf.simulation.history import ApplicationEvent, History
from coordinator_udf.simulation.invariants import violations
from coordinator_udf.simulation.plan import Cut, Hang, MemberPlan, NetworkPlan, Slow, TopicPlan, WorldPlan
from coordinator_udf.simulation.scenario import draw_world, read_scenario
from coordinator_udf.simulation.world import World
from tests.conftest import ROOT
from tests.simulation.short_sessions import SHORT_SESSIONS

_CLASSIC = {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 3_000}
_KIP_848 = {"group.protocol": "consumer"}


def _overlap(properties: dict[str, Any], again_ms: int | None) -> WorldPlan:
    """Three static members; the second one's next process starts after 30 s, and its first one goes 20 s later."""
    members = [
        MemberPlan(
            f"c{number}",
            1,
            "g",
            ("t",),
            300 * number,
            {**properties, "group.instance.id": f"i{number}"},
            again_ms=again_ms,
        )
        for number in range(3)
    ]
    members.append(replace(members[1], run=2, start_ms=30_000))
    members[1] = replace(members[1], close_at_ms=50_000)
    plan = WorldPlan(tuple(members), (TopicPlan("t", 6, records_s=1.0),), 100_000, SHORT_SESSIONS, NetworkPlan((1, 5)))
    return replace(plan, quiet_ms=40_000)


def _told(history: History, process: str) -> list[ApplicationEvent]:
    return [event for event in history.events if event.process == process]


def test_a_classic_static_member_is_fenced_by_the_next_process_of_its_instance_and_ends() -> None:
    plan = _overlap(_CLASSIC, 5_000)
    history = World(plan, 1).run()
    last = _told(history, "c1/1")
    assert [event.event for event in last] == ["start", "assigned", "error", "close", "lost", "closed"]
    assert last[2].detail == "poll: FencedInstanceIdException: FENCED_INSTANCE_ID"
    # It hears of it with its next heartbeat, and nobody starts it again: the next one has its place.
    assert 30_000 < last[2].ts_ms - plan.start_ms <= 33_100
    assert [event.event for event in _told(history, "c1/2")] == ["start", "assigned"]
    # Until then both read, and what it commits is refused; the group doesn't notice.
    assert _told(history, "c1/2")[1].ts_ms < last[2].ts_ms
    assert [event.event for event in _told(history, "c0/1")] == ["start", "assigned"]
    assert violations(history) == []


def test_what_a_fenced_member_commits_is_refused() -> None:
    plan = _overlap({**_CLASSIC, "heartbeat.interval.ms": 9_000, "auto.commit.interval.ms": 500}, 5_000)
    history = World(plan, 1).run()
    (replaced_ms,) = [event.ts_ms for event in _told(history, "c1/2") if event.event == "assigned"]
    (fenced_ms,) = [event.ts_ms for event in _told(history, "c1/1") if event.event == "error"]
    assert history.refused
    assert all(replaced_ms - 50 <= ts_ms <= fenced_ms for ts_ms, _ in history.refused)
    assert violations(history) == []


def test_two_processes_of_a_classic_instance_that_poll_on_take_its_partitions_from_each_other() -> None:
    """As long as both live: each JoinGroup fences the other, which joins again when its next heartbeat says so."""
    plan = _overlap(_CLASSIC, None)
    history = World(plan, 1).run()
    both = [event for event in history.events if event.client_id == "c1" and event.event in {"assigned", "lost"}]
    while_both_live = [event for event in both if 30_000 <= event.ts_ms - plan.start_ms < 50_000]
    assert sum(event.event == "assigned" for event in while_both_live) >= 8
    assert {event.process for event in while_both_live} == {"c1/1", "c1/2"}
    assert violations(history) == []


def test_a_static_member_of_kip_848_is_refused_until_the_last_process_of_its_instance_is_gone() -> None:
    plan = _overlap(_KIP_848, 5_000)
    history = World(plan, 1).run()
    told = _told(history, "c1/2")
    failed = ["start", "error", "close", "closed"]
    # It is started again five seconds after each time.
    assert [event.event for event in told] == [*failed * 4, "start", "assigned"]
    assert all(
        (event.detail or "").startswith("poll: UnreleasedInstanceIdException: Static member ")
        for event in told
        if event.event == "error"
    )
    starts = [event.ts_ms - plan.start_ms for event in told if event.event == "start"]
    assert all(5_000 < later - earlier < 5_200 for earlier, later in pairwise(starts))
    assert starts[-2] < 50_000 < starts[-1]
    # The first one is none the worse for it.
    assert not [event for event in _told(history, "c1/1") if event.event in {"lost", "error"}]
    assert violations(history) == []


def test_a_static_member_of_kip_848_comes_in_when_the_session_of_a_killed_process_is_over() -> None:
    plan = _overlap(_KIP_848, 5_000)
    first, second, *others = plan.members
    killed = replace(second, close_at_ms=None, crash_at_ms=29_000)
    history = World(replace(plan, members=(first, killed, *others)), 1).run()
    (expelled,) = history.removals
    failed_ms = [event.ts_ms for event in _told(history, "c1/2") if event.event == "error"]
    assert failed_ms[-1] < expelled.ts_ms < failed_ms[-1] + 5_100
    assert _told(history, "c1/2")[-1].event == "assigned"
    assert violations(history) == []


def test_a_static_member_of_kip_848_that_polls_on_when_it_was_refused_does_nothing_for_good() -> None:
    plan = _overlap(_KIP_848, None)
    history = World(plan, 1).run()
    assert [event.event for event in _told(history, "c1/2")] == ["start", "error"]
    assert [(one.kind, one.detail) for one in violations(history)] == [
        ("waiting", "c1/2 waits at the end, long after the last fault")
    ]


@pytest.mark.parametrize("again_ms", [2_000, 7_000])
def test_a_process_that_is_started_again_and_again_waits(again_ms: int) -> None:
    plan = _overlap(_KIP_848, again_ms)
    first, second, *others = plan.members
    history = World(
        replace(plan, members=(first, replace(second, close_at_ms=None), *others), quiet_ms=30_000), 1
    ).run()
    assert {(one.kind, one.detail) for one in violations(history)} == {
        ("waiting", "c1/2 waits at the end, long after the last fault")
    }


@pytest.mark.parametrize("kind", ["hangs", "cuts"])
def test_who_was_replaced_is_excused_also_if_the_next_process_never_learns_that_it_joined(kind: str) -> None:
    plan = _overlap(_CLASSIC, 5_000)
    first, second, third, after = plan.members
    away: dict[str, Any] = {kind: ((Hang if kind == "hangs" else Cut)(29_000, 40_000),)}
    killed = replace(after, slow=(Slow(30_000, 60_000, 800),), crash_at_ms=32_500)
    members = first, replace(second, close_at_ms=None, **away), third, killed
    history = World(replace(plan, members=members, end_ms=150_000), 1).run()
    assert {one.by_api for one in history.replacements} == {"JoinGroup"}
    assert not [event for event in _told(history, "c1/2") if event.event == "assigned"]
    assert violations(history) == []


@pytest.mark.parametrize("end", ["close_at_ms", "crash_at_ms"])
def test_a_process_that_was_to_end_while_it_waits_to_be_started_again_is_not(end: str) -> None:
    plan = _overlap(_KIP_848, 5_000)
    *others, second = plan.members
    ends: dict[str, Any] = {end: 33_000}
    history = World(replace(plan, members=(*others, replace(second, **ends)), quiet_ms=60_000), 1).run()
    assert [event.event for event in _told(history, "c1/2")] == ["start", "error", "close", "closed"]
    assert violations(history) == []


@pytest.mark.parametrize("seed", range(4))
def test_stretches_are_left_out_only_when_nobody_is_to_be_started_again(seed: int) -> None:
    plan = draw_world(read_scenario(ROOT / "conf" / "scenarios" / "surge-deploy.toml"), seed)
    whole, short = World(plan, seed, skips=False).run(), World(plan, seed).run()
    assert whole.events == short.events
    assert whole.requests == short.requests
    assert any(event.event == "error" for event in short.events)
