"""Time as a member sees it: a clock that its inputs set, and a timer on it (org.apache.kafka.common.utils.Timer)."""

from __future__ import annotations

from coordinator_udf.members.exceptions import illegal_argument

#: Java's Long.MAX_VALUE: no end.
FOREVER_MS = 2**63 - 1


def deadline_after(now_ms: int, timeout_ms: int) -> int:
    """Returns the time so much later, `FOREVER_MS` at most."""
    later_ms = now_ms + timeout_ms
    return later_ms if later_ms < FOREVER_MS else FOREVER_MS


class Clock:
    """The time of the input that the member is handling, in milliseconds."""

    __slots__ = ("now_ms",)

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms


class Timer:
    """Counts down from a timeout. It sees the clock only when it is updated; a reset counts from the last update.

    Attributes:
        seen_ms: the time of the last update.
        deadline_ms: the time at which the timer expires.
    """

    __slots__ = ("_clock", "deadline_ms", "seen_ms")

    def __init__(self, clock: Clock, timeout_ms: int) -> None:
        self._clock = clock
        self.seen_ms = clock.now_ms
        self.deadline_ms = deadline_after(self.seen_ms, timeout_ms)

    def update(self, now_ms: int | None = None) -> None:
        """Looks at the clock, or takes this for the time."""
        seen_ms = self._clock.now_ms if now_ms is None else now_ms
        if seen_ms > self.seen_ms:
            self.seen_ms = seen_ms

    def reset(self, timeout_ms: int) -> None:
        """Starts anew, from the time of the last update.

        Raises:
            ClientException: the timeout is negative (IllegalArgumentException).
        """
        if timeout_ms < 0:
            raise illegal_argument(f"Invalid negative timeout {timeout_ms}")
        self.deadline_ms = deadline_after(self.seen_ms, timeout_ms)

    def is_expired(self) -> bool:
        """Tells whether the timer had expired at the last update."""
        return self.seen_ms >= self.deadline_ms

    def remaining_ms(self) -> int:
        """Returns what was left at the last update, in milliseconds."""
        left_ms = self.deadline_ms - self.seen_ms
        return left_ms if left_ms > 0 else 0
