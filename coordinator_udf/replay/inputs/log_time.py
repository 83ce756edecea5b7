"""The time in front of a log line's message, in the layouts that log4j and what carries logs write."""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from typing import Final

_FRACTION = r"(?:[,.](?P<fraction>\d{1,9}))?"
_ZONE = r"(?: ?(?P<zone>Z\b|UTC\b|[+-]\d\d:?\d\d\b))?"
#: Names of log4j's patterns: DEFAULT and ISO8601, with / for -, and DATE.
_NUMBERS: Final = re.compile(
    rf"(?P<year>\d{{4}})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[ T](?P<clock>\d\d:\d\d:\d\d){_FRACTION}{_ZONE}"
)
_WORDS: Final = re.compile(
    rf"(?P<day>\d{{1,2}})[ /](?P<month>[A-Z][a-z]{{2}})[ /](?P<year>\d{{4}})[ :](?P<clock>\d\d:\d\d:\d\d)"
    rf"{_FRACTION}{_ZONE}"
)
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
#: Digits of a second's fraction in a time that is exact to the millisecond only.
_MS_DIGITS: Final = 3


class NoTimeError(ValueError):
    """There is no time where one is expected, or one that doesn't exist."""


def time_us(text: str, end: int, zone: tzinfo = UTC) -> tuple[int, int]:
    """Returns the last time before a place in a line, and how exact it is.

    Those before it are of what carried the line: a container runtime, journald.

    Args:
        end: where the message begins.
        zone: the time zone of a time that names none.

    Returns:
        Microseconds since the epoch; 1,000 for a time in milliseconds, 1 for a finer one.

    Raises:
        NoTimeError: there is none, or it doesn't exist.
    """
    found = None
    for pattern in (_NUMBERS, _WORDS):
        for match in pattern.finditer(text, 0, end):
            if found is None or match.start() > found.start():
                found = match
    if found is None:
        raise NoTimeError("it has no time (yyyy-MM-dd HH:mm:ss,SSS) in front of its message")
    month = found["month"]
    number = _MONTHS.index(month) + 1 if month in _MONTHS else month
    offset = found["zone"]
    named = "" if offset is None else "+00:00" if offset == "UTC" else offset
    try:
        at = datetime.fromisoformat(f"{found['year']}-{number:0>2}-{found['day']:0>2} {found['clock']}{named}")
    except ValueError as error:
        raise NoTimeError(f"its time {found.group()!r} doesn't exist") from error
    if at.tzinfo is None:
        at = at.replace(tzinfo=zone)
    fraction = found["fraction"] or ""
    return int(at.timestamp()) * 1_000_000 + int(fraction[:6].ljust(6, "0")), 1_000 if len(
        fraction
    ) <= _MS_DIGITS else 1
