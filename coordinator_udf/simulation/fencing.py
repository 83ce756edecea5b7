"""Whom the coordinator takes for a member who isn't one, and whose membership it ends or denies without a cause."""

from __future__ import annotations

from collections.abc import Iterator

from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.violation import Violation


def not_fenced(history: History) -> Iterator[Violation]:
    """Yields where the coordinator took requests of who was replaced, or that were of another generation or epoch."""
    for replaced in history.replacements:
        accepted_ms = history.accepted_ms.get(replaced.member_id, 0)
        if accepted_ms > replaced.ts_ms:
            process = history.process_of.get(replaced.member_id, replaced.member_id)
            detail = f"{process} is taken for a member after another process of its instance has its place"
            yield Violation(accepted_ms, replaced.group_id, "not fenced", detail)
    for ts_ms, group_id, process, api, number, told in history.numbers_taken:
        detail = f"{api} of {process} is taken with the number {number} after it was told {told}"
        yield Violation(ts_ms, group_id, "not fenced", detail)
    for ts_ms, group_id, process, api, error in history.not_told_fenced:
        detail = f"{api} of {process}, whose instance has another process, is answered {error}"
        yield Violation(ts_ms, group_id, "not fenced", detail)


def ended_without_cause(history: History) -> Iterator[Violation]:
    """Yields which members were removed for being silent that were heard of, and refused what they asked as members."""
    for ts_ms, group_id, process, heard_ms, timeout_ms in history.cut_short:
        detail = f"{process} is removed {ts_ms - heard_ms} ms after it was heard of, and may be silent for {timeout_ms}"
        yield Violation(ts_ms, group_id, "session cut short", detail)
    for ts_ms, group_id, process, api, error in history.wrongly_refused:
        yield Violation(ts_ms, group_id, "wrongly refused", f"{api} of {process}, a member, is answered {error}")
