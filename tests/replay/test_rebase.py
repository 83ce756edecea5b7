"""Where nothing explains an answer the group goes on as later answers tell: a difference makes no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coordinator_udf.replay.explain.bounds import Bounds
from coordinator_udf.replay.explain.points import Point
from coordinator_udf.replay.explain.rebase import Chosen, Rebase
from coordinator_udf.replay.recording import ReplaySource
from coordinator_udf.replay.tasks.run_and_compare import run_and_compare
from tests.groups.bodies import consumer_heartbeat
from tests.replay.broker_log import KafkaLog, one_member, read


def different(source: ReplaySource) -> list[str | None]:
    _, verdict = run_and_compare(source)
    return [difference.request_id for difference in verdict.differences if difference.undecided is None]


def adoptions(source: ReplaySource) -> int:
    return sum(row["api"] == "AdoptGroup" for row in source.rows)


def test_a_generation_that_nothing_explains_is_adopted_once(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    # The broker is five generations farther, and no line says how it came there.
    first = log.heartbeat("m-1", generation=6, arrives=5_000)
    for number in range(10):
        log.heartbeat("m-1", generation=6, arrives=5_100 + 100 * number)
    log.heartbeat("m-1", 22, generation=1, arrives=6_500)
    source = read(log, tmp_path)
    assert different(source) == [first]
    assert adoptions(source) == 1


def test_a_member_that_nothing_explains_is_adopted_once(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    # The broker has forgotten the member long before its session ends.
    first = log.heartbeat("m-1", 25, arrives=5_000)
    for number in range(5):
        log.heartbeat("m-1", 25, arrives=5_100 + 100 * number)
    source = read(log, tmp_path)
    assert different(source) == [first]


def test_nothing_is_adopted_where_only_one_answer_is_wrong(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    wrong = log.heartbeat("m-1", 22, arrives=5_000)
    for number in range(5):
        log.heartbeat("m-1", arrives=5_100 + 100 * number)
    source = read(log, tmp_path)
    assert different(source) == [wrong]
    assert adoptions(source) == 0


def list_before_leave(log: KafkaLog, leave_ms: int) -> str:
    """Has a list of groups, read from 5,000 ms on for 30, tell of the group as it is once its member has left."""
    leave = {"groupId": "g", "memberId": "m-1"}
    answer: dict[str, Any] = {"throttleTimeMs": 0, "errorCode": 0}
    log.add("LEAVE_GROUP", leave, answer, version=1, arrives=leave_ms, connection="b")
    answer = {**answer, "groups": [{"groupId": "g", "protocolType": "consumer", "groupState": "Empty"}]}
    return log.add("LIST_GROUPS", {"statesFilter": []}, answer, arrives=5_000, takes=30, connection="c")


def test_a_list_of_groups_is_read_at_a_moment_within_its_window(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    list_before_leave(log, leave_ms=5_010)
    source = read(log, tmp_path)
    assert different(source) == []
    assert source.explained is not None
    assert len(source.explained.placed) == 1


def test_a_list_of_groups_is_not_read_outside_its_window(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    wrong = list_before_leave(log, leave_ms=5_500)
    assert different(read(log, tmp_path)) == [wrong]


@pytest.mark.parametrize("late_ms", [40, 400])
def test_a_list_of_groups_tells_that_a_timer_was_late_within_its_window(tmp_path: Path, late_ms: int) -> None:
    log = KafkaLog()
    log.join("", "m-1", 79, arrives=0, connection="a")
    log.join("m-1", "m-1", arrives=10, takes=3_050 + late_ms, connection="a")
    state = {"groupId": "g", "protocolType": "consumer", "groupState": "PreparingRebalance"}
    answer = {"throttleTimeMs": 0, "errorCode": 0, "groups": [state]}
    # What another group was answered before the list was asked for comes before it, and behind the timer.
    other = {"groupId": "h", "generationId": 1, "memberId": "nobody", "groupInstanceId": None}
    log.add("HEARTBEAT", other, {"throttleTimeMs": 0, "errorCode": 25}, arrives=3_030, connection="b")
    told = log.add("LIST_GROUPS", {"statesFilter": []}, answer, arrives=3_010 + late_ms, takes=5, connection="c")
    source = read(log, tmp_path)
    assert different(source) == ([] if late_ms < Bounds().late_ms else [told])
    assert [row["api"] for row in source.rows].count("ListGroups") == 1
    assert any(row["api"] == "DelayTimers" for row in source.rows) is (late_ms < Bounds().late_ms)


def test_a_list_that_was_not_refused_is_read_before_or_after_the_shard_is_loaded(tmp_path: Path) -> None:
    log = KafkaLog()
    log.join("", "", 16, arrives=0)
    log.join("", "", 14, arrives=1_000)
    none = {"throttleTimeMs": 0, "errorCode": 0, "groups": []}
    log.add("LIST_GROUPS", {"statesFilter": []}, none, arrives=1_001, takes=30, connection="c")
    log.heartbeat("m-1", 25, arrives=1_020)
    assert different(read(log, tmp_path)) == []


def test_what_the_asker_may_do_with_a_group_is_adopted(tmp_path: Path) -> None:
    log = KafkaLog()
    dead: dict[str, object] = {
        "errorCode": 0, "errorMessage": None, "groupId": "g", "groupState": "Dead", "protocolType": "",
        "protocolData": "", "members": [], "authorizedOperations": 3_400,
    }  # fmt: skip
    for asked in (True, False):
        asks = {"groups": ["g"], "includeAuthorizedOperations": asked}
        log.add("DESCRIBE_GROUPS", asks, {"throttleTimeMs": 0, "groups": [dead]}, arrives=1_000, version=5)
    source = read(log, tmp_path)
    told = [answer.body["groups"][0]["authorizedOperations"] for answer in source.recording.answers]
    assert told == [-(2**31), 3_400]
    assert source.notes["answers that tell what the asker may do, adopted"] == 1


def test_few_states_are_tried_where_none_fits_and_more_once_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = one_member(KafkaLog())
    # No group answers so: each of these is wrong whatever the one before left.
    wrong = [log.heartbeat("m-1", (22, 25, 82, 27)[number % 4], arrives=5_000 + 10 * number) for number in range(60)]
    # From here on the broker is five generations farther.
    farther = [log.heartbeat("m-1", generation=6, arrives=6_000 + 10 * number) for number in range(80)]
    last = log.heartbeat("m-1", 22, generation=1, arrives=7_000)
    chosen: list[Point] = []
    choose = Rebase.choose

    def counted(self: Rebase, before: Point | None, fewest: int, until: int) -> Chosen | None:
        chosen.append(self._walk.point())
        return choose(self, before, fewest, until)

    monkeypatch.setattr(Rebase, "choose", counted)
    found = different(read(log, tmp_path))
    assert len(set(found) & set(wrong)) > len(wrong) // 2
    assert sum(point.first < 60 for point in chosen) < len(wrong) // 2
    assert not {*farther[33:], last} & set(found)


@pytest.mark.parametrize("stands", [True, False])
def test_a_timer_is_as_late_as_its_shard_stood_still(tmp_path: Path, *, stands: bool) -> None:
    log = KafkaLog()
    log.join("", "m-1", 79, arrives=0, connection="a")
    log.join("m-1", "m-1", arrives=10, takes=3_750, connection="a")
    # What another group was asked while the timer was due has its answer when the shard goes on.
    other = {"groupId": "h", "generationId": 1, "memberId": "nobody", "groupInstanceId": None}
    unknown = {"throttleTimeMs": 0, "errorCode": 25}
    log.add("HEARTBEAT", other, unknown, arrives=3_050, takes=690 if stands else 1, connection="b")
    told = log.heartbeat("m-1", 27, generation=0, arrives=3_400, takes=345, connection="c")
    assert different(read(log, tmp_path)) == ([] if stands else [told])


def beat(log: KafkaLog, member_id: str, epoch: int, arrives: int, answer: dict[str, Any], **said: Any) -> str:
    """Adds a ConsumerGroupHeartbeat of a connection of the member's own."""
    nothing = {
        "throttleTimeMs": 0, "errorCode": 0, "errorMessage": None, "memberId": None, "memberEpoch": 0,
        "heartbeatIntervalMs": 0, "assignment": None,
    }  # fmt: skip
    body = consumer_heartbeat("g", member_id, epoch, **said)
    return log.add("CONSUMER_GROUP_HEARTBEAT", body, nothing | answer, arrives=arrives, connection=member_id, version=1)


def test_a_static_member_that_only_refusals_name_was_there_before(tmp_path: Path) -> None:
    log = KafkaLog()
    taken = "Static member b with instance id i cannot join the group because the instance id is owned by x member."
    for number in range(8):
        same = {"memberId": "d", "memberEpoch": 3, "heartbeatIntervalMs": 5_000}
        said = {"subscribedTopicNames": ["t0"], "rebalanceTimeoutMs": 5_000, "topicPartitions": []}
        at_ms = 1_000 + 1_000 * number
        beat(log, "d", 3, at_ms, same, **said)
        joins = {**said, "instanceId": "i"}
        beat(log, "b", 0, at_ms + 500, {"errorCode": 111, "errorMessage": taken}, **joins)
    assert different(read(log, tmp_path)) == []
