"""A gateway whose coordinator is away: heartbeats that are in the log are taken on trust until it answers again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.alone import Alone
from tests.gateway.test_loading import COMMIT, JOIN, LEAVE
from tests.gateway.wire import HEARTBEAT, Wire
from tests.groups.bodies import consumer_heartbeat
from tests.waiting import wait

AT_ONCE = pytest.mark.parametrize("alone", [{"loading_hold_ms": 0}], indirect=True)
NEVER = pytest.mark.parametrize("alone", [{"loading_hold_ms": 30_000}], indirect=True)

VERSIONS = {"Heartbeat": 4, "ConsumerGroupHeartbeat": 1, "OffsetCommit": 8, "JoinGroup": 5, "LeaveGroup": 3}
ASSIGNMENT = {"topicPartitions": [{"topicId": "AAAAAAAAAAAAAAAAAAAAAQ", "partitions": [1]}]}
BEAT = consumer_heartbeat("g", "m", 2)


def told_on_trust(alone: Alone, wire: Wire, *, is_away: bool = True) -> dict[str, Any]:
    """The next answer, while it is looked again and again whether the coordinator is away."""

    def answered() -> bool:
        alone.gateway.look_at_coordinator(is_away=is_away)
        return not wire.has_nothing()

    wait(answered, "it is answered")
    return wire.receive()


def send(alone: Alone, wire: Wire, count: int, api: str, **body: Any) -> dict[str, Any]:
    wire.send(api, VERSIONS[api], body)
    return alone.wait_for_requests(count)[count - 1]


def told(row: dict[str, Any], alone: Alone, assignment: Any) -> None:
    more = {"errorMessage": None, "memberId": "m", "memberEpoch": 2, "heartbeatIntervalMs": 1_000}
    alone.answer(row, **more, assignment=assignment)


@AT_ONCE
def test_a_heartbeat_of_a_member_is_answered_and_is_in_the_log(alone: Alone) -> None:
    with alone.wire() as wire:
        send(alone, wire, 1, "Heartbeat", **HEARTBEAT)
        assert told_on_trust(alone, wire)["errorCode"] == 0
        send(alone, wire, 2, "ConsumerGroupHeartbeat", **BEAT)
        assert told_on_trust(alone, wire)["errorCode"] == 14
    assert alone.gateway.status().timed_out == 0


@AT_ONCE
def test_what_else_is_asked_waits_for_the_coordinator(alone: Alone) -> None:
    joining, leaving = consumer_heartbeat("g", "m", 0), consumer_heartbeat("g", "m", -1)
    asked = [("OffsetCommit", COMMIT), ("JoinGroup", JOIN)]
    asked += [("ConsumerGroupHeartbeat", body) for body in (joining, leaving)]
    wires = [alone.wire() for _ in asked]
    for count, (wire, (api, body)) in enumerate(zip(wires, asked, strict=True), 1):
        send(alone, wire, count, api, **body)
    with alone.wire() as wire:
        send(alone, wire, len(asked) + 1, "Heartbeat", **HEARTBEAT)
        assert told_on_trust(alone, wire)["errorCode"] == 0
    assert alone.gateway.unanswered() == len(asked)
    assert all(wire.has_nothing() for wire in wires)
    for wire in wires:
        wire.close()


@NEVER
def test_a_coordinator_that_is_soon_back_answers_itself(alone: Alone) -> None:
    with alone.wire() as wire:
        row = send(alone, wire, 1, "Heartbeat", **HEARTBEAT)
        alone.gateway.look_at_coordinator(is_away=True)
        alone.answer(row, errorCode=27)
        assert wire.receive()["errorCode"] == 27


@AT_ONCE
def test_trust_ends_with_the_first_answer_that_is_waited_for(alone: Alone) -> None:
    with alone.wire() as wire, alone.wire() as joins, alone.wire() as leaves:
        join = send(alone, joins, 1, "JoinGroup", **JOIN)
        leave = send(alone, leaves, 2, "LeaveGroup", **LEAVE)
        late = send(alone, wire, 3, "Heartbeat", **HEARTBEAT)
        told_on_trust(alone, wire)
        # It works through what is in the log from before: of a join nobody knows since when it has an answer.
        alone.answer(late, errorCode=27)
        alone.answer(join, errorCode=27)
        send(alone, wire, 4, "Heartbeat", **HEARTBEAT)
        assert told_on_trust(alone, wire, is_away=False)["errorCode"] == 0
        alone.answer(leave, members=[])
        assert leaves.receive()["errorCode"] == 0
        row = send(alone, wire, 5, "Heartbeat", **HEARTBEAT)
        alone.gateway.look_at_coordinator(is_away=False)
        alone.answer(row, errorCode=27)
        assert wire.receive()["errorCode"] == 27


@AT_ONCE
def test_trust_ends_when_what_was_asked_after_the_return_is_answered_however_late(alone: Alone) -> None:
    with alone.wire() as wire:
        send(alone, wire, 1, "Heartbeat", **HEARTBEAT)
        told_on_trust(alone, wire)
        alone.gateway.look_at_coordinator(is_away=False)
        # Its micro-batches take longer than a heartbeat waits.
        late = send(alone, wire, 2, "Heartbeat", **HEARTBEAT)
        assert told_on_trust(alone, wire, is_away=False)["errorCode"] == 0
        alone.answer(late, errorCode=27)
        row = send(alone, wire, 3, "Heartbeat", **HEARTBEAT)
        alone.gateway.look_at_coordinator(is_away=False)
        alone.answer(row, errorCode=27)
        assert wire.receive()["errorCode"] == 27


@AT_ONCE
def test_an_assignment_that_a_heartbeat_would_have_brought_comes_with_the_next_answer(alone: Alone) -> None:
    with alone.wire() as wire:
        row = send(alone, wire, 1, "ConsumerGroupHeartbeat", **BEAT)
        assert told_on_trust(alone, wire)["errorCode"] == 14
        following = send(alone, wire, 2, "ConsumerGroupHeartbeat", **BEAT)
        told(row, alone, ASSIGNMENT)
        told(following, alone, None)
        assert wire.receive()["assignment"] == ASSIGNMENT
        told(send(alone, wire, 3, "ConsumerGroupHeartbeat", **BEAT), alone, None)
        assert wire.receive()["assignment"] is None
