"""How old settled members' metadata is after a stretch that is left out.

Members ask for it anew when it is as old as `metadata.max.age.ms`, each time later by as long as the last answer took,
so that doesn't repeat itself like all else that they do. When they would have asked is worked out for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from coordinator_udf.members.timers import FOREVER_MS
from coordinator_udf.simulation.process import Process


class Renewal(NamedTuple):
    """A question for metadata and its answer; ``answered_ms`` is `FOREVER_MS` where none comes."""

    asked_ms: int
    answered_ms: int


#: Tells when metadata comes that a process asks for at a time; None if never.
AnsweredMs = Callable[[Process, int], int | None]


def awaits_metadata(process: Process) -> bool:
    """Tells whether a process has asked for metadata, and has no answer."""
    metadata = process.machine.metadata
    return metadata is not None and metadata.awaits_answer


def renewals(process: Process, answered_ms: AnsweredMs, last_ms: int) -> list[Renewal]:
    """Returns when a settled process asks for metadata for its age, up to a time, or to one without an answer."""
    expires_ms = _expires_ms(process)
    if expires_ms is None:
        return []
    found = []
    asked_ms = expires_ms + process.skipped_ms
    while asked_ms <= last_ms:
        back_ms = answered_ms(process, asked_ms)
        if back_ms is None:
            found.append(Renewal(asked_ms, FOREVER_MS))
            break
        found.append(Renewal(asked_ms, back_ms))
        asked_ms = back_ms + process.config.metadata_max_age_ms
    return found


def periods_between(asked: Iterable[Renewal], now_ms: int, period_ms: int, periods: int) -> int:
    """Returns as many whole periods, at most so many, after which no answer is awaited."""
    for one in sorted(asked, reverse=True):
        if one.asked_ms <= now_ms + periods * period_ms <= one.answered_ms:
            periods = (one.asked_ms - 1 - now_ms) // period_ms
    return periods


def date_metadata(process: Process, asked: list[Renewal], now_ms: int, by_ms: int) -> None:
    """Dates a process's metadata after so much time was left out for it, up to now, when no answer is awaited."""
    metadata = process.machine.metadata
    if metadata is None or _expires_ms(process) is None:
        return
    answered_ms = max((one.answered_ms for one in asked if one.answered_ms < now_ms), default=None)
    if answered_ms is None:
        metadata.put_back(by_ms)
    else:
        metadata.renew(answered_ms - process.skipped_ms)


def _expires_ms(process: Process) -> int | None:
    """Returns when a process's metadata is too old, on its member's clock; None where backoffs tell when it asks."""
    metadata, config = process.machine.metadata, process.config
    if metadata is None or config.metadata_max_age_ms < config.retry_backoff_max_ms:
        return None
    return metadata.expires_ms
