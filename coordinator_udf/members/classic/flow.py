"""Calls that may have to wait for a later input: generators, and the stack of those that are under way.

Kafka's classic client blocks its caller inside of calls and of answers' handlers. Here such code is a generator
(`Flow`) that yields what it waits for. While one waits, other inputs are handled on top of it, as Java's other thread
would; what waits goes on when nothing is left on top of it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

import msgspec

from coordinator_udf.members.timers import FOREVER_MS, Clock, Timer

T = TypeVar("T")


class Wait(msgspec.Struct, frozen=True):
    """What a call waits for: that ``done`` says True after some input, or that the deadline passes."""

    done: Callable[[], bool]
    deadline_ms: int = FOREVER_MS


Flow = Generator[Wait, None, T]


def sleep(timer: Timer, clock: Clock, duration_ms: int) -> Flow[None]:
    """Waits, but not longer than the timer runs (Timer.sleep)."""
    until_ms = clock.now_ms + min(duration_ms, timer.remaining_ms())
    if until_ms > clock.now_ms:
        yield Wait(lambda: False, until_ms)
    timer.update()


class CallStack:
    """The calls under way, the last one on top. Only that one goes on."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._calls: list[tuple[Flow[None], Wait]] = []

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def deadline_ms(self) -> int | None:
        """When the call on top goes on without another input, if it does."""
        if not self._calls:
            return None
        deadline_ms = self._calls[-1][1].deadline_ms
        return None if deadline_ms == FOREVER_MS else deadline_ms

    def is_due(self) -> bool:
        """Tells whether the call on top can go on now."""
        if not self._calls:
            return False
        wait = self._calls[-1][1]
        return wait.done() or wait.deadline_ms <= self._clock.now_ms

    def begin(self, call: Flow[None]) -> None:
        """Lets a call go as far as it can, on top of those under way. One that never waits isn't put there."""
        wait = next(call, None)
        if wait is not None:
            self._calls.append((call, wait))

    def run(self) -> None:
        """Lets the calls go on, from the top, as far as they can."""
        calls = self._calls
        while calls:
            call, wait = calls[-1]
            if not wait.done() and wait.deadline_ms > self._clock.now_ms:
                return
            next_wait = next(call, None)
            if next_wait is None:
                calls.pop()
            else:
                calls[-1] = (call, next_wait)
