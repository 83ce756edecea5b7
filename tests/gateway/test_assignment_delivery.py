"""Assignments of KIP-848 whose answers were lost come with the next answer over another connection."""

from __future__ import annotations

from typing import Any

from tests.gateway.alone import Alone
from tests.gateway.wire import Wire
from tests.groups.bodies import consumer_heartbeat
from tests.waiting import wait

ASSIGNMENT = {"topicPartitions": [{"topicId": "AAAAAAAAAAAAAAAAAAAAAQ", "partitions": [1]}]}
BEAT = consumer_heartbeat("g", "m", 2)


def answer(alone: Alone, count: int, assignment: Any, epoch: int = 2, error: int = 0) -> None:
    row = alone.wait_for_requests(count)[count - 1]
    more = {"errorMessage": None, "memberId": "m", "memberEpoch": epoch, "heartbeatIntervalMs": 1_000}
    alone.answer(row, **{**more, "errorCode": error, "assignment": assignment})


def beat(alone: Alone, wire: Wire, count: int, assignment: Any = None, **more: int) -> Any:
    wire.send("ConsumerGroupHeartbeat", 1, BEAT)
    answer(alone, count, assignment, **more)
    return wire.receive()["assignment"]


def lose(alone: Alone, count: int, assignment: Any) -> None:
    """An answer for a client that is gone."""
    with alone.wire() as wire:
        wire.send("ConsumerGroupHeartbeat", 1, BEAT)
        alone.wait_for_requests(count)
    wait(lambda: alone.gateway.unanswered() == 0, "the gateway sees that it is gone")
    answer(alone, count, assignment)


def test_an_assignment_that_was_lost_comes_with_the_next_answer_until_the_member_shows_that_it_has_it(
    alone: Alone,
) -> None:
    lose(alone, 1, ASSIGNMENT)
    with alone.wire() as wire:
        assert beat(alone, wire, 2) == ASSIGNMENT
        # Now it has asked for something over the connection on which it got it.
        assert beat(alone, wire, 3) is None
    with alone.wire() as wire:
        assert beat(alone, wire, 4) is None


def test_an_assignment_that_was_sent_before_its_connection_ended_comes_again(alone: Alone) -> None:
    with alone.wire() as wire:
        assert beat(alone, wire, 1, ASSIGNMENT) == ASSIGNMENT
    with alone.wire() as wire:
        assert beat(alone, wire, 2) == ASSIGNMENT


def test_a_newer_answer_makes_a_lost_assignment_void(alone: Alone) -> None:
    lose(alone, 1, ASSIGNMENT)
    with alone.wire() as wire:
        assert beat(alone, wire, 2, epoch=3) is None
    lose(alone, 3, ASSIGNMENT)
    with alone.wire() as wire:
        assert beat(alone, wire, 4, epoch=0, error=110) is None
        assert beat(alone, wire, 5) is None
