"""A shard of a world's coordinator on one of several brokers: it goes away, comes back, pauses and goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from coordinator_udf.protocol.requests import Topic
from coordinator_udf.shard.in_virtual_time import Answer, VirtualTimeShard

#: How many brokers a world has: a shard moves from one to another, and a third is neither.
BROKERS = 3


@dataclass(slots=True)
class PlacedShard:
    """A shard, and the broker that it is on unless it is down.

    Attributes:
        paused_until_ms: until when it stands still; 0 if it doesn't.
        are_timers_late: whether it goes on, and its timers haven't fired yet that were due while it stood still.
        topics: those that there are, where it stands still and hasn't heard of them.
    """

    shard: VirtualTimeShard
    node: int
    is_down: bool = False
    paused_until_ms: int = 0
    are_timers_late: bool = False
    topics: list[Topic] | None = None

    @property
    def works(self) -> bool:
        """Whether it is there, and doesn't stand still."""
        return not (self.is_down or self.paused_until_ms)

    def set_topics(self, now_ms: int, topics: list[Topic]) -> None:
        """Says which topics exist from now on, or when it goes on."""
        if self.paused_until_ms:
            self.topics = topics
        else:
            self.shard.set_topics(now_ms, topics)

    def go_down(self, now_ms: int) -> None:
        """Goes away; if it stands still, no timer fires that was due meanwhile."""
        with self.shard.timers_wait() if self.paused_until_ms else nullcontext():
            self.shard.unload(now_ms)
        self.paused_until_ms, self.is_down = 0, True
        self._hear_of_topics(now_ms)

    def come_back(self, now_ms: int, node: int | None) -> None:
        """Is loaded on a broker, on the next one if none is said."""
        self.is_down = False
        self.node = (self.node + 1) % BROKERS if node is None else node
        self.shard.load(now_ms)

    def pause(self, until_ms: int) -> None:
        """Stands still if it is there: its timers don't fire, and what comes to it is to wait."""
        if not self.is_down:
            self.paused_until_ms = max(self.paused_until_ms, until_ms)

    def go_on(self, now_ms: int) -> bool:
        """Goes on if its pause is over, and returns whether it is; its timers are late until `catch_up`."""
        if not 0 < self.paused_until_ms <= now_ms:
            return False
        self.paused_until_ms, self.are_timers_late = 0, True
        return True

    def catch_up(self, now_ms: int) -> None:
        """Lets all timers fire now that were due while it stood still, and hears of topics."""
        self.are_timers_late = False
        self.shard.catch_up(now_ms)
        self._hear_of_topics(now_ms)

    def handle(self, rows: Sequence[Mapping[str, Any]]) -> list[Answer]:
        """Handles the rows of a request; returns what is answered."""
        with self.shard.timers_wait() if self.are_timers_late else nullcontext():
            self.shard.handle(rows)
        return self.shard.answers()

    def is_at(self, broker: str) -> bool:
        """Tells whether it is on a broker."""
        return not self.is_down and broker == f"coordinator-{self.node}"

    def _hear_of_topics(self, now_ms: int) -> None:
        if self.topics is not None:
            self.shard.set_topics(now_ms, self.topics)
            self.topics = None

    def may_be_due(self, by_ms: int) -> bool:
        """Tells whether a timer may be due by a time: none is where this says no."""
        return self.works and self.shard.shard.ctx.timers.bound_ms <= by_ms
