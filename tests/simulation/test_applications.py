"""When what comes from the network is read: by an application in poll, or by the thread behind it."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_udf.simulation.history import AnsweredRequest
from coordinator_udf.simulation.plan import MemberPlan, NetworkPlan, Stall, TopicPlan, WorldPlan
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


@pytest.mark.parametrize("process_ms", [50, 3_000])
def test_an_application_that_works_long_reads_with_its_next_poll(process_ms: int) -> None:
    answered = _answered(MemberPlan("m", 1, "g", ("t",), 1_000, _CLASSIC, poll_ms=10, process_ms=process_ms))
    joined_ms = max(one.answered_ms for one in answered if one.api == "JoinGroup")
    waited_ms = _next_ms(answered, "m/1", "SyncGroup", joined_ms) - joined_ms
    assert (waited_ms > 1_000) == (process_ms > 1_000)
