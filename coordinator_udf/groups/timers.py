"""The timers of a shard: deadlines in log time, fired in order of deadline and, where equal, in the order armed."""

from __future__ import annotations

import heapq
from typing import NamedTuple

#: What a timer is for.
SESSION = "session"
JOIN = "join"
SYNC = "sync"
EXPIRY = "expiry"


class TimerKey(NamedTuple):
    """One timer a key: arming it again replaces it."""

    kind: str
    group_id: str = ""
    member_id: str = ""


class Timer(NamedTuple):
    """An armed timer. ``deadline_ms`` in log time; ``data`` are numbers that its handler wants back."""

    deadline_ms: int
    seq: int
    key: TimerKey
    data: tuple[int, ...] = ()


class Timers:
    """All armed timers of a shard."""

    def __init__(self, armed: list[Timer] | None = None, next_seq: int = 0) -> None:
        self._armed: dict[TimerKey, Timer] = {timer.key: timer for timer in armed or ()}
        self._heap: list[Timer] = list(armed or ())
        heapq.heapify(self._heap)
        self.next_seq = next_seq

    def arm(self, key: TimerKey, deadline_ms: int, *data: int) -> None:
        """Arms a timer, in place of one with the same key."""
        timer = Timer(deadline_ms, self.next_seq, key, data)
        self.next_seq += 1
        self._armed[key] = timer
        heapq.heappush(self._heap, timer)
        if len(self._heap) > 64 + 4 * len(self._armed):
            self._heap = list(self._armed.values())
            heapq.heapify(self._heap)

    def cancel(self, key: TimerKey) -> None:
        """Disarms a timer, if it is armed."""
        self._armed.pop(key, None)

    def pop_due(self, now_ms: int) -> Timer | None:
        """Takes the next timer with a deadline of at most ``now_ms``."""
        while self._heap and self._heap[0].deadline_ms <= now_ms:
            timer = heapq.heappop(self._heap)
            if self._armed.get(timer.key) is timer:
                del self._armed[timer.key]
                return timer
        return None

    def next_deadline_ms(self) -> int | None:
        """The earliest deadline; None if no timer is armed."""
        while self._heap and self._armed.get(self._heap[0].key) is not self._heap[0]:
            heapq.heappop(self._heap)
        return self._heap[0].deadline_ms if self._heap else None

    def armed(self) -> list[Timer]:
        """All armed timers, in the order in which they would fire."""
        return sorted(self._armed.values())
