"""The order of requests that were handled at one moment, and what a log can't tell at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coordinator_udf.replay.explain.prompt import Prompt
from coordinator_udf.replay.explain.tables import explanation_tables
from coordinator_udf.replay.inputs.broker_log.line import parse_line
from coordinator_udf.replay.inputs.broker_log.undecided import ENDED, OLDER
from coordinator_udf.replay.tasks.run_and_compare import run_and_compare
from schemas.explanations import EXPLANATIONS_TABLE
from tests.replay.broker_log import START_MS, KafkaLog, beat, held_up, one_member, read


def leave(log: KafkaLog, **place: object) -> str:
    request = {"groupId": "g", "memberId": "m-1"}
    return log.add("LEAVE_GROUP", request, {"throttleTimeMs": 0, "errorCode": 0}, version=1, **place)  # type: ignore[arg-type]


def test_an_order_that_the_answers_tell_is_taken(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    # The leave arrives first, but the heartbeat's answer shows that it was handled first.
    leave(log, arrives=5_000.0, takes=3, connection="b")
    log.heartbeat("m-1", 0, arrives=5_000.4, takes=1, connection="a")
    source = read(log, tmp_path)
    _, verdict = run_and_compare(source)
    assert verdict.differences == []
    assert source.notes == {"order or time of requests within what the log leaves open, taken from their answers": 1}
    assert [row["offset"] for row in source.rows] == list(range(len(source.rows)))


def left_late(*, last_beat: float) -> tuple[KafkaLog, str, str]:
    """A member that leaves within 40 ms and beats meanwhile; the leave's and the last beat's requests."""
    log = one_member(KafkaLog())
    left = leave(log, arrives=5_000, takes=40, connection="b")
    for number in range(6):
        log.heartbeat("m-1", arrives=5_002 + 4 * number, connection="acd"[number % 3])
    last = log.heartbeat("m-1", arrives=last_beat, connection="e")
    log.heartbeat("m-1", 25, arrives=last_beat + 50, connection="a")
    return log, left, last


def test_a_request_that_came_after_many_others_is_one_change(tmp_path: Path) -> None:
    log, left, _ = left_late(last_beat=5_030)
    source = read(log, tmp_path)
    _, verdict = run_and_compare(source)
    assert verdict.differences == []
    rows = explanation_tables(source, [])[EXPLANATIONS_TABLE].to_pylist()
    moved = [(move["request_id"], move["moved_ms"], move["ts"] - START_MS) for row in rows for move in row["moved"]]
    assert moved == [(left, 30, 5_030)]


def test_a_request_never_comes_after_others_later_than_it_was_answered(tmp_path: Path) -> None:
    log, _, last = left_late(last_beat=5_044)
    _, verdict = run_and_compare(read(log, tmp_path))
    assert [difference.request_id for difference in verdict.differences] == [last]


def test_requests_that_did_not_overlap_are_never_moved(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    leave(log, arrives=5_000, takes=1, connection="b")
    wrong = log.heartbeat("m-1", 0, arrives=5_100, connection="a")
    source = read(log, tmp_path)
    _, verdict = run_and_compare(source)
    assert [difference.request_id for difference in verdict.differences] == [wrong]
    assert verdict.different == {("answer", "Heartbeat", "NONE"): 1}
    assert source.notes == {}


def test_a_timer_may_be_late_for_many_requests(tmp_path: Path) -> None:
    source = read(held_up(), tmp_path)
    _, verdict = run_and_compare(source)
    assert verdict.differences == []
    assert source.explained is not None
    assert source.explained.moved == 1


def test_a_timer_is_never_later_than_its_window(tmp_path: Path) -> None:
    log = KafkaLog()
    log.join("", "m-1", 79, arrives=0, connection="a")
    log.join("m-1", "m-1", arrives=10, takes=3_005, connection="a")
    wrong = log.heartbeat("m-1", 27, generation=0, arrives=3_900, connection="b")
    log.heartbeat("m-1", 22, generation=0, arrives=3_950, connection="b")
    _, verdict = run_and_compare(read(log, tmp_path))
    assert [difference.request_id for difference in verdict.differences] == [wrong]


def test_a_group_begins_with_the_members_that_are_older_than_the_log(tmp_path: Path) -> None:
    log = KafkaLog()
    log.heartbeat("old-member", 0, arrives=0)
    source = read(log, tmp_path)
    _, verdict = run_and_compare(source)
    assert verdict.differences == []
    assert verdict.identical == {("answer", "Heartbeat", "NONE"): 1}
    assert source.notes == {"groups that were there before the log began, begun with what answers tell": 1}


def test_a_member_older_than_the_log_has_no_subscription_that_was_refused(tmp_path: Path) -> None:
    log = KafkaLog()
    for number in range(2):
        beat(log, "m-1", 5, 5, arrives=1_000 * number)
    request = {"groupId": "g", "memberId": "m-1", "memberEpoch": 5, "rebalanceTimeoutMs": -1}
    message = "SubscribedTopicRegex `(` is not a valid regular expression: missing closing )."
    answer = {
        "throttleTimeMs": 0, "errorCode": 128, "errorMessage": message, "memberId": None, "memberEpoch": 0,
        "heartbeatIntervalMs": 0, "assignment": None,
    }  # fmt: skip
    log.add("CONSUMER_GROUP_HEARTBEAT", {**request, "subscribedTopicRegex": "("}, answer, version=1, arrives=2_000)
    beat(log, "m-1", 5, 5, arrives=3_000)
    _, verdict = run_and_compare(read(log, tmp_path))
    assert verdict.different == {}
    assert verdict.identical[("answer", "ConsumerGroupHeartbeat", "INVALID_REGULAR_EXPRESSION")] == 1


def describe(log: KafkaLog, member_id: str, metadata: str, assignment: str, **place: Any) -> str:
    """Group g is described, with one member that has these."""
    member = {
        "memberId": member_id, "groupInstanceId": None, "clientId": "a", "clientHost": "/10.0.0.1",
        "memberMetadata": metadata, "memberAssignment": assignment,
    }  # fmt: skip
    group = {
        "errorCode": 0, "errorMessage": None, "groupId": "g", "groupState": "Stable", "protocolType": "consumer",
        "protocolData": "range", "members": [member], "authorizedOperations": -2147483648,
    }  # fmt: skip
    request = {"groups": ["g"], "includeAuthorizedOperations": False}
    return log.add("DESCRIBE_GROUPS", request, {"throttleTimeMs": 0, "groups": [group]}, version=6, **place)


def test_what_a_member_older_than_the_log_joined_with_is_undecided_until_it_joins(tmp_path: Path) -> None:
    log = KafkaLog()
    log.heartbeat("m-1", generation=4, arrives=0)
    older = "AAEAAAABAAJ0MQAAAAEAAAAA/////w=="
    offset = {"partitionIndex": 0, "committedOffset": 7, "committedLeaderEpoch": -1}
    commits = {"groupId": "g", "generationIdOrMemberEpoch": 4, "memberId": "m-1", "groupInstanceId": None}
    committed = {"throttleTimeMs": 0, "topics": [{"name": "t1", "partitions": [{"partitionIndex": 0, "errorCode": 0}]}]}
    topics = [{"name": "t1", "partitions": [offset]}]
    log.add("OFFSET_COMMIT", {**commits, "topics": topics}, committed, arrives=500, version=7)
    describe(log, "m-1", "AAEAAAABAAJ0Mf////8AAAAB", older, arrives=1_000)
    log.heartbeat("m-1", 27, generation=4, arrives=2_000)
    log.join("m-1", "m-1", generation=5, arrives=2_010, takes=20)
    sync = {
        "groupId": "g", "generationId": 5, "memberId": "m-1", "groupInstanceId": None,
        "assignments": [{"memberId": "m-1", "assignment": older}],
    }  # fmt: skip
    log.add("SYNC_GROUP", sync, {"throttleTimeMs": 0, "errorCode": 0, "assignment": older}, version=3, arrives=2_050)
    log.heartbeat("m-1", generation=5, arrives=2_100)
    describe(log, "m-1", "AAEAAAABAAJ0Mf////8AAAAA", older, arrives=3_000)
    wrong = describe(log, "m-1", "AAEAAAABAAJ0Mf////8AAAAB", older, arrives=3_100)
    _, verdict = run_and_compare(read(log, tmp_path))
    assert verdict.undecided[OLDER][("answer", "DescribeGroups", "NONE")] == 1
    assert [d.request_id for d in verdict.differences if d.undecided is None] == [wrong]


def test_groups_older_than_the_log_are_undecided_and_others_decided(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    mine = {"groupId": "g", "protocolType": "consumer", "groupState": "Stable"}
    old = {"groupId": "old", "protocolType": "consumer", "groupState": "Empty"}
    answer = {"throttleTimeMs": 0, "errorCode": 0}
    log.add("LIST_GROUPS", {"statesFilter": []}, {**answer, "groups": [old, mine]}, arrives=5_000)
    log.add("LIST_GROUPS", {"statesFilter": []}, {**answer, "groups": [old]}, arrives=5_100)
    _, verdict = run_and_compare(read(log, tmp_path))
    assert verdict.undecided == {OLDER: {("answer", "ListGroups", "NONE"): 1}}
    assert verdict.different == {("answer", "ListGroups", "NONE"): 1}


def test_a_rebalance_that_goes_on_at_the_end_is_undecided(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    # Somebody joined whose answer was written after the log's end.
    log.heartbeat("m-1", 27, arrives=5_000)
    _, verdict = run_and_compare(read(log, tmp_path))
    assert verdict.undecided == {ENDED: {("answer", "Heartbeat", "REBALANCE_IN_PROGRESS"): 1}}


@pytest.mark.parametrize("later", [False, True], ids=["nobody joins after", "somebody joins after"])
def test_a_static_member_is_replaced_by_one_whose_own_join_is_in_no_log(later: bool, tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    # It waits for the first member; then a second one with its instance id comes, which waits when the log ends.
    replaced = static_join(log, arrives=5_000, takes=1_500)
    if later:
        log.join("m-1", "m-1", generation=2, arrives=7_000, connection="a")
    _, verdict = run_and_compare(read(log, tmp_path))
    different = [d.request_id for d in verdict.differences if d.undecided is None]
    assert (replaced in different) == later
    assert (ENDED in verdict.undecided) != later


def static_join(log: KafkaLog, **place: Any) -> str:
    """A static member joins, and is fenced."""
    request = {
        "groupId": "g", "sessionTimeoutMs": 10_000, "rebalanceTimeoutMs": 60_000, "memberId": "",
        "groupInstanceId": "i", "protocolType": "consumer",
        "protocols": [{"name": "range", "metadata": "AAEAAAABAAJ0Mf////8AAAAA"}],
    }  # fmt: skip
    answer: dict[str, Any] = {
        "throttleTimeMs": 0, "errorCode": 82, "generationId": -1, "protocolName": "", "leader": "",
        "memberId": "i-1", "members": [],
    }  # fmt: skip
    return log.add("JOIN_GROUP", request, answer, version=5, connection="b", **place)


def classic_join(log: KafkaLog, member_id: str, generation: int, **place: Any) -> str:
    """A member of the classic protocol joins a consumer group."""
    request = {
        "groupId": "g", "sessionTimeoutMs": 10_000, "rebalanceTimeoutMs": 6_000, "memberId": member_id,
        "groupInstanceId": None, "protocolType": "consumer",
        "protocols": [{"name": "range", "metadata": "AAEAAAABAAJ0Mf////8AAAAA"}],
    }  # fmt: skip
    answer: dict[str, Any] = {
        "throttleTimeMs": 0, "errorCode": 0, "generationId": generation, "protocolName": "range", "leader": "",
        "memberId": member_id, "members": [],
    }  # fmt: skip
    return log.add("JOIN_GROUP", request, answer, version=5, **place)


@pytest.mark.parametrize(("takes", "explained"), [(20, True), (1, False)], ids=["waits to be written", "is written"])
def test_a_timer_fires_that_a_join_puts_off_which_is_not_written_yet(
    takes: float, explained: bool, tmp_path: Path
) -> None:
    log = KafkaLog()
    beat(log, "m-1", 0, 2, gets=True, arrives=0, connection="a")
    classic_join(log, "c-1", 2, arrives=100, connection="b")
    beat(log, "m-1", 2, 3, arrives=1_100, connection="a")
    beat(log, "m-1", 3, 3, arrives=4_100, connection="a")
    # By 6,100 it should have asked what it is assigned.
    classic_join(log, "c-1", 3, arrives=6_090, takes=takes, connection="b")
    sync = {"groupId": "g", "generationId": 3, "memberId": "c-1", "groupInstanceId": None, "assignments": []}
    answer = {"throttleTimeMs": 0, "errorCode": 25, "assignment": ""}
    last = log.add("SYNC_GROUP", sync, answer, version=3, arrives=6_130, connection="b")
    source = read(log, tmp_path)
    _, verdict = run_and_compare(source)
    assert [difference.request_id for difference in verdict.differences] == ([] if explained else [last])
    assert [row["api"] for row in source.rows if row["api"] == "KeepTimer"] == ["KeepTimer"] * explained


def test_who_reads_sees_what_was_committed(tmp_path: Path) -> None:
    log = KafkaLog()
    request, answer = {"groups": ["g"], "includeAuthorizedOperations": False}, {
        "errorCode": 0, "groupId": "g", "groupState": "Dead", "protocolType": "", "protocolData": "", "members": [],
        "authorizedOperations": -(2**31),
    }  # fmt: skip
    # Handled at once, as the interval tells that is over at the end; but committed only after who asks for the group.
    beat(log, "m-1", 0, 2, gets=True, arrives=0, takes=600, connection="a")
    body = {"throttleTimeMs": 0, "groups": [answer]}
    log.add("DESCRIBE_GROUPS", request, body, version=3, arrives=300, connection="c")
    beat(log, "m-2", 0, 2, gets=True, arrives=700, connection="b")
    beat(log, "m-1", 2, 3, arrives=1_050, connection="a")
    source = read(log, tmp_path)
    _, verdict = run_and_compare(source)
    assert verdict.differences == []


def test_a_shard_that_stands_still_makes_joins_late_too(tmp_path: Path) -> None:
    log = KafkaLog()
    beat(log, "m-1", 0, 2, gets=True, arrives=0, takes=1_700, connection="a")
    log.heartbeat("nobody", 25, arrives=2_000, connection="b")
    source = read(log, tmp_path)
    assert source.facts is not None
    joins = KafkaLog()
    joins.join("", "m-2", 79, arrives=20, takes=1_750, connection="c")
    (joined,) = (parse_line(1, line) for line in joins.lines)
    prompt = Prompt(source.facts.entries.values(), handover_ms=100)
    assert prompt.handled_by_us(joined) // 1_000 - START_MS in range(1_699, 1_702)
    idle = Prompt([], handover_ms=100)
    assert idle.handled_by_us(joined) // 1_000 - START_MS in range(119, 122)


@pytest.mark.parametrize(("later_ms", "explained"), [(100, True), (900, False)], ids=["soon", "long after"])
def test_a_list_may_lack_a_new_group_whose_member_needs_an_id(later_ms: int, explained: bool, tmp_path: Path) -> None:
    log = KafkaLog()
    log.join("", "m-1", 79, arrives=0, connection="a")
    answer = {"throttleTimeMs": 0, "errorCode": 0, "groups": []}
    request: dict[str, Any] = {"statesFilter": [], "typesFilter": []}
    listed = log.add("LIST_GROUPS", request, answer, version=5, arrives=later_ms, connection="b")
    log.join("m-1", "m-1", arrives=2_000, takes=3_000, connection="a")
    source = read(log, tmp_path)
    _, verdict = run_and_compare(source)
    assert [difference.request_id for difference in verdict.differences] == ([] if explained else [listed])
