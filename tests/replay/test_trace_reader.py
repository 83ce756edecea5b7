"""Traces: lines to rows, recordings beside; and lines that make no sense."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coordinator_udf.replay.inputs.detect import Format, detect_format, read_source
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import ReplaySource
from coordinator_udf.settings.coordinator import SettingsError
from coordinator_udf.user_errors import InputError

CONFIG = {
    "type": "config", "family": "x", "ts": 1000, "seed": 1, "group.initial.rebalance.delay.ms": 500,
    "topics": [{"name": "t0", "partitions": 2, "id": "qFZ680nJNnGYp7NPSxBNXQ"}],
}  # fmt: skip
HEARTBEAT = {
    "type": "request", "seq": 7, "ts": 1500, "api": "Heartbeat", "apiVersion": 4,
    "clientId": "c", "clientHost": "/1.2.3.4",
    "body": {"groupId": "g", "generationId": 3, "memberId": "m", "groupInstanceId": None},
}  # fmt: skip
ANSWER = {
    "type": "response", "ts": 1500, "seq": 7, "by": 7, "api": "Heartbeat", "apiVersion": 4,
    "body": {"throttleTimeMs": 0, "errorCode": 25},
}  # fmt: skip


def read(tmp_path: Path, *lines: Any, options: ReplayOptions | None = None) -> ReplaySource:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return read_source(path, "trace.jsonl", options or ReplayOptions())


def test_inputs_become_rows_and_outputs_the_recording(tmp_path: Path) -> None:
    record = {"type": "record", "ts": 1500, "offset": 0, "cause": 7, "key": {"type": "GroupMetadata", "group": "g"}}
    describe = {"type": "describe", "ts": 1600, "groups": []}
    source = read(
        tmp_path,
        CONFIG,
        HEARTBEAT,
        {**record, "value": None},
        ANSWER,
        {"type": "timer", "ts": 1550, "key": "join-g"},
        describe,
        {"type": "topics", "ts": 1700, "topics": []},
        {"type": "groupConfig", "ts": 1700, "group": "g", "configs": {"a": "b"}},
        {"type": "endTxn", "ts": 1750, "seq": 8, "producerId": 5, "producerEpoch": 0, "committed": True, "error": None},
        {"type": "failover", "ts": 1800},
        {"type": "advance", "ts": 1900},
    )
    apis = [
        "TopicMetadata",
        "LoadEnd",
        "Heartbeat",
        "Describe",
        "TopicMetadata",
        "GroupConfig",
        "EndTxn",
        "Failover",
        "Tick",
    ]
    assert [row["api"] for row in source.rows] == apis
    assert [row["offset"] for row in source.rows] == list(range(9))
    heartbeat = source.rows[2]
    assert (heartbeat["request_id"], heartbeat["log_ts"], heartbeat["member_id"]) == ("7", 1500, "m")
    assert source.settings.group_initial_rebalance_delay_ms == 500
    recording = source.recording
    assert [(answer.request_id, answer.ts, answer.by) for answer in recording.answers] == [
        ("7", 1500, "7"),
        ("8", 1750, "8"),
    ]
    assert [(entry.ts, entry.cause) for entry in recording.records] == [(1500, "7")]
    assert [(entry.request_id, entry.ts) for entry in recording.descriptions] == [("describe-1", 1600)]
    assert source.rejections == []


def test_the_hints_of_a_join_are_told(tmp_path: Path) -> None:
    body = {"groupId": "g", "sessionTimeoutMs": 1, "memberId": "", "protocolType": "c", "protocols": []}
    recorded = {"memberId": "new", "leader": "l", "protocolName": "p", "generationId": 1}
    source = read(tmp_path, CONFIG, {**HEARTBEAT, "api": "JoinGroup", "body": body, "recorded": recorded})
    row = source.rows[-1]
    assert (row["proposed_member_id"], row["recorded_leader"], row["recorded_protocol"]) == ("new", "l", "p")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"type":"request",', "line 2 is not JSON"),
        ('{"type":"party","ts":1}', "type is 'party', expected one of config"),
        ("[1,2]", "type is None"),
        (json.dumps({**HEARTBEAT, "ts": -4}), "ts is -4"),
        (json.dumps({name: value for name, value in HEARTBEAT.items() if name != "body"}), "needs the field 'body'"),
        (json.dumps({**HEARTBEAT, "body": {"groupId": 5}}), "groupId"),
        (json.dumps({**HEARTBEAT, "body": None}), "wrong type"),
        (json.dumps({**HEARTBEAT, "apiVersion": 99}), "api_version of Heartbeat is 99"),
        (json.dumps({**HEARTBEAT, "api": "MakeCoffee"}), "api is 'MakeCoffee'"),
    ],
)
def test_a_line_that_makes_no_sense_is_rejected_and_the_rest_is_read(line: str, reason: str, tmp_path: Path) -> None:
    source = read(tmp_path, CONFIG, line, {**HEARTBEAT, "seq": 9}, ANSWER)
    (rejection,) = source.rejections
    assert reason in rejection.reason
    assert rejection.raw == line
    assert [row["request_id"] for row in source.rows if row["request_id"]] == ["9"]


def test_an_unknown_setting_is_rejected_and_the_others_hold(tmp_path: Path) -> None:
    source = read(tmp_path, {**CONFIG, "group.sky.color": "blue"}, HEARTBEAT)
    (rejection,) = source.rejections
    assert "group.sky.color" in rejection.reason
    assert source.settings.group_initial_rebalance_delay_ms == 500


def test_the_command_line_wins_over_the_trace_and_the_trace_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('"group.initial.rebalance.delay.ms" = 1\n"group.max.size" = 5\n')
    source = read(tmp_path, CONFIG, options=ReplayOptions.load(file, []))
    assert (source.settings.group_initial_rebalance_delay_ms, source.settings.group_max_size) == (500, 5)
    source = read(tmp_path, CONFIG, options=ReplayOptions.load(file, ["group.initial.rebalance.delay.ms=7"]))
    assert source.settings.group_initial_rebalance_delay_ms == 7
    with pytest.raises(SettingsError, match="no-setting"):
        ReplayOptions.load(None, ["no-setting"])


def test_a_trace_without_a_config_has_kafkas_defaults(tmp_path: Path) -> None:
    source = read(tmp_path, HEARTBEAT, ANSWER)
    assert source.settings.group_initial_rebalance_delay_ms == 3000
    assert [row["api"] for row in source.rows] == ["TopicMetadata", "LoadEnd", "Heartbeat"]


def test_formats_are_told_apart_by_content(tmp_path: Path) -> None:
    trace = tmp_path / "a"
    trace.write_text("garbage\n" + json.dumps(CONFIG))
    assert detect_format(trace) is Format.TRACE
    strange = tmp_path / "b"
    strange.write_text("hello\n")
    with pytest.raises(InputError, match=r"of no known kind.*--format trace looks at all"):
        detect_format(strange)
    with pytest.raises(InputError, match="directory but no Delta table"):
        detect_format(tmp_path)
    with pytest.raises(InputError, match="there is no input"):
        detect_format(tmp_path / "c")
