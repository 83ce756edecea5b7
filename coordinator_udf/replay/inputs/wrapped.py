"""Log lines that something carried here wrapped in JSON: a container runtime, journald, a JSON layout of log4j."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import msgspec

#: Where they put the line, or its message: Docker and CRI, journald, log4j2's and Logstash's JSON layouts.
_TEXT: Final = ("log", "MESSAGE", "message", "msg", "textPayload")
_TIME: Final = ("@timestamp", "timestamp", "time", "asctime")

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def unwrap(text: str) -> str:
    """The line in a JSON object, with the object's time before it; a line that is no such object as it is.

    A time that is in the line itself stands behind that one and counts.
    """
    if not text.startswith("{"):
        return text
    try:
        wrapped = _decode(text)
    except msgspec.DecodeError:
        return text
    inner = next((wrapped[name] for name in _TEXT if isinstance(wrapped.get(name), str)), None)
    if inner is None:
        return text
    return f"{_time(wrapped)} {inner.rstrip()}"


def _time(wrapped: dict[str, Any]) -> str:
    for name in _TIME:
        if isinstance(wrapped.get(name), str):
            return str(wrapped[name])
    micros = wrapped.get("__REALTIME_TIMESTAMP")
    if isinstance(micros, str) and micros.isdigit():
        return datetime.fromtimestamp(int(micros) / 1e6, UTC).isoformat(sep=" ", timespec="microseconds")
    instant = wrapped.get("instant")
    if isinstance(instant, dict) and isinstance(instant.get("epochSecond"), int):
        seconds = instant["epochSecond"] + instant.get("nanoOfSecond", 0) / 1e9
        return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="milliseconds")
    return ""
