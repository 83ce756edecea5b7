"""Between which times it is counted what happened to a log's groups, in milliseconds since the epoch."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.simulation.plan import WorldPlan
from coordinator_udf.simulation.what_if.processes import arrived_ms
from coordinator_udf.user_errors import InputError

#: A number that is to be a time so far from the log's is none: a year, or a time in seconds or microseconds, is much
#: further off, and nobody asks for more of what isn't there.
_NEAR_MS = 366 * 86_400_000


class Span(NamedTuple):
    """From when to when is counted; None is from the first disturbance on, and to the log's end."""

    start_ms: int | None = None
    end_ms: int | None = None


def span_of(start: str | None, end: str | None, entries: Sequence[Entry]) -> Span:
    """Reads from when to when is to be counted in a log.

    Args:
        start, end: ISO 8601, of UTC where they name no zone, or milliseconds since the epoch.

    Raises:
        InputError: a text is no time, or there is nothing of the log between them.
    """
    begun_ms = min(map(arrived_ms, entries))
    over_ms = max(entry.written_us for entry in entries) / 1000
    log = f"it goes from {_shown(begun_ms)} to {_shown(over_ms)}"
    start_ms = None if start is None else _time("--from", start, begun_ms, over_ms, log)
    end_ms = None if end is None else _time("--to", end, begun_ms, over_ms, log)
    if start_ms is not None and start_ms >= over_ms:
        raise InputError(f"--from is {start}, expected a time before the log's end: {log}")
    if end_ms is not None and end_ms <= begun_ms:
        raise InputError(f"--to is {end}, expected a time after the log's start: {log}")
    if start_ms is not None and end_ms is not None and start_ms >= end_ms:
        raise InputError(f"--from is {start}, expected a time before --to, which is {end}")
    return Span(start_ms, end_ms)


def counted(span: Span, disturbed_ms: int | None, start_ms: int, end_ms: int) -> tuple[int, int]:
    """Returns from when to when is counted in a world: only while it lasts.

    Args:
        disturbed_ms: when something was first done to a member of it, if it was.
        start_ms, end_ms: of the world's history.
    """
    first_ms = disturbed_ms if span.start_ms is None else span.start_ms
    last_ms = end_ms if span.end_ms is None else min(span.end_ms, end_ms)
    return start_ms if first_ms is None else max(first_ms, start_ms), last_ms


def why_nothing_is_counted(plan: WorldPlan, span: Span) -> str | None:
    """Returns in words why nothing of a group's world is within a span; None if something is."""
    begin_ms = plan.start_ms + plan.begin_ms
    first_ms, last_ms = counted(span, _disturbed_ms(plan), begin_ms, plan.start_ms + plan.end_ms)
    if first_ms < last_ms:
        return None
    if span.start_ms is None and last_ms > begin_ms:
        return f"none of its processes stalled, closed or was killed before {_shown(last_ms)}; give --from, too"
    return f"it was there only from {_shown(begin_ms)} on"


def _disturbed_ms(plan: WorldPlan) -> int | None:
    """Returns when a process first stalls, closes or is killed; None if none does."""
    times = [
        time
        for member in plan.members
        for time in (member.close_at_ms, member.crash_at_ms, *(stall.at_ms for stall in member.stalls))
        if time is not None
    ]
    return plan.start_ms + min(times) if times else None


def _time(option: str, text: str, begun_ms: float, over_ms: float, log: str) -> int:
    if text.isascii() and text.isdigit():
        time_ms = int(text)
        if not begun_ms - _NEAR_MS <= time_ms <= over_ms + _NEAR_MS:
            raise InputError(f"{option} is {text}, expected milliseconds since the epoch, near the log's: {log}")
        return time_ms
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(
            f"{option}: {text!r} is no time, expected one like 2026-11-22T06:33:12 or milliseconds"
        ) from None
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def _shown(time_ms: float) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds").removesuffix("+00:00")
