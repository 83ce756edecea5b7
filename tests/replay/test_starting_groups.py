"""Classic groups that were there before a log began: what their members are taken to have come with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coordinator_udf.replay.tasks.run_and_compare import run_and_compare
from tests.replay.broker_log import KafkaLog, read


def described(member_id: str = "", **fields: Any) -> dict[str, Any]:
    """What DescribeGroups says of a group g of one member, or of none."""
    of_member = {
        "memberId": member_id,
        "groupInstanceId": None,
        "clientId": "a",
        "clientHost": "/10.0.0.1",
        "memberMetadata": "AAA=",
        "memberAssignment": "",
        **fields,
    }
    group = {
        "errorCode": 0,
        "groupId": "g",
        "groupState": "Stable" if member_id else "Empty",
        "protocolType": "consumer",
        "protocolData": "range" if member_id else "",
        "members": [of_member] if member_id else [],
        "authorizedOperations": -(2**31),
    }
    return {"throttleTimeMs": 0, "groups": [group]}


def describe(log: KafkaLog, answer: dict[str, Any], *, arrives: float) -> None:
    request = {"groups": ["g"], "includeAuthorizedOperations": False}
    log.add("DESCRIBE_GROUPS", request, answer, arrives=arrives, version=5, connection="b")


@pytest.mark.parametrize(
    ("silent_ms", "gone_ms"),
    [(700, 44_000), (700, 12_000), (700, 9_000), (700, 3_000), (7_000, 12_000), (20_000, 60_000), (50_000, 70_000)],
)
def test_an_older_members_session_ended_by_when_it_was_gone(tmp_path: Path, silent_ms: int, gone_ms: int) -> None:
    log = KafkaLog()
    for number in range(4):
        log.heartbeat("m-1", generation=3, arrives=number * silent_ms)
    last_ms = 3 * silent_ms
    describe(log, described("m-1"), arrives=last_ms + 1_000)
    describe(log, described(), arrives=last_ms + gone_ms)
    _, verdict = run_and_compare(read(log, tmp_path))
    assert verdict.differences == []


def test_an_older_static_member_is_called_as_it_is_described_later(tmp_path: Path) -> None:
    log = KafkaLog()
    for number in range(3):
        log.heartbeat("m-1", generation=3, arrives=number * 1_000, connection="c", groupInstanceId="i-1")
    describe(log, described("m-1", groupInstanceId="i-1", clientId="first"), arrives=5_000)
    _, verdict = run_and_compare(read(log, tmp_path))
    assert verdict.differences == []


@pytest.mark.parametrize("older", [True, False])
def test_a_young_group_whose_member_was_not_seen_coming_is_older_than_the_log(tmp_path: Path, *, older: bool) -> None:
    log = KafkaLog()
    if not older:
        log.join("", "m-1", 79, arrives=0)
        log.join("m-1", "m-1", arrives=10, takes=3_000)
    # Somebody who is in no line of the log died: the group is rebalanced.
    told = log.heartbeat("m-1", 27, generation=1, arrives=8_000)
    log.join("m-1", "m-1", generation=2, arrives=8_100)
    log.heartbeat("m-1", generation=2, arrives=10_000)
    _, verdict = run_and_compare(read(log, tmp_path))
    assert [each.request_id for each in verdict.differences if each.undecided is None][:1] == ([] if older else [told])
