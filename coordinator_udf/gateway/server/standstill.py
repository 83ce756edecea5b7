"""Notices that this process stood still: it was stopped, or had no time for long."""

from __future__ import annotations

import asyncio
from typing import Final

#: A timer that comes so much too late says that this process stood still.
STOOD_STILL_S: Final = 3.0

#: How often the time is looked at.
_LOOK_EACH_S: Final = 1.0

#: How long it takes after a standstill until what came meanwhile is read: requests, and that their clients have gone.
#: Of 1,000 clients that was 0.28 s, of 3,000 0.77 s (two cores, load average 8; nothing went to the log too early).
#: With half as long some hundred are surely read; with double the way back takes half a second more for all.
_READ_ALL_S: Final = 0.5


class Standstill:
    """Tells when all that came to this process while it stood still is read. Everything here runs in the loop.

    What a client asked meanwhile is read before it is seen that the client gave up and closed its connection.
    """

    def __init__(self) -> None:
        self._seen_s: float | None = None
        self._read_all_s = 0.0

    async def watch(self) -> None:
        """Looks at the time until it is cancelled."""
        while True:
            self._look(asyncio.get_running_loop().time())
            await asyncio.sleep(_LOOK_EACH_S)

    async def wait_until_read(self) -> None:
        """Returns when nothing that came during a standstill is unread: at once, unless there just was one."""
        now_s = asyncio.get_running_loop().time()
        self._look(now_s)
        if now_s < self._read_all_s:
            await asyncio.sleep(self._read_all_s - now_s)

    def _look(self, now_s: float) -> None:
        if self._seen_s is not None and now_s - self._seen_s > STOOD_STILL_S:
            self._read_all_s = now_s + _READ_ALL_S
        self._seen_s = now_s
