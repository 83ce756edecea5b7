"""Who isn't told as wrongly treated by the coordinator: what looks like it, and is as Kafka has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from coordinator_udf.members.outputs import Request
from coordinator_udf.simulation.coordinator import Answered
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.history_of_plan import history_of
from coordinator_udf.simulation.invariants import violations
from coordinator_udf.simulation.network import Connection
from coordinator_udf.simulation.plan import Cut, MemberPlan, NetworkPlan, Stall, TopicPlan, WorldPlan
from coordinator_udf.simulation.told_memberships import ToldMemberships
from coordinator_udf.simulation.world import World

_TOPIC = (TopicPlan("t", 4, records_s=5.0),)


def _kinds(
    *members: MemberPlan,
    topics: tuple[TopicPlan, ...] = _TOPIC,
    end_ms: int = 120_000,
    settings: Mapping[str, Any] | None = None,
) -> set[str]:
    plan = WorldPlan(members, topics, end_ms, settings or {}, NetworkPlan((5, 5)))
    return {one.kind for one in violations(World(plan, 1).run())}


def test_a_static_member_that_missed_a_join_phase_is_of_a_generation_that_is_over() -> None:
    def static(name: str, start_ms: int = 0, *cuts: Cut) -> MemberPlan:
        properties = {"group.instance.id": name, "max.poll.interval.ms": 10_000, "session.timeout.ms": 30_000}
        return MemberPlan(name, 1, "g", ("t",), start_ms, properties, cuts=cuts)

    for length_ms in (11_000, 12_000):
        assert "wrongly refused" not in _kinds(static("a"), static("b", 0, Cut(30_000, length_ms)), static("c", 31_000))


def test_a_static_member_that_left_before_it_heard_that_it_was_replaced_joins_again() -> None:
    properties = {"group.instance.id": "x", "max.poll.interval.ms": 10_000, "session.timeout.ms": 30_000}
    first = MemberPlan("a", 1, "g", ("t",), 0, properties, stalls=(Stall(30_000, 20_000),), close_at_ms=58_000)
    second = MemberPlan("a", 2, "g", ("t",), 45_000, properties)
    assert "not fenced" not in _kinds(first, second, MemberPlan("b", 1, "g", ("t",), 0))


@pytest.mark.parametrize("cut_ms", [32_200, 34_100, 36_100])
def test_a_static_member_has_the_session_timeout_of_whom_it_replaced_up_to_its_heartbeat(cut_ms: int) -> None:
    old = {"group.instance.id": "x", "session.timeout.ms": 6_000, "heartbeat.interval.ms": 2_000}
    new = {**old, "session.timeout.ms": 45_000, "heartbeat.interval.ms": 15_000}
    first = MemberPlan("a", 1, "g", ("t",), 0, old, close_at_ms=30_000)
    second = MemberPlan("a", 2, "g", ("t",), 32_000, new, cuts=(Cut(cut_ms, 20_000),))
    assert "session cut short" not in _kinds(first, second, MemberPlan("b", 1, "g", ("t",), 0))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_of_who_left_by_itself_may_expire(protocol: str) -> None:
    properties = {"group.protocol": protocol}
    stalls = MemberPlan(
        "a", 1, "g", ("t",), 0, {**properties, "max.poll.interval.ms": 20_000}, stalls=(Stall(30_000, 200_000),)
    )
    topics = TopicPlan("t", 2, records_s=5.0), TopicPlan("u", 2, records_s=5.0)
    settings = {"offsets.retention.minutes": 1, "offsets.retention.check.interval.ms": 10_000}
    other = MemberPlan("b", 1, "g", ("u",), 0, properties)
    assert "lost commit" not in _kinds(stalls, other, topics=topics, end_ms=300_000, settings=settings)


@pytest.mark.parametrize("strategy", ["StickyAssignor", "RoundRobinAssignor", "CooperativeStickyAssignor"])
def test_shares_are_uneven_while_a_leader_has_not_heard_that_topics_are_gone(strategy: str) -> None:
    properties = {"partition.assignment.strategy": f"org.apache.kafka.clients.consumer.{strategy}"}
    members = (MemberPlan(name, 1, "g", tuple("tuvw"), 0, properties) for name in "ab")
    topics = (*(TopicPlan(name, 1) for name in "tuvw"), *(TopicPlan(name, 0, at_ms=60_000) for name in "uw"))
    assert "uneven" not in _kinds(*members, topics=topics, end_ms=200_000)


def _asked(*said: tuple[str, int, int]) -> History:
    """Lets a coordinator that was just loaded take a KIP-848 member's requests: which, of what epoch, what it tells."""
    plan = WorldPlan((MemberPlan("a", 1, "g", ("t",), 0, {"group.protocol": "consumer"}),), _TOPIC, 1_000)
    history = history_of(plan)
    told = ToldMemberships(plan, history)
    for number, (api, asked, epoch) in enumerate(said):
        body = {"groupId": "g", "memberId": "m", "memberEpoch": asked, "generationIdOrMemberEpoch": asked}
        request = Request(number, "coordinator-0", api, 1, 30_000, body)
        topics = [{"name": "t", "partitions": [{"partitionIndex": 0, "errorCode": 0}]}]
        answer = {"errorCode": 0, "memberEpoch": epoch, "topics": topics}
        told.hear(Answered(Connection("a/1", "coordinator-0"), request, number, answer))
    return history


def test_of_an_epoch_from_before_the_coordinator_was_loaded_its_predecessor_is_taken() -> None:
    beat, commit = "ConsumerGroupHeartbeat", "OffsetCommit"
    assert _asked((beat, 5, 5), (beat, 4, 5), (commit, 4, 0)).numbers_taken == []
    assert _asked((beat, 4, 5), (beat, 4, 5), (commit, 3, 0)).numbers_taken == []
    # What is known to be over isn't, nor is what there never was.
    assert [one.number for one in _asked((beat, 4, 5), (beat, 5, 6), (beat, 4, 6)).numbers_taken] == [4]
    assert [one.number for one in _asked((beat, 5, 5), (beat, 7, 5), (commit, 7, 0)).numbers_taken] == [7, 7]
