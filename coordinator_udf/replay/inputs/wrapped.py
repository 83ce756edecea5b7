"""Log lines that something carried here wrapped in JSON, in an object in another at times.

A container runtime, journald, a log store's export, a JSON layout of log4j.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

#: Where they put the line, or its message: Docker and CRI, journald, log4j2's and Logstash's JSON layouts, Splunk,
#: Loki, Google's Cloud Logging, OpenTelemetry.
_TEXT: Final = ("log", "MESSAGE", "message", "msg", "_raw", "line", "textPayload", "body", "event", "content")
#: What has such an object in it: exports of Elasticsearch, Splunk, Cloud Logging, Datadog.
_INSIDE: Final = ("_source", "result", "jsonPayload", "content", "attributes", "fields", "body", "event")
_TIME: Final = ("@timestamp", "timestamp", "time", "asctime", "ts", "_time")
#: From which number on, and below which, a time without a unit is in a unit, and how many of them a second has: years
#: from 1973 to 5138 in each.
_UNITS: Final = ((1e8, 1e11, 1.0), (1e11, 1e14, 1e3), (1e14, 1e17, 1e6), (1e17, 1e20, 1e9))
#: Objects in objects: a runtime's of an export's of a layout's, which are three, and one to spare.
_MOST_DEEP: Final = 4
#: What stands before an object: times, names of streams and containers; no line of the request log, whose JSON this is
#: not.
_BEFORE: Final = re.compile(r"[^{]{0,200}(?=\{\s*\")")

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
    """Returns what is in a line's object, once; None if it has none."""
    before = _BEFORE.match(text)
    if before is None or "Completed request:" in before.group():
        return None
    try:
        wrapped = decode_object(text[before.end() :])
    except (msgspec.DecodeError, RecursionError):
        return None
    for _ in range(_MOST_DEEP):
        inner = next((wrapped[name] for name in _TEXT if isinstance(wrapped.get(name), str)), None)
        if inner is not None:
            return f"{before.group()}{time_of(wrapped)} {inner.rstrip()}"
        objects = [wrapped[name] for name in _INSIDE if isinstance(wrapped.get(name), dict)]
        if not objects:
            return None
        times: dict[str, Any] = {name: wrapped[name] for name in _TIME if name in wrapped}
        wrapped = {**times, **objects[0]}
    return None


def time_of(wrapped: dict[str, Any]) -> str:
    """Returns the time that an object tells of its line; empty if it tells none, or none of our days."""
    for name in _TIME:
        value = wrapped.get(name)
        if isinstance(value, str) and not value.isdecimal():
            return value
        if told := _of_number(value):
            return told
    return _of_number(wrapped.get("__REALTIME_TIMESTAMP")) or _of_instant(wrapped.get("instant"))


def _of_number(value: Any) -> str:
    """Returns a time since the epoch in seconds, milli-, micro- or nanoseconds, whichever gives a year of ours."""
    if isinstance(value, str) and value.isdecimal():
        value = float(value)
    if not isinstance(value, int | float):
        return ""
    unit = next((unit for least, above, unit in _UNITS if least <= value < above), None)
    if unit is None:
        return ""
    return datetime.fromtimestamp(value / unit, UTC).isoformat(sep=" ", timespec="microseconds")


def _of_instant(value: Any) -> str:
    """Returns the time of log4j2's JSON: an object of whole seconds since the epoch and nanoseconds."""
    if not isinstance(value, dict):
        return ""
    seconds, nanos = value.get("epochSecond"), value.get("nanoOfSecond", 0)
    least, above, _ = _UNITS[0]
    if not (isinstance(seconds, int) and least <= seconds < above and isinstance(nanos, int) and 0 <= nanos < 1e9):
        return ""
    return datetime.fromtimestamp(seconds + nanos / 1e9, UTC).isoformat(sep=" ", timespec="milliseconds")
