"""Regular expressions, assignments and intervals whose results come when the answers tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coordinator_udf.replay.recording import ReplaySource
from coordinator_udf.replay.tasks.run_and_compare import run_and_compare
from tests.replay.broker_log import KafkaLog, beat, read


def regex_beat(log: KafkaLog, member_id: str, **place: Any) -> str:
    """A member joins with a regular expression that matches the topic t, of one partition."""
    request = {
        "groupId": "g", "memberId": member_id, "memberEpoch": 0, "instanceId": None, "rackId": None,
        "rebalanceTimeoutMs": 5_000, "subscribedTopicNames": None, "subscribedTopicRegex": "t.*",
        "serverAssignor": None, "topicPartitions": [],
    }  # fmt: skip
    answer: dict[str, Any] = {
        "throttleTimeMs": 0, "errorCode": 0, "errorMessage": None, "memberId": member_id, "memberEpoch": 1,
        "heartbeatIntervalMs": 5_000, "assignment": {"topicPartitions": []},
    }  # fmt: skip
    return log.add("CONSUMER_GROUP_HEARTBEAT", request, answer, version=1, **place)


def with_regex(tmp_path: Path, *, between: float) -> tuple[list[str | None], ReplaySource, str]:
    """A regular expression whose topics the group hears of only after another member came; what differs."""
    log = KafkaLog()
    topic = {"name": "t", "topicId": "dDuB9sKHSH2yzoaSQLuYpw", "errorCode": 0, "errorMessage": None,
             "topicConfigErrorCode": 0, "numPartitions": 1, "replicationFactor": 1, "configs": []}  # fmt: skip
    created = {
        "topics": [{"name": "t", "numPartitions": 1, "replicationFactor": 1}],
        "timeoutMs": 1,
        "validateOnly": False,
    }
    log.add("CREATE_TOPICS", created, {"throttleTimeMs": 0, "topics": [topic]}, version=7, arrives=0)
    regex_beat(log, "m-1", arrives=3_000, connection="a")
    second = beat(log, "m-2", 0, 2, gets=True, arrives=3_000 + between, connection="b")
    source = read(log, tmp_path)
    _, verdict = run_and_compare(source)
    return [difference.request_id for difference in verdict.differences], source, second


def test_what_a_regular_expression_matches_may_be_known_later(tmp_path: Path) -> None:
    different, source, _ = with_regex(tmp_path, between=5)
    assert different == []
    assert [row["api"] for row in source.rows if row["api"] in {"DelayRegexes", "DelayTimers"}] == [
        "DelayRegexes",
        "DelayTimers",
    ]


def test_what_a_regular_expression_matches_is_known_soon(tmp_path: Path) -> None:
    different, _, second = with_regex(tmp_path, between=900)
    assert different == [second]


def with_interval(tmp_path: Path, *, takes: float) -> tuple[list[str | None], list[str]]:
    """An assignment that is made while the first heartbeat is under way; what differs, and the last heartbeats."""
    log = KafkaLog()
    beat(log, "m-1", 0, 2, gets=True, arrives=0, takes=takes, connection="a")
    beat(log, "m-2", 0, 2, gets=True, arrives=700, connection="b")
    last = [beat(log, "m-1", 2, 2, arrives=1_100 + 80 * number, connection="a") for number in range(6)]
    beat(log, "m-1", 2, 3, arrives=1_620, connection="a")
    _, verdict = run_and_compare(read(log, tmp_path))
    return [difference.request_id for difference in verdict.differences], last


def test_an_interval_begins_as_late_as_the_answers_say(tmp_path: Path) -> None:
    different, _ = with_interval(tmp_path, takes=600)
    assert different == []


def test_an_interval_begins_no_later_than_its_window(tmp_path: Path) -> None:
    different, last = with_interval(tmp_path, takes=50)
    assert different
    assert set(different) <= set(last)


def with_early_begin(tmp_path: Path, *, last: float) -> tuple[list[str | None], str]:
    """An assignment that is made while a heartbeat is under way, and the next, told at a time; what differs, and it."""
    log = KafkaLog()
    beat(log, "m-1", 0, 2, gets=True, arrives=0, takes=600, connection="a")
    beat(log, "m-2", 0, 2, gets=True, arrives=700, connection="b")
    told = beat(log, "m-1", 2, 3, arrives=last, connection="a")
    _, verdict = run_and_compare(read(log, tmp_path))
    return [difference.request_id for difference in verdict.differences], told


def test_an_interval_begins_as_early_as_the_answers_say(tmp_path: Path) -> None:
    assert with_early_begin(tmp_path, last=1_050)[0] == []


def test_an_interval_begins_no_earlier_than_its_window(tmp_path: Path) -> None:
    different, told = with_early_begin(tmp_path, last=950)
    assert different == [told]
