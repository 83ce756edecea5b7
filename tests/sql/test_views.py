"""groups, members, assignments, unanswered: each on tables of a few rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.log.rows import control_rows, request_rows
from coordinator_udf.sql.registration import NoTables, register
from coordinator_udf.streaming.folding import claim_history, fold
from tests.sql.conftest import Ask, write_table

pytestmark = pytest.mark.spark

ASSIGNMENT = b"\x00\x01\x00\x00\x00\x01\x00\x02t1\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x03\xff\xff\xff\xff"
SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x02\x00\x02t1\x00\x02t2\xff\xff\xff\xff"


def transition(seq: int, group_id: str, to_state: str, **columns: Any) -> dict[str, Any]:
    return {
        "seq": seq,
        "ts": 1_000 * seq,
        "group_id": group_id,
        "to_state": to_state,
        "rule": "ANY",
        "members": [],
        **columns,
    }


def stored(offset: int, group_id: str, members: list[dict[str, Any]] | None, **columns: Any) -> dict[str, Any]:
    value = None
    if members is not None:
        value = {"protocol_type": "consumer", "generation": 3, "protocol": "range", "leader": "m1", "members": members}
        value.update(columns)
    return {
        "offset": offset,
        "ts": offset,
        "record_type": "GroupMetadata",
        "group_id": group_id,
        "group_metadata": value,
        "key": "{}",
    }


def member(member_id: str, assignment: bytes = ASSIGNMENT, **columns: Any) -> dict[str, Any]:
    return {
        "member_id": member_id,
        "client_id": f"client-{member_id}",
        "client_host": "/10.0.0.1",
        "rebalance_timeout": 300_000,
        "session_timeout": 45_000,
        "subscription": SUBSCRIPTION,
        "assignment": assignment,
        **columns,
    }


def test_a_group_is_as_its_last_transition_left_it(ask: Callable[..., Ask]) -> None:
    rows = ask(
        group_transitions=[
            transition(1, "a", "PreparingRebalance"),
            transition(
                3,
                "a",
                "Stable",
                protocol_type="consumer",
                protocol="range",
                generation=2,
                leader="m",
                members=["m", "n"],
            ),
            transition(2, "a", "CompletingRebalance", generation=2),
            transition(4, "gone", "Dead"),
            transition(9, "a", "Empty", source="other", generation=5),
        ]
    )("SELECT * FROM groups ORDER BY source")
    assert rows == [
        {
            "source": "live",
            "group_id": "a",
            "state": "Stable",
            "protocol_type": "consumer",
            "protocol": "range",
            "generation": 2,
            "leader": "m",
            "members": 2,
            "since": datetime(1970, 1, 1, 0, 0, 3),
        },
        {
            "source": "other",
            "group_id": "a",
            "state": "Empty",
            "protocol_type": None,
            "protocol": None,
            "generation": 5,
            "leader": None,
            "members": 0,
            "since": datetime(1970, 1, 1, 0, 0, 9),
        },
    ]


def test_members_and_assignments_are_those_stored_last(ask: Callable[..., Ask]) -> None:
    query = ask(
        consumer_offsets=[
            stored(0, "a", [member("m0")]),
            stored(7, "a", [member("m1", group_instance_id="i1"), member("m2", b"")]),
            stored(1, "deleted", [member("m3")]),
            stored(2, "deleted", None),
        ]
    )
    members = query("SELECT * FROM members ORDER BY member_id")
    assert [row["member_id"] for row in members] == ["m1", "m2"]
    assert members[0] == {
        "source": "live",
        "group_id": "a",
        "member_id": "m1",
        "group_instance_id": "i1",
        "client_id": "client-m1",
        "client_host": "/10.0.0.1",
        "is_leader": True,
        "generation": 3,
        "rebalance_timeout_ms": 300_000,
        "session_timeout_ms": 45_000,
        "topics": ["t1", "t2"],
        "assignment": {"t1": [0, 3]},
        "malformed": None,
        "client_assignors": None,
        "details": None,
    }
    assert members[1]["assignment"] == {}
    assert query("SELECT member_id, topic, partition FROM assignments ORDER BY partition") == [
        {"member_id": "m1", "topic": "t1", "partition": 0},
        {"member_id": "m1", "topic": "t1", "partition": 3},
    ]


def test_what_is_not_the_consumer_protocol_is_not_decoded(ask: Callable[..., Ask]) -> None:
    query = ask(
        consumer_offsets=[
            stored(0, "other", [member("w", b"\x00")], protocol_type="a-protocol-of-their-own"),
            stored(1, "broken", [member("m", b"\x00\x00\x00")]),
        ]
    )
    rows = {row["group_id"]: row for row in query("SELECT * FROM members")}
    assert rows["other"]["assignment"] is None
    assert rows["other"]["malformed"] is None
    assert rows["broken"]["topics"] == ["t1", "t2"]
    assert rows["broken"]["assignment"] is None
    assert "3 bytes are not an assignment" in rows["broken"]["malformed"]


def _record(offset: int, kind: str, member_id: str, value: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "offset": offset,
        "ts": offset,
        "record_type": f"ConsumerGroup{kind}",
        "group_id": "g",
        "member_id": member_id,
        "other_value": None if value is None else json.dumps(value),
        "key": "{}",
    }


def _who(client_id: str) -> dict[str, Any]:
    return {
        "instanceId": None,
        "clientId": client_id,
        "clientHost": "/10.0.0.1",
        "subscribedTopicNames": ["orders"],
        "rebalanceTimeoutMs": 60_000,
    }


def _has(epoch: int, *topics: tuple[str, list[int]]) -> dict[str, Any]:
    return {
        "memberEpoch": epoch,
        "assignedPartitions": [{"topicId": topic_id, "partitions": partitions} for topic_id, partitions in topics],
    }


def test_members_of_consumer_groups_have_what_they_acknowledged(ask: Callable[..., Ask]) -> None:
    query = ask(
        consumer_offsets=[
            _record(0, "MemberMetadata", "m1", _who("old")),
            _record(1, "MemberMetadata", "m1", _who("app")),
            _record(2, "CurrentMemberAssignment", "m1", _has(1)),
            _record(3, "CurrentMemberAssignment", "m1", _has(2, ("idOfOrders", [0, 1]), ("idOfAudit", [5]))),
            _record(4, "MemberMetadata", "m2", _who("waits")),
            _record(5, "MemberMetadata", "left", _who("left")),
            _record(6, "CurrentMemberAssignment", "left", _has(1, ("idOfOrders", [1]))),
            _record(7, "CurrentMemberAssignment", "left", None),
            _record(8, "MemberMetadata", "left", None),
            {
                "offset": 9,
                "ts": 9,
                "record_type": "OffsetCommit",
                "group_id": "other",
                "topic": "orders",
                "topic_partition": 0,
                "offset_commit": {"offset": 1, "topic_id": "idOfOrders"},
                "key": "{}",
            },
        ]
    )
    members = query("SELECT * FROM members ORDER BY member_id")
    assert [(row["member_id"], row["client_id"], row["generation"], row["assignment"]) for row in members] == [
        ("m1", "app", 2, {"orders": [0, 1], "idOfAudit": [5]}),
        ("m2", "waits", None, {}),
    ]
    assert members[0]["topics"] == ["orders"]
    assert members[0]["rebalance_timeout_ms"] == 60_000
    assert query("SELECT topic, partition FROM assignments WHERE member_id = 'm1' ORDER BY ALL") == [
        {"topic": "idOfAudit", "partition": 5},
        {"topic": "orders", "partition": 0},
        {"topic": "orders", "partition": 1},
    ]


def test_unanswered_requests_are_named_with_who_asked(ask: Callable[..., Ask]) -> None:
    def asked(offset: int, request_id: str | None, api: str | None, **columns: Any) -> dict[str, Any]:
        return {
            "offset": offset,
            "log_ts": 1_000 * offset,
            "request_id": request_id,
            "api": api,
            "group_id": "a",
            "client_id": "c",
            **columns,
        }

    def answer(request_id: str, **columns: Any) -> dict[str, Any]:
        return {"seq": 0, "ts": 0, "request_id": request_id, **columns}

    query = ask(
        request_log=[
            asked(0, "r0", "JoinGroup", member_id="m"),
            asked(1, "r1", "Heartbeat"),
            asked(2, None, "Tick"),
            asked(3, "t", "EndTxn"),
            asked(4, "r2", "NoSuchApi"),
            asked(5, "r3", None),
            asked(6, "spans", "ListGroups"),
            asked(6, "spans", "ListGroups", partition=1),
            asked(7, "r1", "Heartbeat", source="other"),
        ],
        group_responses=[answer("r1"), answer("r0", source="other")],
        rejected_requests=[{"request_id": "r2", "reason": "api is 'NoSuchApi'"}],
    )
    rows = query("SELECT source, request_id, api, member_id, asked, rejected FROM unanswered ORDER BY asked")
    assert [(row["source"], row["request_id"], row["rejected"]) for row in rows] == [
        ("live", "r0", None),
        ("live", "r2", "api is 'NoSuchApi'"),
        ("live", "r3", None),
        ("live", "spans", None),
        ("other", "r1", None),
    ]
    assert rows[0]["asked"] == datetime(1970, 1, 1)
    assert rows[0]["member_id"] == "m"


def test_a_table_that_comes_later_is_seen_after_registering_again(spark: SparkSession, tmp_path: Path) -> None:
    write_table(tmp_path, "group_transitions", [transition(1, "a", "Stable")])
    register(spark, str(tmp_path))
    assert spark.table("members").count() == 0
    write_table(tmp_path, "group_transitions", [transition(2, "b", "Stable")])
    assert spark.table("groups").count() == 2
    write_table(tmp_path, "consumer_offsets", [stored(0, "a", [member("m")])])
    register(spark, str(tmp_path))
    assert spark.table("members").count() == 1


def test_a_folder_may_be_a_relative_path(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_table(tmp_path / "tables", "group_transitions", [transition(1, "a", "Stable")])
    monkeypatch.chdir(tmp_path)
    assert register(spark, str((tmp_path / "tables").relative_to(tmp_path))) == ("group_transitions",)
    assert spark.table("groups").count() == 1


def test_the_request_log_may_be_an_embedded_one(ask: Callable[..., Ask], spark: SparkSession, tmp_path: Path) -> None:
    query = ask(group_responses=[{"seq": 0, "ts": 0, "request_id": "r0"}])
    log = EmbeddedLog.create(tmp_path / "log", 2)
    for number in range(3):
        log.append(
            request_rows(
                partitions=2,
                log_ts=number,
                request_id=f"r{number}",
                api="Heartbeat",
                api_version=4,
                client_id="c",
                client_host="/10.0.0.1",
                body={"groupId": "g", "memberId": "m", "generationId": 1},
            )
        )
    log.close()
    register(spark, str(tmp_path), tmp_path / "log")
    assert query("SELECT request_id, client_host FROM unanswered ORDER BY request_id") == [
        {"request_id": "r1", "client_host": "/10.0.0.1"},
        {"request_id": "r2", "client_host": "/10.0.0.1"},
    ]


def test_the_request_log_is_whole_while_it_is_folded(
    ask: Callable[..., Ask], spark: SparkSession, tmp_path: Path
) -> None:
    query = ask(group_responses=[{"seq": 0, "ts": 0, "request_id": "r0"}])
    log = EmbeddedLog.create(tmp_path / "log", 2)
    for number in range(30):
        log.append([row | {"request_id": f"r{number}"} for row in control_rows(partitions=2, log_ts=number, api="X")])
    history = claim_history(log, str(tmp_path))

    def whole() -> bool:
        rows = query("SELECT source, partition, offset, request_id FROM request_log ORDER BY partition, offset")
        return [(row["source"], row["partition"], row["offset"], row["request_id"]) for row in rows] == [
            ("live", partition, offset, f"r{offset}") for partition in range(2) for offset in range(30)
        ]

    def unanswered() -> int:
        count: int = query("SELECT count(*) AS requests FROM unanswered")[0]["requests"]
        return count

    register(spark, str(tmp_path), log.path)
    assert whole()
    fold(log, history, 10)
    assert whole(), "folded since the view was made"
    register(spark, str(tmp_path), log.path)
    assert whole()
    history.append(pa.Table.from_batches(log.read(10, 20)), 20)
    assert whole(), "written to the history since"
    register(spark, str(tmp_path), log.path)
    assert whole(), "in both, for a moment"
    assert unanswered() == 29
    fold(log, history, 30)
    assert whole(), "all of it folded since"
    register(spark, str(tmp_path), log.path)
    assert whole()
    assert unanswered() == 29


def test_a_folder_without_tables_is_said_to_be_one(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NoTables, match=r"no table in .*nowhere"):
        register(spark, str(tmp_path / "nowhere"))
