"""Members that don't keep to the protocol: they do what their habit says, and harm nobody beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.invariants import violations
from coordinator_udf.simulation.ownership import Owners
from coordinator_udf.simulation.plan import Habit, MemberPlan, NetworkPlan, TopicPlan, WorldPlan
from coordinator_udf.simulation.shrink import event_list, shrink
from coordinator_udf.simulation.world import World
from tests.simulation.short_sessions import SHORT_SESSIONS

_PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 1_000},
    "consumer": {"group.protocol": "consumer"},
}
_SETTINGS = {
    **SHORT_SESSIONS,
    "group.initial.rebalance.delay.ms": 500,
}
_BAD = "bad/1"
_JOINS_MS = (0, 500, 20_000, 50_000)


def _plan(protocol: str, habit: Habit) -> WorldPlan:
    """Three members, of which one joins late, and a fourth that misbehaves for 100 s."""
    properties = {**_PROTOCOLS[protocol], "max.poll.interval.ms": 15_000, "auto.commit.interval.ms": 1_000}
    members = [MemberPlan(f"c{place}", 1, "g", ("t",), at_ms, properties) for place, at_ms in enumerate(_JOINS_MS)]
    bad = MemberPlan("bad", 1, "g", ("t",), 10_000, properties, habit=habit, crash_at_ms=100_000)
    topics = (TopicPlan("t", 8, records_s=5.0),)
    return WorldPlan((*members, bad), topics, 180_000, _SETTINGS, NetworkPlan((1, 3)), keeps_requests=True)


def _codes(history: History, api: str) -> Counter[int]:
    """Returns the errors that the misbehaving member was answered."""
    return Counter(_code(one.response) for one in history.answered if (one.process, one.api) == (_BAD, api))


def _code(body: Mapping[str, Any]) -> int:
    if "topics" in body:
        return max(int(place["errorCode"]) for topic in body["topics"] for place in topic["partitions"])
    if body.get("members") and "errorCode" in body["members"][0]:
        return int(body["members"][0]["errorCode"])
    return int(body["errorCode"])


@pytest.mark.parametrize("protocol", _PROTOCOLS)
@pytest.mark.parametrize("habit", Habit)
def test_nobody_is_harmed_beside_a_member_that_misbehaves(protocol: str, habit: Habit) -> None:
    history = World(_plan(protocol, habit), 1).run()
    assert violations(history) == []
    owners = Owners()
    for event in history.events:
        owners.take(event)
    shared_out = [owners.of(TopicPartition("t", number)) for number in range(8)]
    assert all(len(each) == 1 for each in shared_out)
    assert {name for each in shared_out for name in each} == {f"c{place}/1" for place in range(len(_JOINS_MS))}


@pytest.mark.parametrize("protocol", _PROTOCOLS)
def test_who_does_not_take_part_is_removed(protocol: str) -> None:
    """After max.poll.interval.ms, as it sends heartbeats all the time."""
    for habit in (Habit.DEAF, Habit.NEVER_SYNCS):
        history = World(_plan(protocol, habit), 1).run()
        removed = [history.process_of.get(one.member_id) for one in history.removals if one.ts_ms < 1e5 + 1.7e12]
        assert _BAD in removed
        api = "Heartbeat" if protocol == "classic" else "ConsumerGroupHeartbeat"
        assert _codes(history, api)[Errors.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize("protocol", _PROTOCOLS)
def test_what_a_zombie_commits_of_old_generations_is_refused(protocol: str) -> None:
    history = World(_plan(protocol, Habit.ZOMBIE), 1).run()
    refused = _codes(history, "OffsetCommit")
    assert refused[Errors.ILLEGAL_GENERATION if protocol == "classic" else Errors.STALE_MEMBER_EPOCH] > 10
    commits = [one for one in history.answered if one.api == "OffsetCommit"]
    assert len(history.refused) == sum(_code(one.response) != 0 for one in commits) < len(commits)


def test_a_stranger_is_told_that_it_is_unknown() -> None:
    history = World(_plan("classic", Habit.STRANGER), 1).run()
    for api in ("OffsetCommit", "SyncGroup", "LeaveGroup", "Heartbeat"):
        assert _codes(history, api)[Errors.UNKNOWN_MEMBER_ID] > 3
    assert _codes(history, "ConsumerGroupHeartbeat").keys() <= {Errors.GROUP_ID_NOT_FOUND, Errors.UNKNOWN_MEMBER_ID}


def test_who_repeats_is_answered_twice() -> None:
    history = World(_plan("classic", Habit.REPEATS), 1).run()
    joins = Counter(str(one.request) for one in history.answered if (one.process, one.api) == (_BAD, "JoinGroup"))
    assert len(joins) > 1
    assert all(times % 2 == 0 for times in joins.values())


def test_a_habit_is_told_and_left_out_where_it_makes_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator_udf.groups.offsets.commit.member_commit_check", lambda *_: None)
    plan = _plan("consumer", Habit.ZOMBIE)
    short = shrink(plan, 1, "overtaken commit")
    (told,) = [line for line in event_list(short) if "bad/1 starts" in line]
    assert told.endswith("(consumer, zombie)")
    with_another = replace(plan, members=(*plan.members, replace(plan.members[-1], client_id="x", habit=Habit.REPEATS)))
    assert [one.habit for one in shrink(with_another, 1, "overtaken commit").members if one.habit] == [Habit.ZOMBIE]
