"""Looks through an input once: of what kind it is, and what tells which other inputs are of the same coordinator."""

from __future__ import annotations

import re
from collections import deque
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Final

import msgspec

from coordinator_udf.replay.inputs.broker_log.line import MARK
from coordinator_udf.replay.inputs.cut_lines import whole_lines
from coordinator_udf.replay.inputs.info_log.events import InfoEvent
from coordinator_udf.replay.inputs.info_log.lines import is_coordinator_line, log_line_us, parse_line
from coordinator_udf.replay.inputs.log_time import NoTimeError, time_us
from coordinator_udf.replay.inputs.text_lines import broken_off, read_lines
from coordinator_udf.replay.inputs.wrapped import unwrap
from coordinator_udf.replay.recording import Rejection

_CONNECTION: Final = re.compile(r'"connection":"(?P<id>(?P<broker>.*?)-.*?)"')
_BY_NUMBERS: Final = re.compile(r"\\+u(?P<number>[0-9a-fA-F]{4})")
_GROUP: Final = re.compile(r'"groupId":"(.*?)"')
_OF_EVERY_GROUP: Final = frozenset({InfoEvent.GROUP_LOADED, InfoEvent.GROUP_UNLOADED})
#: Among how many lines at a log's end the last one with a time is looked for: behind it there may be a stack trace.
_END_LINES: Final = 200
#: Threads take the time of a line before they may write it: so far from order lines stood in recorded logs (7 ms) and
#: ten times as far, in microseconds.
_UNORDERED_US: Final = 70_000


class Look(msgspec.Struct):
    """What is in a text file.

    Attributes:
        requests: lines of Kafka's request log.
        coordinator_lines: lines of the group coordinator in a broker's own log.
        other_lines: lines that are neither.
        first_us, last_us: when the first and the last line were written, since the epoch; where there are requests, the
            first and the last of those and of the coordinator's lines.
        coordinators: the brokers whose group coordinator wrote lines.
        connections, brokers, groups: what the requests and lines name.
        loaded_groups: those that a broker names as it takes or leaves a partition, which are all that it has.
        broken_off: why the end of the file could not be read.
    """

    path: Path
    requests: int = 0
    coordinator_lines: int = 0
    other_lines: int = 0
    first_us: int | None = None
    last_us: int | None = None
    coordinators: set[int] = set()
    connections: set[str] = set()
    brokers: set[str] = set()
    groups: set[str] = set()
    loaded_groups: set[str] = set()
    broken_off: str | None = None

    def overlaps(self, other: Look) -> bool:
        """Returns whether both were written at the same time, so that they can't be parts of one log."""
        if self.first_us is None or self.last_us is None or other.first_us is None or other.last_us is None:
            return False
        if self.first_us < other.first_us and other.last_us < self.last_us:
            return True
        if other.first_us < self.first_us and self.last_us < other.last_us:
            return True
        shorter = min(self.last_us - self.first_us, other.last_us - other.first_us)
        common = min(self.last_us, other.last_us) - max(self.first_us, other.first_us)
        return common > min(_UNORDERED_US, shorter // 2)


def look_through(path: Path, zone: tzinfo = UTC) -> Look:
    """Looks through a text file, plain or compressed.

    Raises:
        InputError: it can't be opened.
    """
    look = Look(path)
    last: str | None = None
    others = _OtherLines(zone)
    for line in whole_lines(read_lines(path)):
        if isinstance(line, Rejection):
            look.broken_off = broken_off(line) or look.broken_off
            continue
        text = line.text
        if MARK in text:
            look.requests += 1
            _note_request(look, text)
        elif is_coordinator_line(text):
            look.coordinator_lines += 1
            _note_line(look, text, zone)
        else:
            look.other_lines += 1
            if not look.requests:
                others.note(text)
            continue
        if look.first_us is None:
            look.first_us = _time(text, zone)
        last = text
    look.last_us = None if last is None else _time(last, zone)
    if not look.requests:
        # What the coordinator didn't write tells which parts of a broker's own log follow upon each other.
        look.first_us = min((us for us in (look.first_us, others.first_us) if us is not None), default=None)
        look.last_us = max((us for us in (look.last_us, others.last_us()) if us is not None), default=None)
    return look


class _OtherLines:
    """When the first and the last of lines were written that are nobody's that is looked for."""

    def __init__(self, zone: tzinfo) -> None:
        self._zone = zone
        self._end: deque[str] = deque(maxlen=_END_LINES)
        self.first_us: int | None = None

    def note(self, text: str) -> None:
        """Takes a line, in their order."""
        self._end.append(text)
        if self.first_us is None:
            self.first_us = log_line_us(text, self._zone)

    def last_us(self) -> int | None:
        """Returns when the last one with a time was written."""
        times = (log_line_us(text, self._zone) for text in reversed(self._end))
        return next((us for us in times if us is not None), None)


def _with_letters(text: str) -> str:
    units = _BY_NUMBERS.sub(lambda found: chr(int(found["number"], 16)), text)
    # Those beyond 16 bits are two.
    return units.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _note_request(look: Look, text: str) -> None:
    # A line that is wrapped in JSON has its quotes escaped, one in a table's field has them doubled.
    plain = text.replace('\\"', '"') if '\\"' in text else text
    plain = plain.replace('""', '"') if '{""' in plain else plain
    # Docker writes some letters by their numbers, Fluent Bit all but those of ASCII.
    plain = _with_letters(plain) if "\\u" in plain else plain
    connection = _CONNECTION.search(plain)
    if connection is not None:
        look.connections.add(connection["id"])
        look.brokers.add(connection["broker"])
    look.groups.update(_GROUP.findall(plain))


def _note_line(look: Look, text: str, zone: tzinfo) -> None:
    try:
        line = parse_line(unwrap(text), zone)
    except NoTimeError:
        return
    if line is None:
        return
    look.coordinators.add(line.broker)
    if line.group_id is not None:
        (look.loaded_groups if line.event in _OF_EVERY_GROUP else look.groups).add(line.group_id)


def _time(text: str, zone: tzinfo) -> int | None:
    plain = unwrap(text)
    place = plain.find(MARK)
    try:
        return time_us(plain, place if place >= 0 else plain.find("[Group"), zone)[0]
    except NoTimeError:
        return None
