"""What a request log tells of topics: when they came, grew and went, and which id is whose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from coordinator_udf.replay.recording import ReplaySource
from coordinator_udf.replay.tasks.run_and_compare import run_and_compare
from tests.replay.broker_log import KafkaLog, commit, one_member, read


def topics_by_time(source: ReplaySource) -> list[list[tuple[str, int]]]:
    bodies = [msgspec.json.decode(row["body"]) for row in source.rows if row["api"] == "TopicMetadata"]
    return [[(topic["name"], topic["partitions"]) for topic in body["topics"]] for body in bodies]


def test_topics_come_and_grow_and_go_as_the_log_tells(tmp_path: Path) -> None:
    log = KafkaLog()
    created = [{"name": "new", "topicId": "x", "errorCode": 0, "numPartitions": 2}]
    log.add("CREATE_TOPICS", {"topics": [{"name": "new", "numPartitions": 2}]}, {"topics": created}, arrives=10)
    grown = [{"name": "new", "errorCode": 0}]
    log.add("CREATE_PARTITIONS", {"topics": [{"name": "new", "count": 3}]}, {"results": grown}, arrives=20)
    failed = [{"name": "new", "errorCode": 36, "numPartitions": -1}]
    log.add("CREATE_TOPICS", {"topics": [{"name": "new", "numPartitions": 9}]}, {"topics": failed}, arrives=25)
    gone = [{"name": "new", "topicId": "x", "errorCode": 0}]
    log.add("DELETE_TOPICS", {"topics": [{"name": "new"}]}, {"responses": gone}, arrives=30)
    log.heartbeat("m", 25, arrives=40)
    assert topics_by_time(read(log, tmp_path)) == [[], [("new", 2)], [("new", 3)], []]


def test_a_forwarded_growth_is_there_by_its_first_answer(tmp_path: Path) -> None:
    log = KafkaLog()
    asked = {"topics": [{"name": "new", "numPartitions": 2}]}
    made = {"topics": [{"name": "new", "topicId": "x", "errorCode": 0, "numPartitions": 2}]}
    log.add("CREATE_TOPICS", asked, made, arrives=10, takes=60)
    log.add("CREATE_TOPICS", asked, made, arrives=20, takes=5, connection="b")
    grown = {"topics": [{"name": "new", "count": 3}]}, {"results": [{"name": "new", "errorCode": 0}]}
    log.add("CREATE_PARTITIONS", *grown, arrives=30, takes=5, connection="c")
    log.heartbeat("m", 25, arrives=50, connection="d")
    log.heartbeat("m", 25, arrives=90, connection="d")
    assert topics_by_time(read(log, tmp_path)) == [[], [("new", 2)], [("new", 3)]]


def test_growth_of_a_topic_that_was_not_asked_for_is_rejected_and_the_rest_is_read(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    other = [{"name": "other", "errorCode": 0}]
    log.add("CREATE_PARTITIONS", {"topics": [{"name": "t", "count": 3}]}, {"results": other}, arrives=20)
    source = read(log, tmp_path)
    (rejection,) = source.rejections
    assert "response.results.name is 'other', expected one of ['t']" in rejection.reason
    assert source.requests == 4


def test_a_topic_is_older_than_the_log_where_commits_were_accepted_and_unknown_where_refused(tmp_path: Path) -> None:
    log = KafkaLog()
    commit(log, {"name": "t1"}, 0, arrives=0, version=9)
    commit(log, {"name": "t1"}, 3, partition=99, arrives=5, version=9)
    commit(log, {"name": "nothing"}, 3, arrives=10, version=9)
    source = read(log, tmp_path)
    assert topics_by_time(source) == [[("t1", 3)]]
    _, verdict = run_and_compare(source)
    assert verdict.differences == []


def test_a_topics_name_is_found_by_what_is_fetched_under_it(tmp_path: Path) -> None:
    topic_id = "3vNQCJG2Rk6c2gxeoDo1kw"
    log = KafkaLog()
    commit(log, {"name": "t1"}, 0, arrives=0, version=9)
    partition = {
        "partitionIndex": 2, "committedOffset": 7, "committedLeaderEpoch": -1, "metadata": "", "errorCode": 0
    }  # fmt: skip
    group = {"groupId": "g", "topics": [{"topicId": topic_id, "partitions": [partition]}], "errorCode": 0}
    asked = {
        "groupId": "g", "memberId": None, "memberEpoch": -1,
        "topics": [{"topicId": topic_id, "partitionIndexes": [2]}],
    }  # fmt: skip
    fetch = {"groups": [asked], "requireStable": False}
    log.add("OFFSET_FETCH", fetch, {"throttleTimeMs": 0, "groups": [group]}, arrives=10, version=10)
    commit(log, {"topicId": topic_id}, 0, arrives=20, version=10)
    source = read(log, tmp_path)
    assert source.notes == {"topic ids matched with names by what answers imply": 1}
    _, verdict = run_and_compare(source)
    assert verdict.differences == []


def test_who_asks_for_all_offsets_is_told_of_those_that_are_older_than_the_log_even_of_none(tmp_path: Path) -> None:
    log = KafkaLog()
    told = [
        {"partitionIndex": place, "committedOffset": offset, "committedLeaderEpoch": -1, "metadata": "", "errorCode": 0}
        for place, offset in ((2, -1), (0, 605))
    ]
    group = {"groupId": "g", "topics": [{"name": "t1", "partitions": told}], "errorCode": 0}
    fetch = {"groups": [{"groupId": "g", "memberId": None, "memberEpoch": -1, "topics": None}], "requireStable": False}
    log.add("OFFSET_FETCH", fetch, {"throttleTimeMs": 0, "groups": [group]}, arrives=10, version=9)
    _, verdict = run_and_compare(read(log, tmp_path))
    assert [difference for difference in verdict.differences if difference.undecided is None] == []


def test_a_topics_id_is_found_by_who_was_assigned_it(tmp_path: Path) -> None:
    topic_id = "3vNQCJG2Rk6c2gxeoDo1kw"
    log = KafkaLog()
    # An old version of CreateTopics answers without the id.
    created = {"name": "t1", "errorCode": 0, "errorMessage": None}
    wanted = {"name": "t1", "numPartitions": 2, "replicationFactor": 1, "assignments": [], "configs": []}
    log.add("CREATE_TOPICS", {"topics": [wanted], "validateOnly": False}, {"topics": [created]}, arrives=0, version=4)
    asked = {
        "groupId": "g", "memberId": "m", "memberEpoch": 0, "instanceId": None, "rackId": None,
        "rebalanceTimeoutMs": 1000, "subscribedTopicNames": ["t1"], "subscribedTopicRegex": None,
        "serverAssignor": None, "topicPartitions": [],
    }  # fmt: skip
    assignment = {"topicPartitions": [{"topicId": topic_id, "partitions": [0, 1]}]}
    answer = {
        "throttleTimeMs": 0, "errorCode": 0, "errorMessage": None, "memberId": "m", "memberEpoch": 2,
        "heartbeatIntervalMs": 5000, "assignment": assignment,
    }  # fmt: skip
    log.add("CONSUMER_GROUP_HEARTBEAT", asked, answer, arrives=1_000, version=1)
    source = read(log, tmp_path)
    _, verdict = run_and_compare(source)
    assert verdict.differences == []
    assert source.notes == {"topic ids matched with names by what answers imply": 1}


def subscribed(
    log: KafkaLog, regex: str, topic_ids: list[str], *, group: str = "g", arrives: int = 1_000, connection: str = "a"
) -> KafkaLog:
    """Adds a member that subscribes by an expression, and that hears of its assignment, if any, when it beats."""
    asked = {
        "groupId": group, "memberId": "m", "memberEpoch": 0, "instanceId": None, "rackId": None,
        "rebalanceTimeoutMs": 1000, "subscribedTopicNames": [], "subscribedTopicRegex": regex,
        "serverAssignor": None, "topicPartitions": [],
    }  # fmt: skip
    answer: dict[str, Any] = {
        "throttleTimeMs": 0, "errorCode": 0, "errorMessage": None, "memberId": "m", "memberEpoch": 1,
        "heartbeatIntervalMs": 5000, "assignment": {"topicPartitions": []},
    }  # fmt: skip
    beats = {**asked, "memberEpoch": 1, "subscribedTopicNames": None, "subscribedTopicRegex": None}
    assigned = {"topicPartitions": [{"topicId": topic_id, "partitions": [0, 1]} for topic_id in topic_ids]}
    told = {**answer, "memberEpoch": 2, "assignment": assigned} if topic_ids else {**answer, "assignment": None}
    place: dict[str, Any] = {"connection": connection, "version": 1}
    log.add("CONSUMER_GROUP_HEARTBEAT", asked, answer, arrives=arrives, **place)
    log.add("CONSUMER_GROUP_HEARTBEAT", beats, told, arrives=arrives + 1_500, **place)
    return log


@pytest.mark.parametrize("regex", ["orders.*", "(orders|bills)-[a-c].*", r"^orders\.eu.+$"])
def test_a_topic_without_a_name_has_one_that_the_expressions_match_by_which_it_is_assigned(
    regex: str, tmp_path: Path
) -> None:
    log = subscribed(KafkaLog(), regex, ["3vNQCJG2Rk6c2gxeoDo1kw", "4vNQCJG2Rk6c2gxeoDo1kw"])
    _, verdict = run_and_compare(read(log, tmp_path))
    assert verdict.differences == []


def test_two_topics_without_a_name_share_none(tmp_path: Path) -> None:
    log = subscribed(KafkaLog(), "orders", ["3vNQCJG2Rk6c2gxeoDo1kw", "4vNQCJG2Rk6c2gxeoDo1kw"])
    _, verdict = run_and_compare(read(log, tmp_path))
    assert len(verdict.differences) == 1


def test_partitions_that_came_with_a_growth_are_not_there_before_it(tmp_path: Path) -> None:
    log = KafkaLog()
    commit(log, {"name": "t1"}, 0, partition=1, arrives=0, version=9)
    grown = {"topics": [{"name": "t1", "count": 4}]}, {"results": [{"name": "t1", "errorCode": 0}]}
    log.add("CREATE_PARTITIONS", *grown, arrives=10, takes=5, connection="b")
    commit(log, {"name": "t1"}, 0, partition=3, arrives=30, version=9)
    assert topics_by_time(read(log, tmp_path)) == [[("t1", 2)], [("t1", 4)]]


@pytest.mark.parametrize("asks", ["fetches", "commits"])
def test_a_topics_id_is_found_by_the_partitions_that_its_owner_asks_for_by_name(asks: str, tmp_path: Path) -> None:
    wide, narrow = "AAAAAAAAAAAAAAAAAAAAAg", "AAAAAAAAAAAAAAAAAAAAAw"
    owned = [{"topicId": wide, "partitions": [0, 1, 2]}, {"topicId": narrow, "partitions": [0]}]
    asked = [("few", [0]), ("many", [1, 2])]
    log = KafkaLog()
    request = {"groupId": "g", "memberId": "m", "memberEpoch": 0, "subscribedTopicRegex": "few|many"}
    answer = {"errorCode": 0, "memberId": "m", "memberEpoch": 2, "assignment": {"topicPartitions": owned}}
    log.add("CONSUMER_GROUP_HEARTBEAT", {**request, "topicPartitions": []}, answer, arrives=0, version=1)
    if asks == "fetches":
        topics = [{"name": name, "partitionIndexes": partitions} for name, partitions in asked]
        group = {"groupId": "g", "memberId": None, "memberEpoch": -1, "topics": topics}
        places = [
            {"name": name, "partitions": [{"partitionIndex": p, "committedOffset": -1, "errorCode": 0} for p in own]}
            for name, own in asked
        ]
        log.add(
            "OFFSET_FETCH",
            {"groups": [group], "requireStable": True},
            {"groups": [{"groupId": "g", "topics": places}]},
            arrives=10,
            version=9,
        )
    else:
        topics = [
            {"name": name, "partitions": [{"partitionIndex": p, "committedOffset": 1} for p in places]}
            for name, places in asked
        ]
        told = [
            {"name": name, "partitions": [{"partitionIndex": p, "errorCode": 0} for p in places]}
            for name, places in asked
        ]
        member = {"groupId": "g", "memberId": "m", "generationIdOrMemberEpoch": 2}
        log.add("OFFSET_COMMIT", {**member, "topics": topics}, {"topics": told}, arrives=10, version=9)
    source = read(log, tmp_path)
    body = next(row["body"] for row in source.rows if row["api"] == "TopicMetadata")
    ids = {topic["name"]: topic["id"] for topic in msgspec.json.decode(body)["topics"]}
    # What nobody but the owner of both asks for may be either; what no other can be is settled first.
    assert ids == {"many": wide, "few": narrow}


def test_a_topic_that_is_only_fetched_by_its_id_was_there_if_the_broker_knew_it(tmp_path: Path) -> None:
    known, unknown = "3vNQCJG2Rk6c2gxeoDo1kw", "4vNQCJG2Rk6c2gxeoDo1kw"
    log = KafkaLog()
    commit(log, {"name": "t1"}, 0, arrives=0, version=9)
    for place, (topic_id, error) in enumerate([(known, 0), (unknown, 100)]):
        partition = {
            "partitionIndex": 1, "committedOffset": -1, "committedLeaderEpoch": -1, "metadata": "", "errorCode": error,
        }  # fmt: skip
        asked = {"groupId": "g", "memberId": None, "memberEpoch": -1,
                 "topics": [{"topicId": topic_id, "partitionIndexes": [1]}]}  # fmt: skip
        told = {"groupId": "g", "errorCode": 0, "topics": [{"topicId": topic_id, "partitions": [partition]}]}
        answer = {"throttleTimeMs": 0, "groups": [told]}
        log.add(
            "OFFSET_FETCH", {"groups": [asked], "requireStable": True}, answer, arrives=1_000 * (place + 1), version=10
        )
    source = read(log, tmp_path)
    _, verdict = run_and_compare(source)
    assert [each for each in verdict.differences if each.undecided is None] == []
    assert topics_by_time(source) == [[("t1", 3), (known, 2)]]


def beats(log: KafkaLog, names: list[str], topic_ids: list[str], *, member: str, arrives: int) -> None:
    """Adds the first heartbeat of a member that subscribes by names, in a group of its own, and all that it gets."""
    asked = {
        "groupId": member, "memberId": member, "memberEpoch": 0, "instanceId": None, "rackId": None,
        "rebalanceTimeoutMs": 1000, "subscribedTopicNames": names, "subscribedTopicRegex": None,
        "serverAssignor": None, "topicPartitions": [],
    }  # fmt: skip
    answer = {
        "throttleTimeMs": 0, "errorCode": 0, "errorMessage": None, "memberId": member, "memberEpoch": 2,
        "heartbeatIntervalMs": 5000,
        "assignment": {"topicPartitions": [{"topicId": each, "partitions": [0, 1, 2]} for each in topic_ids]},
    }  # fmt: skip
    log.add("CONSUMER_GROUP_HEARTBEAT", asked, answer, arrives=arrives, version=1)


_IDS = ["3vNQCJG2Rk6c2gxeoDo1kw", "4vNQCJG2Rk6c2gxeoDo1kw", "5vNQCJG2Rk6c2gxeoDo1kw"]


def test_what_is_found_by_offsets_leaves_fewer_names_for_who_subscribed(tmp_path: Path) -> None:
    log = KafkaLog()
    commit(log, {"name": "t1"}, 0, arrives=100, version=9)
    partition = {
        "partitionIndex": 2, "committedOffset": 7, "committedLeaderEpoch": -1, "metadata": "", "errorCode": 0
    }  # fmt: skip
    commit(log, {"name": "t3"}, 0, arrives=200, version=9)
    asked = {"groupId": "g", "memberId": None, "memberEpoch": -1,
             "topics": [{"topicId": _IDS[2], "partitionIndexes": [2]}]}  # fmt: skip
    told = {"groupId": "g", "errorCode": 0, "topics": [{"topicId": _IDS[2], "partitions": [partition]}]}
    fetched = {"groups": [asked], "requireStable": True}, {"throttleTimeMs": 0, "groups": [told]}
    log.add("OFFSET_FETCH", *fetched, arrives=300, version=10)
    beats(log, ["t1", "t3"], [_IDS[0], _IDS[2]], member="n", arrives=400)
    _, verdict = run_and_compare(read(log, tmp_path))
    assert verdict.differences == []


def test_names_that_nothing_tells_apart_are_given_to_the_ids_that_were_assigned(tmp_path: Path) -> None:
    log = KafkaLog()
    beats(log, ["t1", "t2", "t3"], _IDS, member="m", arrives=0)
    beats(log, ["t3", "t2", "t1"], _IDS, member="n", arrives=100)
    for name in ("t1", "t2", "t3"):
        commit(log, {"name": name}, 0, arrives=200, version=9)
    source = read(log, tmp_path)
    _, verdict = run_and_compare(source)
    assert verdict.differences == []
    assert source.notes == {"topic ids matched with names by what answers imply": 3}


def test_an_expression_gets_a_topic_that_is_known_by_its_name_only(tmp_path: Path) -> None:
    log = KafkaLog()
    commit(log, {"name": "orders.eu"}, 0, partition=1, arrives=0, version=9)
    subscribed(log, "orders.*", _IDS[:1])
    source = read(log, tmp_path)
    _, verdict = run_and_compare(source)
    assert verdict.differences == []
    assert topics_by_time(source) == [[("orders.eu", 2)]]


def test_a_name_that_is_made_is_none_that_an_expression_of_others_matches(tmp_path: Path) -> None:
    topic_id = "tvNQCJG2Rk6c2gxeoDo1kw"
    log = subscribed(KafkaLog(), ".*q", [topic_id])
    subscribed(log, "t.*", [], group="h", arrives=3_000, connection="b")
    source = read(log, tmp_path)
    _, verdict = run_and_compare(source)
    assert verdict.differences == []
    assert topics_by_time(source) == [[(f"_{topic_id}q", 2)]]
