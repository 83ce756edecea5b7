"""The codec against Kafka's own JSON, against kio's reader, and against kafka-python's encodings."""

from __future__ import annotations

import gzip
import importlib
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader

from coordinator_udf.protocol.wire import (
    EncodeError,
    MalformedFrame,
    decode,
    encode,
    read_request_header,
    request_bytes,
    request_message,
    response_bytes,
    response_message,
    split_response,
)
from coordinator_udf.protocol.wire.schema import API_KEYS
from tests.conftest import SAMPLE_LOG, shared
from tests.gateway.bodies import body_of, messages

# kafka-python loads its schemas in a way that the standard library calls old.
pytestmark = pytest.mark.filterwarnings(r"ignore:\w+_text is deprecated:DeprecationWarning")

KAFKA_PYTHON = ("consumer.group", "consumer.fetch", "admin.groups", "metadata", "admin.cluster", "consumer.offsets")


def broker_bodies(path: Path) -> Iterator[tuple[str, int, bool, dict[str, Any]]]:
    for line in gzip.decompress(path.read_bytes()).decode().splitlines():
        entry = json.loads(line[line.index("{") : line.rindex("}") + 1])
        api = API_KEYS.get(entry["requestHeader"]["requestApiKey"])
        if api is not None:
            version = entry["requestHeader"]["requestApiVersion"]
            yield api, version, True, entry["request"]
            yield api, version, False, entry["response"]


def assert_same(api: str, version: int, is_request: bool, body: dict[str, Any]) -> None:
    message = (request_message if is_request else response_message)(api, version)
    read = decode(message, encode(message, body))
    assert read == body
    assert list(read) == list(body)


def test_every_body_of_a_real_brokers_log_survives_the_wire() -> None:
    seen = 0
    for api, version, is_request, body in broker_bodies(SAMPLE_LOG):
        assert_same(api, version, is_request, body)
        seen += 1
    assert seen > 900


@pytest.mark.slow
def test_every_body_of_the_long_logs_survives_the_wire() -> None:
    for entry in broker_bodies(shared("broker", "logs-dev", "whole-run.log.gz")):
        assert_same(*entry)
    for trace in sorted(shared("oracle", "traces").glob("*.jsonl.gz")):
        for line in gzip.decompress(trace.read_bytes()).splitlines():
            row = json.loads(line)
            if row["type"] in {"request", "response"}:
                assert_same(row["api"], row["apiVersion"], row["type"] == "request", row["body"])


@settings(max_examples=400)
@given(st.data())
def test_what_is_written_is_read_back_by_us_and_by_kio(data: st.DataObject) -> None:
    message = data.draw(st.sampled_from(messages()))
    body = data.draw(body_of(message))
    wire = encode(message, body)
    assert decode(message, wire) == body
    entity, size = entity_reader(message.entity)(wire, 0)
    assert size == len(wire)
    assert isinstance(entity, message.entity)


def kafka_python_class(entity_name: str) -> Any:
    for module in KAFKA_PYTHON:
        found = getattr(importlib.import_module(f"kafka.protocol.{module}"), entity_name, None)
        if found is not None:
            return found
    return None


@settings(max_examples=300)
@given(st.data())
def test_kafka_python_reads_the_same_and_writes_the_same_bytes(data: st.DataObject) -> None:
    message = data.draw(st.sampled_from(messages()))
    theirs = kafka_python_class(message.entity.__name__)
    version = int(message.entity.__version__)
    assume(theirs is not None and version <= theirs.max_version)
    body = data.draw(body_of(message))
    if message.entity.__name__ == "ApiVersionsResponse":
        body["errorCode"] = 0  # an error there is read as v0, whatever was asked (KIP-511)
    wire = encode(message, body)
    read = theirs.decode(wire, version=version)
    # Its decoder leaves out what its encoder asks for.
    read._header, read._version = None, version
    assert bytes(read.encode()) == wire


def test_a_request_of_kafka_python_is_read_as_kafkas_json() -> None:
    theirs = kafka_python_class("JoinGroupRequest")(
        version=7,
        group_id="g",
        session_timeout_ms=10000,
        rebalance_timeout_ms=300000,
        member_id="",
        group_instance_id=None,
        protocol_type="consumer",
        protocols=[("range", b"abc")],
    )
    theirs.with_header(3, "client")
    frame = bytes(theirs.encode(header=True))
    header = read_request_header(frame)
    assert (header.api, header.api_version, header.correlation_id, header.client_id) == ("JoinGroup", 7, 3, "client")
    assert decode(request_message("JoinGroup", 7), frame, header.body_at) == {
        "groupId": "g",
        "sessionTimeoutMs": 10000,
        "rebalanceTimeoutMs": 300000,
        "memberId": "",
        "groupInstanceId": None,
        "protocolType": "consumer",
        "protocols": [{"name": "range", "metadata": "YWJj"}],
    }


def test_an_api_versions_answer_has_the_old_header_in_every_version() -> None:
    body = {"errorCode": 0, "apiKeys": [], "throttleTimeMs": 0}
    wire = response_bytes("ApiVersions", 4, 77, body)
    assert struct.unpack(">ii", wire[:8]) == (len(wire) - 4, 77)
    assert wire[8:] == encode(response_message("ApiVersions", 4), body)
    assert split_response("ApiVersions", 4, wire[4:]) == (77, body)


def test_a_flexible_answer_has_tagged_fields_in_its_header() -> None:
    wire = response_bytes("Heartbeat", 4, 5, {"throttleTimeMs": 0, "errorCode": 27})
    assert wire[8:] == b"\x00" + b"\x00\x00\x00\x00" + b"\x00\x1b" + b"\x00"
    assert split_response("Heartbeat", 4, wire[4:]) == (5, {"throttleTimeMs": 0, "errorCode": 27})


def test_the_header_of_an_unknown_version_is_read_as_far_as_it_is_sure() -> None:
    frame = struct.pack(">hhih", 18, 9, 4, 3) + b"abc" + b"\x00 whatever"
    header = read_request_header(frame)
    assert (header.api, header.api_version, header.client_id) == ("ApiVersions", 9, "abc")


def test_an_unknown_tagged_field_is_stepped_over() -> None:
    message = request_message("Heartbeat", 4)
    body = {"groupId": "g", "generationId": 1, "memberId": "m", "groupInstanceId": None}
    wire = encode(message, body)
    assert wire[-1] == 0
    assert decode(message, wire[:-1] + b"\x01\x2a\x03xyz") == body


def test_a_tagged_field_is_in_the_json_only_if_it_says_something() -> None:
    message = request_message("Fetch", 16)
    body: dict[str, Any] = {
        "maxWaitMs": 500,
        "minBytes": 1,
        "maxBytes": 1000,
        "isolationLevel": 0,
        "sessionId": 0,
        "sessionEpoch": 0,
        "topics": [],
        "forgottenTopicsData": [],
        "rackId": "",
    }
    assert decode(message, encode(message, body)) == body
    with_cluster = {"clusterId": "c", **body}
    assert list(decode(message, encode(message, with_cluster)).items()) == list(with_cluster.items())


@pytest.mark.parametrize(
    ("api", "version", "wire", "reason"),
    [
        ("Heartbeat", 0, b"\x00\x05ab", "5 bytes are announced"),
        ("Heartbeat", 0, b"\xff\xff", "groupId at byte 2 is null"),
        ("Heartbeat", 4, b"\x81\x80\x02" + b"g" * 32_768 + b"\x00" * 8, "has 32768 bytes, expected 32767"),
        ("Heartbeat", 4, b"\x80\x80\x02" + b"\xff" * 32_767 + b"\x00" * 8, "too long with what stands for that"),
        ("Metadata", 1, b"\x7f\xff\xff\xff", "claims 2147483647 elements"),
        ("DescribeGroups", 5, b"\xff\xff\xff\xff\x0f", "claims 4294967294 elements"),
        ("DescribeGroups", 5, b"\xff\xff\xff\xff\xff\x0f", "a varint"),
        ("Heartbeat", 4, b"\x02g\x00\x00\x00\x01\x02m\x00\x01\x00\x7f", "127 bytes are announced"),
    ],
)
def test_bytes_that_are_no_request_are_refused_with_the_place(api: str, version: int, wire: bytes, reason: str) -> None:
    with pytest.raises(MalformedFrame, match=reason):
        decode(request_message(api, version), wire)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"Z\xfcrich", "Z\ufffdrich"),
        (b"\xc0\x80", "\ufffd\ufffd"),
        (b"\xe1\x80A", "\ufffdA"),
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xf4\x90\x80\x80", "\ufffd" * 4),
    ],
)
def test_what_is_no_utf_8_is_read_as_java_reads_it(data: bytes, text: str) -> None:
    length = struct.pack(">h", len(data))
    body = decode(request_message("Heartbeat", 0), length + data + b"\x00" * 4 + length + data)
    assert (body["groupId"], body["memberId"]) == (text, text)
    header = read_request_header(struct.pack(">hhi", 12, 0, 1) + length + data)
    assert header.client_id == text


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"throttleTimeMs": 0}, "lacks errorCode"),
        ({"throttleTimeMs": 0, "errorCode": "x"}, "errorCode of HeartbeatResponse v4 is 'x', expected an error code"),
        ({"throttleTimeMs": 0, "errorCode": 0, "more": 1}, "no field more"),
        ({"throttleTimeMs": 0, "errorCode": 12345}, "expected an error code of Kafka"),
        ({"throttleTimeMs": 2**40, "errorCode": 0}, "can't be written"),
    ],
)
def test_a_body_that_is_no_answer_is_refused_by_field(body: dict[str, Any], reason: str) -> None:
    with pytest.raises(EncodeError, match=reason):
        encode(response_message("Heartbeat", 4), body)


def test_request_bytes_are_what_a_client_sends() -> None:
    body = {"groupId": "g", "generationId": 1, "memberId": "m", "groupInstanceId": None}
    wire = request_bytes("Heartbeat", 4, 9, "c", body)
    header = read_request_header(wire[4:])
    assert (header.api, header.api_version, header.correlation_id, header.client_id) == ("Heartbeat", 4, 9, "c")
    assert decode(request_message("Heartbeat", 4), wire[4:], header.body_at) == body
