"""When a request may be sent again (RequestState, TimedRequestState, HeartbeatRequestState)."""

from __future__ import annotations

from coordinator_udf.members.backoff import ExponentialBackoff
from coordinator_udf.members.machine import Lateness
from coordinator_udf.members.timers import FOREVER_MS, Clock, Timer


class RequestState:
    """Whether a request is in flight, and how long to wait after its last answer."""

    def __init__(self, backoff: ExponentialBackoff) -> None:
        self._backoff = backoff
        self._last_received_ms = -1
        self._backoff_ms = 0
        self._in_flight = False
        self.attempts = 0

    @property
    def in_flight(self) -> bool:
        """Whether a request is on its way."""
        return self._in_flight

    def reset(self) -> None:
        """Forgets the attempts, and the request that is on its way."""
        self._in_flight = False
        self._last_received_ms = -1
        self.attempts = 0
        self._backoff_ms = self._backoff.backoff_ms(0)

    def can_send(self, now_ms: int) -> bool:
        """Tells whether nothing is in flight and the backoff is over."""
        return not self._in_flight and self.remaining_backoff_ms(now_ms) <= 0

    def on_send(self) -> None:
        """Notes that a request is sent."""
        self._in_flight = True

    def on_success(self, now_ms: int) -> None:
        """Notes a good answer."""
        self._in_flight = False
        self._last_received_ms = now_ms
        self._backoff_ms = self._backoff.backoff_ms(0)
        self.attempts = 0

    def on_failure(self, now_ms: int) -> None:
        """Notes a failed attempt; the next one waits longer."""
        self._in_flight = False
        self._last_received_ms = now_ms
        self._backoff_ms = self._backoff.backoff_ms(self.attempts)
        self.attempts += 1

    def remaining_backoff_ms(self, now_ms: int) -> int:
        """Returns how long the request has to wait still, in milliseconds."""
        return max(0, self._backoff_ms - (now_ms - self._last_received_ms))


class HeartbeatRequestState(RequestState):
    """A request that is sent again and again, an interval after its last sending, or somewhat later."""

    def __init__(self, clock: Clock, interval_ms: int, backoff: ExponentialBackoff, lateness: Lateness) -> None:
        super().__init__(backoff)
        self._lateness = lateness
        self._timer = Timer(clock, interval_ms)
        self.interval_ms = interval_ms

    def reset_timer(self) -> None:
        """Starts the interval anew."""
        late_ms = self._lateness(self._timer.seen_ms + self.interval_ms) if self.interval_ms else 0
        self._timer.reset(max(1, self.interval_ms + late_ms) if late_ms else self.interval_ms)

    def time_to_next_ms(self, now_ms: int) -> int:
        """Returns how long the next request has to wait, in milliseconds."""
        if self._timer.is_expired():
            # Java's loop goes round without waiting until the answer is here, and nothing comes of it.
            return FOREVER_MS if self.in_flight else self.remaining_backoff_ms(now_ms)
        return self._timer.remaining_ms()

    def is_overdue(self) -> bool:
        """Tells whether the interval is over while a request is on its way."""
        return self.in_flight and self._timer.is_expired()

    def on_failure(self, now_ms: int) -> None:
        """Notes a failed attempt: the interval is over at once, and the backoff counts."""
        self._timer.reset(0)
        super().on_failure(now_ms)

    def can_send(self, now_ms: int) -> bool:
        """Tells whether the interval and the backoff are over and nothing is in flight."""
        self._timer.update()
        return self._timer.is_expired() and super().can_send(now_ms)

    def update_interval(self, interval_ms: int) -> None:
        """Takes the interval of an answer; another one than the last starts anew now."""
        if interval_ms != self.interval_ms:
            self.interval_ms = interval_ms
            self._timer.update()
            self.reset_timer()
