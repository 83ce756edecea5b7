"""Looks through an input once: of what kind it is, and what tells which other inputs are of the same coordinator."""

from __future__ import annotations

import re
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Final

import msgspec

from coordinator_udf.replay.inputs.broker_log.line import MARK
from coordinator_udf.replay.inputs.cut_lines import whole_lines
from coordinator_udf.replay.inputs.info_log.events import InfoEvent
from coordinator_udf.replay.inputs.info_log.lines import is_coordinator_line, parse_line
from coordinator_udf.replay.inputs.log_time import NoTimeError, time_us
from coordinator_udf.replay.inputs.text_lines import read_lines
from coordinator_udf.replay.inputs.wrapped import unwrap
from coordinator_udf.replay.recording import Rejection

_CONNECTION: Final = re.compile(r'"connection":"(?P<id>(?P<broker>.*?)-.*?)"')
_GROUP: Final = re.compile(r'"groupId":"(.*?)"')
_OF_EVERY_GROUP: Final = frozenset({InfoEvent.GROUP_LOADED, InfoEvent.GROUP_UNLOADED})
#: Among how many lines the first of a trace is looked for: before it there may be what Java or a build tool prints.
TRACE_LINES: Final = 200


class Look(msgspec.Struct):
    """What is in a text file.

    Attributes:
        requests: lines of Kafka's request log.
        coordinator_lines: lines of the group coordinator in a broker's own log.
        is_trace: whether it is a trace.
        first_us, last_us: when the first and the last of those lines were written, since the epoch.
        connections, brokers, groups: what the requests and lines name.
        broken_off: why the end of the file could not be read.
    """

    path: Path
    requests: int = 0
    coordinator_lines: int = 0
    is_trace: bool = False
    first_us: int | None = None
    last_us: int | None = None
    connections: set[str] = set()
    brokers: set[str] = set()
    groups: set[str] = set()
    broken_off: str | None = None

    def overlaps(self, other: Look) -> bool:
        """Returns whether both were written at the same time, so that they can't be parts of one log."""
        mine, others = (self.first_us, self.last_us), (other.first_us, other.last_us)
        if None in (*mine, *others):
            return False
        return self.first_us < other.last_us and other.first_us < self.last_us  # type: ignore[operator]


def look_through(path: Path, zone: tzinfo = UTC) -> Look:
    """Looks through a text file, plain or compressed.

    Raises:
        InputError: it can't be opened.
    """
    look = Look(path)
    last: str | None = None
    for number, line in enumerate(whole_lines(read_lines(path))):
        if isinstance(line, Rejection):
            if "breaks off" in line.reason:
                look.broken_off = line.reason
            continue
        text = line.text
        if number < TRACE_LINES and not look.requests and is_trace_line(text):
            look.is_trace = True
            return look
        if MARK in text:
            look.requests += 1
            _note_request(look, text)
        elif is_coordinator_line(text):
            look.coordinator_lines += 1
            _note_line(look, text, zone)
        else:
            continue
        if look.first_us is None:
            look.first_us = _time(text, zone)
        last = text
    look.last_us = None if last is None else _time(last, zone)
    return look


def _note_request(look: Look, text: str) -> None:
    # A line that is wrapped in JSON has its quotes escaped, one in a table's field has them doubled.
    plain = text.replace('\\"', '"') if '\\"' in text else text
    plain = plain.replace('""', '"') if '{""' in plain else plain
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
    # A broker names all its groups when it takes or leaves a partition.
    if line is not None and line.group_id is not None and line.event not in _OF_EVERY_GROUP:
        look.groups.add(line.group_id)


def _time(text: str, zone: tzinfo) -> int | None:
    plain = unwrap(text)
    place = plain.find(MARK)
    try:
        return time_us(plain, place if place >= 0 else plain.find("[Group"), zone)[0]
    except NoTimeError:
        return None


def is_trace_line(text: str) -> bool:
    """Returns whether a line is one of a trace: a JSON object with a type."""
    try:
        line = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return isinstance(line, dict) and isinstance(line.get("type"), str) and "log" not in line
