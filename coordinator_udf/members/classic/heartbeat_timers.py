"""When a heartbeat is due, and when the session and the application's poll interval are over (Heartbeat)."""

from __future__ import annotations

from coordinator_udf.members.backoff import ExponentialBackoff
from coordinator_udf.members.config import MemberConfig
from coordinator_udf.members.machine import Jitter, Lateness
from coordinator_udf.members.timers import Clock, Timer


class HeartbeatTimers:
    """Three timers. The heartbeat's counts from the last send, whether or not that was answered."""

    def __init__(self, config: MemberConfig, clock: Clock, jitter: Jitter, lateness: Lateness) -> None:
        self._config = config
        self._clock = clock
        self._lateness = lateness
        self._heartbeat = Timer(clock, config.heartbeat_interval_ms)
        self._session = Timer(clock, config.session_timeout_ms)
        self._poll = Timer(clock, config.max_poll_interval_ms)
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, jitter)
        self._failures = 0

    @property
    def deadline_ms(self) -> int:
        """The first time at which one of the timers is over."""
        first_ms, session_ms, poll_ms = self._heartbeat.deadline_ms, self._session.deadline_ms, self._poll.deadline_ms
        if session_ms < first_ms:
            first_ms = session_ms
        return poll_ms if poll_ms < first_ms else first_ms

    def polled(self) -> None:
        """Takes note that the application polls."""
        self._update()
        self._poll.reset(self._config.max_poll_interval_ms)

    def sent(self) -> None:
        """Takes note that a heartbeat is sent."""
        self._update()
        self._reset_heartbeat()

    def failed(self) -> None:
        """Takes note that a heartbeat failed: the next one is due after a backoff."""
        self._update()
        self._heartbeat.reset(self._backoff.backoff_ms(self._failures))
        self._failures += 1

    def received(self) -> None:
        """Takes note that the coordinator knows the member."""
        self._update()
        self._failures = 0
        self._session.reset(self._config.session_timeout_ms)

    def reset_session(self) -> None:
        """Starts the session anew, for the coordinator has been found."""
        self._update()
        self._session.reset(self._config.session_timeout_ms)

    def reset_all(self) -> None:
        """Starts all three anew, for heartbeats begin."""
        self._update()
        self._session.reset(self._config.session_timeout_ms)
        self._poll.reset(self._config.max_poll_interval_ms)
        self._reset_heartbeat()

    def is_heartbeat_due(self) -> bool:
        """Tells whether a heartbeat is due."""
        self._update()
        return self._heartbeat.is_expired()

    def is_session_over(self) -> bool:
        """Tells whether the session is over without a good answer."""
        self._update()
        return self._session.is_expired()

    def is_poll_interval_over(self) -> bool:
        """Tells whether the application has not polled for max.poll.interval.ms."""
        self._update()
        return self._poll.is_expired()

    def _reset_heartbeat(self) -> None:
        interval_ms = self._config.heartbeat_interval_ms
        self._heartbeat.reset(max(1, interval_ms + self._lateness(self._heartbeat.seen_ms + interval_ms)))

    def _update(self) -> None:
        now_ms = self._clock.now_ms
        if self._heartbeat.seen_ms < now_ms:
            # All three are always updated together.
            self._heartbeat.seen_ms = self._session.seen_ms = self._poll.seen_ms = now_ms
