"""Topics that no line names, of which those tell who were assigned other topics' partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from coordinator_udf.protocol.requests import Topic
from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import ReplaySource
from coordinator_udf.replay.tasks.run_and_compare import run_and_compare
from tests.replay.broker_log import KafkaLog

_ID = "3vNQCJG2Rk6c2gxeoDo1kw"
_NOTE = "topics that no line names, taken to exist as members were assigned so"


def test_a_topic_that_an_expression_matches_is_found_by_what_others_keep(tmp_path: Path) -> None:
    path = two_members(kept=[0, 1, 2, 3]).write(tmp_path / "log")
    source = left_unexplained(path, [])
    assert source.notes[_NOTE] == 1
    assert {tuple(told) for told in topics_of(source)} == {("t1", "t0unseen")}


def test_a_topic_that_is_given_is_not_looked_for(tmp_path: Path) -> None:
    path = two_members(kept=[0, 1, 2, 3]).write(tmp_path / "log")
    source = left_unexplained(path, [], topics=(Topic("t2", 4),))
    assert source.notes[_NOTE] == 0


def test_no_topic_is_supposed_where_the_named_ones_explain_all(tmp_path: Path) -> None:
    path = two_members(kept=[0, 1]).write(tmp_path / "log")
    source = left_unexplained(path, [])
    assert source.notes[_NOTE] == 0


@pytest.mark.parametrize("settings", [{}, {"group.consumer.heartbeat.interval.ms": "6000"}])
def test_what_no_topic_explains_stays_unexplained(settings: dict[str, str], tmp_path: Path) -> None:
    # Nobody else has the partition that is taken away.
    path = two_members(kept=[0, 3] if not settings else [0, 1, 2, 3]).write(tmp_path / "log")
    source = read_source(path, "log", ReplayOptions(partitions=1, overrides=settings))
    _, verdict = run_and_compare(source)
    assert sum(verdict.different.values()) > 0
    assert source.notes[_NOTE] == 0
    assert {tuple(told) for told in topics_of(source)} == {("t1",)}


def left_unexplained(path: Path, expected: list[str], topics: tuple[Topic, ...] = ()) -> ReplaySource:
    source = read_source(path, "log", ReplayOptions(partitions=1, topics=topics))
    _, verdict = run_and_compare(source)
    assert [difference.api for difference in verdict.differences] == expected
    return source


def topics_of(source: ReplaySource) -> list[list[str]]:
    bodies = [msgspec.json.decode(row["body"]) for row in source.rows if row["api"] == "TopicMetadata"]
    return [[topic["name"] for topic in body["topics"]] for body in bodies]


def two_members(kept: list[int]) -> KafkaLog:
    """A member that has a topic, and one that subscribes by an expression and is never told what it gets.

    Args:
        kept: which of the four partitions the first member is left then.
    """
    log = KafkaLog()
    everything = [0, 1, 2, 3]
    beat(log, "a", 0, 2, arrives=0, names=["t1"], gets=everything)
    beat(log, "b", 0, 2, arrives=5_000, regex="t.*", gets=[])
    told = None if kept == everything else kept
    beat(log, "a", 2, 3 if told is None else 2, arrives=6_500, has=everything, gets=told)
    return log


def beat(
    log: KafkaLog, member_id: str, epoch: int, answered: int, *, arrives: float, gets: list[int] | None,
    has: list[int] | None = None, names: list[str] | None = None, regex: str | None = None,
) -> None:  # fmt: skip
    def topics(partitions: list[int] | None) -> list[dict[str, Any]]:
        return [{"topicId": _ID, "partitions": partitions}] if partitions else []

    request = {
        "groupId": "g", "memberId": member_id, "memberEpoch": epoch, "instanceId": None, "rackId": None,
        "rebalanceTimeoutMs": 60_000 if epoch == 0 else -1, "subscribedTopicNames": names,
        "subscribedTopicRegex": regex, "serverAssignor": None,
        "topicPartitions": topics(has) if has or epoch == 0 else None,
    }  # fmt: skip
    answer = {
        "throttleTimeMs": 0, "errorCode": 0, "errorMessage": None, "memberId": member_id, "memberEpoch": answered,
        "heartbeatIntervalMs": 5_000, "assignment": None if gets is None else {"topicPartitions": topics(gets)},
    }  # fmt: skip
    log.add("CONSUMER_GROUP_HEARTBEAT", request, answer, arrives=arrives, version=1, connection=member_id)
