"""Kafka's request log: lines to rows, in order, with what the log tells beside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coordinator_udf.protocol.errors import BadRequest
from coordinator_udf.replay.inputs.broker_log.facts import DEFAULT_PARTITIONS
from coordinator_udf.replay.inputs.broker_log.line import is_known_api, parse_line
from coordinator_udf.replay.inputs.detect import Format, read_source
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import ReplaySource
from coordinator_udf.replay.tasks.recorded import run_and_compare
from schemas.requests import CONTROL_APIS, REQUEST_COLUMNS
from tests.replay.broker_log import START_MS, KafkaLog, one_member


def read(log: KafkaLog, tmp_path: Path, partitions: int | None = 1) -> ReplaySource:
    return read_source(log.write(tmp_path / "log"), "log", ReplayOptions(partitions=partitions))


def test_a_line_becomes_a_row_with_every_column(tmp_path: Path) -> None:
    log = KafkaLog()
    request_id = log.join("", "m-1", 79, arrives=5, takes=2, principal="User:alice")
    source = read(log, tmp_path)
    row = next(row for row in source.rows if row["api"] == "JoinGroup")
    assert set(row) == set(REQUEST_COLUMNS) - {"source"}
    assert request_id == "127.0.0.1:9092-10.0.0.1:4000-0-97/1"
    assert row["request_id"] == request_id
    assert row["log_ts"] == START_MS + 7
    assert (row["client_id"], row["client_host"], row["principal"]) == ("a", "/10.0.0.1", "User:alice")
    assert (row["api_version"], row["group_id"], row["proposed_member_id"]) == (5, "g", "m-1")
    assert source.recording.answers[0].body["errorCode"] == 79


def test_the_leader_and_protocol_of_an_answer_are_told(tmp_path: Path) -> None:
    rows = read(one_member(KafkaLog()), tmp_path).rows
    joined = [row for row in rows if row["api"] == "JoinGroup"][1]
    assert (joined["recorded_leader"], joined["recorded_protocol"]) == ("m-1", "range")
    assert joined["proposed_member_id"] is None


def test_rows_stand_in_the_order_of_arrival_and_not_of_completion(tmp_path: Path) -> None:
    log = KafkaLog()
    slow = log.join("m-1", "m-1", arrives=0, takes=3_000, connection="a")
    fast = log.heartbeat("m-2", 25, arrives=100, connection="b")
    log.lines.reverse()
    requests = [row["request_id"] for row in read(log, tmp_path).rows if row["request_id"]]
    assert requests == [slow, fast]


def test_within_a_connection_the_file_gives_the_order(tmp_path: Path) -> None:
    log = KafkaLog()
    first = log.heartbeat("m-1", 25, arrives=10, takes=1, connection="a")
    # Its time is estimated as earlier, since the line's time is off.
    second = log.heartbeat("m-1", 25, arrives=9, takes=3, connection="a")
    requests = [row["request_id"] for row in read(log, tmp_path).rows if row["request_id"]]
    assert requests == [first, second]


def test_one_member_is_replayed_as_recorded(tmp_path: Path) -> None:
    _, verdict = run_and_compare(read(one_member(KafkaLog()), tmp_path))
    assert verdict.differences == []
    assert sum(verdict.identical.values()) == 4


def test_ticks_at_the_end_let_every_wait_end(tmp_path: Path) -> None:
    rows = read(one_member(KafkaLog()), tmp_path).rows
    assert [row["api"] for row in rows[-2:]] == ["Tick", "Tick"]
    assert rows[-1]["log_ts"] >= START_MS + 4_000 + 60_000


def test_other_apis_of_the_broker_are_counted_and_unknown_ones_rejected(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    log.add("FIND_COORDINATOR", {}, {}, arrives=1)
    log.add("MAKE_COFFEE", {}, {}, arrives=2)
    log.add("SHARE_GROUP_HEARTBEAT", {"groupId": "s"}, {"errorCode": 0}, arrives=3)
    source = read(log, tmp_path)
    assert source.foreign == {"FindCoordinator": 1}
    assert source.unsupported == {"ShareGroupHeartbeat": 1}
    reasons = [rejection.reason for rejection in source.rejections]
    assert any("requestApiKeyName is 'MakeCoffee'" in reason for reason in reasons)
    assert any("ShareGroupHeartbeat" in reason for reason in reasons)
    assert source.requests == 5


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[2026-11-21 02:42:33,278] Started (kafka.server)", "no line of Kafka's request log"),
        ('Completed request:{"requestHeader":{}}', "time of the line"),
        ('[2026-13-41 02:42:33,278] DEBUG Completed request:{"a":1}', "line"),
        ("[2026-11-21 02:42:33,278] DEBUG Completed request:{", "JSON"),
        ('[2026-11-21 02:42:33,278] DEBUG Completed request:{"connection":"x"} (k)', "requestHeader"),
    ],
)
def test_a_line_that_makes_no_sense_is_rejected_with_its_reason_and_the_rest_is_read(
    line: str, reason: str, tmp_path: Path
) -> None:
    log = one_member(KafkaLog())
    log.lines.insert(1, line)
    source = read(log, tmp_path)
    (rejection,) = source.rejections
    assert reason in rejection.reason
    assert rejection.raw == line
    assert source.requests == 4


def test_negative_times_are_refused() -> None:
    log = KafkaLog()
    log.heartbeat("m", arrives=1, totalTimeMs=-3.0)
    with pytest.raises(BadRequest, match=r"totalTimeMs is -3\.0"):
        parse_line(1, log.lines[0])


def test_negative_timeouts_of_a_member_are_the_coordinators_to_refuse(tmp_path: Path) -> None:
    log = KafkaLog()
    log.join("", "m-1", 26, arrives=0)
    log.lines[0] = log.lines[0].replace('"sessionTimeoutMs": 10000', '"sessionTimeoutMs": -5').replace('"m-1"', '""')
    _, verdict = run_and_compare(read(log, tmp_path))
    assert verdict.identical == {("answer", "JoinGroup", "INVALID_SESSION_TIMEOUT"): 1}


def test_a_file_without_a_line_says_so(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.write_bytes(b"")
    source = read_source(path, "empty", ReplayOptions(), Format.KAFKA)
    assert [rejection.reason for rejection in source.rejections] == ["empty holds no line that could be read"]
    assert source.rows == []


def test_addresses_of_version_6_are_told(tmp_path: Path) -> None:
    log = KafkaLog()
    log.heartbeat("m", 25, arrives=0, connection="a")
    log.lines[0] = log.lines[0].replace("127.0.0.1:9092-10.0.0.1:4000", "0:0:0:0:0:0:0:1:9092-0:0:0:0:0:0:0:1:4000")
    row = next(row for row in read(log, tmp_path).rows if row["api"] == "Heartbeat")
    assert row["client_host"] == "/0:0:0:0:0:0:0:1"


def test_kafkas_apis_are_known() -> None:
    assert is_known_api("InitProducerId")
    assert is_known_api("StreamsGroupHeartbeat")
    assert not is_known_api("MakeCoffee")


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


def commit(log: KafkaLog, topic: dict[str, object], error: int, *, partition: int = 2, **place: object) -> None:
    partitions = [{"partitionIndex": partition, "committedOffset": 7, "committedLeaderEpoch": -1}]
    request = {
        "groupId": "g", "generationIdOrMemberEpoch": -1, "memberId": "", "groupInstanceId": None,
        "topics": [{**topic, "partitions": partitions}],
    }  # fmt: skip
    answer = {
        "throttleTimeMs": 0,
        "topics": [{**topic, "partitions": [{"partitionIndex": partition, "errorCode": error}]}],
    }
    log.add("OFFSET_COMMIT", request, answer, **place)  # type: ignore[arg-type]


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


def test_a_join_that_is_told_late_of_a_load_found_its_shard_loading(tmp_path: Path) -> None:
    log = KafkaLog()
    log.join("", "", 16, arrives=0)
    # The broker stands still. What waits in a group when its shard is lost is told that this is another broker's.
    log.join("", "", 14, arrives=100, takes=900)
    log.join("", "", 14, arrives=1_010, takes=5)
    log.join("", "m-1", 79, arrives=1_100)
    source = read(log, tmp_path)
    _, verdict = run_and_compare(source)
    assert verdict.differences == []


def test_a_lost_shard_is_adopted_and_the_group_loaded_again(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    log.heartbeat("m-1", 16, arrives=5_000)
    log.heartbeat("m-1", 16, arrives=5_100)
    commit(log, {"name": "t1"}, 14, arrives=5_200, version=8)
    log.heartbeat("m-1", 0, arrives=5_300)
    log.heartbeat("m-1", 22, generation=9, arrives=6_000)
    source = read(log, tmp_path)
    controls = [
        row["api"] for row in source.rows if row["api"] in CONTROL_APIS and row["api"] not in ("Tick", "LoadEnd")
    ]
    assert controls == ["TopicMetadata", "Unload", "LoadGroup", "Failover"]
    _, verdict = run_and_compare(source)
    assert verdict.differences == []


def test_a_restart_begins_with_the_silence_before_it(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    # Longer than the session timeout: had the coordinator lived, the member would have been expired.
    log.heartbeat("m-1", 16, arrives=60_000, connection="b")
    log.heartbeat("m-1", 22, generation=9, arrives=61_000, connection="b")
    source = read(log, tmp_path)
    unload = next(row for row in source.rows if row["api"] == "Unload")
    assert unload["log_ts"] == START_MS + 4_001
    _, verdict = run_and_compare(source)
    assert verdict.differences == []


@pytest.mark.parametrize(
    ("silence_ms", "connection", "restarted"), [(12_000, "b", True), (9_000, "b", False), (12_000, "c", False)]
)
def test_a_member_that_outlives_its_session_in_a_silence_tells_of_a_restart(
    silence_ms: int, connection: str, tmp_path: Path, *, restarted: bool
) -> None:
    log = one_member(KafkaLog())
    if connection == "c":
        # A request was under way all the time.
        log.heartbeat("m-2", 25, arrives=3_900, takes=silence_ms + 200, connection="d")
    # Nobody asked while the shard was being loaded.
    log.join("m-1", "m-1", generation=2, arrives=4_001 + silence_ms, takes=2, connection=connection)
    source = read(log, tmp_path)
    assert [row["api"] for row in source.rows if row["api"] in {"Unload", "Failover"}] == [
        "Unload",
        "Failover",
    ] * restarted
    if connection == "b":
        assert run_and_compare(source)[1].differences == []


def test_a_consumer_group_takes_in_a_member_that_it_does_not_know_and_tells_of_no_restart(tmp_path: Path) -> None:
    log = KafkaLog()
    for arrives, connection in ((0, "a"), (20_000, "b")):
        join = {
            "groupId": "g", "sessionTimeoutMs": 10_000, "rebalanceTimeoutMs": 6_000, "memberId": "m-1",
            "groupInstanceId": None, "protocolType": "consumer",
            "protocols": [{"name": "range", "metadata": "AAEAAAABAAJ0Mf////8AAAAA"}],
        }  # fmt: skip
        answer = {
            "throttleTimeMs": 0, "errorCode": 0, "generationId": 2, "protocolName": "range", "leader": "",
            "memberId": "m-1", "members": [],
        }  # fmt: skip
        log.add("JOIN_GROUP", join, answer, version=5, arrives=arrives, connection=connection)
    assert [row["api"] for row in read(log, tmp_path).rows if row["api"] in {"Unload", "Failover"}] == []


@pytest.mark.parametrize(
    ("groups", "estimated"),
    [
        # Kafka's default explains as well that a and e are lost.
        ("abcde", lambda partitions: partitions == DEFAULT_PARTITIONS),
        # 1 and c would be of one shard.
        ("abcde123", lambda partitions: partitions % 4 == 0),
    ],
)
def test_the_number_of_shards_is_estimated_from_who_is_lost_together(
    groups: str, estimated: Callable[[int], bool], tmp_path: Path
) -> None:
    log = KafkaLog()
    for n in range(40):
        for group in groups:
            # 4 shards: ord(group) % 4 says which; one of them is never served.
            lost = ord(group) % 4 == 1
            request = {"groupId": group, "generationId": 1, "memberId": "m", "groupInstanceId": None}
            answer = {"throttleTimeMs": 0, "errorCode": 16 if lost else 25}
            log.add("HEARTBEAT", request, answer, arrives=n * 50 + ord(group), connection="a")
    source = read(log, tmp_path, partitions=None)
    assert estimated(source.partitions)
    assert run_and_compare(source)[1].differences == []


def test_a_reused_request_id_stays_unique(tmp_path: Path) -> None:
    log = KafkaLog()
    log.heartbeat("m", 25, arrives=0)
    log.lines.append(log.lines[0])
    ids = [answer.request_id for answer in read(log, tmp_path).recording.answers]
    assert len(set(ids)) == 2


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


def subscribed(log: KafkaLog, regex: str, topic_ids: list[str]) -> KafkaLog:
    """Adds a member that subscribes by an expression, and that hears of its assignment when it beats."""
    asked = {
        "groupId": "g", "memberId": "m", "memberEpoch": 0, "instanceId": None, "rackId": None,
        "rebalanceTimeoutMs": 1000, "subscribedTopicNames": [], "subscribedTopicRegex": regex,
        "serverAssignor": None, "topicPartitions": [],
    }  # fmt: skip
    answer: dict[str, Any] = {
        "throttleTimeMs": 0, "errorCode": 0, "errorMessage": None, "memberId": "m", "memberEpoch": 1,
        "heartbeatIntervalMs": 5000, "assignment": {"topicPartitions": []},
    }  # fmt: skip
    beats = {**asked, "memberEpoch": 1, "subscribedTopicNames": None, "subscribedTopicRegex": None}
    assigned = {"topicPartitions": [{"topicId": topic_id, "partitions": [0, 1]} for topic_id in topic_ids]}
    told = {**answer, "memberEpoch": 2, "assignment": assigned}
    log.add("CONSUMER_GROUP_HEARTBEAT", asked, answer, arrives=1_000, version=1)
    log.add("CONSUMER_GROUP_HEARTBEAT", beats, told, arrives=2_500, version=1)
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


def test_a_group_that_a_conversion_sent_away_began_in_the_log(tmp_path: Path) -> None:
    log = KafkaLog()
    # Its first generation ended before anybody was told of it.
    log.join("", "m-1", 27, arrives=0, takes=300, connection="a")
    log.join("", "m-2", generation=2, arrives=3_020, takes=3_000, connection="b")
    assert [row["api"] for row in read(log, tmp_path).rows if row["api"] == "LoadGroup"] == []


def test_an_instance_that_is_let_in_without_a_rebalance_was_there_before_the_log(tmp_path: Path) -> None:
    log = KafkaLog()
    join = {
        "groupId": "g", "sessionTimeoutMs": 10_000, "rebalanceTimeoutMs": 60_000, "memberId": "",
        "groupInstanceId": "i", "protocolType": "consumer",
        "protocols": [{"name": "range", "metadata": "AAEAAAABAAJ0Mf////8AAAAA"}],
    }  # fmt: skip
    answer = {
        "throttleTimeMs": 0, "errorCode": 0, "generationId": 3, "protocolType": "consumer", "protocolName": "range",
        "leader": "m-1", "skipAssignment": False, "memberId": "i-2", "members": [],
    }  # fmt: skip
    log.add("JOIN_GROUP", join, answer, version=9, arrives=0, connection="b")
    sync = {"groupId": "g", "generationId": 3, "memberId": "i-2", "groupInstanceId": "i", "assignments": []}
    given = {"throttleTimeMs": 0, "errorCode": 0, "assignment": "AAEAAAABAAJ0MQAAAAEAAAAA/////w=="}
    log.add("SYNC_GROUP", sync, given, version=3, arrives=10, connection="b")
    log.heartbeat("m-1", generation=3, arrives=20, connection="a")
    source = read(log, tmp_path)
    loaded = [msgspec.json.decode(row["body"]) for row in source.rows if row["api"] == "LoadGroup"]
    assert [record["value"]["generation"] for record in loaded] == [3]
    members = {each["memberId"]: each for each in loaded[0]["value"]["members"]}
    # What it called itself before, nothing tells.
    assert (members["i-unknown"]["groupInstanceId"], members["i-unknown"]["clientId"]) == ("i", "")
    assert members.keys() == {"m-1", "i-unknown"}
    outputs, verdict = run_and_compare(source)
    assert verdict.differences == []
    rules = [row["rule"] for row in outputs.transitions.to_pylist()]
    assert "STATIC_MEMBER_REPLACED" in rules
    assert "MEMBER_ADDED" not in rules
