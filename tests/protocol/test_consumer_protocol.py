"""The embedded consumer protocol, on bytes that real clients sent."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_udf.protocol.consumer_protocol import (
    Assignment,
    MalformedConsumerProtocol,
    decode_assignment,
    decode_subscription,
    decode_subscription_topics,
)
from tests.conftest import SAMPLE_LOG

LIBRDKAFKA_ASSIGNMENT = base64.b64decode("AAAAAAACAAJ0MgAAAAIAAAAAAAAAAQACdDMAAAACAAAAAAAAAAEAAAAA")


def bodies(api: str, side: str) -> Iterator[dict[str, object]]:
    with gzip.open(SAMPLE_LOG, "rt", encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line[line.index("{") : line.rindex("}") + 1])
            if entry["requestHeader"]["requestApiKeyName"] == api:
                yield entry[side]


def test_an_assignment_of_librdkafka() -> None:
    assert decode_assignment(LIBRDKAFKA_ASSIGNMENT) == Assignment(0, {"t2": [0, 1], "t3": [0, 1]}, b"")


def test_no_bytes_are_no_partitions() -> None:
    assert decode_assignment(b"").partitions == {}


def test_a_newer_version_is_read_as_the_newest_known() -> None:
    newer = b"\x00\x63" + LIBRDKAFKA_ASSIGNMENT[2:] + b"what later versions add"
    assert decode_assignment(newer) == Assignment(99, {"t2": [0, 1], "t3": [0, 1]}, b"")


def test_a_topic_that_stands_twice_keeps_all_partitions() -> None:
    twice = b"\x00\x00\x00\x00\x00\x02" + 2 * b"\x00\x01t\x00\x00\x00\x01\x00\x00\x00\x07" + b"\xff\xff\xff\xff"
    assert decode_assignment(twice) == Assignment(0, {"t": [7, 7]}, None)


@pytest.mark.parametrize("version", range(4))
def test_each_version_of_a_subscription(version: int) -> None:
    data = version.to_bytes(2, "big") + b"\x00\x00\x00\x01\x00\x01t" + b"\x00\x00\x00\x02ud"
    if version >= 1:
        data += b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01\x00\x00\x00\x03"
    if version >= 2:
        data += b"\x00\x00\x00\x05"
    if version >= 3:
        data += b"\x00\x02r1"
    subscription = decode_subscription(data)
    assert subscription.topics == ["t"]
    assert subscription.user_data == b"ud"
    assert subscription.owned_partitions == ({"t": [3]} if version >= 1 else {})
    assert subscription.generation_id == (5 if version >= 2 else -1)
    assert subscription.rack_id == ("r1" if version >= 3 else None)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x00", "there are 1 bytes"),
        (b"\xff\xff\x00\x00", "is -1, expected 0 or more"),
        (b"\x00\x00\x7f\xff\xff\xff", "6 bytes are not an assignment"),
        (LIBRDKAFKA_ASSIGNMENT[:-9], "are not an assignment"),
        (b"\x00\x00\x00\x00\x00\x01\x00\x01\xff\x00\x00\x00\x00\xff\xff\xff\xff", "are not an assignment"),
    ],
)
def test_what_is_no_assignment_is_refused_with_the_reason(data: bytes, message: str) -> None:
    with pytest.raises(MalformedConsumerProtocol, match=message):
        decode_assignment(data)


@given(st.binary())
def test_no_bytes_do_more_than_be_refused(data: bytes) -> None:
    for decode in (decode_assignment, decode_subscription, decode_subscription_topics):
        with suppress(MalformedConsumerProtocol):
            decode(data)


def test_the_coordinator_reads_only_the_topics() -> None:
    cut_after_user_data = b"\x00\x03\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"
    assert decode_subscription_topics(cut_after_user_data) == ("t",)
    with pytest.raises(MalformedConsumerProtocol):
        decode_subscription(cut_after_user_data)


def test_all_that_real_clients_sent_can_be_read() -> None:
    subscriptions = [
        decode_subscription(base64.b64decode(protocol["metadata"]))
        for body in bodies("JOIN_GROUP", "request")
        for protocol in body["protocols"]  # type: ignore[attr-defined]
    ]
    assignments = [
        decode_assignment(base64.b64decode(str(body["assignment"]))) for body in bodies("SYNC_GROUP", "response")
    ]
    assert {topic for subscription in subscriptions for topic in subscription.topics} == {"t1", "t2"}
    assert any(assignment.partitions for assignment in assignments)
