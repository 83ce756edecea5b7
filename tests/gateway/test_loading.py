"""A gateway whose coordinator loads: requests wait for it, are told that it loads, and go on when it has."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.alone import Alone
from tests.gateway.wire import HEARTBEAT
from tests.waiting import wait

JOIN = {
    "groupId": "g",
    "sessionTimeoutMs": 10_000,
    "rebalanceTimeoutMs": 10_000,
    "memberId": "",
    "groupInstanceId": None,
    "protocolType": "consumer",
    "protocols": [{"name": "range", "metadata": ""}],
}
MEMBER = {"groupId": "g", "generationId": 1, "memberId": "m", "groupInstanceId": None}
LEAVE = {"groupId": "g", "members": [{"memberId": "m", "groupInstanceId": None}]}
PLACE = {"partitionIndex": 0, "committedOffset": 1, "committedLeaderEpoch": -1, "committedMetadata": ""}
COMMIT = {
    "groupId": "g",
    "generationIdOrMemberEpoch": 1,
    "memberId": "m",
    "groupInstanceId": None,
    "topics": [{"name": "t1", "partitions": [PLACE]}],
}

SHORT = pytest.mark.parametrize("alone", [{"is_loading": True, "loading_hold_ms": 50}], indirect=True)
LONG = pytest.mark.parametrize("alone", [{"is_loading": True, "loading_hold_ms": 600_000}], indirect=True)


@SHORT
@pytest.mark.parametrize(
    ("api", "version", "body", "code"),
    [
        ("Heartbeat", 4, HEARTBEAT, 0),
        ("JoinGroup", 5, JOIN, 14),
        ("SyncGroup", 3, {**MEMBER, "assignments": []}, 27),
        ("LeaveGroup", 3, LEAVE, 14),
        ("ListGroups", 4, {"statesFilter": []}, 14),
    ],
)
def test_who_waits_for_long_is_told_that_the_coordinator_loads(
    alone: Alone, api: str, version: int, body: dict[str, Any], code: int
) -> None:
    with alone.wire() as wire:
        assert wire.ask(api, version, body)["errorCode"] == code
        (topic,) = wire.ask("OffsetCommit", 8, COMMIT)["topics"]
        assert [partition["errorCode"] for partition in topic["partitions"]] == [14]
    alone.gateway.loaded()
    with alone.wire() as wire:
        wire.send("Heartbeat", 4, HEARTBEAT)
        # What was answered is not asked again.
        assert [row["api"] for row in alone.wait_for_requests(1)] == ["Heartbeat"]
    assert alone.gateway.status().shed == 0


@LONG
def test_who_waits_when_the_coordinator_has_loaded_is_answered_by_it(alone: Alone) -> None:
    with alone.wire() as wire, alone.wire() as gone:
        wire.send("Heartbeat", 4, HEARTBEAT)
        wait(lambda: alone.gateway.unanswered() == 1, "the gateway has it")
        gone.send("Heartbeat", 4, HEARTBEAT)
        gone.send("LeaveGroup", 3, LEAVE)
        wait(lambda: alone.gateway.unanswered() == 3, "the gateway has them")
        gone.close()
        wait(lambda: alone.gateway.unanswered() == 1, "it sees that the client is gone")
        assert alone.requests() == []
        alone.gateway.loaded()
        asked = alone.wait_for_requests(2)
        assert [row["api"] for row in asked] == ["Heartbeat", "LeaveGroup"]
        alone.answer(asked[0])
        assert wire.receive()["errorCode"] == 0
