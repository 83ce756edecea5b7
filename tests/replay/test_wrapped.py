"""What carried a log here changes nothing in it: whole lines come out of parts and of objects in objects."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_udf.replay.inputs.broker_log.line import MARK
from coordinator_udf.replay.inputs.cut_lines import whole_lines
from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.inputs.log_time import NoTimeError, time_us
from coordinator_udf.replay.inputs.look import look_through
from coordinator_udf.replay.inputs.plan import plan
from coordinator_udf.replay.inputs.text_lines import Line
from coordinator_udf.replay.inputs.wrapped import unwrap
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import Rejection
from tests.conftest import SAMPLE_LOG

DOCKER_BYTES = 16_384
AT = "2026-11-21T09:00:00.123456789Z"
AT_MS = 1_795_251_600_123


def lines() -> list[str]:
    return gzip.decompress(SAMPLE_LOG.read_bytes()).decode().splitlines()


def cut(text: str, length: int) -> list[str]:
    return [text[start : start + length] for start in range(0, len(text), length)]


def cri(text: str) -> list[str]:
    *parts, last = cut(text, 300)
    # Another stream's line may come between two parts.
    between = [f"{AT} stderr F [2026-11-21 09:00:00,000] WARN of another (kafka.utils)"] if parts else []
    return [*(f"{AT} stdout P {part}" for part in parts), *between, f"{AT} stdout F {last}"]


def docker(text: str) -> list[str]:
    padded = text.replace(MARK, " " * 40_000 + MARK) if "JOIN_GROUP" in text else text
    parts = cut(padded + "\n", DOCKER_BYTES)
    return [json.dumps({"log": part, "stream": "stdout", "time": AT}, separators=(",", ":")) for part in parts]


def fluent_bit(text: str) -> list[str]:
    *parts, last = cut(text, 400)
    told = [*((part, "P") for part in parts), (last, "F")]
    return [
        json.dumps({"log": part, "stream": "stdout", "logtag": tag, "time": AT}, separators=(",", ":"))
        for part, tag in told
    ]


def export(text: str) -> list[str]:
    return [json.dumps({"_index": "logs", "_source": {"@timestamp": AT, "message": text, "level": "DEBUG"}})]


def strimzi(text: str) -> list[str]:
    return [f"{AT} {text.replace('[', '', 1).replace(']', '', 1)} [data-plane-kafka-request-handler-7]"]


def of(text: str) -> datetime:
    """When a line of the sample was written."""
    return datetime.strptime(text[1:24], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)


def message(text: str) -> str:
    """What a line says, without its time and its logger."""
    return text[text.index(MARK) : text.rindex("}") + 1]


def journald(text: str) -> list[str]:
    told = {"__REALTIME_TIMESTAMP": str(int(of(text).timestamp() * 1e6)), "PRIORITY": "6"}
    # It gives bytes where there are colours.
    return [json.dumps({**told, "MESSAGE": list(f"\x1b[36mDEBUG\x1b[m {message(text)}".encode())})]


def journald_short(text: str) -> list[str]:
    return [f"Nov 21 02:42:33.000001 broker-1 kafka[812]: {text}"]


def kubectl(text: str) -> list[str]:
    return [f"[pod/kafka-0/kafka] {AT} {text}"]


def compose(text: str) -> list[str]:
    return [f"\x1b[36mbroker-1  |\x1b[0m {text}"]


def loki(text: str) -> list[str]:
    return [json.dumps({"labels": {"pod": "kafka-0"}, "line": text, "timestamp": AT})]


def gelf(text: str) -> list[str]:
    told = {"version": "1.1", "short_message": message(text), "timestamp": of(text).timestamp()}
    return [json.dumps(told | {"_logger": "kafka.request.logger"})]


def seconds_in_a_text(text: str) -> list[str]:
    return [json.dumps({"ts": f"{of(text).timestamp():.3f}", "msg": message(text)})]


def template_layout(text: str) -> list[str]:
    at = of(text).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return [json.dumps({"@timestamp": at, "ecs.version": "1.2.0", "log.level": "DEBUG", "message": message(text)})]


def kibana(text: str) -> list[str]:
    at = of(text).strftime("%b %d, %Y @ %H:%M:%S.%f")[:-3]
    quoted = message(text).replace('"', '""')
    return [f'"{at}","kafka-0","{quoted}",DEBUG']


def twelve_hours(text: str) -> list[str]:
    return [f"{of(text).strftime('%b %d, %Y %I:%M:%S')}.{text[21:24]} {of(text):%p} DEBUG {message(text)}"]


def basic(text: str) -> list[str]:
    return [f"{of(text):%Y%m%dT%H%M%S},{text[21:24]} DEBUG {message(text)}"]


def offset_of_hours(text: str) -> list[str]:
    local = of(text) + timedelta(hours=-3)
    return [f"{local:%Y-%m-%dT%H:%M:%S},{text[21:24]}-03 DEBUG {message(text)}"]


EACH = (
    cri, docker, fluent_bit, export, strimzi, journald, journald_short, kubectl, compose, loki, gelf, seconds_in_a_text,
    template_layout, kibana, twelve_hours, basic, offset_of_hours,
)  # fmt: skip


def cloudwatch(texts: list[str]) -> str:
    events = [{"logStreamName": "kafka", "timestamp": int(of(text).timestamp() * 1000), "message": message(text)}
              for text in texts]  # fmt: skip
    return json.dumps({"events": events, "searchedLogStreams": []})


def datadog(texts: list[str]) -> str:
    return json.dumps([{"id": str(n), "content": {"timestamp": AT, "message": text}} for n, text in enumerate(texts)])


def loki_api(texts: list[str]) -> str:
    values = [[str(int(of(text).timestamp() * 1000) * 1_000_000), message(text)] for text in texts]
    return json.dumps(
        {"status": "success", "data": {"resultType": "streams", "result": [{"stream": {}, "values": values}]}}
    )


def elasticsearch(texts: list[str]) -> str:
    hits = [{"_index": "logs", "_source": {"@timestamp": AT, "message": text}} for text in texts]
    return json.dumps({"took": 3, "hits": {"total": {"value": len(texts)}, "hits": hits}})


def laid_out(texts: list[str]) -> str:
    return json.dumps([{"message": text, "host": "kafka-0"} for text in texts], indent=2)


@pytest.mark.parametrize("export", [cloudwatch, datadog, loki_api, elasticsearch, laid_out])
def test_what_is_exported_in_one_document_is_read_line_by_line(
    export: Callable[[list[str]], str], tmp_path: Path
) -> None:
    path = tmp_path / "export.json"
    path.write_text(export(lines()))
    (found,) = plan([path])
    got = read_source(found.paths, "x", ReplayOptions(), found.form)
    whole = read_source(SAMPLE_LOG, "x", ReplayOptions())
    assert [(row["body"], row["log_ts"]) for row in got.rows] == [(row["body"], row["log_ts"]) for row in whole.rows]
    assert export is laid_out or got.rejections == []


@pytest.mark.parametrize("carried", EACH)
def test_a_log_is_the_same_however_it_came(carried: Callable[[str], list[str]], tmp_path: Path) -> None:
    path = tmp_path / "carried.log"
    path.write_text("".join(f"{part}\n" for text in lines() for part in carried(text)))
    (found,) = plan([path])
    got = read_source(found.paths, "x", ReplayOptions(), found.form)
    whole = read_source(SAMPLE_LOG, "x", ReplayOptions())
    assert got.rejections == []
    assert got.rows == [
        {**row, "request_id": mine["request_id"]} for row, mine in zip(whole.rows, got.rows, strict=True)
    ]


@pytest.mark.parametrize(("encoding", "mark"), [("utf-16", ""), ("utf-16-be", "\ufeff"), ("utf-8", "\ufeff")])
def test_what_windows_saved_is_read(encoding: str, mark: str, tmp_path: Path) -> None:
    path = tmp_path / "saved.log"
    path.write_bytes((mark + "\r\n".join(lines())).encode(encoding))
    got = read_source(path, "x", ReplayOptions())
    assert got.rows == read_source(SAMPLE_LOG, "x", ReplayOptions()).rows
    assert got.rejections == []


def test_a_file_that_ends_within_a_line_gives_what_there_is() -> None:
    parts: list[Line | Rejection] = [
        Line(1, f"{AT} stdout P one "),
        Rejection("damaged"),
        Line(3, f"{AT} stdout P two"),
    ]
    assert list(whole_lines(parts)) == [Rejection("damaged"), Line(3, f"{AT} stdout F one two")]


@pytest.mark.parametrize(
    "wrapped",
    [
        {"log": json.dumps({"@timestamp": AT, "message": "a line"}) + "\n", "stream": "stdout", "time": "later"},
        {"result": {"_raw": "a line", "_time": AT}, "preview": False},
        {"jsonPayload": {"message": "a line"}, "timestamp": AT},
        {"line": "a line", "timestamp": AT, "labels": {"pod": "kafka-0"}},
        {"message": "a line", "timestamp": AT_MS},
        {"body": "a line", "ts": AT_MS / 1000},
        {"message": "a line", "timestamp": str(AT_MS * 1_000_000), "log": {"level": "INFO"}},
    ],
)
@pytest.mark.parametrize("before", ["", "[pod/kafka-0/kafka] ", "kafka-1  | "])
def test_an_object_in_an_object_is_opened_with_its_time(wrapped: dict[str, object], before: str) -> None:
    text = unwrap(before + json.dumps(wrapped))
    assert text.startswith(before)
    assert text.endswith(" a line")
    assert "2026-11-21" in text
    assert "09:00:00.123" in text


@pytest.mark.parametrize(
    "text", ['{"type":"request"}', "{not json", "[x] INFO a {set} of braces", f'[t] DEBUG {MARK}{{"message":"no"}}']
)
def test_what_is_no_such_object_stays_as_it_is(text: str) -> None:
    assert unwrap(text) == text


def test_a_configuration_of_many_lines_between_requests_is_another_loggers(tmp_path: Path) -> None:
    first, *rest = lines()
    printed = ["[2026-11-21 02:42:30,000] INFO KafkaConfig values:", *(f"\tsetting.{n} = {n}" for n in range(300))]
    path = tmp_path / "stdout.log"
    path.write_text("\n".join([first, *printed, rest[0][200:], *rest]))
    got = read_source(path, "x", ReplayOptions())
    assert got.notes["lines of other loggers, left out"] == len(printed)
    # A line of the request log whose beginning is missing is none of these.
    assert [rejection.reason.split(" is ")[0] for rejection in got.rejections] == [f"line {len(printed) + 2}"]


#: What JSON has, with the numbers near which a time's unit changes or no time is left.
NUMBERS = st.sampled_from([0, -1, 1e-300, 1e300, 10**30, 1e8, 1e11, 1e14, 1e17, 1e20, 253_402_300_800])
DIGITS = st.text("0123456789\u00b2\u0663.-", max_size=25)
PLAIN = st.none() | st.booleans() | st.integers() | NUMBERS | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    PLAIN | DIGITS | st.text(max_size=8), lambda inner: st.lists(inner, max_size=2) | st.dictionaries(DIGITS, inner)
)
INSTANTS = st.fixed_dictionaries({}, optional={"epochSecond": VALUES, "nanoOfSecond": VALUES})
TIMES = st.fixed_dictionaries(
    {"message": st.just("a line")},
    optional=dict.fromkeys(("@timestamp", "timestamp", "time", "_time", "__REALTIME_TIMESTAMP"), VALUES)
    | {"instant": INSTANTS | VALUES},
)


@given(TIMES)
def test_whatever_an_object_tells_as_its_time_the_line_comes_out(wrapped: dict[str, object]) -> None:
    text = unwrap(json.dumps(wrapped))
    assert text.endswith(" a line")
    try:
        us, _ = time_us(text, len(text) - len("a line"))
    except NoTimeError:
        return
    assert us > 0 or isinstance(next(value for value in wrapped.values() if value != "a line"), str)


@pytest.mark.parametrize("told", [1e300, 10**30, 10**20, -AT_MS, "9" * 40, True, [AT_MS]])
@pytest.mark.parametrize("name", ["time", "__REALTIME_TIMESTAMP"])
def test_a_number_outside_our_days_is_no_time_and_the_next_one_counts(told: object, name: str) -> None:
    wrapped = {"message": "a line", name: told, "instant": {"epochSecond": told}}
    assert unwrap(json.dumps(wrapped)) == " a line"
    instant = {"epochSecond": AT_MS // 1000, "nanoOfSecond": 123_456_789}
    assert unwrap(json.dumps({**wrapped, "instant": instant})) == "2026-11-21 09:00:00.123+00:00 a line"


def test_a_line_with_an_odd_time_does_not_end_the_replay(tmp_path: Path) -> None:
    path = tmp_path / "docker.log"
    odd = [{"log": f"{MARK}{{}}\n", "stream": "stdout", "time": told} for told in (1e300, 10**30, "\u00b2")]
    path.write_text("\n".join([*lines(), *map(json.dumps, odd)]))
    got = read_source(path, "x", ReplayOptions())
    assert len(got.rejections) == len(odd)
    assert [row["body"] for row in got.rows] == [
        row["body"] for row in read_source(SAMPLE_LOG, "x", ReplayOptions()).rows
    ]


NEW_YORK = ZoneInfo("America/New_York")


@pytest.mark.parametrize(
    ("told", "zone", "us"),
    [
        ("2026-11-21 09:00:00,123 CET", ZoneInfo("Europe/Berlin"), 1_795_248_000_123_000),
        ("2026-11-01 01:30:00,000 EDT", NEW_YORK, 1_793_511_000_000_000),
        ("2026-11-01 01:30:00,000 EST", NEW_YORK, 1_793_514_600_000_000),
        ("2026-11-21 12:00:00.5 AM", UTC, 1_795_219_200_500_000),
        ("2026-11-21 12:00:00 pm", UTC, 1_795_262_400_000_000),
    ],
)
def test_a_time_is_that_of_its_zone(told: str, zone: tzinfo, us: int) -> None:
    assert time_us(f"[{told}] INFO x", len(told) + 1, zone)[0] == us


@pytest.mark.parametrize(
    ("told", "zone", "why"),
    [
        ("2026-11-21 09:00:00,123 CET", UTC, "names the zone CET"),
        ("2026-11-01 01:30:00,000", NEW_YORK, "comes twice in America/New_York"),
        ("2026-03-08 02:30:00,000", NEW_YORK, "doesn't exist in America/New_York"),
        ("09:00:00,123", UTC, "a time of day and no date"),
        ("21 Okt 2026 09:00:00,123", UTC, "doesn't exist"),
        ("11/21/2026 09:00:00", UTC, "a time of day and no date that is known"),
        ("2026-21-11 09:00:00", UTC, "doesn't exist"),
        ("1795251600", UTC, "has no time"),
    ],
)
def test_what_may_be_several_times_is_refused(told: str, zone: tzinfo, why: str) -> None:
    with pytest.raises(NoTimeError, match=why):
        time_us(f"[{told}] INFO x", len(told) + 1, zone)


def test_times_in_whole_seconds_are_said(tmp_path: Path) -> None:
    path = tmp_path / "seconds.log"
    path.write_text("\n".join(f"{text[:20]}{text[24:]}" for text in lines()))
    got = read_source(path, "x", ReplayOptions())
    assert got.notes["moments: lines with their time in whole seconds"] == len(lines())


def test_what_journald_left_out_is_said(tmp_path: Path) -> None:
    path = tmp_path / "journal.json"
    cut = json.dumps({"__REALTIME_TIMESTAMP": "1795251600123456", "MESSAGE": None})
    path.write_text("\n".join([*lines(), cut]))
    (rejection,) = read_source(path, "x", ReplayOptions()).rejections
    assert "journalctl --all" in rejection.reason


@pytest.mark.parametrize("group_id", ["a&b", "<g>", "café", "\U0001f600"])
def test_groups_are_known_whose_names_another_program_writes_by_numbers(group_id: str, tmp_path: Path) -> None:
    """Docker writes &, < and > so, Fluent Bit all letters but those of ASCII; a report is asked for by the name."""
    line = next(line for line in lines() if MARK in line and '"groupId":"crash-a"' in line)
    told = json.dumps({"log": line.replace("crash-a", group_id) + "\n"}, separators=(",", ":"))
    for letter in "&<>":
        told = told.replace(letter, f"\\u{ord(letter):04x}")
    path = tmp_path / "log"
    path.write_text(told + "\n")
    assert look_through(path).groups == {group_id}
