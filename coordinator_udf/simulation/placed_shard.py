"""A shard of a world's coordinator on one of several brokers: it goes away, comes back, pauses and goes on."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator_udf.protocol.requests import Topic
from coordinator_udf.shard.in_virtual_time import VirtualTimeShard

#: How many brokers a world has: a shard moves from one to another, and a third is neither.
BROKERS = 3


@dataclass(slots=True)
class PlacedShard:
    """A shard, and the broker that it is on unless it is down.

    Attributes:
        paused_until_ms: until when it stands still; 0 if it doesn't.
        topics: those that there are, where it stands still and hasn't heard of them.
    """

    shard: VirtualTimeShard
    node: int
    is_down: bool = False
    paused_until_ms: int = 0
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
        self.shard.unload(now_ms, timers_fire=not self.paused_until_ms)
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

    def go_on(self, now_ms: int) -> None:
        """Goes on if its pause is over: all timers fire now that were due meanwhile."""
        if 0 < self.paused_until_ms <= now_ms:
            self.paused_until_ms = 0
            self.shard.catch_up(now_ms)
            self._hear_of_topics(now_ms)

    def _hear_of_topics(self, now_ms: int) -> None:
        if self.topics is not None:
            self.shard.set_topics(now_ms, self.topics)
            self.topics = None

    def may_be_due(self, by_ms: int) -> bool:
        """Tells whether a timer may be due by a time: none is where this says no."""
        return self.works and self.shard.shard.ctx.timers.bound_ms <= by_ms
