"""What a gateway promises its clients: the order of answers, and an answer to everything."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from coordinator_udf.gateway.gateway import Gateway
from coordinator_udf.gateway.server import pending_requests
from coordinator_udf.gateway.settings import GatewaySettings, GatewaySettingsError, parse_address
from coordinator_udf.gateway.versions import ADVERTISED, COORDINATED
from coordinator_udf.protocol.errors import error_codes
from coordinator_udf.settings.file import topic_id
from tests.gateway.alone import KNOWN, METADATA, Alone
from tests.gateway.in_process import PARTITIONS, Front, topics
from tests.gateway.wire import HEARTBEAT, Wire, join
from tests.protocol.sample_requests import sample_request
from tests.protocol.test_failed_answer import places_of_errors
from tests.waiting import wait

#: Longer than any test waits for an answer.
HOUR_MS = 3_600_000


def test_what_is_served_is_what_is_said(alone: Alone) -> None:
    with alone.wire() as wire:
        said = wire.ask("ApiVersions", 4, {"clientSoftwareName": "w", "clientSoftwareVersion": "1"})
    assert len(said["apiKeys"]) == len(ADVERTISED)
    assert {entry["apiKey"] for entry in said["apiKeys"]}.isdisjoint({22, 28, 76})


def test_librdkafka_is_told_of_produce_from_its_first_version_on(alone: Alone) -> None:
    with alone.wire() as wire:
        said = wire.ask("ApiVersions", 4, {"clientSoftwareName": "w", "clientSoftwareVersion": "1"})
        (produce,) = [entry for entry in said["apiKeys"] if entry["apiKey"] == 0]
        assert (produce["minVersion"], produce["maxVersion"]) == (0, 12)


def test_an_unknown_version_of_api_versions_is_answered_in_the_oldest(alone: Alone) -> None:
    with alone.wire() as wire:
        wire.raw(struct.pack(">ihhih", 4 + 10, 18, 9, 7, 1) + b"w" + b"\x00\x00\x00")
        wire._sent.append(("ApiVersions", 0, 7))
        said = wire.receive()
        assert (said["errorCode"], said["apiKeys"]) == (35, [{"apiKey": 18, "minVersion": 0, "maxVersion": 4}])
        assert wire.ask("Metadata", 9, METADATA)["clusterId"] == "muster"


def test_a_request_goes_to_the_log_with_all_that_the_coordinator_must_not_make_up(alone: Alone) -> None:
    before_ms = alone.log.now_ms()
    with alone.wire() as wire:
        wire.send("JoinGroup", 5, join(), client_id="me")
        (row,) = alone.wait_for_requests(1)
    assert (row["api"], row["api_version"], row["group_id"], row["member_id"]) == ("JoinGroup", 5, "g", "")
    assert (row["client_id"], row["client_host"]) == ("me", "/127.0.0.1")
    assert row["proposed_member_id"].startswith("me-")
    assert before_ms <= row["log_ts"] <= alone.log.now_ms()


def test_answers_keep_the_order_of_a_connections_requests(alone: Alone) -> None:
    with alone.wire() as wire:
        wire.send("Heartbeat", 4, HEARTBEAT)
        wire.send("OffsetForLeaderEpoch", 4, {"replicaId": -1, "topics": []})
        wire.send("Heartbeat", 4, HEARTBEAT)
        first, second = alone.wait_for_requests(2)
        alone.answer(second, errorCode=25)
        alone.answer(first)
        assert wire.receive() == {"throttleTimeMs": 0, "errorCode": 0}
        assert "topics" in wire.receive()
        assert wire.receive()["errorCode"] == 25


def test_nothing_passes_a_join_group_that_waits(alone: Alone) -> None:
    with alone.wire() as wire, alone.wire() as other:
        wire.send("JoinGroup", 5, join())
        # Of what two clients send at one moment either may come first.
        (waiting,) = alone.wait_for_requests(1)
        wire.send("Heartbeat", 4, HEARTBEAT)
        other.send("Heartbeat", 4, HEARTBEAT)
        alone.wait_for_requests(2)
        time.sleep(0.3)
        assert [row["api"] for row in alone.requests()] == ["JoinGroup", "Heartbeat"]
        alone.answer(waiting, generationId=1, protocolName="range", leader="m", memberId="m", members=[])
        assert wire.receive()["memberId"] == "m"
        alone.wait_for_requests(3)


def quick_request(api: str, version: int) -> dict[str, Any]:
    """A sample request that waits for nobody."""
    body = sample_request(api, version)
    return body | {
        name: 0 for name in ("sessionTimeoutMs", "rebalanceTimeoutMs") if name in body and api == "JoinGroup"
    }


@pytest.mark.parametrize("alone", [{"request_timeout_ms": 100}], indirect=True)
def test_what_the_coordinator_leaves_unanswered_is_answered_as_kafka_does(alone: Alone) -> None:
    asked = [(api, version) for api, (first, last) in COORDINATED.items() for version in range(first, last + 1)]
    waiting = []
    for api, version in asked:
        if api == "SyncGroup":
            continue  # it waits for its leader, for as long as the group does
        wire = alone.wire()
        wire.send(api, version, quick_request(api, version))
        waiting.append((api, version, wire))
    for api, version, wire in waiting:
        said = msgspec.json.encode(wire.receive()).decode()
        error = 16 if api == "OffsetFetch" else 15
        assert f'"errorCode":{error}' in said, (api, version, said)
        wire.close()
    assert alone.gateway.status().timed_out == len(waiting)
    assert alone.gateway.status().unanswered == 0


@pytest.mark.parametrize("api", COORDINATED)
def test_an_answer_that_cannot_say_its_failure_is_said_by_who_knows_what_was_asked(alone: Alone, api: str) -> None:
    first, last = COORDINATED[api]
    for version in range(first, last + 1):
        with alone.wire() as wire:
            before = len(alone.requests())
            wire.send(api, version, quick_request(api, version))
            asked = alone.wait_for_requests(before + 1)
            ids = sorted({row["request_id"] for row in asked[before:]})
            alone.gateway.answers(pa.table({"request_id": ids, "body": pa.nulls(len(ids), pa.string())}))
            assert list(error_codes(wire.receive())) == [-1] * places_of_errors(api, version)
    assert alone.gateway.status().unanswered == 0


def test_a_failure_that_no_answer_can_say_closes_the_connection(alone: Alone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_requests, "failed_answer", lambda *_: None)
    with alone.wire() as wire:
        wire.send("OffsetCommit", 9, sample_request("OffsetCommit", 9))
        (row,) = alone.wait_for_requests(1)
        alone.gateway.answers(pa.table({"request_id": [row["request_id"]], "body": pa.nulls(1, pa.string())}))
        assert wire.is_closed()
    assert alone.gateway.status().closed == {"OffsetCommit v9 failed": 1}


def test_a_log_that_takes_nothing_makes_clients_come_again(alone: Alone) -> None:
    alone.log.close()
    with alone.wire() as wire:
        assert wire.ask("Heartbeat", 4, HEARTBEAT)["errorCode"] == 15
        assert wire.ask("Metadata", 9, METADATA)["clusterId"] == "muster"


def test_answers_for_others_and_for_the_gone_are_let_lie(alone: Alone) -> None:
    with alone.wire() as wire:
        wire.send("Heartbeat", 4, HEARTBEAT)
        (row,) = alone.wait_for_requests(1)
    wait(lambda: alone.gateway.status().connections == 0, "it is gone")
    alone.answer(row)
    alone.answer({"request_id": "another-gateway-0"}, {"request_id": None})
    with alone.wire() as wire:
        assert wire.ask("Metadata", 9, METADATA)["clusterId"] == "muster"
    assert alone.gateway.status().unanswered == 0


def test_topics_that_change_are_seen_by_clients_and_by_the_log(alone: Alone) -> None:
    alone.gateway.set_topics(KNOWN)
    alone.gateway.set_topics(topics(t1=8))
    rows = pa.Table.from_batches(list(alone.log.read(0, alone.log.end()))).to_pylist()
    # Of a machine that had no time for this process for some seconds.
    rows = [row for row in rows if row["api"] != "Downtime"]
    assert [row["api"] for row in rows] == ["TopicMetadata"] * (2 * PARTITIONS)
    assert msgspec.json.decode(rows[-1]["body"]) == {"topics": [{"name": "t1", "partitions": 8, "id": topic_id("t1")}]}
    with alone.wire() as wire:
        (topic,) = wire.ask("Metadata", 9, METADATA)["topics"]
        assert (topic["name"], len(topic["partitions"])) == ("t1", 8)


def fetch_of_an_hour() -> dict[str, Any]:
    return {
        "maxWaitMs": HOUR_MS,
        "minBytes": 1,
        "maxBytes": 1_000,
        "isolationLevel": 0,
        "sessionId": 0,
        "sessionEpoch": 0,
        "topics": [
            {
                "topicId": topic_id("t1"),
                "partitions": [
                    {
                        "partition": 0,
                        "currentLeaderEpoch": 0,
                        "fetchOffset": 42,
                        "lastFetchedEpoch": -1,
                        "logStartOffset": -1,
                        "partitionMaxBytes": 1_000,
                    }
                ],
            }
        ],
        "forgottenTopicsData": [],
        "rackId": "",
    }


def test_a_fetch_waits_as_long_as_it_is_told_unless_it_fails(tmp_path: Path) -> None:
    fetch = fetch_of_an_hour()
    with Front(tmp_path / "log.db", KNOWN) as front, Wire(front.gateway.port) as wire:
        with Wire(front.gateway.port) as waiting, Wire(front.gateway.port) as other:
            waiting.send("Fetch", 16, fetch)
            # Sent later, answered earlier, and by then the first would have been, too.
            other.ask("Fetch", 16, fetch | {"maxWaitMs": 400})
            assert waiting.has_nothing()
        (topic,) = wire.ask("Fetch", 16, fetch | {"maxWaitMs": 1})["responses"]
        (partition,) = topic["partitions"]
        assert (partition["errorCode"], partition["highWatermark"], partition["records"]) == (0, 42, "")
        fetch["topics"][0]["topicId"] = topic_id("nowhere")
        (topic,) = wire.ask("Fetch", 16, fetch)["responses"]
        assert topic["partitions"][0]["errorCode"] == 100
        assert wire.ask("Fetch", 16, fetch | {"sessionId": 5, "sessionEpoch": 1})["errorCode"] == 70


def test_a_fetch_keeps_nothing_waiting_that_comes_behind_it_but_a_fetch(alone: Alone) -> None:
    fetch = fetch_of_an_hour()
    with alone.wire() as wire:
        wire.send("Fetch", 16, fetch)
        wire.send("Heartbeat", 4, HEARTBEAT)
        assert wire.receive()["errorCode"] == 0
        (row,) = alone.wait_for_requests(1)
        alone.answer(row, errorCode=25)
        assert wire.receive()["errorCode"] == 25
        wire.send("Fetch", 16, fetch)
        wire.send("Fetch", 16, fetch)
        with alone.wire() as other:
            # Sent later: when it is answered, the first would have been, too.
            other.ask("Fetch", 16, fetch | {"maxWaitMs": 1})
            assert wire.has_nothing()


def test_addresses_and_limits_are_checked_by_name() -> None:
    assert parse_address("127.0.0.1:9092") == ("127.0.0.1", 9092)
    assert parse_address("[::1]:0") == ("::1", 0)
    for wrong in ("9092", "host:", "host:99999", ":1"):
        with pytest.raises(GatewaySettingsError, match="expected HOST:PORT"):
            parse_address(wrong)
    with pytest.raises(GatewaySettingsError, match="max_in_flight is 0"):
        GatewaySettings(max_in_flight=0)
    with pytest.raises(GatewaySettingsError, match="max_request_bytes"):
        GatewaySettings(max_request_bytes=2**30)


def test_a_port_that_is_taken_is_said_at_the_start(alone: Alone) -> None:
    with pytest.raises(OSError, match=r"(?i)address already in use"):
        Gateway(alone.log, KNOWN, GatewaySettings(port=alone.gateway.port)).start()


def test_a_gateway_that_cannot_start_leaves_nothing_on_the_log(alone: Alone) -> None:
    end = alone.log.end()
    with pytest.raises(OSError, match=r"(?i)address already in use"):
        Gateway(alone.log, topics(others=1), GatewaySettings(port=alone.gateway.port)).start()
    elsewhere = GatewaySettings(port=0, gateways=(("127.0.0.1", 1),))
    with pytest.raises(GatewaySettingsError, match=r"expected 127\.0\.0\.1:"):
        Gateway(alone.log, topics(others=1), elsewhere).start()
    assert alone.log.end() == end
