"""Kafka's request log: lines to rows, in order, with what the log tells beside."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator_udf.protocol.errors import BadRequest
from coordinator_udf.replay.inputs.broker_log.line import is_known_api, parse_line
from coordinator_udf.replay.inputs.detect import Format, read_source
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.run_and_compare import run_and_compare
from schemas.requests import REQUEST_COLUMNS
from tests.replay.broker_log import START_MS, KafkaLog, one_member, read


def test_a_line_becomes_a_row_with_every_column(tmp_path: Path) -> None:
    log = KafkaLog()
    request_id = log.join("", "m-1", 79, arrives=5, takes=2, principal="User:alice")
    source = read(log, tmp_path)
    row = next(row for row in source.rows if row["api"] == "JoinGroup")
    assert set(row) == set(REQUEST_COLUMNS) - {"source"}
    assert request_id == "127.0.0.1:9092-10.0.0.1:4000-0-97/1"
    assert row["request_id"] == request_id
    assert row["log_ts"] == START_MS + 7
    assert (row["client_id"], row["client_host"], row["principal"]) == ("a", "/10.0.0.1", "User:alice")
    assert (row["api_version"], row["group_id"], row["proposed_member_id"]) == (5, "g", "m-1")
    assert source.recording.answers[0].body["errorCode"] == 79


def test_the_leader_and_protocol_of_an_answer_are_told(tmp_path: Path) -> None:
    rows = read(one_member(KafkaLog()), tmp_path).rows
    joined = [row for row in rows if row["api"] == "JoinGroup"][1]
    assert (joined["recorded_leader"], joined["recorded_protocol"]) == ("m-1", "range")
    assert joined["proposed_member_id"] is None


def test_rows_stand_in_the_order_of_arrival_and_not_of_completion(tmp_path: Path) -> None:
    log = KafkaLog()
    slow = log.join("m-1", "m-1", arrives=0, takes=3_000, connection="a")
    fast = log.heartbeat("m-2", 25, arrives=100, connection="b")
    log.lines.reverse()
    requests = [row["request_id"] for row in read(log, tmp_path).rows if row["request_id"]]
    assert requests == [slow, fast]


def test_within_a_connection_the_file_gives_the_order(tmp_path: Path) -> None:
    log = KafkaLog()
    first = log.heartbeat("m-1", 25, arrives=10, takes=1, connection="a")
    # Its time is estimated as earlier, since the line's time is off.
    second = log.heartbeat("m-1", 25, arrives=9, takes=3, connection="a")
    requests = [row["request_id"] for row in read(log, tmp_path).rows if row["request_id"]]
    assert requests == [first, second]


def test_one_member_is_replayed_as_recorded(tmp_path: Path) -> None:
    _, verdict = run_and_compare(read(one_member(KafkaLog()), tmp_path))
    assert verdict.differences == []
    assert sum(verdict.identical.values()) == 4


def test_ticks_at_the_end_let_every_wait_end(tmp_path: Path) -> None:
    rows = read(one_member(KafkaLog()), tmp_path).rows
    assert [row["api"] for row in rows[-2:]] == ["Tick", "Tick"]
    assert rows[-1]["log_ts"] >= START_MS + 4_000 + 60_000


def test_other_apis_of_the_broker_are_counted_and_unknown_ones_rejected(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    log.add("FIND_COORDINATOR", {}, {}, arrives=1)
    log.add("MAKE_COFFEE", {}, {}, arrives=2)
    log.add("SHARE_GROUP_HEARTBEAT", {"groupId": "s"}, {"errorCode": 0}, arrives=3)
    source = read(log, tmp_path)
    assert source.foreign == {"FindCoordinator": 1}
    assert source.unsupported == {"ShareGroupHeartbeat": 1}
    reasons = [rejection.reason for rejection in source.rejections]
    assert any("requestApiKeyName is 'MakeCoffee'" in reason for reason in reasons)
    assert any("ShareGroupHeartbeat" in reason for reason in reasons)
    assert source.requests == 5


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[2026-11-21 02:42:33,278] Started (kafka.server)", "no line of Kafka's request log"),
        ('Completed request:{"requestHeader":{}}', "time of the line"),
        ('[2026-13-41 02:42:33,278] DEBUG Completed request:{"a":1}', "line"),
        ("[2026-11-21 02:42:33,278] DEBUG Completed request:{", "JSON"),
        ('[2026-11-21 02:42:33,278] DEBUG Completed request:{"connection":"x"} (k)', "requestHeader"),
    ],
)
def test_a_line_that_makes_no_sense_is_rejected_with_its_reason_and_the_rest_is_read(
    line: str, reason: str, tmp_path: Path
) -> None:
    log = one_member(KafkaLog())
    log.lines.insert(1, line)
    source = read(log, tmp_path)
    (rejection,) = source.rejections
    assert reason in rejection.reason
    assert rejection.raw == line
    assert source.requests == 4


def test_negative_times_are_refused() -> None:
    log = KafkaLog()
    log.heartbeat("m", arrives=1, totalTimeMs=-3.0)
    with pytest.raises(BadRequest, match=r"totalTimeMs is -3\.0"):
        parse_line(1, log.lines[0])


def test_negative_timeouts_of_a_member_are_the_coordinators_to_refuse(tmp_path: Path) -> None:
    log = KafkaLog()
    log.join("", "m-1", 26, arrives=0)
    log.lines[0] = log.lines[0].replace('"sessionTimeoutMs": 10000', '"sessionTimeoutMs": -5').replace('"m-1"', '""')
    _, verdict = run_and_compare(read(log, tmp_path))
    assert verdict.identical == {("answer", "JoinGroup", "INVALID_SESSION_TIMEOUT"): 1}


def test_a_file_without_a_line_says_so(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.write_bytes(b"")
    source = read_source(path, "empty", ReplayOptions(), Format.KAFKA)
    assert [rejection.reason for rejection in source.rejections] == ["empty holds no line that could be read"]
    assert source.rows == []


def test_addresses_of_version_6_are_told(tmp_path: Path) -> None:
    log = KafkaLog()
    log.heartbeat("m", 25, arrives=0, connection="a")
    log.lines[0] = log.lines[0].replace("127.0.0.1:9092-10.0.0.1:4000", "0:0:0:0:0:0:0:1:9092-0:0:0:0:0:0:0:1:4000")
    row = next(row for row in read(log, tmp_path).rows if row["api"] == "Heartbeat")
    assert row["client_host"] == "/0:0:0:0:0:0:0:1"


def test_kafkas_apis_are_known() -> None:
    assert is_known_api("InitProducerId")
    assert is_known_api("StreamsGroupHeartbeat")
    assert not is_known_api("MakeCoffee")


def test_a_reused_request_id_stays_unique(tmp_path: Path) -> None:
    log = KafkaLog()
    log.heartbeat("m", 25, arrives=0)
    log.lines.append(log.lines[0])
    ids = [answer.request_id for answer in read(log, tmp_path).recording.answers]
    assert len(set(ids)) == 2
