"""A line of a broker's request log whose JSON is odd anywhere is read or rejected; the lines around it are read."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator_udf.protocol.errors import BadRequest
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.replay.inputs.broker_log.line import MARK
from coordinator_udf.replay.inputs.detect import Format, read_source
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import ReplaySource
from coordinator_udf.replay.tasks.run_and_compare import run_and_compare
from coordinator_udf.shard.apis import read_body
from coordinator_udf.shard.control_rows import loaded_assignments
from tests.conftest import SAMPLE_LOG
from tests.replay.broker_log import KafkaLog

ODD: Final[tuple[Any, ...]] = (None, True, 1, -1, 1e300, 10**18, 10**30, "x", "", [], [1], [None], [{}], {}, {"a": 1})
#: Stands for a field that isn't there.
MISSING: Final = object()
TOPIC_ID: Final = "0Zxb0o8yTYuk4fXgnEKOlA"


def topic_log() -> KafkaLog:
    """Lines of the APIs that tell of topics and transactions, which the sample has few of."""
    log = KafkaLog()
    told = {"name": "n", "topicId": TOPIC_ID, "errorCode": 0, "numPartitions": 2}
    log.add(
        "CREATE_TOPICS",
        {"topics": [{"name": "n", "numPartitions": 2, "assignments": []}], "validateOnly": False},
        {"topics": [told]},
        arrives=1,
    )
    grown = {"results": [{"name": "n", "errorCode": 0}]}
    log.add("CREATE_PARTITIONS", {"topics": [{"name": "n", "count": 4}]}, grown, arrives=2)
    log.add("DELETE_TOPICS", {"topics": [{"name": "n"}]}, {"responses": [told]}, arrives=3)
    marker = {"producerId": 1, "producerEpoch": 1, "transactionResult": True}
    offsets = {"name": "__consumer_offsets", "partitionIndexes": [1]}
    log.add("WRITE_TXN_MARKERS", {"markers": [{**marker, "topics": [offsets]}]}, {"markers": []}, arrives=4)
    return log


def ids_without_names() -> KafkaLog:
    """Lines of an owner of topics of which only ids are known, which asks by name, and by id; one topic grows."""
    log = KafkaLog()
    other = "AAAAAAAAAAAAAAAAAAAAAg"
    owned = [{"topicId": TOPIC_ID, "partitions": [0, 1]}, {"topicId": other, "partitions": [0]}]
    beat = {"groupId": "c", "memberId": "m", "memberEpoch": 0, "subscribedTopicRegex": "n|o", "topicPartitions": []}
    told = {"errorCode": 0, "memberId": "m", "memberEpoch": 2, "assignment": {"topicPartitions": owned}}
    log.add("CONSUMER_GROUP_HEARTBEAT", beat, told, arrives=5, version=1)
    place = {"partitionIndex": 1, "committedOffset": 3, "errorCode": 0}
    for version, topic in ((9, {"name": "o"}), (10, {"topicId": TOPIC_ID})):
        asked = {"groupId": "c", "memberId": "m", "memberEpoch": 2, "topics": [{**topic, "partitionIndexes": [1]}]}
        fetched = {"groupId": "c", "errorCode": 0, "topics": [{**topic, "partitions": [place]}]}
        log.add("OFFSET_FETCH", {"groups": [asked]}, {"groups": [fetched]}, arrives=6, version=version)
        commit = {"groupId": "c", "memberId": "m", "generationIdOrMemberEpoch": 2}
        places = {**topic, "partitions": [{"partitionIndex": 1, "committedOffset": 3}]}
        done = {**topic, "partitions": [{"partitionIndex": 1, "errorCode": 0}]}
        log.add("OFFSET_COMMIT", {**commit, "topics": [places]}, {"topics": [done]}, arrives=7, version=version)
    grown = {"results": [{"name": "o", "errorCode": 0}]}
    log.add("CREATE_PARTITIONS", {"topics": [{"name": "o", "count": 2}]}, grown, arrives=8)
    return log


def body_of(line: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(line[line.index(MARK) + len(MARK) : line.rindex("}") + 1])
    return found


def one_of_each() -> Iterator[dict[str, Any]]:
    """A line of each API, one that was answered without an error and one with."""
    found: dict[tuple[str, bool], dict[str, Any]] = {}
    for line in [*gzip.decompress(SAMPLE_LOG.read_bytes()).decode().splitlines(), *topic_log().lines]:
        body = body_of(line)
        error = (body.get("response") or {}).get("errorCode", 0)
        found.setdefault((body["requestHeader"]["requestApiKeyName"], bool(error)), body)
    yield from found.values()


def places(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The way to each value within a value; of a list its first item's stands for all."""
    if place:
        yield place
    inner = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, item in inner:
        yield from places(item, (*place, key))


def changed(body: dict[str, Any], place: tuple[str | int, ...], value: object) -> dict[str, Any]:
    whole: dict[str, Any] = json.loads(json.dumps(body))
    inner: Any = whole
    *outer, last = place
    for key in outer:
        inner = inner[key]
    if value is MISSING:
        del inner[last]
    else:
        inner[last] = value
    return whole


def read(tmp_path: Path, *bodies: dict[str, Any]) -> ReplaySource:
    """A log of good lines, with others among them."""
    log = KafkaLog()
    log.heartbeat("m-1", 25, arrives=10)
    head = log.lines[0][: log.lines[0].index(MARK) + len(MARK)]
    log.heartbeat("m-2", 25, arrives=20, connection="b")
    log.lines[1:1] = [f"{head}{json.dumps(body)} (kafka.request.logger)" for body in bodies]
    path = tmp_path / "broker.log"
    path.write_text("".join(f"{line}\n" for line in log.lines))
    return read_source(path, "x", ReplayOptions(), Format.KAFKA)


BODIES: Final = list(one_of_each())
CHANGES: Final = [(body, place) for body in BODIES for place in places(body)]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(CHANGES), st.sampled_from([*ODD, MISSING]))
def test_whatever_is_odd_in_a_line_the_others_are_read(
    tmp_path: Path, change: tuple[dict[str, Any], tuple[str | int, ...]], value: object
) -> None:
    rows = read(tmp_path, changed(*change, value)).rows
    assert {"m-1", "m-2"} <= {row["member_id"] for row in rows if row["api"] == "Heartbeat"}


NAMELESS: Final = [body_of(line) for line in ids_without_names().lines]
NAMELESS_CHANGES: Final = [(number, place) for number, body in enumerate(NAMELESS) for place in places(body)]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(NAMELESS_CHANGES), st.sampled_from([*ODD, MISSING]))
def test_whatever_is_odd_where_names_of_topics_are_looked_for_the_others_are_read(
    tmp_path: Path, change: tuple[int, tuple[str | int, ...]], value: object
) -> None:
    number, place = change
    bodies = [changed(body, place, value) if at == number else body for at, body in enumerate(NAMELESS)]
    rows = read(tmp_path, *bodies).rows
    assert {"m-1", "m-2"} <= {row["member_id"] for row in rows if row["api"] == "Heartbeat"}


@pytest.mark.parametrize(
    ("number", "place", "value"),
    [(0, ("request", "groupId"), []), (0, ("request", "groupId"), MISSING), (2, ("request", "topics"), None)],
)
def test_what_is_odd_in_a_line_ends_no_comparison(
    tmp_path: Path, number: int, place: tuple[str | int, ...], value: object
) -> None:
    bodies = [changed(body, place, value) if at == number else body for at, body in enumerate(NAMELESS)]
    _, verdict = run_and_compare(read(tmp_path, *bodies))
    assert verdict.identical["answer", "Heartbeat", "UNKNOWN_MEMBER_ID"] == 2


@pytest.mark.parametrize(
    ("api", "place", "value", "said"),
    [
        ("CREATE_TOPICS", ("request", "topics", 0, "name"), MISSING, "request of CreateTopics"),
        ("CREATE_TOPICS", ("request", "topics", 0), 7, "request of CreateTopics"),
        ("CREATE_TOPICS", ("response", "topics", 0), "n", "response of CreateTopics"),
        ("CREATE_PARTITIONS", ("response", "results"), [1], "response of CreatePartitions"),
        ("CREATE_PARTITIONS", ("request", "topics", 0, "name"), "other", "response.results.name is 'n'"),
        ("OFFSET_COMMIT", ("response", "topics", 0, "partitions"), [{}], "partitionIndex"),
        ("OFFSET_COMMIT", ("request", "topics", 0, "partitions", 0, "committedOffset"), MISSING, "committedOffset"),
        ("WRITE_TXN_MARKERS", ("request", "markers", 0), True, "request of WriteTxnMarkers"),
        ("JOIN_GROUP", ("response", "leader"), [None], "response of JoinGroup"),
        ("SYNC_GROUP", ("totalTimeMs",), 1e300, "totalTimeMs is 1e+300"),
        ("HEARTBEAT", ("requestHeader", "correlationId"), 10**18, "correlationId"),
    ],
)
def test_the_rejection_says_what_is_odd(
    tmp_path: Path, api: str, place: tuple[str | int, ...], value: object, said: str
) -> None:
    bodies = (body for body in BODIES if body["requestHeader"]["requestApiKeyName"] == api)
    body = next(body for body in bodies if place in set(places(body)))
    (rejection,) = read(tmp_path, changed(body, place, value)).rejections
    assert said in rejection.reason


def test_a_commit_of_a_generation_that_names_no_member_is_nobodys(tmp_path: Path) -> None:
    commits = (body for body, place in CHANGES if place == ("request", "generationIdOrMemberEpoch"))
    commit = next(body for body in commits if body["request"]["generationIdOrMemberEpoch"] >= 0)
    source = read(tmp_path, changed(commit, ("request", "memberId"), MISSING))
    assert source.rejections == []
    assert [row["member_id"] or "" for row in source.rows if row["api"] == "OffsetCommit"] == [""]


def test_a_transaction_that_committed_no_offsets_ends_without_the_coordinator(tmp_path: Path) -> None:
    body = body_of(topic_log().lines[-1])
    source = read(tmp_path, changed(body, ("request", "markers", 0, "topics", 0, "name"), "of-data"))
    assert source.rejections == []
    assert "EndTxn" not in {row["api"] for row in source.rows}


#: Lists in lists, more of them than are opened: by Python 3.11 a thousand, by 3.13 ten times as many.
DEEP: Final = 100_000 * "[" + 100_000 * "]"


def test_lines_that_are_too_deep_are_rejected_or_passed_over(tmp_path: Path) -> None:
    log = KafkaLog()
    log.heartbeat("m-1", 25, arrives=10)
    (line,) = log.lines
    odd = [line.partition(MARK)[0] + f'{MARK}{{"request": {DEEP}}}', f'{{"log": {DEEP}}}', f'{{"log":"{DEEP}']
    path = tmp_path / "broker.log"
    path.write_text("".join(f"{text}\n" for text in (line, *odd, f'{{"log": "x", "more": {DEEP}, "level": "INFO"}}')))
    source = read_source(path, "x", ReplayOptions(), Format.KAFKA)
    assert [rejection.reason.partition(":")[0] for rejection in source.rejections][:1] == ["line 2"]
    assert "m-1" in {row["member_id"] for row in source.rows}


def test_a_line_of_a_trace_that_is_too_deep_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(f'{{"type": "config", "ts": 1}}\n{{"type": {DEEP}}}\n')
    reasons = [rejection.reason for rejection in read_source(path, "x", ReplayOptions(), Format.TRACE).rejections]
    assert any(reason.startswith("line 2 is not JSON") for reason in reasons)


def test_a_body_that_is_too_deep_is_bad() -> None:
    row = Request(0, 0, 1, "r", "JoinGroup", 5, body=f'{{"groupId": "g", "x": {DEEP}}}')
    with pytest.raises(BadRequest, match="body of JoinGroup"):
        read_body(row)
    with pytest.raises(BadRequest, match="body of LoadGroup"):
        loaded_assignments(f'{{"x": {DEEP}}}')
