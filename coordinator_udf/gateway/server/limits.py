"""What a gateway may hold at once: when it is used up, reading waits, and TCP makes the clients wait."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress


class ByteBudget:
    """So many bytes, handed out in the order in which they were asked for."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.free = size
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size: int) -> None:
        """Waits until ``size`` bytes (at most all there are) are free, and takes them."""
        if not self._waiting and size <= self.free:
            self.free -= size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (size, turn)
        self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(size)
            else:
                with suppress(ValueError):
                    self._waiting.remove(entry)
                self._serve()
            raise

    def give_back(self, size: int) -> None:
        """Frees what was taken."""
        self.free += size
        self._serve()

    def _serve(self) -> None:
        while self._waiting and (self._waiting[0][1].done() or self._waiting[0][0] <= self.free):
            size, turn = self._waiting.popleft()
            # One that was cancelled waits no more, though its task didn't run yet.
            if not turn.done():
                self.free -= size
                turn.set_result(None)


class HeldBytes:
    """Bytes taken from a budget, given back once, whoever does it first."""

    __slots__ = ("_budget", "_size")

    def __init__(self, budget: ByteBudget, size: int) -> None:
        self._budget = budget
        self._size = size

    def release(self) -> None:
        """Gives the bytes back; a second time does nothing."""
        size, self._size = self._size, 0
        if size:
            self._budget.give_back(size)
