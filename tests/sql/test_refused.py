"""What the views tell of requests that were refused for one group of several, and of members that came back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.replay.broker_log import KafkaLog, one_member
from tests.sql.test_put_out import ask, sync


def delete_groups(log: KafkaLog, errors: dict[str, int], **place: Any) -> None:
    results = [{"groupId": group, "errorCode": error} for group, error in errors.items()]
    answer = {"throttleTimeMs": 0, "results": results}
    log.add("DELETE_GROUPS", {"groupsNames": list(errors)}, answer, version=2, **place)


def delete_offset(log: KafkaLog, topic: str, error: int, **place: Any) -> None:
    asked = [{"name": topic, "partitions": [{"partitionIndex": 0}]}]
    answered = [{"name": topic, "partitions": [{"partitionIndex": 0, "errorCode": error}]}]
    answer = {"errorCode": 0, "throttleTimeMs": 0, "topics": answered}
    log.add("OFFSET_DELETE", {"groupId": "g", "topics": asked}, answer, version=0, **place)


def test_what_is_refused_of_one_group_of_several_or_of_one_partition_is_told(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    # So it is known that there is the topic.
    place = {"partitionIndex": 0, "committedOffset": 3, "committedLeaderEpoch": -1, "committedMetadata": ""}
    request = {"groupId": "g", "generationIdOrMemberEpoch": 1, "memberId": "m-1", "groupInstanceId": None,
               "topics": [{"name": "t1", "partitions": [place]}]}  # fmt: skip
    answer = {"throttleTimeMs": 0, "topics": [{"name": "t1", "partitions": [{"partitionIndex": 0, "errorCode": 0}]}]}
    log.add("OFFSET_COMMIT", request, answer, version=8, arrives=4_100)
    # The three are of three shards.
    delete_groups(log, {"g": 68, "nobody": 69, "no": 69}, arrives=4_500, connection="z")
    delete_offset(log, "t1", 86, arrives=4_600, connection="z")
    rows = ask(log, tmp_path, "SELECT group_id, api, error, why, client_id FROM refused WHERE NOT is_normal")
    assert sorted(tuple(row.values()) for row in rows) == [
        ("g", "DeleteGroups", "NON_EMPTY_GROUP", "the group had members", "z"),
        ("g", "OffsetDelete", "GROUP_SUBSCRIBED_TO_TOPIC", "the group was subscribed to the topic", "z"),
        ("no", "DeleteGroups", "GROUP_ID_NOT_FOUND", "there was no such group", "z"),
        ("nobody", "DeleteGroups", "GROUP_ID_NOT_FOUND", "there was no such group", "z"),
    ]


def test_whether_there_is_a_group_is_asked_and_not_refused(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    told = {"errorCode": 69, "errorMessage": "Group nobody not found.", "groupId": "nobody", "groupState": "Dead",
            "protocolType": "", "protocolData": "", "members": [], "authorizedOperations": -2147483648}  # fmt: skip
    request = {"groups": ["nobody"], "includeAuthorizedOperations": False}
    answer = {"throttleTimeMs": 0, "groups": [told]}
    log.add("DESCRIBE_GROUPS", request, answer, version=6, arrives=4_500, connection="z")
    assert ask(log, tmp_path, "SELECT * FROM refused WHERE NOT is_normal") == []


def test_who_can_not_join_is_told_with_the_setting(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    log.join("", "", 81, arrives=4_200, connection="b")
    log.join("", "", 26, arrives=4_300, connection="c", session_ms=100)
    statement = (
        "SELECT finding, text, setting FROM findings WHERE finding IN ('full group', 'session timeout out of bounds')"
    )
    rows = ask(log, tmp_path, statement, {"group.max.size": "1"})
    assert sorted(tuple(row.values()) for row in rows) == [
        ("full group", "b could not join, for the group had as many members as the broker allows", "group.max.size"),
        (
            "session timeout out of bounds",
            (
                "c could not join, for the broker takes no session timeout that is shorter than "
                "group.min.session.timeout.ms or longer than group.max.session.timeout.ms"
            ),
            "session.timeout.ms",
        ),
    ]


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (
            "consumer poll timeout has expired.",
            "a left because it had not polled in time, and joined again as the same process",
        ),
        ("the consumer unsubscribed from all topics", "a unsubscribed, and joined again as the same process"),
        (
            None,
            "a left and joined again as the same process: it did not poll in time, or was subscribed anew",
        ),
        ("member was removed by an admin", None),
    ],
)
def test_who_left_and_came_back_is_told_with_its_reason(tmp_path: Path, reason: str | None, told: str | None) -> None:
    log = KafkaLog()
    for generation, begin in ((1, 0), (3, 6_000)):
        member = f"m-{generation}"
        log.join("", member, 79, arrives=begin, connection="a")
        log.join(member, member, generation=generation, arrives=begin + 10, takes=3_000, connection="a")
        sync(log, member, generation=generation, arrives=begin + 3_020, connection="a")
        log.heartbeat(member, generation=generation, arrives=begin + 4_000, connection="a")
        leaves = {"memberId": member, "groupInstanceId": None}
        answer = {"throttleTimeMs": 0, "errorCode": 0, "members": [{**leaves, "errorCode": 0}]}
        log.add("LEAVE_GROUP", {"groupId": "g", "members": [{**leaves, "reason": reason}]}, answer, version=5,
                arrives=begin + 5_000, connection="a")  # fmt: skip
    found = ask(log, tmp_path, "SELECT text FROM findings WHERE finding = 'left and came back'")
    assert [row["text"] for row in found] == ([] if told is None else [told])
