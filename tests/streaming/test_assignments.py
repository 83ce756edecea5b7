from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from coordinator_udf.tables.assignment_join import MissingAssignmentError, RecordAt, complete_assignments
from tests.streaming.outputs import Row, assignment, outputs, record, response


def nothing(records: list[RecordAt]) -> Mapping[RecordAt, Mapping[str, bytes]]:
    return {}


def must_not_be_asked(records: list[RecordAt]) -> Mapping[RecordAt, Mapping[str, bytes]]:
    raise AssertionError(records)


def test_answers_and_records_get_the_assignments_of_their_batch() -> None:
    members = [{"memberId": "a", "assignment": "@7/a"}, {"memberId": "b", "assignment": ""}]
    said = outputs(
        record({"type": "GroupMetadata", "group": "g"}, {"members": members}, 7, assignment_refs="7"),
        assignment(7, "a", b"\x01\x02"),
        assignment(7, "b", b""),
        response("SyncGroup", {"errorCode": 0, "assignment": "@7/a"}, assignment_refs="7", request_id="1"),
        response("SyncGroup", {"errorCode": 0, "assignment": "@7/b"}, assignment_refs="7", request_id="2"),
        response("Heartbeat", {"errorCode": 0}, request_id="3"),
    )
    done = complete_assignments(said, must_not_be_asked)
    bodies = [json.loads(body) for rows in (done.records, done.responses) for body in rows.column("body").to_pylist()]
    assert [member["assignment"] for member in bodies[0]["members"]] == ["AQI=", ""]
    assert [body.get("assignment") for body in bodies[1:]] == ["AQI=", "", None]
    assert done.records.column("assignment_refs").null_count == 1
    assert done.responses.column("assignment_refs").null_count == 3


def test_records_of_earlier_batches_are_asked_for_once() -> None:
    asked: list[list[RecordAt]] = []

    def stored(records: list[RecordAt]) -> Mapping[RecordAt, Mapping[str, bytes]]:
        asked.append(records)
        return {("live", 0, 3): {"a": b"old"}, ("live", 1, 3): {"a": b"other"}}

    said = outputs(
        response("SyncGroup", {"assignment": "@3/a"}, assignment_refs="3"),
        response("SyncGroup", {"assignment": "@3/a"}, assignment_refs="3", partition=1),
        response(
            "DescribeGroups",
            {"groups": [{"memberAssignment": "@3/a"}, {"memberAssignment": "@4/x"}]},
            assignment_refs="3,4",
        ),
        assignment(4, "x", b"new"),
    )
    done = complete_assignments(said, stored)
    assert asked == [[("live", 0, 3), ("live", 1, 3)]]
    bodies = [json.loads(body) for body in done.responses.column("body").to_pylist()]
    assert [body.get("assignment") for body in bodies[:2]] == ["b2xk", "b3RoZXI="]
    assert bodies[2] == {"groups": [{"memberAssignment": "b2xk"}, {"memberAssignment": "bmV3"}]}


def test_a_text_of_a_client_is_no_placeholder_and_odd_member_ids_are_found() -> None:
    odd = 'm"\\é/x'
    body = {"clientId": "@1/a", "reason": '"assignment":"@1/a"', "assignment": f"@1/{odd}"}
    said = outputs(response("SyncGroup", body, assignment_refs="1"), assignment(1, odd, b"yes"))
    done = complete_assignments(said, nothing)
    assert json.loads(done.responses.column("body")[0].as_py()) == body | {"assignment": "eWVz"}


def test_an_assignment_that_is_nowhere_is_an_error_that_names_it() -> None:
    with pytest.raises(
        MissingAssignmentError, match=r"assignment of 'a' .* offset 9 of partition 0 of live.*is not there"
    ):
        complete_assignments(outputs(response("SyncGroup", {"assignment": "@9/a"}, assignment_refs="9")), nothing)
    with pytest.raises(MissingAssignmentError, match="has no member 'a'"):
        complete_assignments(
            outputs(response("SyncGroup", {"assignment": "@9/a"}, assignment_refs="9"), assignment(9, "b", b"")),
            nothing,
        )


def test_parts_of_a_request_become_one_answer() -> None:
    def part(partition: int, groups: list[str], ts: int, error: int = 0, request_id: str = "r") -> Row:
        body = {"errorCode": error, "groups": [{"groupId": group} for group in groups]}
        return response("ListGroups", body, parts=3, partition=partition, ts=ts, request_id=request_id)

    said = outputs(
        part(2, ["c"], 5),
        response("Heartbeat", {"errorCode": 0}, request_id="h"),
        part(0, ["a"], 9),
        part(1, ["b"], 7),
        part(0, ["alone"], 9, request_id="incomplete"),
    )
    done = complete_assignments(said, nothing).responses.to_pylist()
    assert [row["request_id"] for row in done] == ["h", "r", "incomplete"]
    merged = json.loads(done[1]["body"])
    assert [group["groupId"] for group in merged["groups"]] == ["a", "b", "c"]
    assert (done[1]["partition"], done[1]["ts"], done[1]["error_code"]) == (0, 9, 0)
    assert json.loads(done[2]["body"])["groups"] == [{"groupId": "alone"}]


def test_a_list_of_groups_that_lacks_a_shard_is_an_error_without_groups() -> None:
    bodies = [{"errorCode": 0, "groups": [{"groupId": "a"}]}, {"errorCode": 14, "groups": []}]
    parts = [response("ListGroups", body, parts=2, partition=place, ts=place) for place, body in enumerate(bodies)]
    (done,) = complete_assignments(outputs(*parts), nothing).responses.to_pylist()
    merged = json.loads(done["body"])
    assert (merged["errorCode"], merged["groups"], done["error_code"]) == (14, [], 14)
