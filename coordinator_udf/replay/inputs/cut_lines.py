"""Whole log lines, of which container runtimes store parts, and exports many in one.

They cut what is longer than their buffer, as requests with large assignments are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from coordinator_udf.replay.inputs.documents import single_lines
from coordinator_udf.replay.inputs.text_lines import Line
from coordinator_udf.replay.inputs.wrapped import decode_object, time_of
from coordinator_udf.replay.recording import Rejection

#: A line as the runtimes of Kubernetes store it: in parts, of which the last is F.
_CRI: Final = re.compile(r"(?P<head>\S+ (?P<stream>stdout|stderr)) (?P<tag>[PF])(?::\S*)? ")
#: Docker cuts lines after so many bytes, and leaves out the end of the line.
_DOCKER_BYTES: Final = 16_384
_DOCKER: Final = '{"log":"'
#: The end of a whole line in Docker's JSON, and what Fluent Bit says of a part.
_LINE_END: Final = '\\n","'
_LOGTAG: Final = '"logtag":"P"'


def whole_lines(lines: Iterable[Line | Rejection]) -> Iterator[Line | Rejection]:
    """Puts lines together that were stored in parts, and takes them out of documents that hold many.

    Each has the number of its last part.
    """
    held: dict[str, str] = {}
    number = 0
    for line in single_lines(lines):
        if isinstance(line, Rejection) or not (held or _is_part(line.text)):
            yield line
            continue
        stored = _stored(line.text)
        if stored is None:
            yield line
            continue
        number = line.number
        if stored.is_last:
            yield Line(number, held.pop(stored.stream, stored.head) + stored.text)
        else:
            held[stored.stream] = held.get(stored.stream, stored.head) + stored.text
    # A file that ends within a line.
    yield from (Line(number, text) for text in held.values())


class _Stored(NamedTuple):
    """A line, or a part of one, as a container runtime stored it.

    Attributes:
        stream: which of a container's it was written to.
        head: what the runtime tells of it.
        is_last: whether the line ends with it.
    """

    stream: str
    head: str
    text: str
    is_last: bool


def _is_part(text: str) -> bool:
    """Returns whether a line goes on in the next one of its stream."""
    if text.startswith(_DOCKER):
        return _LINE_END not in text or _LOGTAG in text
    stored = _CRI.match(text) if text[:1].isdigit() else None
    return stored is not None and stored["tag"] == "P"


def _stored(text: str) -> _Stored | None:
    if not text.startswith(_DOCKER):
        stored = _CRI.match(text)
        if stored is None:
            return None
        return _Stored(stored["stream"], f"{stored['head']} F ", text[stored.end() :], stored["tag"] == "F")
    try:
        entry = decode_object(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    log, stream = entry.get("log"), entry.get("stream")
    if not isinstance(log, str) or not isinstance(stream, str):
        return None
    is_cut = not log.endswith("\n") and len(log.encode()) == _DOCKER_BYTES
    return _Stored(stream, f"{time_of(entry)} ", log.rstrip("\n"), not (is_cut or entry.get("logtag") == "P"))
