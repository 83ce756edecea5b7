"""What a request log tells of a shard that was lost, and of what is older than the log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from coordinator_udf.protocol.partitioner import DEFAULT_PARTITIONS
from coordinator_udf.replay.inputs.broker_log.undecided import OLDER
from coordinator_udf.replay.tasks.run_and_compare import run_and_compare
from schemas.requests import CONTROL_APIS
from tests.replay.broker_log import START_MS, KafkaLog, beat, commit, one_member, read


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


def test_who_waited_since_before_the_log_until_its_shard_was_lost_was_a_member(tmp_path: Path) -> None:
    log = KafkaLog()
    sync = {"groupId": "g", "generationId": 7, "memberId": "m-1", "groupInstanceId": None, "assignments": []}
    lost = {"throttleTimeMs": 0, "errorCode": 16, "assignment": ""}
    waited = log.add("SYNC_GROUP", sync, lost, version=3, arrives=0, takes=4_000)
    log.add("SYNC_GROUP", sync, lost, version=3, arrives=4_010, connection="b")
    _, verdict = run_and_compare(read(log, tmp_path))
    assert verdict.undecided == {OLDER: {("answer", "SyncGroup", "NOT_COORDINATOR"): 1}}
    assert [difference.request_id for difference in verdict.differences] == [waited]


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


@pytest.mark.parametrize("is_sync", [True, False])
def test_who_first_finds_its_shard_loading_may_be_a_sync_or_one_that_cannot_be_read(
    tmp_path: Path, *, is_sync: bool
) -> None:
    log = one_member(KafkaLog())
    if is_sync:
        sync = {"groupId": "g", "generationId": 1, "memberId": "m-1", "groupInstanceId": None, "assignments": []}
        loading = {"throttleTimeMs": 0, "errorCode": 14, "assignment": ""}
        log.add("SYNC_GROUP", sync, loading, version=3, arrives=60_000, connection="b")
    else:
        log.heartbeat("m-1", 14, arrives=60_000, connection="b", version=99)
    commit(log, {"name": "t1"}, 14, arrives=60_100, version=8)
    log.join("m-1", "m-1", generation=2, arrives=60_200, takes=2, connection="b")
    source = read(log, tmp_path)
    controls = [row["api"] for row in source.rows if row["api"] in {"Unload", "LoadGroup", "Failover"}]
    assert controls == ["Unload", "LoadGroup", "Failover"]
    assert run_and_compare(source)[1].differences == []


def test_shards_that_are_lost_together_are_lost_at_the_same_time(tmp_path: Path) -> None:
    log = KafkaLog()
    for group, arrives in (("g", 5_000), ("a", 5_050), ("g", 5_400), ("a", 5_800)):
        is_lost = arrives >= 5_400
        request = {"groupId": group, "generationId": 1, "memberId": "m", "groupInstanceId": None}
        told = {"throttleTimeMs": 0, "errorCode": 16 if is_lost else 25}
        log.add("HEARTBEAT", request, told, arrives=arrives)
    rows = read(log, tmp_path, partitions=4).rows
    of_group = {row["group_id"]: row["partition"] for row in rows if row["group_id"]}
    lost_ms = {row["partition"]: row["log_ts"] - START_MS for row in rows if row["api"] == "Unload"}
    assert lost_ms == {of_group["g"]: 5_400, of_group["a"]: 5_400}
    assert len(lost_ms) == 2


def test_a_shard_that_is_lost_while_it_is_being_loaded_is_lost_then(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    log.heartbeat("m-1", 16, arrives=60_000, connection="b")
    for arrives in (60_100, 60_300):
        commit(log, {"name": "t1"}, 14, arrives=arrives, version=8)
        if arrives == 60_100:
            log.heartbeat("m-1", 16, arrives=60_200, connection="b")
    log.join("m-1", "m-1", generation=2, arrives=60_400, takes=2, connection="b")
    source = read(log, tmp_path)
    rows = [row for row in source.rows if row["api"] in {"Unload", "LoadGroup", "Failover"}]
    assert [row["api"] for row in rows] == ["Unload", "LoadGroup", "Unload", "LoadGroup", "Failover"]
    assert [row["log_ts"] - START_MS for row in rows][:4] == [4_001, 60_100, 60_200, 60_300]
    assert run_and_compare(source)[1].differences == []


@pytest.mark.parametrize("refused", [14, 0])
def test_a_list_that_is_refused_says_that_a_shard_is_loading_of_which_nobody_else_was_told(
    tmp_path: Path, refused: int
) -> None:
    log = one_member(KafkaLog())
    log.heartbeat("m-1", 16, arrives=60_000, connection="b")
    listed = {"throttleTimeMs": 0, "errorCode": refused, "groups": []}
    log.add("LIST_GROUPS", {"statesFilter": []}, listed, version=4, arrives=60_100, connection="c")
    log.join("m-1", "m-1", generation=2, arrives=60_200, takes=2, connection="b")
    source = read(log, tmp_path)
    controls = [row["api"] for row in source.rows if row["api"] in {"Unload", "LoadGroup", "Failover"}]
    assert controls == ["Unload", *(["LoadGroup"] if refused else []), "Failover"]
    assert run_and_compare(source)[1].differences == []


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


def test_a_member_that_outlives_several_silences_tells_of_as_many_restarts_in_their_order(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    # In each of its lives the broker is asked nothing about a group.
    asked = {"keyType": 0, "coordinatorKeys": ["other"]}
    for connection, arrives in (("p", 16_100), ("q", 28_200)):
        told = {"throttleTimeMs": 0, "coordinators": []}
        log.add("FIND_COORDINATOR", asked, told, arrives=arrives, takes=2, connection=connection)
    log.join("m-1", "m-1", generation=2, arrives=40_300, takes=2, connection="b")
    source = read(log, tmp_path)
    shard = next(row["partition"] for row in source.rows if row["group_id"] == "g")
    rows = [row for row in source.rows if row["api"] in {"Unload", "Failover"} and row["partition"] == shard]
    assert [row["api"] for row in rows] == ["Unload", "Failover"] * 3
    times = [row["log_ts"] - START_MS for row in rows]
    assert times == [4_001, 16_100, 16_102, 28_200, 28_202, 40_300]
    assert run_and_compare(source)[1].differences == []


def hung(*, is_there: bool) -> KafkaLog:
    """A broker that hangs, and soon hears that its shards are another one's.

    Args:
        is_there: whether a member is there afterwards whose session ended meanwhile.
    """
    log = KafkaLog()
    beat(log, "m-1", 0, 2, gets=True, arrives=0)
    beat(log, "m-2", 0, 3, gets=True, arrives=1_000, connection="b")
    beat(log, "m-1", 2, 3, arrives=1_100)
    for arrives in range(5_000, 24_000, 3_000):
        beat(log, "m-2", 3, 3, arrives=arrives, connection="b")
        log.heartbeat("m-3", 25, arrives=arrives + 100, connection="c")
    # The session of m-1 is over before the broker goes on.
    epoch = 3 if is_there else 4
    beat(log, "m-2", 3, epoch, arrives=50_000, connection="b")
    log.heartbeat("m-3", 25, arrives=50_000, connection="c")
    log.heartbeat("m-2", 16, arrives=50_010, connection="b")
    log.heartbeat("m-2", 16, arrives=50_100, connection="b")
    beat(log, "m-2", epoch, epoch, arrives=50_200, connection="b")
    if is_there:
        beat(log, "m-1", 3, 3, arrives=50_300)
    return log


@pytest.mark.parametrize("is_there", [True, False])
def test_a_session_that_ends_while_the_broker_hangs_may_be_one_whose_member_stays(
    tmp_path: Path, *, is_there: bool
) -> None:
    source = read(hung(is_there=is_there), tmp_path)
    assert run_and_compare(source)[1].differences == []
    delays = [msgspec.json.decode(row["body"])["untilMs"] for row in source.rows if row["api"] == "DelayTimers"]
    assert (START_MS + 50_500 in delays) == is_there


def test_a_list_that_differs_has_its_groups_looked_at_again_with_what_was_supposed(tmp_path: Path) -> None:
    log = hung(is_there=True)
    group = {"groupId": "g", "protocolType": "consumer", "groupState": "Dead"}
    listed = {"throttleTimeMs": 0, "errorCode": 0, "groups": [group]}
    wrong = log.add("LIST_GROUPS", {"statesFilter": []}, listed, version=4, arrives=50_400, connection="d")
    _, verdict = run_and_compare(read(log, tmp_path))
    assert [difference.request_id for difference in verdict.differences] == [wrong]


@pytest.mark.parametrize(("member_id", "waited_ms"), [("m-1", 240), ("", 240), ("m-1", 1)])
def test_a_join_that_is_sent_away_with_its_members_id_waited_in_its_group(
    tmp_path: Path, member_id: str, waited_ms: int
) -> None:
    log = one_member(KafkaLog())
    log.join("m-1", member_id, 16, arrives=16_100, takes=waited_ms, connection="b")
    log.heartbeat("m-1", 16, arrives=16_400, connection="b")
    apis = [row["api"] for row in read(log, tmp_path).rows if row["api"] in {"Unload", "Failover"}]
    # The broker was started anew in the silence before, else the member's session would have ended.
    assert apis == (["Unload", "Failover", "Unload"] if (member_id, waited_ms) == ("m-1", 240) else ["Unload"])


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


def test_a_shard_is_lost_that_says_so_only_of_partitions_that_the_broker_knows(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    places = [("gone", 0, 3), ("t1", 0, 16)]
    request = {
        "groupId": "g", "generationIdOrMemberEpoch": 1, "memberId": "m-1", "groupInstanceId": None,
        "topics": [{"name": name, "partitions": [{"partitionIndex": partition, "committedOffset": 7,
                                                  "committedLeaderEpoch": -1}]} for name, partition, _ in places],
    }  # fmt: skip
    answer = {
        "throttleTimeMs": 0,
        "topics": [{"name": name, "partitions": [{"partitionIndex": partition, "errorCode": error}]}
                   for name, partition, error in places],
    }  # fmt: skip
    log.add("OFFSET_COMMIT", request, answer, arrives=5_000, version=8)
    log.heartbeat("m-1", 16, arrives=5_100)
    _, verdict = run_and_compare(read(log, tmp_path))
    assert verdict.differences == []


def test_a_heartbeat_that_a_loading_broker_answered_does_not_hide_the_silence_before_it(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    log.heartbeat("m-1", arrives=20_000, connection="b")
    log.join("m-1", "", 14, arrives=20_002, connection="b")
    log.heartbeat("m-1", 22, generation=9, arrives=20_100, connection="b")
    source = read(log, tmp_path)
    _, verdict = run_and_compare(source)
    assert verdict.differences == []


def test_a_join_that_the_broker_sent_away_tells_nothing_of_its_group(tmp_path: Path) -> None:
    log = KafkaLog()
    request = {
        "groupId": "h", "sessionTimeoutMs": 10_000, "rebalanceTimeoutMs": 60_000, "memberId": "n-1",
        "groupInstanceId": None, "protocolType": "consumer", "protocols": [{"name": "range", "metadata": ""}],
    }  # fmt: skip
    answer = {
        "throttleTimeMs": 0, "errorCode": 16, "generationId": -1, "protocolName": "", "leader": "", "memberId": "n-1",
        "members": [],
    }  # fmt: skip
    log.add("JOIN_GROUP", request, answer, arrives=0, version=5)
    log.join("", "m-1", 79, arrives=100)
    listed = [
        {"groupId": name, "protocolType": protocol, "groupState": state, "groupType": "classic"}
        for name, protocol, state in (("g", "", "Empty"), ("h", "consumer", "Stable"))
    ]
    lists = {"throttleTimeMs": 0, "errorCode": 0, "groups": listed}
    log.add("LIST_GROUPS", {"statesFilter": [], "typesFilter": []}, lists, arrives=5_000, version=5)
    _, verdict = run_and_compare(read(log, tmp_path, partitions=2))
    assert [each.undecided for each in verdict.differences if each.api == "ListGroups"] == [OLDER]
