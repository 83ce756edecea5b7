"""Times in which a process hung: a member that sent nothing, not even heartbeats, and went on where it had been.

Stopped, swapped out, or a thread that waits for another: all of it is simulated as a process that stands still.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.simulation.plan import Hang
from coordinator_udf.simulation.what_if.processes import LoggedProcess, answered_ms, arrived_ms, leaves
from coordinator_udf.simulation.what_if.restarts import Restarts

#: A member that has been silent for so many of its intervals hung, if it went on, or has ended.
SILENT_INTERVALS = 3
#: The part of a silence in which nobody may be silent: else it is the broker's.
_SHARED = 0.5


def hangs(process: LoggedProcess, interval_ms: int, of_log_ms: Sequence[float], restarts: Restarts) -> Iterator[Hang]:
    """Yields when a dynamic member hung, from the time of that, in milliseconds since the epoch.

    Args:
        interval_ms: of its heartbeats.
        of_log_ms: when requests of anybody arrived, in order: while nobody's do, the broker is away.
    """
    is_member = False
    for before, after in pairwise(process.entries):
        is_member = (is_member or _lets_in(before)) and not _ends(before)
        since_ms, until_ms = answered_ms(before), arrived_ms(after)
        is_silent = until_ms - since_ms > SILENT_INTERVALS * interval_ms
        if not is_member or not is_silent or restarts.between(since_ms, until_ms):
            continue
        if _longest_silence_ms(of_log_ms, since_ms, until_ms) <= _SHARED * (until_ms - since_ms):
            yield Hang(round(since_ms) + 1, max(1, round(until_ms - since_ms) - 2))


def _lets_in(entry: Entry) -> bool:
    beat_of_member = entry.api == "ConsumerGroupHeartbeat" and (entry.response or {}).get("memberEpoch", 0) > 0
    return (beat_of_member or entry.api in {"SyncGroup", "Heartbeat"}) and not (entry.response or {}).get("errorCode")


def _ends(entry: Entry) -> bool:
    """Tells whether a member isn't one after a request, or is to do something for which its application has to poll."""
    return leaves(entry) or entry.api == "JoinGroup" or bool((entry.response or {}).get("errorCode"))


def _longest_silence_ms(of_log_ms: Sequence[float], since_ms: float, until_ms: float) -> float:
    between = of_log_ms[bisect_right(of_log_ms, since_ms) : bisect_left(of_log_ms, until_ms)]
    return max(later - earlier for earlier, later in pairwise([since_ms, *between, until_ms]))
