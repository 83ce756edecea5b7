"""What the views tell of requests that were refused, for one group of several too, and of members that came back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coordinator_udf.sql.in_process import ViewsInProcess
from coordinator_udf.sql.shapes import views_named
from tests.replay.broker_log import KafkaLog, one_member
from tests.sql.conftest import write_table
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


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        ("the consumer is being closed", "it had left the group"),
        ("member was removed by an admin", "an administrator had removed it from the group"),
    ],
)
def test_who_had_left_was_not_put_out(reason: str, why: str, tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    leaves = {"memberId": "m-1", "groupInstanceId": None}
    answer = {"throttleTimeMs": 0, "errorCode": 0, "members": [{**leaves, "errorCode": 0}]}
    log.add("LEAVE_GROUP", {"groupId": "g", "members": [{**leaves, "reason": reason}]}, answer, version=5,
            arrives=5_000, connection="a")  # fmt: skip
    request = {"groupId": "g", "generationId": 1, "memberId": "m-1", "groupInstanceId": None, "assignments": []}
    refused = {"throttleTimeMs": 0, "errorCode": 25, "assignment": ""}
    log.add("SYNC_GROUP", request, refused, version=3, arrives=5_010, connection="a")
    log.heartbeat("m-2", 25, arrives=5_020, connection="b")
    rows = ask(log, tmp_path, "SELECT api, why FROM refused WHERE NOT is_normal ORDER BY at")
    assert [tuple(row.values()) for row in rows] == [
        ("SyncGroup", why),
        ("Heartbeat", "the coordinator had put it out, or gone on without it"),
    ]


def test_a_member_that_left_came_back_and_was_put_out_had_not_left(tmp_path: Path) -> None:
    """A member of a consumer group comes again under its id."""
    usual = {"group_id": "g", "from_state": "Stable", "to_state": "Stable", "cause_member_id": "m"}
    events = [(1_000, "MEMBER_ADDED"), (2_000, "MEMBER_LEFT"), (3_000, "MEMBER_ADDED"), (50_000, "SESSION_EXPIRED")]
    write_table(tmp_path, "group_transitions", [
        {**usual, "ts": ts, "seq": seq, "rule": rule} for seq, (ts, rule) in enumerate(events)
    ])  # fmt: skip
    asked = {"api": "ConsumerGroupHeartbeat", "group_id": "g", "member_id": "m"}
    refused = {**asked, "error_code": 25, "error_name": "UNKNOWN_MEMBER_ID"}
    times = (2_500, 60_000)
    write_table(tmp_path, "request_log", [
        {**asked, "offset": number, "log_ts": ts, "request_id": f"r-{number}"} for number, ts in enumerate(times)
    ])  # fmt: skip
    write_table(tmp_path, "group_responses", [
        {**refused, "seq": 10 + number, "ts": ts, "request_id": f"r-{number}"} for number, ts in enumerate(times)
    ])  # fmt: skip
    views = ViewsInProcess(str(tmp_path))
    views.make(views_named("refused"))
    assert [row["why"] for row in views.ask("SELECT why FROM refused ORDER BY at")] == [
        "it had left the group", "the coordinator had put it out, or gone on without it",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "name", "why"),
    [
        (
            12,
            "OFFSET_METADATA_TOO_LARGE",
            "the metadata that it committed with an offset is longer than offset.metadata.max.bytes allows",
        ),
        (3, "UNKNOWN_TOPIC_OR_PARTITION", "there was no such topic, or no such partition of it"),
        (24, "INVALID_GROUP_ID", "it named no group: group.id is empty"),
    ],
)
def test_what_was_wrong_with_a_request_is_said_in_words(code: int, name: str, why: str, tmp_path: Path) -> None:
    write_table(tmp_path, "request_log", [
        {"offset": 1, "log_ts": 1_000, "api": "OffsetCommit", "group_id": "g", "request_id": "r-1", "client_id": "a"},
    ])  # fmt: skip
    partition = {"partitionIndex": 0, "errorCode": code}
    body = json.dumps({"topics": [{"name": "t", "partitions": [partition]}]}, separators=(",", ":"))
    write_table(tmp_path, "group_responses", [
        {"seq": 1, "ts": 1_000, "api": "OffsetCommit", "group_id": "g", "request_id": "r-1", "error_code": 0,
         "body": body},
    ])  # fmt: skip
    views = ViewsInProcess(str(tmp_path))
    views.make(views_named("refused"))
    (row,) = views.ask("SELECT error, why FROM refused")
    assert tuple(row.values()) == (name, why)
