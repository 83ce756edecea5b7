from __future__ import annotations

import msgspec
import pytest

from coordinator_udf.tables.rows import to_tables
from schemas.tables import TABLES, table_arrow
from tests.streaming.outputs import assignment, outputs, record, response, row


def test_every_table_comes_with_its_schema_even_empty() -> None:
    tables = to_tables(outputs())
    assert list(tables) == list(TABLES)
    for name, rows in tables.items():
        assert rows.schema == table_arrow(name)
        assert len(rows) == 0


def test_responses_have_the_typed_columns_of_their_api() -> None:
    rows = to_tables(
        outputs(
            response("Heartbeat", {"errorCode": 27}, request_id="1", answered_by="1"),
            response("JoinGroup", {"errorCode": 0, "generationId": 4, "leader": "m", "protocolName": "range"}),
            response("SyncGroup", {"errorCode": 0, "assignment": "AQI=", "protocolName": None}),
            response("SyncGroup", {"errorCode": 25, "assignment": ""}),
            response(
                "ConsumerGroupHeartbeat", {"errorCode": 0, "memberEpoch": 6, "assignment": {"topicPartitions": []}}
            ),
        )
    )["group_responses"].to_pylist()
    assert [row["error_name"] for row in rows] == ["REBALANCE_IN_PROGRESS", "NONE", "NONE", "UNKNOWN_MEMBER_ID", "NONE"]
    assert [row["generation_id"] for row in rows] == [None, 4, None, None, 6]
    assert [row["assignment"] for row in rows] == [None, None, b"\x01\x02", b"", None]
    assert (rows[0]["answered_by"], rows[1]["leader"], rows[1]["protocol_name"]) == ("1", "m", "range")
    assert rows[0]["body"] == '{"errorCode": 27}'


def test_records_have_typed_keys_and_values() -> None:
    member = {"memberId": "m", "groupInstanceId": None, "clientId": "c", "clientHost": "/h", "rebalanceTimeout": 1}
    member |= {"sessionTimeout": 2, "subscription": "AA==", "assignment": ""}
    group = {"protocolType": "consumer", "generation": 1, "protocol": "range", "leader": "m", "members": [member]}
    commit = {"offset": 5, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 9, "topicId": "R6JiIOC9MYajE8jNDnJh-Q"}
    rows = to_tables(
        outputs(
            record({"type": "GroupMetadata", "group": "g"}, group, 0, value_version=3),
            record({"type": "GroupMetadata", "group": "g"}, None, 1),
            record({"type": "OffsetCommit", "group": "g", "topic": "t", "partition": 2}, commit, 2, producer_id=7),
            record({"type": "ConsumerGroupMetadata", "groupId": "g"}, {"epoch": 1}, 3),
            assignment(0, "m", b""),
        )
    )["consumer_offsets"].to_pylist()
    assert [row["offset"] for row in rows] == [0, 1, 2, 3]
    assert [row["group_id"] for row in rows] == ["g"] * 4
    metadata = rows[0]["group_metadata"]
    assert (metadata["protocol"], metadata["current_state_timestamp"]) == ("range", None)
    assert metadata["members"][0]["subscription"] == b"\x00"
    assert metadata["members"][0]["assignment"] == b""
    assert [rows[1][name] for name in ("group_metadata", "offset_commit", "other_value", "stored")] == [None] * 4
    assert (rows[2]["topic"], rows[2]["topic_partition"], rows[2]["producer_id"]) == ("t", 2, 7)
    assert rows[2]["offset_commit"]["expire_timestamp"] is None
    assert rows[2]["offset_commit"]["topic_id"] == "R6JiIOC9MYajE8jNDnJh-Q"
    assert rows[3]["other_value"] == '{"epoch": 1}'


def test_transitions_and_rejected_rows_are_rows_of_their_tables() -> None:
    said = outputs(
        row("transitions", group_id="g", to_state="Empty", rule="LEFT", members=["a"], cause_request_id="7"),
        row("rejected", api="X", reason="api is X", raw="{}"),
    )
    tables = to_tables(said)
    assert tables["group_transitions"].equals(said.transitions)
    assert tables["rejected_requests"].equals(said.rejected)


def test_what_is_not_complete_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        to_tables(outputs(response("SyncGroup", {"assignment": "@1/m"})))


def test_heartbeats_are_not_read() -> None:
    rows = outputs(row("responses", api="Heartbeat", error_code=0, body="no JSON"))
    (answer,) = to_tables(rows)["group_responses"].to_pylist()
    assert answer["body"] == "no JSON"
