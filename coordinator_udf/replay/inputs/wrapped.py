"""Log lines that something carried here wrapped in JSON, in an object in another at times, or in a table's field.

A container runtime, journald, a log store's export, a JSON layout of log4j.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

#: Where they put the line, or its message: Docker and CRI, journald, log4j2's and Logstash's JSON layouts, Splunk,
#: Loki, Google's Cloud Logging, OpenTelemetry, CloudWatch, Graylog.
_TEXT: Final = (
    "log", "MESSAGE", "short_message", "message", "@message", "msg", "_raw", "line", "textPayload", "body", "event",
    "content",
)  # fmt: skip
#: What has such an object in it: exports of Elasticsearch, Splunk, Cloud Logging, Datadog.
_INSIDE: Final = ("_source", "result", "jsonPayload", "content", "attributes", "fields", "body", "event")
_TIME: Final = ("@timestamp", "timestamp", "time", "asctime", "ts", "_time", "date")
_NUMBER: Final = re.compile(r"\d+(?:\.\d*)?")
#: From which number on, and below which, a time without a unit is in a unit, and how many of them a second has: years
#: from 1973 to 5138 in each.
_UNITS: Final = ((1e8, 1e11, 1.0), (1e11, 1e14, 1e3), (1e14, 1e17, 1e6), (1e17, 1e20, 1e9))
#: Objects in objects: a runtime's of an export's of a layout's, which are three, and one to spare.
_MOST_DEEP: Final = 4
#: What stands before an object: times, names of streams and containers; no line of the request log, whose JSON this is
#: not.
_BEFORE: Final = re.compile(r"[^{]{0,200}(?=\{\s*\")")

#: A member of an object on a line of its own.
_MEMBER: Final = re.compile(r"\s*\"(?P<name>@?\w+)\"\s*:\s*(?P<value>\".*\"),?\s*$")
#: A field in quotes, and how it is seen that it holds a line of ours: the quotes of a request's JSON are doubled.
_FIELD: Final = re.compile(r'(?:^|(?<=[,;\t]))"(?P<text>(?:[^"]|"")*+)"(?=[,;\t]|\s*$)')
_IN_FIELD: Final = ('Completed request:{""', "[GroupCoordinator ", "[GroupMetadataManager ")
_QUOTES: Final = '""'

_decode_text: Final = msgspec.json.Decoder(str).decode
decode_object: Final = msgspec.json.Decoder(dict[str, Any]).decode


def unwrap(text: str) -> str:
    """Returns the line in a JSON object, with the object's time before it; a line that is no such object as it is.

    A time that is in the line itself stands behind that one and counts.
    """
    for _ in range(_MOST_DEEP):
        inner = _unwrapped(text)
        if inner is None:
            break
        text = inner
    return text


def _unwrapped(text: str) -> str | None:
    """Returns what is in a line's object, or in its quoted field, once; None if it has neither."""
    before = _BEFORE.match(text)
    if before is None or "Completed request:" in before.group():
        # Most lines are no more than themselves.
        return _in_member(text) or _in_field(text)
    try:
        wrapped = decode_object(text[before.end() :])
    except (msgspec.DecodeError, RecursionError):
        return _in_field(text)
    line = line_in(wrapped)
    return None if line is None else before.group() + line


def line_in(wrapped: dict[str, Any]) -> str | None:
    """Returns the line that an object carries, with the object's time before it; None if it carries none."""
    for _ in range(_MOST_DEEP):
        inner = next((wrapped[name] for name in _TEXT if isinstance(wrapped.get(name), str)), None)
        if inner is not None:
            return f"{time_of(wrapped)} {inner.rstrip()}"
        objects = [wrapped[name] for name in _INSIDE if isinstance(wrapped.get(name), dict)]
        if not objects:
            return None
        times: dict[str, Any] = {name: wrapped[name] for name in _TIME if name in wrapped}
        wrapped = {**times, **objects[0]}
    return None


def _in_member(text: str) -> str | None:
    """Returns the line in an object's member on a line of its own, as in JSON that is laid out to be read."""
    found = _MEMBER.match(text)
    if found is None or found["name"] not in _TEXT:
        return None
    try:
        return str(_decode_text(found["value"])).rstrip()
    except msgspec.DecodeError:
        return None


def _in_field(text: str) -> str | None:
    """Returns the line in a quoted field of a table (CSV), whose quotes are doubled, with the fields before it."""
    if not any(mark in text for mark in _IN_FIELD):
        return None
    for found in _FIELD.finditer(text):
        inner = found["text"]
        if any(mark in inner for mark in _IN_FIELD):
            before = text[: found.start()].replace('"', "")
            return f"{before} {inner.replace(_QUOTES, _QUOTES[0]).rstrip()}"
    return None


def time_of(wrapped: dict[str, Any]) -> str:
    """Returns the time that an object tells of its line; empty if it tells none, or none of our days."""
    for name in _TIME:
        value = wrapped.get(name)
        if isinstance(value, str) and not _NUMBER.fullmatch(value):
            return value
        if told := _of_number(value):
            return told
    return _of_number(wrapped.get("__REALTIME_TIMESTAMP")) or _of_instant(wrapped.get("instant"))


def _of_number(value: Any) -> str:
    """Returns a time since the epoch in seconds, milli-, micro- or nanoseconds, whichever gives a year of ours."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)
    if not isinstance(value, int | float):
        return ""
    unit = next((unit for least, above, unit in _UNITS if least <= value < above), None)
    if unit is None:
        return ""
    at = datetime.fromtimestamp(value / unit, UTC)
    return at.isoformat(sep=" ", timespec="microseconds" if at.microsecond % 1000 else "milliseconds")


def _of_instant(value: Any) -> str:
    """Returns the time of log4j2's JSON: an object of whole seconds since the epoch and nanoseconds."""
    if not isinstance(value, dict):
        return ""
    seconds, nanos = value.get("epochSecond"), value.get("nanoOfSecond", 0)
    least, above, _ = _UNITS[0]
    if not (isinstance(seconds, int) and least <= seconds < above and isinstance(nanos, int) and 0 <= nanos < 1e9):
        return ""
    return datetime.fromtimestamp(seconds + nanos / 1e9, UTC).isoformat(sep=" ", timespec="milliseconds")
