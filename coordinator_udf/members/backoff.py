"""How long a member waits between attempts (org.apache.kafka.common.utils.ExponentialBackoff)."""

from __future__ import annotations

import math

from coordinator_udf.members.machine import Jitter

_BASE = 2


class ExponentialBackoff:
    """Doubles from ``initial_ms`` up to ``max_ms``, each time multiplied by a random factor.

    Attributes:
        max_ms: no wait is longer.
    """

    def __init__(self, initial_ms: int, max_ms: int, jitter: Jitter | None) -> None:
        """Takes the random factor from ``jitter``; there is none where that is None."""
        self._initial_ms = min(initial_ms, max_ms)
        self.max_ms = max_ms
        self._jitter = jitter
        self._last_attempt = math.log(max_ms / max(initial_ms, 1)) / math.log(_BASE) if initial_ms < max_ms else 0.0

    def backoff_ms(self, attempts: int) -> int:
        """Returns the time to wait after so many failed attempts before this one, in milliseconds."""
        if self._last_attempt == 0:
            return self._initial_ms
        even = self._initial_ms * math.pow(_BASE, min(attempts, self._last_attempt))
        factor = 1.0 if self._jitter is None else self._jitter()
        return min(int(factor * even), self.max_ms)
