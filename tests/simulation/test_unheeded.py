"""What members do without a cause is told; what Kafka's own do that looks like it isn't."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from coordinator_udf.simulation.invariants import violations
from coordinator_udf.simulation.plan import Failover, MemberPlan, NetworkPlan, Stall, TopicPlan, WorldPlan
from coordinator_udf.simulation.scenario import draw_world, read_scenario
from coordinator_udf.simulation.world import World
from tests.conftest import ROOT
from tests.simulation import member_mutations
from tests.simulation.short_sessions import SHORT_SESSIONS

_KINDS = {"sent without cause", "sent too seldom", "error not told", "fell silent", "standstill", "wrong callback"}


def _told(
    *members: MemberPlan,
    settings: Mapping[str, Any] | None = None,
    failovers: tuple[Failover, ...] = (),
    latency_ms: int = 5,
    cadence_ms: int = 0,
) -> list[str]:
    topics, network = (TopicPlan("t", 4, records_s=5.0),), NetworkPlan((latency_ms, latency_ms))
    plan = WorldPlan(members, topics, 60_000, settings or {}, network, failovers=failovers, cadence_ms=cadence_ms)
    return [f"{one.kind}: {one.detail}" for one in violations(World(plan, 1).run()) if one.kind in _KINDS]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize(
    "properties",
    [
        {"auto.commit.interval.ms": 0},
        {"auto.commit.interval.ms": 10},
        {"retry.backoff.ms": 1, "retry.backoff.max.ms": 1, "reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 1},
        {"heartbeat.interval.ms": 5},
    ],
)
def test_who_is_set_up_to_send_without_a_pause_has_cause_to(protocol: str, properties: Mapping[str, Any]) -> None:
    timed = properties if protocol == "classic" else {k: v for k, v in properties.items() if "heartbeat" not in k}
    set_up = {**timed, "group.protocol": protocol}
    members = [MemberPlan(name, 1, "g", ("t",), 0, set_up, poll_ms=5) for name in ("a", "b")]
    assert not _told(*members, failovers=(Failover(20_000, 5_000),))


def test_who_sends_without_a_pause_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    member_mutations.try_again_without_a_pause(monkeypatch)
    told = _told(MemberPlan("a", 1, "g", ("t",), 0), failovers=(Failover(20_000, 5_000),))
    assert told == ["sent without cause: a/1 sends FindCoordinator more than 40 times in a second"]


def test_who_commits_too_often_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    member_mutations.commit_with_each_poll(monkeypatch)
    told = _told(MemberPlan("a", 1, "g", ("t",), 0))
    assert told == ["sent without cause: a/1 sends OffsetCommit more often than each 5000 ms (auto.commit.interval.ms)"]


def test_whose_session_ends_for_want_of_heartbeats_falls_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    member_mutations.send_heartbeats_once_in_a_while(monkeypatch)
    properties = {"group.protocol": "consumer", "enable.auto.commit": False}
    told = _told(MemberPlan("a", 1, "g", ("t",), 0, properties), settings=SHORT_SESSIONS)
    assert told[0] == "fell silent: a/1 sends no heartbeats, and its session ends"


def test_a_world_in_which_time_does_not_go_on_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    # Heartbeats are due as members join again for a topic that has grown, and nothing comes of it.
    member_mutations.never_send_heartbeats(monkeypatch)
    plan = draw_world(read_scenario(ROOT / "conf" / "scenarios" / "topic-growth.toml"), 0)
    assert "standstill" in {one.kind for one in violations(World(plan, 0).run())}


def test_who_commits_too_seldom_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    member_mutations.commit_in_every_third_interval(monkeypatch)
    told = _told(MemberPlan("a", 1, "g", ("t",), 0))
    # Told with the first heartbeat after that time.
    assert told[0] == "sent too seldom: a/1 has sent no OffsetCommit for 6000 ms, expected within 5750 ms"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("times_ms", [(50, 4_000, 0), (10_000, 0, 0), (200, 20, 3_000), (1_000, 1_000, 1_000)])
@pytest.mark.parametrize("interval_ms", [100, 5_000])
def test_who_polls_seldom_commits_as_seldom(protocol: str, times_ms: tuple[int, int, int], interval_ms: int) -> None:
    poll_ms, process_ms, callback_ms = times_ms
    properties = {"group.protocol": protocol, "auto.commit.interval.ms": interval_ms}
    plan = MemberPlan("a", 1, "g", ("t",), 0, properties, poll_ms=poll_ms, process_ms=process_ms)
    members = [replace(plan, client_id=f"a{start_ms}", start_ms=start_ms) for start_ms in range(0, 30_000, 6_000)]
    # There are four partitions: one has none of them, and commits nothing.
    assert not _told(*(replace(member, callback_ms=callback_ms) for member in members))


def test_an_application_that_stands_still_while_it_joins_keeps_its_member_silent() -> None:
    properties = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 2_000}
    stands_still = MemberPlan("a", 1, "g", ("t",), 0, properties, stalls=(Stall(1_000, 30_000),))
    works_long = MemberPlan("b", 1, "h", ("t",), 0, properties, process_ms=20_000)
    assert not _told(stands_still, works_long)


@pytest.mark.parametrize("again_ms", [None, 1_000])
def test_an_application_that_was_told_that_its_group_is_full_may_try_again(again_ms: int | None) -> None:
    members = [MemberPlan(name, 1, "g", ("t",), 0, again_ms=again_ms) for name in ("a", "b", "c")]
    assert not _told(*members, settings={"group.max.size": 2})


def test_who_closes_while_its_group_rebalances_may_be_told_that_its_partitions_are_lost() -> None:
    first = MemberPlan("a", 1, "g", ("t",), 0)
    for at_ms in range(30_500, 34_500, 500):
        closes = MemberPlan("b", 1, "g", ("t",), 0, close_at_ms=at_ms)
        assert not _told(first, closes, MemberPlan("c", 1, "g", ("t",), 30_000))


@pytest.mark.parametrize(("latency_ms", "cadence_ms"), [(6_000, 0), (5, 12_000)])
def test_whose_answers_take_as_long_as_its_session_may_fall_silent(latency_ms: int, cadence_ms: int) -> None:
    members = [MemberPlan(name, 1, "g", ("t",), 0, {"group.protocol": "consumer"}) for name in ("a", "b")]
    assert not _told(*members, settings=SHORT_SESSIONS, latency_ms=latency_ms, cadence_ms=cadence_ms)
