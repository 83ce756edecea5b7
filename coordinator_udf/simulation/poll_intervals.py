"""Finds members whose applications stand still for longer than max.poll.interval.ms, and that stay in their groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.simulation.history import ApplicationEvent, History
from coordinator_udf.simulation.plan import WorldPlan
from coordinator_udf.simulation.violation import Violation

#: How long a member may take that is to leave: until it looks at its timers, for its request, and for another one.
_LEAVES_MS = 5_000
#: What ends a stall: the application polls or closes, its process ends, or it is another.
_ENDS = frozenset({"resume", "close", "closed", "crash", "start"})


def longest_stays_ms(plan: WorldPlan) -> dict[str, int]:
    """Returns for how long processes may be in their groups from when on their applications stand still.

    A static member of the classic protocol says nothing, and has its session (ConsumerCoordinator, HeartbeatThread).
    Processes that hang aren't told of, for their timers stand still, too, and none are where the coordinator goes away
    or pauses.
    """
    if not plan.is_always_served:
        return {}
    of_consumers_ms = Settings.from_kafka(plan.settings).group_consumer_session_timeout_ms
    stays_ms = {}
    for member in plan.members:
        if member.stalls and not member.hangs and member.habit is None:
            config = member.config()
            session_ms = of_consumers_ms if member.is_kip_848 else config.session_timeout_ms
            stays_ms[member.name] = config.max_poll_interval_ms + session_ms + _LEAVES_MS
    return stays_ms


def kept_too_long(history: History) -> Iterator[Violation]:
    """Yields which members didn't leave whose applications stood still for longer than they may (KIP-62)."""
    if not history.longest_stays_ms:
        return
    events: dict[str, list[ApplicationEvent]] = defaultdict(list)
    for event in history.events:
        events[event.process].append(event)
    left = [(one.ts_ms, one.process) for one in history.memberships if one.number <= 0]
    left += [(one.ts_ms, history.process_of.get(one.member_id, "")) for one in (*history.removals, *history.dismissals)]
    for process, longest_ms in history.longest_stays_ms.items():
        for stall, end_ms in _stalls(events[process], history.end_ms):
            by_ms = stall.ts_ms + longest_ms
            known = history.membership_at(process, stall.ts_ms)
            if end_ms <= by_ms or known is None or not known.is_stable or known.number <= 0:
                continue
            if not any(name == process and stall.ts_ms < ts_ms <= by_ms for ts_ms, name in left):
                detail = f"{process} is a member {longest_ms} ms after its application has stopped to poll"
                yield Violation(by_ms, stall.group_id, "poll interval exceeded", detail)


def _stalls(events: list[ApplicationEvent], end_ms: int) -> Iterator[tuple[ApplicationEvent, int]]:
    """Yields when a process's application began to stand still, and when it no longer did."""
    for place, event in enumerate(events):
        if event.event == "stall":
            ends = (other.ts_ms for other in events[place + 1 :] if other.event in _ENDS)
            yield event, next(ends, end_ms)
