"""What a broker may have loaded, and when, as the answers tell it."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator_udf.replay.explain.explain import as_found
from coordinator_udf.replay.explain.tables import unexplained_line, unexplained_rows
from coordinator_udf.replay.inputs.broker_log.undecided import ENDED
from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.judge.compare import Difference
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.run_and_compare import run_and_compare
from tests.replay.broker_log import KafkaLog, one_member, read


def loaded_again() -> KafkaLog:
    """A group whose shard was lost and loaded again."""
    log = one_member(KafkaLog())
    log.heartbeat("m-1", 16, arrives=5_000)
    log.join("m-1", "", 14, arrives=5_100)
    log.heartbeat("m-1", arrives=5_200)
    return log


def another_group_is_answered(log: KafkaLog, error: int, *, arrives: int, connection: str) -> None:
    """A heartbeat for a group of another shard, and what the broker answers it."""
    request = {"groupId": "h", "generationId": 1, "memberId": "n-1", "groupInstanceId": None}
    log.add("HEARTBEAT", request, {"throttleTimeMs": 0, "errorCode": error}, arrives=arrives, connection=connection)


def differences_of_two_shards(log: KafkaLog, tmp_path: Path) -> list[Difference]:
    """What the replay of a log of two shards finds otherwise."""
    source = read_source(log.write(tmp_path / "log"), "log", ReplayOptions(partitions=2))
    _, verdict = run_and_compare(source)
    return verdict.differences


def test_one_answer_after_a_load_that_the_next_ones_deny_is_unexplained(tmp_path: Path) -> None:
    log = loaded_again()
    soon = log.heartbeat("m-1", 22, arrives=5_300)
    for number in range(30):
        log.heartbeat("m-1", arrives=5_400 + 10 * number)
    late = log.heartbeat("m-1", 22, arrives=6_000)
    log.heartbeat("m-1", arrives=6_100)
    source = read(log, tmp_path)
    _, verdict = run_and_compare(source)
    assert [(each.request_id, each.undecided) for each in verdict.differences] == [(soon, None), (late, None)]
    lines = [unexplained_line(row) for row in unexplained_rows(source, verdict.differences)]
    whole, cut = "no order with up to 4 changes in the last 48 steps explains it", "not decided: the bound of "
    assert [(whole in line, cut in line) for line in lines] == [(True, False), (False, True)]


def test_a_broker_may_have_loaded_another_generation_than_the_log_tells(tmp_path: Path) -> None:
    log = loaded_again()
    for number in range(5):
        log.heartbeat("m-1", 22, arrives=5_300 + 10 * number)
    for number in range(30):
        log.heartbeat("m-1", generation=2, arrives=5_400 + 10 * number)
    wrong = log.heartbeat("m-1", 25, generation=2, arrives=6_000)
    log.heartbeat("m-1", generation=2, arrives=6_100)
    source = read(log, tmp_path)
    _, verdict = run_and_compare(source)
    assert [(each.request_id, each.undecided) for each in verdict.differences] == [(wrong, None)]
    assert source.explained is not None
    assert [found.of_load for outcome in source.explained.outcomes.values() for found in outcome.adopted] == [True]


def test_a_broker_that_loaded_nothing_at_first_may_load_all_later(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    log.heartbeat("m-1", 16, arrives=5_000)
    log.join("m-1", "", 14, arrives=5_100)
    for number in range(3):
        log.heartbeat("m-1", 25, arrives=5_200 + 10 * number)
    log.heartbeat("m-1", 16, arrives=5_300)
    log.heartbeat("m-1", 16, arrives=5_310)
    for number in range(30):
        log.heartbeat("m-1", arrives=5_400 + 10 * number)
    log.heartbeat("m-1", 22, generation=2, arrives=6_000)
    _, verdict = run_and_compare(read(log, tmp_path))
    assert verdict.differences == []


def test_sessions_may_begin_as_soon_as_a_shard_was_not_loading_any_more(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    log.heartbeat("m-1", 16, arrives=5_000)
    log.join("m-1", "", 14, arrives=5_100)
    # Loaded at 5.105 s: until ten seconds later the new member waits for the one of before.
    log.join("", "m-2", 79, arrives=5_190, connection="b")
    log.join("m-2", "m-2", generation=2, arrives=5_195, takes=9_915, connection="b")
    log.heartbeat("m-2", generation=2, arrives=15_111, connection="b")
    _, verdict = run_and_compare(read(log, tmp_path))
    assert verdict.differences == []


@pytest.mark.parametrize("deleted", [True, False], ids=["heard of after the load", "heard of before the load"])
def test_offsets_of_a_topic_that_was_deleted_while_a_shard_was_loading_may_stay(deleted: bool, tmp_path: Path) -> None:
    log = KafkaLog()
    told = {"name": "t1", "topicId": "dUFSjgk6R0SS1X6TO46Cdw", "errorCode": 0}
    asked = {"topics": [{"name": "t1", "numPartitions": 1}]}
    log.add("CREATE_TOPICS", asked, {"topics": [{**told, "numPartitions": 1}]}, arrives=-500, connection="c")
    one_member(log)
    place = {"partitionIndex": 0, "committedOffset": 7, "committedLeaderEpoch": -1, "committedMetadata": ""}
    member = {"groupId": "g", "generationIdOrMemberEpoch": 1, "memberId": "m-1", "groupInstanceId": None}
    topics = [{"name": "t1", "partitions": [{"partitionIndex": 0, "errorCode": 0}]}]
    commit = {**member, "topics": [{"name": "t1", "partitions": [place]}]}
    log.add("OFFSET_COMMIT", commit, {"throttleTimeMs": 0, "topics": topics}, arrives=4_500, version=8)
    log.heartbeat("m-1", 16, arrives=5_000)
    log.add("DELETE_TOPICS", {"topics": [{"name": "t1"}]}, {"responses": [told]}, arrives=5_050, connection="c")
    log.join("m-1", "", 14, arrives=5_100)
    offset = {"partitionIndex": 0, "committedOffset": 7, "committedLeaderEpoch": -1, "metadata": "", "errorCode": 0}
    left = [] if deleted else [{"name": "t1", "partitions": [offset]}]
    fetched = {"throttleTimeMs": 0, "groups": [{"groupId": "g", "topics": left, "errorCode": 0}]}
    fetch = {"groups": [{"groupId": "g", "memberId": None, "memberEpoch": -1, "topics": None}], "requireStable": False}
    log.heartbeat("m-1", 22, generation=9, arrives=5_300)
    # It may hear of topics up to a second after its first answer.
    log.add("OFFSET_FETCH", fetch, fetched, arrives=7_000, version=9, connection="c")
    log.heartbeat("m-1", arrives=7_100)
    # Something else has orders looked for.
    wrong = log.heartbeat("m-1", 25, arrives=7_200)
    log.heartbeat("m-1", arrives=7_300)
    _, verdict = run_and_compare(read(log, tmp_path))
    assert [difference.request_id for difference in verdict.differences] == [wrong]


@pytest.mark.parametrize("loaded_ms", [5_150, 5_295, 6_000])
def test_a_load_may_be_before_the_middle_of_answers_that_leave_it_open(loaded_ms: int, tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    log.heartbeat("m-1", 16, arrives=5_000)
    log.join("m-1", "", 14, arrives=5_100)
    # Served or loading: where it is served, the session begins anew.
    log.heartbeat("m-1", arrives=5_200)
    log.join("", "m-2", 79, arrives=6_090, connection="b")
    ends_ms = max(loaded_ms, 5_200 if loaded_ms < 5_200 else 0) + 10_000
    log.join("m-2", "m-2", generation=2, arrives=6_095, takes=ends_ms - 6_095, connection="b")
    log.heartbeat("m-2", generation=2, arrives=ends_ms + 10, connection="b")
    _, verdict = run_and_compare(read(log, tmp_path))
    assert verdict.differences == []


def test_sessions_may_begin_when_a_broker_is_back_that_nobody_asked_for_the_group_yet(tmp_path: Path) -> None:
    log = KafkaLog()
    log.heartbeat("m-2", arrives=0, connection="b")
    log.heartbeat("m-1", arrives=100, connection="a")
    another_group_is_answered(log, 25, arrives=200, connection="c")
    # The broker is away. It has loaded the group when it refuses another one.
    another_group_is_answered(log, 16, arrives=13_100, connection="d")
    log.join("m-1", "m-1", generation=2, arrives=14_000, takes=9_110, connection="e")
    log.heartbeat("m-1", generation=2, arrives=23_115, connection="e")
    assert differences_of_two_shards(log, tmp_path) == []


def test_sessions_begin_when_a_broker_is_back_however_late_the_group_is_asked_for(tmp_path: Path) -> None:
    log = one_member(KafkaLog(), session_ms=45_000)
    another_group_is_answered(log, 25, arrives=4_200, connection="c")
    # The broker is away. It has loaded the group when it refuses another one: the session ends 45 s after that.
    another_group_is_answered(log, 16, arrives=13_100, connection="d")
    log.join("", "m-2", 79, arrives=33_000, connection="e")
    log.join("m-2", "m-2", generation=2, arrives=33_010, takes=25_100, connection="e")
    log.heartbeat("m-2", generation=2, arrives=58_115, connection="e")
    assert differences_of_two_shards(log, tmp_path) == []


def test_a_session_may_end_before_a_shard_is_lost_of_which_nobody_asked_meanwhile(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    # The member was put out at 14 s, which the broker wrote before it lost the shard: it loads an empty group.
    log.join("m-1", "", 14, arrives=16_000)
    log.join("", "m-2", 79, arrives=16_300, connection="b")
    log.join("m-2", "m-2", generation=3, arrives=16_310, takes=3_003, connection="b")
    log.heartbeat("m-2", 0, generation=3, arrives=19_320, connection="b")
    source = read(log, tmp_path)
    _, verdict = run_and_compare(source)
    assert verdict.differences == []
    assert source.explained is not None
    assert not source.explained.rebased


@pytest.mark.parametrize("is_late", [True, False])
def test_a_second_look_has_topics_told_where_the_first_had_them(*, is_late: bool) -> None:
    apis = ["Unload", "TopicMetadata", "LoadGroup", "JoinGroup", "Failover"]
    rows = [{"api": api, "log_ts": 10 * number} for number, api in enumerate(apis)]
    found = ["Unload", "LoadGroup", "Failover", "TopicMetadata"] if is_late else [a for a in apis if a != "JoinGroup"]
    again = as_found(rows, [(api, 40) for api in found])
    assert [row["api"] for row in again if row["api"] != "JoinGroup"] == found


def test_one_request_is_not_served_by_a_shard_that_is_loading(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    log.heartbeat("m-1", 16, arrives=5_000)
    log.join("m-1", "", 14, arrives=5_100)
    wrong = log.heartbeat("m-1", 25, arrives=5_200)
    log.join("m-1", "", 14, arrives=5_300)
    for number in range(30):
        log.heartbeat("m-1", arrives=5_400 + 10 * number)
    _, verdict = run_and_compare(read(log, tmp_path))
    assert [(each.request_id, each.undecided) for each in verdict.differences] == [(wrong, None)]


def test_a_lost_shard_is_no_reason_for_what_is_never_answered(tmp_path: Path) -> None:
    log = loaded_again()
    wrong = log.heartbeat("m-1", 110, arrives=5_300)
    log.heartbeat("m-1", arrives=5_400)
    _, verdict = run_and_compare(read(log, tmp_path))
    assert [each.request_id for each in verdict.differences if each.undecided is None] == [wrong]


def test_a_rebalance_that_goes_on_when_a_shard_is_lost_is_undecided(tmp_path: Path) -> None:
    log = loaded_again()
    for number in range(30):
        log.heartbeat("m-1", arrives=5_400 + 10 * number)
    # Somebody joined whom the broker didn't answer any more.
    last = log.heartbeat("m-1", 27, arrives=6_000)
    log.heartbeat("m-1", 16, arrives=6_100)
    log.join("m-1", "", 14, arrives=6_200)
    for number in range(30):
        log.heartbeat("m-1", arrives=6_400 + 10 * number)
    _, verdict = run_and_compare(read(log, tmp_path))
    assert [each.request_id for each in verdict.differences if each.undecided is None] == []
    assert [each.request_id for each in verdict.differences if each.undecided == ENDED] == [last]
