"""Our shard in the place of a recorded loop's coordinator: what its members sent reaches it when it reached Kafka's.

A loop's coordinator runs on one of several brokers. A failover takes it away for a while and brings it back on the next
broker, loaded from its own log; requests to a broker that doesn't have it are answered NOT_COORDINATOR.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coordinator_udf.log.rows import request_rows
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.replay.members.recording import Line
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.in_virtual_time import Answer, VirtualTimeShard

#: A member's request: the member's name and the request's number.
RequestKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class RecordedFailover:
    """A coordinator that goes away and comes back on another broker.

    Attributes:
        node: the broker on which it is then.
        gone_ms, back_ms: when it went and when it was loaded, in milliseconds.
        gone_before, back_before: the numbers of the first lines that find it gone, and back.
    """

    node: int
    gone_ms: int
    gone_before: int
    back_ms: int
    back_before: int


@dataclass(frozen=True, slots=True)
class Given:
    """An answer, and when it was given, in milliseconds."""

    ts_ms: int
    body: Mapping[str, Any]


class RecordedCoordinator:
    """A coordinator with a recording's settings and topics, at first on broker 0."""

    def __init__(
        self, config: Line, failovers: Iterable[RecordedFailover], member_ids: Mapping[RequestKey, str]
    ) -> None:
        """Starts the coordinator.

        Args:
            config: the recording's first line.
            member_ids: the ids that Kafka's coordinator made for joining members that had none.
        """
        settings = Settings.from_kafka(coordinator_settings(config))
        self._shard = VirtualTimeShard(settings, topics_of(config), config["ts"])
        # Answers what comes to a broker that doesn't have the coordinator. It looks at no topics: it knows all.
        self._elsewhere = VirtualTimeShard(settings, topics_of(config), config["ts"])
        self._elsewhere.unload(config["ts"])
        self._member_ids = member_ids
        self._node = 0
        self._is_down = False
        self._ever = {topic.id: topic for topic in topics_of(config)}
        self._changes: deque[tuple[int, int, int | None]] = deque()
        for failover in failovers:
            self.fail_over(failover)
        self._given: dict[str, Given] = {}

    def fail_over(self, failover: RecordedFailover) -> None:
        """Plans a failover that comes after those planned so far."""
        self._changes.append((failover.gone_before, failover.gone_ms, None))
        self._changes.append((failover.back_before, failover.back_ms, failover.node))

    def deadlines_ms(self) -> list[int]:
        """Returns the times of all armed timers, in order."""
        return self._shard.deadlines_ms()

    def advance(self, number: int, now_ms: int) -> None:
        """Lets happen what happens before a line: failovers, and the timers that are due."""
        while self._changes and self._changes[0][0] <= number:
            _, at_ms, node = self._changes.popleft()
            self._is_down = node is None
            if node is None:
                self._shard.unload(at_ms)
            else:
                self._shard.load(at_ms)
                self._node = node
        self._shard.advance(now_ms)
        self._keep(self._shard.answers())

    def set_topics(self, line: Line) -> None:
        """Says which topics exist from a line of type ``topics`` on."""
        self._ever |= {topic.id: topic for topic in topics_of(line)}
        self._shard.set_topics(line["ts"], topics_of(line))
        self._elsewhere.set_topics(line["ts"], self._ever.values())

    def request(self, now_ms: int, key: RequestKey, sent: Line) -> None:
        """Takes a member's request off the network."""
        here = sent["to"] == f"coordinator-{self._node}" and not self._is_down
        shard = self._shard if here else self._elsewhere
        name, req = key
        rows = request_rows(
            partitions=1,
            log_ts=now_ms,
            request_id=f"{name}/{req}",
            api=sent["api"],
            api_version=sent["apiVersion"],
            client_id=name,
            client_host=f"/10.0.0.{1 + ord(name[-1]) % 50}",
            body=sent["body"],
            proposed_member_id=self._member_ids.get(key),
        )
        shard.handle(rows)
        self._keep(shard.answers())

    def answer_to(self, key: RequestKey) -> Given | None:
        """Returns the answer to a request, or None as long as there is none."""
        return self._given.get(f"{key[0]}/{key[1]}")

    def _keep(self, answers: Sequence[Answer]) -> None:
        for answer in answers:
            self._given[answer.request_id] = Given(answer.ts_ms, answer.body)


def topics_of(line: Line) -> list[Topic]:
    """Returns the topics of a line's view of the cluster."""
    return [
        Topic(topic["name"], topic["partitions"], topic["id"], tuple(tuple(racks) for racks in topic.get("racks", ())))
        for topic in line["view"]["topics"]
    ]


def coordinator_settings(config: Line) -> dict[str, str | list[str]]:
    """Returns the coordinator's settings, under Kafka's names, from a recording's first line."""
    return {name: _read(value) for name, value in config["coordinator"].items()}


def _read(value: str) -> str | list[str]:
    """Reads a setting as Java writes it: a list stands in brackets."""
    return [part.strip() for part in value[1:-1].split(",")] if value.startswith("[") else value
