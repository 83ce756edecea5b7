"""What a classic member does with input that is no good: what Kafka does, or an error that says what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_udf.members import inputs, outputs
from coordinator_udf.members.classic.member import CallInProgress
from coordinator_udf.members.cluster_view import ClusterView
from coordinator_udf.members.config import MemberConfig
from coordinator_udf.members.exceptions import ClientException
from coordinator_udf.protocol.errors import BadRequest
from tests.members.classic_world import FAILED_JOIN, World, commit_answer


def joined() -> World:
    world = World("RangeAssignor")
    world.call(inputs.Subscribe(("t0", "t1")))
    world.heal(10_000)
    return world


def sent(world: World, api: str) -> int:
    """Polls until a request of this API is out, answering the others; returns its number."""
    for _ in range(100):
        found = [req for req, request in world.in_flight.items() if request.api == api]
        if found:
            return found[0]
        for req in list(world.in_flight):
            world.answer(req)
        if world.wants_metadata:
            world.give_metadata()
        if world.callback is not None:
            world.end_callback()
        world.call(inputs.Poll())
        world.pass_time(50)
    raise AssertionError(f"no {api}")


@pytest.mark.parametrize(
    ("api", "body", "message"),
    [
        ("JoinGroup", {"errorCode": 0}, "missing required field `generationId`"),
        ("JoinGroup", {**FAILED_JOIN, "errorCode": "0"}, "Expected `int`, got `str`"),
        ("SyncGroup", {"errorCode": 0}, "missing required field `assignment`"),
        ("FindCoordinator", {"coordinators": [{"nodeId": 0}]}, "missing required field `errorCode`"),
    ],
)
def test_an_answer_that_lacks_something_is_told_and_tried_again(api: str, body: dict[str, Any], message: str) -> None:
    world = World("RangeAssignor")
    world.call(inputs.Subscribe(("t0", "t1")))
    world.answer(sent(world, api), body)
    world.call(inputs.Poll())
    error = world.errors[-1]
    assert (error.op, error.class_name) == ("poll", "SchemaException")
    assert error.message is not None
    assert message in error.message
    world.heal(10_000)


def test_a_heartbeat_that_lacks_its_error_is_one_that_failed() -> None:
    world = joined()
    world.pass_time(2_000)
    (req,) = [req for req, request in world.in_flight.items() if request.api == "Heartbeat"]
    world.answer(req, {})
    world.pass_time(100)
    assert [request.api for request in world.in_flight.values()] == ["Heartbeat"]
    world.heal(10_000)


def test_an_unknown_error_code_is_an_unexpected_error() -> None:
    world = joined()
    world.call(inputs.CommitSync(1_000))
    ((req, request),) = [(r, q) for r, q in world.in_flight.items() if q.api == "OffsetCommit"]
    world.answer(req, commit_answer(request, 4711))
    assert world.errors[-1].class_name == "KafkaException"
    assert "Unexpected error in commit" in (world.errors[-1].message or "")
    assert world.member.call_deadline_ms() is None


@pytest.mark.parametrize("assignment", ["AAM=", "AAMAAAAB", "//8AAAAA/////w=="])
def test_an_assignment_that_cannot_be_read_is_thrown_in_each_poll(assignment: str) -> None:
    world = World("RangeAssignor")
    world.call(inputs.Subscribe(("t0", "t1")))
    world.answer(sent(world, "SyncGroup"), {"errorCode": 0, "assignment": assignment})
    for _ in range(2):
        before = len(world.errors)
        world.call(inputs.Poll())
        assert [error.class_name for error in world.errors[before:]] == ["SchemaException"]
    assert world.state is not None
    assert world.state.state == "STABLE"
    world.call(inputs.Unsubscribe())
    world.call(inputs.Subscribe(("t0",)))


def test_an_answer_to_nothing_is_nothing() -> None:
    world = joined()
    assert world.member.handle(world.now_ms, inputs.Response(4_711, {"errorCode": 0})) == []
    assert world.member.handle(world.now_ms, inputs.Metadata(ClusterView())) == []
    assert world.member.handle(world.now_ms, inputs.Disconnect("coordinator-9")) == []


def test_a_call_inside_of_another_is_refused_and_changes_nothing() -> None:
    world = joined()
    world.call(inputs.CommitSync(1_000))
    with pytest.raises(CallInProgress, match="Poll"):
        world.member.handle(world.now_ms, inputs.Poll())
    with pytest.raises(ClientException, match="onPartitionsRevoked came while no callback is running"):
        world.member.handle(world.now_ms, inputs.CallbackDone("onPartitionsRevoked"))
    world.heal(10_000)


def test_a_callback_may_commit() -> None:
    world = joined()
    world.call(inputs.EnforceRebalance())
    world.heal_until_callback("onPartitionsRevoked")
    held = dict.fromkeys(world.state.assignment, 5) if world.state else {}
    outs = world.member.handle(world.now_ms, inputs.CommitSync(1_000, held))
    (commit,) = [output for output in outs if isinstance(output, outputs.Request)]
    outs = world.member.handle(world.now_ms, inputs.Response(commit.req, commit_answer(commit, 0)))
    assert outputs.OperationDone("commitSync") in outs
    world.heal(10_000)


def test_a_closed_member_does_nothing_more() -> None:
    world = joined()
    world.call(inputs.Close(0))
    while world.callback is not None:
        world.end_callback()
    world.pass_time(1)
    assert world.member.next_deadline_ms() is None
    assert world.member.handle(world.now_ms, inputs.Poll()) == []


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({}, r"group\.id"),
        ({"group.id": ""}, r"group\.id"),
        ({"group.id": "g", "session.timeout.ms": "soon"}, r"session\.timeout\.ms"),
        ({"group.id": "g", "session.timeout.ms": 100, "heartbeat.interval.ms": 100}, r"heartbeat\.interval\.ms is 100"),
        ({"group.id": "g", "group.protocol": "streams"}, r"group\.protocol"),
    ],
)
def test_properties_that_are_no_good_are_named(properties: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        MemberConfig.parse(properties)
