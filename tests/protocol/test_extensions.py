"""Fields and messages that Kafka hasn't got: who knows them reads them, for everybody else they aren't there."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from kio.index import UnknownEntity, load_request_schema

from coordinator_udf.protocol.answer_json import render
from coordinator_udf.protocol.answers import extension_fields, shape
from coordinator_udf.protocol.wire import EncodeError, decode, encode, request_message, response_message
from coordinator_udf.protocol.wire.extensions import FIRST_EXTENSION, definitions
from coordinator_udf.protocol.wire.schema import API_KEYS, KEYS_BY_NAME, Message
from tests.conftest import ROOT
from tests.protocol.sample_requests import TOPIC_ID, sample_request

ASSIGNOR = {
    "name": "range",
    "minimumVersion": -1,
    "maximumVersion": 2,
    "reason": 3,
    "metadataVersion": 1,
    "metadata": "AAEC",
}
ANSWER = {
    "throttleTimeMs": 0,
    "errorCode": 0,
    "errorMessage": None,
    "memberId": "m",
    "memberEpoch": 1,
    "heartbeatIntervalMs": 5_000,
    "assignment": {
        "topicPartitions": [{"topicId": TOPIC_ID, "partitions": [0]}],
        "error": 7,
        "metadataVersion": 2,
        "metadata": "AA==",
    },
    "shouldComputeAssignment": True,
}


def every_message() -> list[Message]:
    shapes = {"request": request_message, "response": response_message}
    return [
        shapes[type_](API_KEYS[key], version)
        for (key, type_), definition in definitions().items()
        for version in _versions(definition["validVersions"])
    ]


def kafkas_request(api: str) -> Message:
    """The request as Kafka knows it."""
    fields = tuple(field for field in request_message(api, 1).fields if not field.is_extension)
    return Message("plain", load_request_schema(KEYS_BY_NAME[api], 1), flexible=True, fields=fields)


def _versions(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def test_extension_fields_come_back() -> None:
    message = request_message("ConsumerGroupHeartbeat", 1)
    body = {**sample_request("ConsumerGroupHeartbeat", 1), "clientAssignors": [ASSIGNOR]}
    assert decode(message, encode(message, body)) == body
    answer = response_message("ConsumerGroupHeartbeat", 1)
    assert decode(answer, encode(answer, ANSWER)) == ANSWER


def test_without_extension_fields_the_bytes_are_kafkas() -> None:
    body = sample_request("ConsumerGroupHeartbeat", 1)
    data = encode(request_message("ConsumerGroupHeartbeat", 1), body)
    assert data == encode(kafkas_request("ConsumerGroupHeartbeat"), body)


def test_who_does_not_know_the_fields_reads_the_rest() -> None:
    body = {**sample_request("ConsumerGroupHeartbeat", 1), "clientAssignors": [ASSIGNOR]}
    data = encode(request_message("ConsumerGroupHeartbeat", 1), body)
    assert decode(kafkas_request("ConsumerGroupHeartbeat"), data) == sample_request("ConsumerGroupHeartbeat", 1)


def test_older_versions_have_none() -> None:
    message = request_message("ConsumerGroupHeartbeat", 0)
    assert message.entity is load_request_schema(68, 0)
    with pytest.raises(EncodeError, match="clientAssignors"):
        encode(message, {**sample_request("ConsumerGroupHeartbeat", 0), "clientAssignors": [ASSIGNOR]})


def test_all_that_is_added_to_kafkas_messages_has_tags_of_its_own() -> None:
    for message in every_message():
        names = [field.name for field in message.fields]
        assert len(set(names)) == len(names), message.name
    for (key, type_), definition in definitions().items():
        if key < FIRST_EXTENSION:
            for field in definition["fields"]:
                added = [field] if "tag" in field else field["fields"]
                assert all(one["tag"] >= FIRST_EXTENSION for one in added), (key, type_)


def test_the_page_shows_the_messages() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "write_messages"), "--check"]
    check = subprocess.run(command, capture_output=True, text=True, check=False)
    assert check.returncode == 0, check.stderr
    page = (ROOT / "docs" / "client-side-assignment.md").read_text("utf-8")
    shown = {found["name"] for found in map(json.loads, re.findall(r"```json\n(.*?)```", page, re.DOTALL))}
    assert {each["name"] for each in definitions().values() if "ConsumerGroup" in each["name"]} <= shown


def test_unknown_versions_of_an_extension_are_unknown() -> None:
    with pytest.raises(UnknownEntity, match="version 1"):
        request_message("ConsumerGroupPrepareAssignment", 1)


def test_the_shape_of_an_answer_stays_kafkas() -> None:
    assert "shouldComputeAssignment" not in dict(shape("ConsumerGroupHeartbeat", 1))
    assert extension_fields("ConsumerGroupHeartbeat", 1) == {
        "shouldComputeAssignment",
        "error",
        "metadataVersion",
        "metadata",
    }
    assert not extension_fields("ConsumerGroupHeartbeat", 0)


def test_answers_show_extension_fields_only_in_versions_that_have_them() -> None:
    assert "shouldComputeAssignment" in render("ConsumerGroupHeartbeat", 1, ANSWER)
    assert "shouldComputeAssignment" not in render("ConsumerGroupHeartbeat", 0, ANSWER)
