"""A broker answers commits and fetches by its metadata cache, which hears of topics before the coordinator does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from coordinator_udf.protocol.requests import Topic
from coordinator_udf.replay.inputs.broker_log.metadata_cache import MetadataCaches
from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import ReplaySource
from coordinator_udf.replay.tasks.run_and_compare import run_and_compare
from tests.replay.broker_log import KafkaLog

_OLD, _NEW = Topic("old", 1, "3vNQCJG2Rk6c2gxeoDo1kw"), Topic("new", 1, "dUFSjgk6R0SS1X6TO46Cdw")
_NOTE = "topics as in the broker's metadata cache beside a change, taken from answers"
_OK, _UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN_TOPIC_ID = 0, 3, 100


@pytest.mark.parametrize("version", [9, 10])
def test_a_commit_goes_by_the_cache_where_the_coordinator_has_not_heard_of_a_topic(
    version: int, tmp_path: Path
) -> None:
    log = made()
    commit(log, _OK, arrives=3_010, version=version)
    beat(log, 2, 2, arrives=3_030)
    beat(log, 2, 3, arrives=8_000, gets=(_NEW, _OLD))
    source = without_difference(log, tmp_path, (_OLD,))
    assert cached_in(source) == [[{"name": "new", "partitions": 1, "id": _NEW.id}]]
    assert source.notes[_NOTE] == 1


@pytest.mark.parametrize("api", ["commit", "fetch"])
def test_what_is_deleted_in_the_cache_is_there_for_the_coordinator_for_a_while(api: str, tmp_path: Path) -> None:
    log = deleted()
    if api == "commit":
        commit(log, _UNKNOWN_TOPIC_OR_PARTITION, arrives=3_010, version=9)
    else:
        fetch(log, _UNKNOWN_TOPIC_ID, arrives=3_010)
    beat(log, 2, 2, arrives=3_030)
    beat(log, 2, 2, arrives=8_000, gets=(_OLD,))
    source = without_difference(log, tmp_path, (_OLD, _NEW))
    assert cached_in(source) == [[{"name": "new"}]]


def test_without_what_the_cache_has_no_order_explains_the_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MetadataCaches, "beside", lambda *_: [])
    log = made()
    commit(log, _OK, arrives=3_010, version=9)
    beat(log, 2, 2, arrives=3_030)
    beat(log, 2, 3, arrives=8_000, gets=(_NEW, _OLD))
    assert differences(log, tmp_path, (_OLD,)) != []


def test_long_after_a_change_both_know_the_same(tmp_path: Path) -> None:
    log = made()
    beat(log, 2, 3, arrives=8_000, gets=(_NEW, _OLD))
    commit(log, _UNKNOWN_TOPIC_OR_PARTITION, arrives=8_100, version=9)
    assert differences(log, tmp_path, (_OLD,)) == ["OffsetCommit"]


def test_what_a_topic_was_like_long_before_is_not_taken(tmp_path: Path) -> None:
    log = deleted()
    told = [{"name": "new", "topicId": "AAAAAAAAAAAAAAAAAAAAAg", "errorCode": 0, "numPartitions": 1}]
    asked = {"topics": [{"name": "new", "numPartitions": 1}]}
    log.add("CREATE_TOPICS", asked, {"topics": told}, arrives=5_990, takes=10, connection="c")
    # It has another id now.
    fetch(log, _OK, arrives=6_010)
    assert differences(log, tmp_path, (_OLD, _NEW)) == ["OffsetFetch"]


def test_an_answer_that_neither_before_nor_after_explains_is_not_taken(tmp_path: Path) -> None:
    log = made()
    commit(log, _OK, arrives=3_010, version=9, partition=1)
    assert differences(log, tmp_path, (_OLD,)) == ["OffsetCommit"]


def made() -> KafkaLog:
    """A member that waits for a topic, which is made after 3 s."""
    log = KafkaLog()
    beat(log, 0, 2, arrives=0, gets=(_OLD,))
    asked = {"topics": [{"name": "new", "numPartitions": 1}]}
    told = [{"name": "new", "topicId": _NEW.id, "errorCode": 0, "numPartitions": 1}]
    log.add("CREATE_TOPICS", asked, {"topics": told}, arrives=2_990, takes=10, connection="c")
    return log


def deleted() -> KafkaLog:
    """A member that has two topics, one of which is deleted after 3 s."""
    log = KafkaLog()
    beat(log, 0, 2, arrives=0, gets=(_NEW, _OLD))
    told = [{"name": "new", "topicId": _NEW.id, "errorCode": 0}]
    log.add(
        "DELETE_TOPICS", {"topics": [{"name": "new"}]}, {"responses": told}, arrives=2_990, takes=10, connection="c"
    )
    return log


def beat(log: KafkaLog, epoch: int, answered: int, *, arrives: float, gets: tuple[Topic, ...] | None = None) -> None:
    assignment = None if gets is None else {"topicPartitions": [{"topicId": t.id, "partitions": [0]} for t in gets]}
    request = {
        "groupId": "g", "memberId": "m", "memberEpoch": epoch, "instanceId": None, "rackId": None,
        "rebalanceTimeoutMs": 60_000 if epoch == 0 else -1,
        "subscribedTopicNames": ["new", "old"] if epoch == 0 else None, "subscribedTopicRegex": None,
        "serverAssignor": None, "topicPartitions": [] if epoch == 0 else None,
    }  # fmt: skip
    answer = {
        "throttleTimeMs": 0, "errorCode": 0, "errorMessage": None, "memberId": "m", "memberEpoch": answered,
        "heartbeatIntervalMs": 5_000, "assignment": assignment,
    }  # fmt: skip
    log.add("CONSUMER_GROUP_HEARTBEAT", request, answer, arrives=arrives, version=1, connection="a")


def commit(log: KafkaLog, error: int, *, arrives: float, version: int, partition: int = 0) -> None:
    topic = {"topicId": _NEW.id} if version == 10 else {"name": "new"}
    place = {"partitionIndex": partition, "committedOffset": 7, "committedLeaderEpoch": -1, "committedMetadata": ""}
    request = {
        "groupId": "g", "generationIdOrMemberEpoch": 2, "memberId": "m", "groupInstanceId": None,
        "topics": [{**topic, "partitions": [place]}],
    }  # fmt: skip
    told = [{**topic, "partitions": [{"partitionIndex": partition, "errorCode": error}]}]
    log.add("OFFSET_COMMIT", request, {"throttleTimeMs": 0, "topics": told}, arrives=arrives, version=version)


def fetch(log: KafkaLog, error: int, *, arrives: float) -> None:
    asked = {"groupId": "g", "memberId": "m", "memberEpoch": 2}
    topic = {"topicId": _NEW.id, "partitionIndexes": [0]}
    place = {"partitionIndex": 0, "committedOffset": -1, "committedLeaderEpoch": -1, "metadata": "", "errorCode": error}
    told = {"groupId": "g", "errorCode": 0, "topics": [{"topicId": _NEW.id, "partitions": [place]}]}
    request = {"groups": [{**asked, "topics": [topic]}], "requireStable": True}
    log.add("OFFSET_FETCH", request, {"throttleTimeMs": 0, "groups": [told]}, arrives=arrives, version=10)


def without_difference(log: KafkaLog, tmp_path: Path, topics: tuple[Topic, ...]) -> ReplaySource:
    source = read_source(log.write(tmp_path / "log"), "log", ReplayOptions(partitions=1, topics=topics))
    _, verdict = run_and_compare(source)
    assert verdict.differences == []
    return source


def differences(log: KafkaLog, tmp_path: Path, topics: tuple[Topic, ...]) -> list[str]:
    source = read_source(log.write(tmp_path / "log"), "log", ReplayOptions(partitions=1, topics=topics))
    _, verdict = run_and_compare(source)
    return [difference.api for difference in verdict.differences]


def cached_in(source: ReplaySource) -> list[Any]:
    bodies = [msgspec.json.decode(row["body"]) for row in source.rows if row["api"] in {"OffsetCommit", "OffsetFetch"}]
    return [body["metadataCache"] for body in bodies if "metadataCache" in body]
