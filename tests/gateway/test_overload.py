"""A gateway whose coordinator doesn't keep up: what it keeps back, in which order it goes on, and what it drops."""

from __future__ import annotations

import time
from functools import partial

import msgspec
import pytest

from coordinator_udf.gateway.server.standstill import STOOD_STILL_S
from tests.gateway.alone import Alone
from tests.gateway.test_loading import JOIN
from tests.gateway.wire import HEARTBEAT
from tests.waiting import wait

FEW = pytest.mark.parametrize("alone", [{"unanswered_rows_max": 2}], indirect=True)


def commit(offset: int) -> dict[str, object]:
    partition = {"partitionIndex": 0, "committedOffset": offset, "committedLeaderEpoch": -1, "committedMetadata": ""}
    topics = [{"name": "t1", "partitions": [partition]}]
    return {
        "groupId": "g",
        "generationIdOrMemberEpoch": 1,
        "memberId": "m",
        "groupInstanceId": None,
        "topics": topics,
    }


@FEW
def test_what_the_coordinator_has_not_answered_is_bounded_and_the_newest_go_on_first(alone: Alone) -> None:
    wires = [alone.wire() for _ in range(5)]
    for number, wire in enumerate(wires):
        wire.send("Heartbeat", 4, HEARTBEAT | {"memberId": f"m{number}"})
        wait(partial(_has, alone, number + 1), "the gateway has it")
        if number < 2:
            alone.wait_for_requests(number + 1)
    first = alone.requests()
    assert [row["member_id"] for row in alone.requests()] == ["m0", "m1"]
    alone.answer(*first)
    # Of those that wait the two that were heard of last, and these in their order.
    assert [row["member_id"] for row in alone.wait_for_requests(4)[2:]] == ["m3", "m4"]
    alone.answer(*alone.requests()[2:])
    assert [row["member_id"] for row in alone.wait_for_requests(5)[4:]] == ["m2"]
    alone.answer(alone.requests()[4])
    for wire in wires:
        assert wire.receive()["errorCode"] == 0
        wire.close()


@pytest.mark.parametrize("alone", [{"request_timeout_ms": 5_000}], indirect=True)
def test_time_in_which_the_gateway_itself_stood_still_makes_no_request_time_out(alone: Alone) -> None:
    with alone.wire() as wire, alone.wire() as joins:
        wire.send("Heartbeat", 4, HEARTBEAT)
        (row,) = alone.wait_for_requests(1)
        # It waits no longer than the heartbeat.
        joins.send("JoinGroup", 5, JOIN | {"rebalanceTimeoutMs": 0})
        join = alone.wait_for_requests(2)[1]
        resume = alone.stand_still()
        time.sleep(max(5, STOOD_STILL_S) + 0.5)
        resume()
        with alone.wire() as other:
            # Its turn comes after the timer's.
            other.ask("ApiVersions", 0, {})
        assert alone.gateway.status().timed_out == 0
        alone.answer(row)
        assert wire.receive()["errorCode"] == 0
        alone.answer(join, generationId=1, protocolName="range", leader="m", memberId="m", members=[])
        assert joins.receive()["errorCode"] == 0
        # Time that it doesn't stand still counts as ever.
        wire.send("Heartbeat", 4, HEARTBEAT)
        assert wire.receive()["errorCode"] == 15


@pytest.mark.parametrize("alone", [{"append_linger_ms": 0}], indirect=True)
def test_clients_that_gave_up_while_the_gateway_stood_still_do_not_live_on_in_the_log(alone: Alone) -> None:
    with alone.wire() as patient, alone.wire() as leaving:
        gone = [alone.wire() for _ in range(20)]
        wait(lambda: alone.gateway.status().connections == len(gone) + 2, "all are connected")
        resume = alone.stand_still()
        for number, wire in enumerate(gone):
            wire.send("Heartbeat", 4, HEARTBEAT | {"memberId": f"gone-{number}"})
            wire.close()
        patient.send("Heartbeat", 4, HEARTBEAT | {"memberId": "patient"})
        leaving.send("OffsetCommit", 8, commit(7))
        leaving.close()
        # Since the time was looked at last.
        time.sleep(1 + STOOD_STILL_S + 0.5)
        resume()
        (beat,) = [row for row in alone.wait_for_requests(2) if row["api"] == "Heartbeat"]
        assert beat["member_id"] == "patient"
        wait(lambda: alone.gateway.status().shed == len(gone), "all of theirs are dropped")
        alone.answer(beat)
        assert patient.receive()["errorCode"] == 0


@FEW
def test_of_a_client_that_is_gone_only_what_it_meant_without_an_answer_goes_on(alone: Alone) -> None:
    with alone.wire() as busy, alone.wire() as other:
        busy.send("Heartbeat", 4, HEARTBEAT)
        other.send("Heartbeat", 4, HEARTBEAT)
        full = alone.wait_for_requests(2)
        with alone.wire() as gone:
            gone.send("Heartbeat", 4, HEARTBEAT)
            gone.send("OffsetCommit", 8, commit(7))
            gone.send("Heartbeat", 4, HEARTBEAT)
            wait(lambda: alone.gateway.unanswered() == 5, "the gateway has them")
        wait(lambda: alone.gateway.unanswered() == 2, "it sees that the client is gone")
        alone.answer(*full)
        rows = alone.wait_for_requests(3)
        assert [row["api"] for row in rows] == ["Heartbeat", "Heartbeat", "OffsetCommit"]
        assert alone.gateway.status().shed == 2
        other.send("Heartbeat", 4, HEARTBEAT)
        assert len(alone.wait_for_requests(4)) == 4


def join(member_id: str = "", **more: object) -> dict[str, object]:
    protocols = [{"name": "range", "metadata": ""}]
    timeouts = {"sessionTimeoutMs": 10_000, "rebalanceTimeoutMs": 10_000}
    who = {"groupId": "g", "memberId": member_id, "groupInstanceId": None, "protocolType": "consumer"}
    return {**who, **timeouts, "protocols": protocols, **more}


def test_a_member_whose_client_is_gone_before_it_learnt_its_id_leaves(alone: Alone) -> None:
    with alone.wire() as wire:
        wire.send("JoinGroup", 5, join())
        (joined,) = alone.wait_for_requests(1)
    left = alone.wait_for_requests(2)[1]
    assert left["api"] == "LeaveGroup"
    members = msgspec.json.decode(left["body"])["members"]
    assert [member["memberId"] for member in members] == [joined["proposed_member_id"]]
    assert alone.gateway.status().withdrawn == 1
    with alone.wire() as wire:
        heartbeat = {"groupId": "new", "memberId": "", "memberEpoch": 0, "instanceId": None, "rackId": None}
        asked = {"rebalanceTimeoutMs": 1_000, "subscribedTopicNames": ["t1"], "topicPartitions": []}
        wire.send("ConsumerGroupHeartbeat", 0, {**heartbeat, **asked, "serverAssignor": None})
        joined = alone.wait_for_requests(3)[2]
    left = alone.wait_for_requests(4)[3]
    assert (left["member_id"], left["generation_or_epoch"]) == (joined["proposed_member_id"], -1)


def test_a_member_that_knows_its_id_or_has_an_instance_stays_when_its_connection_ends(alone: Alone) -> None:
    with alone.wire() as one, alone.wire() as two:
        one.send("JoinGroup", 5, join("known"))
        two.send("JoinGroup", 5, join(groupInstanceId="i"))
        alone.wait_for_requests(2)
    wait(lambda: alone.gateway.unanswered() == 0, "the gateway sees that they are gone")
    with alone.wire() as other:
        other.send("Heartbeat", 4, HEARTBEAT)
        assert [row["api"] for row in alone.wait_for_requests(3)] == ["JoinGroup", "JoinGroup", "Heartbeat"]


def test_what_clients_sent_during_a_pause_and_gave_up_is_not_handled_after_it(alone: Alone) -> None:
    with alone.wire() as known:
        known.send("Heartbeat", 4, HEARTBEAT)
        alone.wait_for_requests(1)
        resume = alone.stand_still()
        for _ in range(20):
            with alone.wire() as wire:
                wire.send("JoinGroup", 5, join())
        # Since the time was looked at last. After a shorter pause they may go to the log before their end is read.
        time.sleep(1 + STOOD_STILL_S + 0.5)
        resume()
        known.send("Heartbeat", 4, HEARTBEAT | {"memberId": "after"})
        wait(lambda: any(row["member_id"] == "after" for row in alone.requests()), "what is asked after it goes on")
    wait(lambda: alone.gateway.status().shed == 20, "all of theirs are dropped")
    assert alone.gateway.status().withdrawn == 0
    assert [row for row in alone.requests() if row["api"] == "JoinGroup"] == []


def _has(alone: Alone, count: int) -> bool:
    return alone.gateway.unanswered() == count
