"""Between which times it is counted what happened to a log's groups, in milliseconds since the epoch."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.simulation.plan import MemberPlan, WorldPlan
from coordinator_udf.simulation.what_if.processes import arrived_ms
from coordinator_udf.user_errors import InputError

#: A number that is to be a time so far from the log's is none: a year, or a time in seconds or microseconds, is much
#: further off, and nobody asks for more of what isn't there.
_NEAR_MS = 366 * 86_400_000


#: Closes that come no later after each other than this, with which a group ends, are its shutdown. A deploy's are
#: further apart; the members of real runs all closed within 0.3 s.
_SHUTDOWN_MS = 3_000


class Span(NamedTuple):
    """From when to when is counted; None is from the first disturbance on, and to the shutdown at the log's end."""

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


def counted(span: Span, plan: WorldPlan, formed_ms: int) -> tuple[int, int]:
    """Returns from when to when is counted in a group's world: only while it lasts.

    Where nothing disturbs the group up to its shutdown, all is counted.

    Args:
        formed_ms: when the group was first formed, from the start of the world.
    """
    begin_ms, end_ms = plan.start_ms + plan.begin_ms, plan.start_ms + plan.end_ms
    disturbed_ms = _disturbed_ms(plan, formed_ms)
    if span.end_ms is not None:
        last_ms = min(span.end_ms, end_ms)
    else:
        last_ms = end_ms if (shutdown_ms := _shutdown_ms(plan)) is None else shutdown_ms
        if disturbed_ms is not None and disturbed_ms >= last_ms:
            disturbed_ms = None
    first_ms = disturbed_ms if span.start_ms is None else span.start_ms
    return begin_ms if first_ms is None else max(first_ms, begin_ms), last_ms


def why_nothing_is_counted(plan: WorldPlan, formed_ms: int, span: Span) -> str | None:
    """Returns in words why nothing of a group's world is within a span; None if something is."""
    begin_ms = plan.start_ms + plan.begin_ms
    first_ms, last_ms = counted(span, plan, formed_ms)
    if first_ms < last_ms:
        return None
    if span.start_ms is None and last_ms > begin_ms:
        return f"nothing disturbed it before {_shown(last_ms)}; give --from, too"
    return f"it was there only from {_shown(begin_ms)} on"


def _disturbed_ms(plan: WorldPlan, formed_ms: int) -> int | None:
    """Returns when something first disturbs a group; None if nothing does.

    A process stalls, hangs, closes or is killed; or, once the group was formed, somebody subscribes to other topics, a
    topic grows or is deleted, the coordinator goes away, or an administrator removes a member.
    """
    times = [
        time
        for member in plan.members
        for time in (member.close_at_ms, member.crash_at_ms, *_stands_still_ms(member))
        if time is not None
    ]
    others = [at_ms for member in plan.members for at_ms, _ in member.resubscribes]
    others += [topic.at_ms for topic in plan.topics]
    others += [failover.at_ms for failover in plan.failovers]
    others += [removal.at_ms for removal in plan.removals]
    times += [at_ms for at_ms in others if at_ms > formed_ms]
    return plan.start_ms + min(times) if times else None


def _stands_still_ms(member: MemberPlan) -> list[int]:
    return [*(stall.at_ms for stall in member.stalls), *(hang.at_ms for hang in member.hangs)]


def _shutdown_ms(plan: WorldPlan) -> int | None:
    """Returns when a group's last members begin to close, one right after the other, and leave nobody.

    None if they don't. When static members close nobody knows, for they don't leave.
    """
    members = [member for member in plan.members if "group.instance.id" not in member.properties]
    if any(member.close_at_ms is None and member.crash_at_ms is None for member in members):
        return None
    before = [member.start_ms for member in plan.members]
    before += [member.crash_at_ms for member in plan.members if member.crash_at_ms is not None]
    before += [time_ms for member in plan.members for time_ms in _stands_still_ms(member)]
    closes = sorted((m.close_at_ms for m in members if m.close_at_ms is not None), reverse=True)
    all_else_ms = max(before)
    begun_ms: int | None = None
    for time_ms in closes:
        if time_ms <= all_else_ms or (begun_ms is not None and begun_ms - time_ms > _SHUTDOWN_MS):
            break
        begun_ms = time_ms
    return None if begun_ms is None else plan.start_ms + begun_ms


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
