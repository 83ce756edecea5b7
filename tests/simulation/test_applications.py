"""When what comes from the network is read: by an application in poll, or by the thread behind it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.simulation.application import Records
from coordinator_udf.simulation.application_loops import ApplicationLoops
from coordinator_udf.simulation.history import AnsweredRequest
from coordinator_udf.simulation.plan import Failover, MemberPlan, NetworkPlan, Stall, TopicPlan, WorldPlan
from coordinator_udf.simulation.process import Process
from coordinator_udf.simulation.world import World
from tests.simulation.short_sessions import SHORT_SESSIONS

_CLASSIC: dict[str, Any] = {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 1_000}


def _answered(*members: MemberPlan) -> list[AnsweredRequest]:
    topics = (TopicPlan("t", 4),)
    plan = WorldPlan(members, topics, 60_000, SHORT_SESSIONS, NetworkPlan((10, 10)), keeps_requests=True)
    return World(plan, 1).run().answered


def _next_ms(answered: list[AnsweredRequest], process: str, api: str, after_ms: int) -> int:
    times_ms = (one.arrived_ms for one in answered if (one.process, one.api) == (process, api))
    return min(time for time in times_ms if time > after_ms)


@pytest.mark.parametrize("is_stalled", [False, True], ids=["in poll", "stalled"])
def test_nobody_reads_the_answer_to_a_joingroup_while_the_application_stands_still(is_stalled: bool) -> None:
    """Heartbeats begin with that answer (AbstractCoordinator.HeartbeatThread), and so does what their thread reads."""
    # The group's first generation is formed three seconds after the first member has come.
    stalls = (Stall(1_500, 8_000),) if is_stalled else ()
    answered = _answered(MemberPlan("m", 1, "g", ("t",), 1_000, _CLASSIC, stalls=stalls))
    joined_ms = max(one.answered_ms for one in answered if one.api == "JoinGroup")
    synced_ms = _next_ms(answered, "m/1", "SyncGroup", joined_ms)
    assert (synced_ms - joined_ms > 5_000) == is_stalled


def test_a_member_of_a_group_reads_what_comes_while_its_application_stands_still() -> None:
    member = MemberPlan("m", 1, "g", ("t",), 1_000, _CLASSIC, stalls=(Stall(10_000, 20_000),))
    beats_ms = [one.arrived_ms for one in _answered(member) if one.api == "Heartbeat"]
    # Each follows the last one's answer; nothing else makes it wait.
    assert sum(beats_ms[0] + 5_000 < time < beats_ms[0] + 20_000 for time in beats_ms) in range(14, 17)


@pytest.mark.parametrize(("length_ms", "goes_on_ms"), [(60_000, 80_000), (5_000, 40_000), (20_000, 40_000)])
def test_a_stall_in_another_one_lasts_until_both_are_over(length_ms: int, goes_on_ms: int) -> None:
    stalls = Stall(10_000, 30_000), Stall(20_000, length_ms)
    member = MemberPlan("m", 1, "g", ("t",), 1_000, _CLASSIC, stalls=stalls)
    plan = WorldPlan((member,), (TopicPlan("t", 4),), 120_000)
    events = [event for event in World(plan, 1).run().events if event.event in {"stall", "resume"}]
    assert [(event.event, event.ts_ms - plan.start_ms) for event in events] == [
        ("stall", 10_000),
        ("resume", goes_on_ms),
    ]


@pytest.mark.parametrize("process_ms", [50, 3_000])
def test_an_application_that_works_long_reads_with_its_next_poll(process_ms: int) -> None:
    answered = _answered(MemberPlan("m", 1, "g", ("t",), 1_000, _CLASSIC, poll_ms=10, process_ms=process_ms))
    joined_ms = max(one.answered_ms for one in answered if one.api == "JoinGroup")
    waited_ms = _next_ms(answered, "m/1", "SyncGroup", joined_ms) - joined_ms
    assert (waited_ms > 1_000) == (process_ms > 1_000)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_who_works_longer_than_max_poll_interval_is_out_of_its_group_and_hears_of_it_with_its_next_poll(
    protocol: str,
) -> None:
    properties = {"group.protocol": protocol, "max.poll.interval.ms": 5_000}
    member = MemberPlan("m", 1, "g", ("t",), 0, properties, poll_ms=200, process_ms=9_800)
    at_once = SHORT_SESSIONS | {"group.initial.rebalance.delay.ms": 0}
    plan = WorldPlan((member,), (TopicPlan("t", 4, records_s=1.0),), 35_000, at_once, NetworkPlan((1, 1)))
    told = [
        (event.event, (event.ts_ms - plan.start_ms) // 1_000)
        for event in World(plan, 1).run().events
        if event.ts_ms - plan.start_ms > 9_000 and event.event in {"lost", "assigned"}
    ]
    assert {at_s % 10 for event, at_s in told if event == "lost"} == {0}
    assert [event for event, _ in told].count("lost") >= 2


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize(("process_ms", "every_ms"), [(20, 2_000), (2_900, 3_000)])
def test_who_works_long_commits_with_the_first_poll_when_that_is_due(
    protocol: str, process_ms: int, every_ms: int
) -> None:
    properties = {"group.protocol": protocol, "auto.commit.interval.ms": 2_000}
    member = MemberPlan("m", 1, "g", ("t",), 0, properties, poll_ms=100, process_ms=process_ms)
    topics = (TopicPlan("t", 4, records_s=1.0),)
    plan = WorldPlan((member,), topics, 60_000, SHORT_SESSIONS, NetworkPlan((1, 1)), keeps_requests=True)
    history = World(plan, 1, skips=False).run()
    commits_ms = [one.arrived_ms for one in history.answered if one.api == "OffsetCommit"]
    assert {later - earlier for earlier, later in pairwise(commits_ms[4:])} == {every_ms}
    assert World(plan, 1).run().requests == history.requests


@pytest.mark.parametrize("joins_ms", [15_000, 15_300, 15_700])
def test_a_poll_that_wakes_up_when_a_commit_is_due_gives_partitions_up_then(joins_ms: int) -> None:
    """Java's poll waits no longer than its thread, whose commits are due each second (pollForFetches)."""
    properties = {"group.protocol": "consumer", "auto.commit.interval.ms": 1_000}

    def waited_ms(*, wakes_when_due: bool) -> int:
        """Returns how long the first member takes from when it is told to give something up until it says it did."""
        members = [
            MemberPlan(name, 1, "g", ("t",), start_ms, properties, poll_ms=20_000, wakes_when_due=wakes_when_due)
            for name, start_ms in (("a", 1_000), ("b", joins_ms))
        ]
        beats = [one for one in _answered(*members) if one.api == "ConsumerGroupHeartbeat"]
        joined_ms = min(one.arrived_ms for one in beats if one.process == "b/1")
        later = [one for one in beats if one.process == "a/1" and one.arrived_ms > joined_ms]
        told_ms = next(one.answered_ms for one in later if one.response["assignment"] is not None)
        return next(one.arrived_ms for one in later if one.request["topicPartitions"] is not None) - told_ms

    assert waited_ms(wakes_when_due=True) < 1_100
    assert waited_ms(wakes_when_due=False) > 2_000


def test_a_commit_that_is_due_waits_until_records_are_worked_on() -> None:
    """An application works on each record for 80 of 100 ms, and polls when it is through."""
    properties = {"group.protocol": "consumer", "auto.commit.interval.ms": 1_000}
    member = MemberPlan("a", 1, "g", ("t",), 1_000, properties, process_ms=80, wakes_when_due=True)
    plan = WorldPlan((member,), (TopicPlan("t", 1, records_s=10.0),), 60_000, SHORT_SESSIONS, keeps_requests=True)
    history = World(plan, 1).run()
    commits_ms = [one.arrived_ms - plan.start_ms for one in history.answered if one.api == "OffsetCommit"][3:-1]
    assert len(commits_ms) > 40
    # A record comes each 100 ms, and is fetched a moment later.
    assert all(time_ms % 100 in range(81, 100) or time_ms % 100 == 0 for time_ms in commits_ms)


def test_who_waits_for_a_coordinator_to_commit_doesnt_poll_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    polls = 0
    poll = ApplicationLoops._poll

    def counted(loops: ApplicationLoops, process: Process) -> bool:
        nonlocal polls
        polls += 1
        return poll(loops, process)

    monkeypatch.setattr(ApplicationLoops, "_poll", counted)
    properties = {"group.protocol": "consumer", "auto.commit.interval.ms": 1_000}
    member = MemberPlan("a", 1, "g", ("t",), 1_000, properties, wakes_when_due=True)
    topics, failovers = (TopicPlan("t", 4, records_s=10.0),), (Failover(10_000, 30_000),)
    world = World(WorldPlan((member,), topics, 60_000, SHORT_SESSIONS, failovers=failovers), 1)
    world.run()
    # With the records, and twice each: four in ten a second.
    assert polls < 60 * 100
    # Nor does a poll wait for that any more when its member has settled.
    assert not any(process.waits_for_commit for process in world._processes.values())


def test_records_come_evenly() -> None:
    records = Records([TopicPlan("t", 4, records_s=2.0)], 1_000)
    places = [TopicPartition("t", 0), TopicPartition("t", 2)]
    assert records.last_ms(places, 999) is None
    # One of each partition in half a second, the third one's 250 ms after the first one's.
    assert [records.last_ms(places, now_ms) for now_ms in (1_000, 1_249, 1_250, 1_499, 1_500)] == [
        1_000, 1_000, 1_250, 1_250, 1_500,
    ]  # fmt: skip
    assert [records.next_ms(places, now_ms) for now_ms in (1_250, 1_499, 1_500)] == [1_500, 1_500, 1_750]
