"""Of which groups and which time a report tells."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from coordinator_udf.user_errors import InputError

MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Window:
    """Of what a report tells: some groups or all, from when to when (UTC, without a zone, as in the views)."""

    #: None for all.
    group_ids: tuple[str, ...] | None = None
    since: datetime | None = None
    until: datetime | None = None

    def where(self, begin: str, end: str | None = None) -> str:
        """Returns a condition on two columns of a view, of which the second is null while it lasts, or on one."""
        terms = ["true"]
        if self.group_ids is not None:
            escaped = (each.replace("\\", "\\\\").replace("'", "\\'") for each in self.group_ids)
            named = ", ".join(f"'{each}'" for each in escaped)
            terms.append(f"group_id IN ({named})")
        if self.since is not None:
            since = f"TIMESTAMP '{self.since:%Y-%m-%d %H:%M:%S.%f}'"
            terms.append(f"{begin} >= {since}" if end is None else f"({end} IS NULL OR {end} >= {since})")
        if self.until is not None:
            terms.append(f"{begin} <= TIMESTAMP '{self.until:%Y-%m-%d %H:%M:%S.%f}'")
        return " AND ".join(terms)

    def holds(self, at: datetime) -> bool:
        """Returns whether a moment is of its time."""
        return self.cut(at) == at

    def cut(self, at: datetime) -> datetime:
        """Returns the moment of its time that is nearest."""
        if self.since is not None and at < self.since:
            return self.since
        return self.until if self.until is not None and at > self.until else at

    def within_ms(self, begin: datetime, end: datetime) -> int:
        """Returns how much of a span is of its time, in milliseconds."""
        return round((self.cut(end) - self.cut(begin)) / MILLISECOND)


def parse_time(text: str, option: str, zone: tzinfo, *, last: bool = False) -> datetime:
    """Returns a moment of the command line in UTC, without a zone.

    Args:
        option: which option names it.
        zone: the time zone of a time that names none.
        last: which of both is meant by a time that comes twice, where clocks go back: the first, or the last.

    Raises:
        InputError: it is no time.
    """
    try:
        at = datetime.fromisoformat(text.strip())
        if at.tzinfo is None:
            at = at.replace(tzinfo=zone, fold=int(last))
        return at.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError) as error:
        message = f"{option} is {text!r}; expected a time such as '2026-11-21 02:44:00' or '2026-11-21T02:44:00+02:00'"
        raise InputError(message) from error
