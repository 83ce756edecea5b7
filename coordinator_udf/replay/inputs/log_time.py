"""The time in front of a log line's message, in the layouts that log4j and what carries logs write."""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from typing import Final

#: Abbreviations of time zones that layouts print (log4j's %d{... z}). Most are those of several zones.
_ABBREVIATIONS: Final = (
    "ACDT|ACST|ADT|AEDT|AEST|AKDT|AKST|ART|AST|AWST|BRST|BRT|BST|CAT|CDT|CEST|CET|CLST|CLT|CST|EAT|EDT|EEST|EET|EST|"
    "GST|HKT|HST|IDT|IST|JST|KST|MDT|MSK|MST|NDT|NST|NZDT|NZST|PDT|PHT|PKT|PST|SAST|SGT|TRT|WAT|WEST|WET|WIB"
)
_CLOCK = r"(?P<clock>\d{1,2}:\d\d:\d\d)"
_FRACTION = r"(?:[,.](?P<fraction>\d{1,9}))?"
_HALF = r"(?: ?(?P<half>[AaPp])\.?[Mm]\b\.?)?"
_ZONE = rf"(?: ?(?P<zone>Z\b|UTC\b|GMT\b|[+-]\d\d(?::?\d\d)?(?!\d))| (?P<abbreviation>{_ABBREVIATIONS})\b)?"
_REST = rf"{_CLOCK}{_FRACTION}{_HALF}{_ZONE}"
_PATTERNS: Final = (
    # log4j's DEFAULT and ISO8601, with / for -.
    re.compile(rf"(?P<year>\d{{4}})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[ T]{_REST}"),
    # Its DATE, and the common log format.
    re.compile(rf"(?P<day>\d{{1,2}})[ /](?P<month>[A-Z][a-z]{{2}})[ /](?P<year>\d{{4}})[ :]{_REST}"),
    # Kibana's exports, and java.util.logging's.
    re.compile(rf"(?P<month>[A-Z][a-z]{{2}}) (?P<day>\d{{1,2}}), (?P<year>\d{{4}}),?(?: @| at)? {_REST}"),
    # log4j's ISO8601_BASIC and COMPACT.
    re.compile(
        rf"(?<!\d)(?P<year>20\d\d)(?P<month>\d\d)(?P<day>\d\d)T?(?P<digits>\d{{6}})[,.]?(?P<fraction>\d{{3,9}})(?!\d){_ZONE}"
    ),
)
_TIME_OF_DAY: Final = re.compile(r"(?<![\d:])\d\d:\d\d:\d\d(?![\d:])")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_NOON: Final = 12
#: Digits of a second's fraction in a time that is exact to the millisecond only.
_MS_DIGITS: Final = 3
#: How exact a time is that has no fraction of a second, in microseconds.
WHOLE_SECONDS_US: Final = 1_000_000


class NoTimeError(ValueError):
    """There is no time where one is expected, or one that doesn't exist, or that may be several."""


def time_us(text: str, end: int, zone: tzinfo = UTC) -> tuple[int, int]:
    """Returns the last time before a place in a line, and how exact it is.

    Those before it are of what carried the line: a container runtime, journald.

    Args:
        end: where the message begins.
        zone: the time zone of a time that names none.

    Returns:
        Microseconds since the epoch; 1,000,000 for a time in seconds, 1,000 for one in milliseconds, 1 for a finer one.

    Raises:
        NoTimeError: there is none, or it doesn't exist, or comes twice where clocks go back.
    """
    found = None
    for pattern in _PATTERNS:
        for match in pattern.finditer(text, 0, end):
            if found is None or match.start() > found.start():
                found = match
    if found is None:
        if _TIME_OF_DAY.search(text, 0, end):
            raise NoTimeError("it has a time of day and no date that is known in front of its message")
        raise NoTimeError("it has no time (yyyy-MM-dd HH:mm:ss,SSS) in front of its message")
    told = found.groupdict()
    at = _naive(found, told)
    offset, abbreviation = told["zone"], told["abbreviation"]
    if offset is None:
        at = _in_zone(at, zone, found.group(), abbreviation)
    else:
        at = datetime.fromisoformat(f"{at.isoformat()}{'+00:00' if offset in {'UTC', 'GMT'} else offset}")
    fraction = told["fraction"] or ""
    exact = WHOLE_SECONDS_US if not fraction else 1_000 if len(fraction) <= _MS_DIGITS else 1
    return int(at.timestamp()) * 1_000_000 + int(fraction[:6].ljust(6, "0")), exact


def _naive(found: re.Match[str], told: dict[str, str | None]) -> datetime:
    """Returns a time that was found, to the second, without its zone."""
    month = told["month"] or ""
    number = _MONTHS.index(month) + 1 if month in _MONTHS else month
    digits = told.get("digits")
    hour, minute, second = (told["clock"] or "").split(":") if digits is None else (digits[:2], digits[2:4], digits[4:])
    half = (told.get("half") or "").lower()
    if half:
        hour = str(int(hour) % _NOON + _NOON * (half == "p"))
    try:
        return datetime.fromisoformat(f"{told['year']}-{number:0>2}-{told['day']:0>2} {hour:0>2}:{minute}:{second}")
    except ValueError as error:
        raise NoTimeError(f"its time {found.group()!r} doesn't exist") from error


def _in_zone(at: datetime, zone: tzinfo, text: str, abbreviation: str | None) -> datetime:
    """Returns a time in a zone, of which the line has no more than an abbreviation."""
    if zone is UTC and abbreviation is None:
        return at.replace(tzinfo=UTC)
    first, second = at.replace(tzinfo=zone), at.replace(tzinfo=zone, fold=1)
    if abbreviation is not None:
        meant = next((each for each in (first, second) if each.tzname() == abbreviation), None)
        if meant is None:
            raise NoTimeError(
                f"its time {text!r} names the zone {abbreviation}, which may be several; --time-zone says which, such "
                "as Europe/Berlin"
            )
        return meant
    if first.utcoffset() != second.utcoffset():
        if first.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != at:
            raise NoTimeError(f"its time {text!r} doesn't exist in {zone}, where clocks go forward then")
        raise NoTimeError(
            f"its time {text!r} comes twice in {zone}, where clocks go back then; give what is of before alone, and "
            "what is of after, each with its offset (--time-zone -04:00)"
        )
    return first
