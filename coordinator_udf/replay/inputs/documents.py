"""Log lines that an export holds many at once: an array of objects, or an object with arrays, on one line.

Loki's and Elasticsearch's answers, CloudWatch's and Datadog's, what Grafana and Azure save.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from coordinator_udf.replay.inputs.text_lines import Line
from coordinator_udf.replay.inputs.wrapped import line_in
from coordinator_udf.replay.recording import Rejection, clip

#: How such a document begins: an array of objects, or an object whose first member is one of an answer's.
_DOCUMENT: Final = re.compile(
    r"\s*(?:\[\s*\{|\{\s*\"(?:status|data|events|results?|hits|took|streams|logs|records|entries|value)\"\s*:)"
)
#: journald exports no field of more than 4,096 bytes unless it is told to, and the bytes of one with colours in it.
_MESSAGE: Final = re.compile(r"\"MESSAGE\"\s*:\s*(?:(?P<none>null)|(?P<bytes>\[[\d,\s]*\]))")
_decode: Final = msgspec.json.Decoder().decode


def single_lines(lines: Iterable[Line | Rejection]) -> Iterator[Line | Rejection]:
    """Gives the lines one by one where one holds many; each has a number of its own, in order."""
    more = 0
    for line in lines:
        if isinstance(line, Rejection):
            yield line
        elif '"MESSAGE"' in line.text and (message := _MESSAGE.search(line.text)) is not None:
            told = _of_bytes(message)
            if told is not None:
                yield Line(line.number + more, f"{line.text[: message.start()]}{told}{line.text[message.end() :]}")
                continue
            reason = (
                f"line {line.number + more}: journald left out its message of more than 4096 bytes (journalctl --all)"
            )
            yield Rejection(reason, clip(line.text))
        elif _DOCUMENT.match(line.text) and (found := list(_in_document(line.text))):
            for text in found:
                yield Line(line.number + more, text)
                more += 1
            more -= 1
        else:
            yield line if not more else Line(line.number + more, line.text)


def _of_bytes(message: re.Match[str]) -> str | None:
    """Returns a message of which journald gave the bytes, as the text that it is; None where it gave none."""
    if message["none"] is not None:
        return None
    try:
        told = bytes(_decode(message["bytes"])).decode("utf-8", "replace")
    except (ValueError, msgspec.DecodeError):
        return message.group()
    return f'"MESSAGE":{msgspec.json.encode(told).decode()}'


def _in_document(text: str) -> Iterator[str]:
    try:
        document = _decode(text)
    except (msgspec.DecodeError, RecursionError):
        return
    # What is one line itself stays one.
    if not isinstance(document, dict) or line_in(document) is None:
        yield from _lines_of(document)


def _lines_of(value: Any) -> Iterator[str]:
    """Gives the lines in a value, in order."""
    match value:
        case dict():
            line = line_in(value)
            if line is not None:
                yield line
                return
            for inner in value.values():
                yield from _lines_of(inner)
        # Loki's: a time in nanoseconds and the line.
        case [str(at), str(line), *_] if at.isdecimal():
            told = line_in({"time": at, "line": line})
            if told is not None:
                yield told
        case list():
            for inner in value:
                yield from _lines_of(inner)
