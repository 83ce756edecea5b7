"""Answers that no broker gives, and settings that no member can have: a clear error, and the member stays as it is."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_udf.members.consumer.states import MemberState
from coordinator_udf.members.inputs import CommitAsync, TopicPartition
from coordinator_udf.protocol.errors import BadRequest
from tests.members.consumer.stations import STATIONS
from tests.members.consumer.world import (
    World,
    assignment,
    cluster,
    commit_answer,
    coordinator_answer,
    heartbeat_answer,
    settings,
)

T0 = TopicPartition("t0", 0)


def _without(body: dict[str, Any], field: str) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name != field}


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (_without(heartbeat_answer(), "errorCode"), "errorCode"),
        (_without(heartbeat_answer(), "memberEpoch"), "memberEpoch"),
        (_without(heartbeat_answer(), "heartbeatIntervalMs"), "heartbeatIntervalMs"),
        (heartbeat_answer(heartbeatIntervalMs=-1), "heartbeatIntervalMs"),
        (heartbeat_answer(memberEpoch="1"), "memberEpoch"),
        (heartbeat_answer(assignment={}), "topicPartitions"),
        (heartbeat_answer(assignment={"topicPartitions": [{"topicId": "x"}]}), "partitions"),
        (heartbeat_answer(assignment={"topicPartitions": [{"topicId": "x", "partitions": None}]}), "partitions"),
    ],
)
def test_a_heartbeats_answer_that_lacks_something_changes_nothing(body: dict[str, Any], named: str) -> None:
    world = STATIONS[MemberState.JOINING]()
    req = world.requests("ConsumerGroupHeartbeat")[0].req
    state = world.state
    with pytest.raises(BadRequest, match=named):
        world.answer("ConsumerGroupHeartbeat", body)
    assert world.state == state
    # Whoever drives the member gives the connection up, and it goes on.
    world.disconnect("coordinator-0")
    assert world.state is not None
    assert world.state.coordinator is None
    assert req not in world.open


@pytest.mark.parametrize(
    ("body", "named"),
    [({}, "topics"), ({"topics": [{"name": "t0", "partitions": [{"partitionIndex": 0}]}]}, "errorCode")],
)
def test_a_commits_answer_that_lacks_something_changes_nothing(body: dict[str, Any], named: str) -> None:
    world = STATIONS[MemberState.STABLE]()
    world.give(CommitAsync({T0: 1}))
    with pytest.raises(BadRequest, match=named):
        world.answer("OffsetCommit", body)


def test_a_coordinator_that_lacks_its_node_changes_nothing() -> None:
    world = World()
    with pytest.raises(BadRequest, match="nodeId"):
        world.answer("FindCoordinator", {"coordinators": [{"key": "g", "errorCode": 0}]})


def test_a_coordinator_of_another_group_is_an_error_for_the_application() -> None:
    world = World()
    answer = coordinator_answer()
    answer["coordinators"][0]["key"] = "another"
    world.answer("FindCoordinator", answer)
    assert world.state is not None
    assert world.state.coordinator is None


def test_an_unknown_error_code_is_unknown_server_error() -> None:
    world = STATIONS[MemberState.JOINING]()
    world.answer("ConsumerGroupHeartbeat", heartbeat_answer(errorCode=4711, errorMessage="from the future"))
    assert world.transitions()[-1] == "FATAL"
    world.poll()
    assert world.errors() == ["UnknownServerException"]


def test_a_topic_id_that_never_resolves_leaves_the_rest_in_effect() -> None:
    world = STATIONS[MemberState.JOINING]()
    given = assignment({"t0": frozenset({0})})
    given["topicPartitions"].append({"topicId": "AAAAAAAAAAAAAAAAAAAABQ", "partitions": [3]})
    world.answer("ConsumerGroupHeartbeat", heartbeat_answer(assignment=given))
    for _ in range(20):
        world.poll()
        if world.requests("ConsumerGroupHeartbeat"):
            world.answer("ConsumerGroupHeartbeat", heartbeat_answer())
        if world.metadata_wanted:
            world.tell_metadata()
        world.pass_time(300)
    assert world.assigned() == {T0}
    assert world.state is not None
    assert world.state.to_reconcile == {"AAAAAAAAAAAAAAAAAAAABQ": (3,)}
    assert world.errors() == []


def test_a_topic_that_is_deleted_keeps_its_name_until_it_is_revoked() -> None:
    world = STATIONS[MemberState.STABLE]()
    world.view = cluster("t1")
    world.pass_time(1_100)
    target = assignment({"t0": frozenset({0, 1, 2}), "t1": frozenset({2})})
    world.answer("ConsumerGroupHeartbeat", heartbeat_answer(memberEpoch=2, assignment=target))
    world.poll()
    assert TopicPartition("t0", 2) in world.assigned()


def test_an_answer_to_a_commit_may_name_what_was_not_committed() -> None:
    world = STATIONS[MemberState.STABLE]()
    world.give(CommitAsync({T0: 1}))
    world.answer("OffsetCommit", commit_answer({"topics": [{"name": "z", "partitions": [{"partitionIndex": 9}]}]}))
    world.poll()
    assert world.errors() == []


@pytest.mark.parametrize(
    ("properties", "named"),
    [({"group_id": ""}, "group.id"), ({"max_poll_interval_ms": 0}, "max.poll.interval.ms")],
)
def test_settings_that_no_member_can_have_are_named(properties: dict[str, Any], named: str) -> None:
    with pytest.raises(BadRequest, match=named):
        settings(**properties)
