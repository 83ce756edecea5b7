"""Notices that this process stood still: it was stopped, or had no time for long."""

from __future__ import annotations

import asyncio
from typing import Final

#: A look at the time that comes so much after the one before says that this process stood still, in seconds: half of
#: the shortest session (6 s). With double a standstill that ended such sessions isn't noticed; with half delays of a
#: busy machine come near, and requests are dropped that are still awaited.
STOOD_STILL_S: Final = 3.0

#: How often the time is looked at, in seconds: a standstill is seen when it has lasted STOOD_STILL_S and as much as
#: this.
_LOOK_EACH_S: Final = 1.0

#: In so many rounds of the loop a connection is seen to have ended, behind the last request that is read of it: its
#: bytes come (with TLS through a second protocol), its reader hears of their end, and its tasks end one another. Tried
#: with 1,000 and 3,000 clients that gave up: nothing went to the log too early.
_ROUNDS_TO_END: Final = 16


class Standstill:
    """Tells when this process stood still, and when all is read that came meanwhile. Everything here runs in the loop.

    What a client asked meanwhile is read before it is seen that the client gave up and closed its connection. But each
    round of the loop reads of all connections that have something, and each connection's reader takes a request a
    round: after as many rounds as requests of one connection may be under way, and a few more, only what has to wait
    for others is unread.

    Args:
        requests_max: how many requests of one connection may be under way.
    """

    def __init__(self, requests_max: int) -> None:
        self._rounds = requests_max + _ROUNDS_TO_END
        self._seen_s: float | None = None
        self._ended_s = float("-inf")
        self._is_unread = False

    async def watch(self) -> None:
        """Looks at the time until it is cancelled."""
        while True:
            self.ended_s()
            await asyncio.sleep(_LOOK_EACH_S)

    def ended_s(self) -> float:
        """Returns when the last standstill ended, by the loop's clock in seconds; minus infinity if there was none."""
        now_s = asyncio.get_running_loop().time()
        if self._seen_s is not None and now_s - self._seen_s > STOOD_STILL_S:
            self._ended_s = now_s
            self._is_unread = True
        self._seen_s = now_s
        return self._ended_s

    async def wait_until_read(self) -> None:
        """Returns when what came during a standstill is read: at once, unless there just was one."""
        self.ended_s()
        if self._is_unread:
            self._is_unread = False
            for _ in range(self._rounds):
                await asyncio.sleep(0)
