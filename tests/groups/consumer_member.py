"""A member of the consumer protocol: it asks with what it was told last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coordinator_udf.settings.file import topic_id
from tests.groups.bodies import consumer_heartbeat
from tests.groups.harness import Asked, G, World

#: The assignor whose assignments are easily told: all partitions in order, to all members in turn.
SORTED = {"group.consumer.assignors": ["oracle.SortedAssignor", "range", "uniform"]}
SETTINGS = {**SORTED, "group.consumer.assignment.interval.ms": 0}

NAMES = {topic_id(name): name for name in ("t0", "t1", "t2", "x0")}
Partitions = dict[str, list[int]]


def by_name(assignment: Mapping[str, Any]) -> Partitions:
    """An assignment of an answer with the topics' names."""
    return {NAMES[tp["topicId"]]: sorted(tp["partitions"]) for tp in assignment["topicPartitions"]}


class Consumer:
    """One client. ``owned`` is what it consumes; it gives up at once what it is not given any more."""

    def __init__(
        self,
        world: World,
        id_: str,
        topics: Sequence[str] | None = ("t0",),
        *,
        regex: str | None = None,
        instance: str | None = None,
        group: str = G,
        rebalance_ms: int = 20_000,
        assignor: str | None = None,
    ) -> None:
        self.world = world
        self.id = id_
        self.instance = instance
        self.group = group
        self.epoch = 0
        self.owned: Partitions = {}
        self.wishes: dict[str, Any] = {
            "rebalanceTimeoutMs": rebalance_ms,
            "subscribedTopicNames": None if topics is None else list(topics),
            "subscribedTopicRegex": regex,
            "serverAssignor": assignor,
        }

    def ask(self, epoch: int, **body: Any) -> Asked:
        """Any heartbeat."""
        whole = consumer_heartbeat(self.group, self.id, epoch, **{"instanceId": self.instance, **body})
        return self.world.ask("ConsumerGroupHeartbeat", 1, whole, group=self.group, instance=self.instance)

    def join(self, **more: Any) -> Asked:
        return self._hear(self.ask(0, **{**self.wishes, "topicPartitions": [], **more}))

    def beat(self, *, acknowledge: bool = True, **more: Any) -> Asked:
        """A heartbeat; with ``acknowledge`` it says what the member owns."""
        owned = [{"topicId": topic_id(name), "partitions": parts} for name, parts in self.owned.items()]
        return self._hear(self.ask(self.epoch, **{"topicPartitions": owned if acknowledge else None, **more}))

    def leave(self, epoch: int = -1) -> Asked:
        return self.ask(epoch)

    def _hear(self, asked: Asked) -> Asked:
        if asked.error == "NONE":
            self.epoch = asked.body["memberEpoch"]
            if asked.body["assignment"] is not None:
                self.owned = by_name(asked.body["assignment"])
        return asked


def settle(*members: Consumer) -> None:
    """Heartbeats until everybody has what it shall have."""
    for _ in range(3):
        for member in members:
            assert member.beat().error == "NONE"
