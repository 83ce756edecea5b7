"""Groups of KIP-848 that were there before a log began: what descriptions tell of members that say nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from coordinator_udf.replay.tasks.run_and_compare import run_and_compare
from tests.replay.broker_log import KafkaLog, beat, read
from tests.replay.test_odd_lines import MISSING, ODD, body_of, changed, places


def member(member_id: str, epoch: int, *, instance_id: str | None = None) -> dict[str, Any]:
    """A member of a description, subscribed to a topic that isn't there."""
    nothing: dict[str, Any] = {"topicPartitions": []}
    return {
        "memberId": member_id, "instanceId": instance_id, "rackId": None, "memberEpoch": epoch,
        "clientId": "a", "clientHost": "/10.0.0.1", "subscribedTopicNames": ["none"],
        "subscribedTopicRegex": "", "assignment": nothing, "targetAssignment": nothing,
    }  # fmt: skip


def describe(log: KafkaLog, epoch: int, members: list[dict[str, Any]], *, arrives: float) -> str:
    """A description of group g, which is stable, with an assignor that isn't the broker's first."""
    group = {
        "errorCode": 0, "errorMessage": None, "groupId": "g", "groupState": "Stable", "groupEpoch": epoch,
        "assignmentEpoch": epoch, "assignorName": "range", "members": members, "authorizedOperations": -(2**31),
    }  # fmt: skip
    request = {"groupIds": ["g"], "includeAuthorizedOperations": False}
    answer = {"throttleTimeMs": 0, "groups": [group]}
    return log.add("CONSUMER_GROUP_DESCRIBE", request, answer, arrives=arrives, version=0, connection="d")


def expired(described_ms: list[float]) -> tuple[KafkaLog, list[str]]:
    """A group that m-2, silent since before the log, leaves by its session's end; the descriptions of it."""
    log = KafkaLog()
    for at_ms in (0, 5_000, 10_000):
        beat(log, "m-1", 5, 5, arrives=at_ms)
    both = [member("m-1", 5), member("m-2", 5, instance_id="i-2")]
    told = [describe(log, 5, both, arrives=at_ms) for at_ms in described_ms]
    beat(log, "m-1", 5, 6, arrives=15_000)
    describe(log, 6, [member("m-1", 6)], arrives=17_000)
    beat(log, "m-1", 6, 6, arrives=20_000)
    return log, told


def different(log: KafkaLog, tmp_path: Path) -> list[str | None]:
    _, verdict = run_and_compare(read(log, tmp_path))
    return [each.request_id for each in verdict.differences if each.undecided is None]


def test_a_silent_member_is_as_it_is_described_and_gone_by_when_it_is_not(tmp_path: Path) -> None:
    log, _ = expired([7_000, 8_000, 12_000])
    assert different(log, tmp_path) == []


def test_a_member_that_one_description_alone_tells_of_is_unexplained(tmp_path: Path) -> None:
    log, told = expired([7_000])
    assert different(log, tmp_path) == told


def test_what_is_told_of_a_member_later_is_judged(tmp_path: Path) -> None:
    log, _ = expired([7_000, 8_000])
    wrong = describe(log, 6, [member("m-1", 7)], arrives=21_000)
    assert different(log, tmp_path) == [wrong]


#: The first description's place among the lines, and the ways to what it says.
DESCRIBED: Final = 3
WAYS: Final = [way for way in places(body_of(expired([7_000])[0].lines[DESCRIBED])) if way[0] == "response"]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(WAYS), st.sampled_from([*ODD, MISSING]))
def test_whatever_is_odd_in_a_description_the_others_are_read(
    tmp_path: Path, way: tuple[str | int, ...], value: object
) -> None:
    log, told = expired([7_000, 8_000, 12_000])
    line = log.lines[DESCRIBED]
    body = body_of(line)
    log.lines[DESCRIBED] = line.replace(json.dumps(body), json.dumps(changed(body, way, value)))
    assume(log.lines[DESCRIBED] != line)
    rows = read(log, tmp_path).rows
    assert [row["request_id"] for row in rows if row["api"] == "ConsumerGroupDescribe"][-2] == told[-1]
    different(log, tmp_path)
