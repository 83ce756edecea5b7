"""From a request to the rows of the log, and from the answers of its parts to one answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coordinator_udf.log.rows import control_rows
from coordinator_udf.protocol.answer_parts import merge_parts
from coordinator_udf.protocol.errors import BadRequest
from coordinator_udf.protocol.partitioner import java_hash, partition_for
from schemas.requests import REQUEST_COLUMNS
from tests.shard.edge import rows_of


def rows(api: str, version: int, body: dict[str, Any], partitions: int = 8) -> list[dict[str, Any]]:
    return rows_of(api, version, body, 1, "r", partitions=partitions)


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("a", 97), ("group-1", 293427299), ("polygenelubricants", -(2**31)), ("é", 233), ("\U0001f980", 1772802)],
)
def test_java_hash(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_the_one_hash_without_a_positive_counterpart_is_partition_0() -> None:
    assert partition_for("polygenelubricants", 50) == 0


def test_a_heartbeat_needs_no_body() -> None:
    (row,) = rows("Heartbeat", 4, {"groupId": "g", "generationId": 3, "memberId": "m", "groupInstanceId": None})
    assert (row["group_id"], row["member_id"], row["generation_or_epoch"], row["body"]) == ("g", "m", 3, None)
    assert row["partition"] == partition_for("g", 8)
    assert set(row) == set(REQUEST_COLUMNS) - {"source", "offset"}


def test_a_request_for_many_groups_is_split_by_shard() -> None:
    groups = [f"g{i}" for i in range(20)]
    parts = rows("DescribeGroups", 5, {"groups": groups, "includeAuthorizedOperations": False})
    assert {row["parts"] for row in parts} == {len(parts)}
    asked = {group: row["partition"] for row in parts for group in json.loads(row["body"])["groups"]}
    assert asked == {group: partition_for(group, 8) for group in groups}


def test_all_shards_are_asked_for_their_groups() -> None:
    assert [row["partition"] for row in rows("ListGroups", 4, {"statesFilter": []})] == list(range(8))
    assert len(control_rows(partitions=8, log_ts=1, api="Tick")) == 8


def test_parts_are_merged_in_the_order_of_the_request_and_an_error_shows() -> None:
    one = json.dumps({"throttleTimeMs": 0, "groups": [{"groupId": "b"}, {"groupId": "d"}]})
    two = json.dumps({"throttleTimeMs": 0, "groups": [{"groupId": "a"}]})
    merged = json.loads(merge_parts("DescribeGroups", 5, [one, two], ["a", "b", "d"]) or "")
    assert [group["groupId"] for group in merged["groups"]] == ["a", "b", "d"]
    good, bad = json.dumps({"errorCode": 0, "groups": []}), json.dumps({"errorCode": 14, "groups": []})
    assert json.loads(merge_parts("ListGroups", 4, [good, bad], None) or "")["errorCode"] == 14


def test_an_answer_of_which_a_part_cannot_say_that_it_failed_is_none() -> None:
    good = json.dumps({"throttleTimeMs": 0, "groups": [{"groupId": "b"}]})
    assert merge_parts("DescribeGroups", 5, [good, None], None) is None
    assert merge_parts("DescribeGroups", 5, [None], None) is None


@pytest.mark.parametrize(
    ("api", "version", "body", "field"),
    [
        ("Produce", 9, {}, "api"),
        ("Heartbeat", 9, {"groupId": "g"}, "api_version of Heartbeat"),
        ("Heartbeat", 4, {"groupId": 5}, "groupId"),
        ("Heartbeat", 4, {}, "groupId"),
        ("Heartbeat", 4, {"groupId": "g", "generationId": "x"}, "generationId"),
        ("SyncGroup", 5, {"groupId": "g", "generationId": 2**31}, "generationId"),
        ("DescribeGroups", 5, {"groups": "g"}, "groups of DescribeGroups"),
        ("DeleteGroups", 2, {"groupsNames": [None]}, "a group of DeleteGroups"),
    ],
)
def test_what_is_no_request_is_refused_by_field(api: str, version: int, body: dict[str, Any], field: str) -> None:
    with pytest.raises(BadRequest) as refused:
        rows(api, version, body)
    assert refused.value.field == field
