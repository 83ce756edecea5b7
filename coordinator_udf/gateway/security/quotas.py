"""How much one principal may take: requests a second, and connections.

As in Kafka (KIP-219) who takes more is answered at once, told for how long it is to wait, and not heard meanwhile.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable

from coordinator_udf.gateway.security.settings import Quota

DEFAULT = "User:*"

#: How many seconds' worth of requests may come at once: as long as Kafka's quotas look back.
_BURST_S = 10.0


class Quotas:
    """Counts what principals take.

    Args:
        quotas: at most one for a principal; that of ``User:*`` is for each who has none.
        now: a clock in seconds that never goes back.
    """

    def __init__(self, quotas: Iterable[Quota], now: Callable[[], float] = time.monotonic) -> None:
        self._quotas = {quota.principal: quota for quota in quotas}
        self._now = now
        #: Of each principal how many requests it may send now, and as of when; below 0 it has sent too many.
        self._left: dict[str, tuple[float, float]] = {}
        self._connections: Counter[str] = Counter()

    def throttle_ms(self, principal: str) -> int:
        """Counts a request; returns for how long who sent it is to wait."""
        quota = self._of(principal)
        if quota is None or quota.requests_per_second is None:
            return 0
        rate, now = quota.requests_per_second, self._now()
        most = rate * _BURST_S
        left, then = self._left.get(principal, (most, now))
        left = min(most, left + (now - then) * rate) - 1
        self._left[principal] = left, now
        return 0 if left >= 0 else int(-left / rate * 1_000) + 1

    def enter(self, principal: str) -> bool:
        """Counts a connection; returns whether there may be one more. Who gets True calls `leave` in the end."""
        quota = self._of(principal)
        if quota is not None and quota.connections is not None and self._connections[principal] >= quota.connections:
            return False
        self._connections[principal] += 1
        return True

    def leave(self, principal: str) -> None:
        """Counts that a connection is closed."""
        self._connections[principal] -= 1
        if not self._connections[principal]:
            del self._connections[principal]

    def _of(self, principal: str) -> Quota | None:
        return self._quotas.get(principal) or self._quotas.get(DEFAULT)
