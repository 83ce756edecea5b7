"""Makes request logs whose truth is known: the order and the moments in which a coordinator handled what they tell.

Members of both protocols, and others that ask, send requests to a shard. Each request reaches the shard's queue at a
random moment after it arrived, and its answer is ready at a random moment after it was given, as with a broker's
threads. The log tells arrival and answer only.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coordinator_udf.log.rows import request_rows
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import ReplaySource
from coordinator_udf.settings.file import topic_id
from coordinator_udf.shard.state_row.codec import decode
from tests.groups.coordinators import START_MS, OurCoordinator, Outcome
from tests.replay.broker_log import START_MS as LOG_START_MS
from tests.replay.broker_log import KafkaLog
from tests.replay.true_clients import Ask, Client, Clients, Plan
from tests.shard.edge import process_rows

TOPICS = (Topic("t0", 4, topic_id("t0")), Topic("t1", 2, topic_id("t1")))
SETTINGS = {"offsets.topic.partition.check": True}
_US = 1_000
#: How long after the last request timers go on: longer than any session or rebalance.
_TAIL_MS = 30_000
_KEYS = {
    "JoinGroup": "JOIN_GROUP", "SyncGroup": "SYNC_GROUP", "Heartbeat": "HEARTBEAT", "LeaveGroup": "LEAVE_GROUP",
    "OffsetCommit": "OFFSET_COMMIT", "OffsetFetch": "OFFSET_FETCH", "OffsetDelete": "OFFSET_DELETE",
    "TxnOffsetCommit": "TXN_OFFSET_COMMIT", "DescribeGroups": "DESCRIBE_GROUPS", "ListGroups": "LIST_GROUPS",
    "DeleteGroups": "DELETE_GROUPS", "ConsumerGroupHeartbeat": "CONSUMER_GROUP_HEARTBEAT",
    "ConsumerGroupDescribe": "CONSUMER_GROUP_DESCRIBE", "WriteTxnMarkers": "WRITE_TXN_MARKERS",
    "CreatePartitions": "CREATE_PARTITIONS",
}  # fmt: skip
_READS = frozenset({"DescribeGroups", "ListGroups", "ConsumerGroupDescribe", "OffsetFetch"})


class Shard(OurCoordinator):
    """A shard that isn't cut between rows."""

    def __init__(self) -> None:
        self._live: Any = None
        super().__init__(SETTINGS, list(TOPICS))

    def feed(self, rows: list[dict[str, Any]]) -> Outcome:
        if self._live is None:
            self._live = decode(0, self.settings, None)
        outcome = Outcome([], [], [])
        for row in rows:
            self._hear(process_rows(self._live, [Request(offset=self.offset, **row)]), outcome)
            self.offset += 1
        return outcome

    def next_timer_ms(self) -> int:
        return int(self._live.ctx.timers.peek()[0])


@dataclass
class Pending:
    """A request under way; times in microseconds since the start."""

    number: int
    client: Client
    name: str
    ask: Ask
    arrived_us: int
    queue_us: int
    local_us: int
    true_us: int = 0


@dataclass
class TrueLog:
    """A log, and the truth: the ids of its requests in the order in which they were handled, with the moments."""

    log: KafkaLog = field(default_factory=KafkaLog)
    truth: list[tuple[str, int]] = field(default_factory=list)
    #: By line, the request's id.
    request_ids: list[str] = field(default_factory=list)


class Maker:
    """Makes one log."""

    def __init__(self, seed: int, plan: Plan) -> None:
        self.draw = random.Random(seed)
        self.plan = plan
        self._clients = Clients(self.draw, plan)
        self.shard = Shard()
        self.now_us = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._waiting: dict[str, Pending] = {}
        self._written_us = 0
        self._lines: list[tuple[int, Pending, dict[str, Any], int]] = []
        self.topics = {topic.name: topic for topic in TOPICS}
        self._handled: list[tuple[int, Pending]] = []
        self._correlations: dict[str, int] = {}

    def at(self, at_us: float, what: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (int(at_us), self._count, what))

    def run(self) -> TrueLog:
        number = 0
        for group_id, kind in self.plan.groups:
            for place in range(self.plan.members):
                is_classic = kind == "classic" or (kind == "mixed" and self.draw.random() < 0.5)
                instance = f"{group_id}-s{place}" if self.draw.random() < 0.3 else None
                loop = self._clients.classic if is_classic else self._clients.consumer
                self._begin(chr(ord("a") + number), loop(group_id, f"n{number}", instance))
                number += 1
            self._begin(chr(ord("a") + number), self._clients.zombie(group_id, kind))
            number += 1
        for _ in range(self.plan.admins):
            self._begin(chr(ord("a") + number), self._clients.admin())
            number += 1
        while True:
            timer_ms = self.shard.next_timer_ms() - START_MS
            if self._events and self._events[0][0] < (timer_ms + 1) * _US:
                at_us, _, what = heapq.heappop(self._events)
                self.now_us = at_us
                what()
            elif self._waiting and timer_ms < self.plan.lasts_ms + _TAIL_MS:
                # The timer's deadline is in whole milliseconds; what came within its first one came before.
                self.now_us = max(self.now_us, timer_ms * _US)
                self._hear(self.shard.control(START_MS + self.now_us // _US, "Tick"))
            else:
                break
        assert not self._waiting, "a request was never answered, which a log doesn't tell"
        return self._told()

    def _begin(self, name: str, client: Client) -> None:
        self.at(self.draw.uniform(0, self.plan.pause_ms * 4) * _US, lambda: self._go_on(name, client, None))

    def _go_on(self, name: str, client: Client, body: dict[str, Any] | None) -> None:
        if self.now_us > self.plan.lasts_ms * _US:
            return
        try:
            asked = next(client) if body is None else client.send(body)
        except StopIteration:
            return
        if not isinstance(asked, Ask):
            self.at(self.now_us + asked * _US, lambda: self._go_on(name, client, None))
            return
        self._count += 1
        queue_us = int(self.draw.uniform(20, 200))
        local_us = int(self._jitter(self.plan.width_ms))
        sent = Pending(self._count, client, name, asked, self.now_us, queue_us, local_us)
        self.at(self.now_us + queue_us + self.draw.uniform(0, local_us), lambda: self._handle(sent))

    def _jitter(self, most_ms: float) -> float:
        """Mostly short, now and then up to the whole; in microseconds."""
        most_us = most_ms * _US if self.draw.random() < 0.5 else min(most_ms, 2) * _US
        return self.draw.uniform(20, max(most_us, 21))

    def _handle(self, sent: Pending) -> None:
        ask, at_ms = sent.ask, START_MS + self.now_us // _US
        sent.true_us = self.now_us
        self._handled.append((self.now_us, sent))
        if ask.api == "CreatePartitions":
            self._answer(sent, {"results": [{"name": ask.body["topics"][0]["name"], "errorCode": 0}]})
            return
        self._waiting[str(sent.number)] = sent
        if ask.api == "WriteTxnMarkers":
            (marker,) = ask.body["markers"]
            body = {"producerId": marker["producerId"], "producerEpoch": 0, "committed": marker["transactionResult"]}
            self._hear(self.shard.control(at_ms, "EndTxn", body, str(sent.number)))
            if str(sent.number) in self._waiting:
                self._waiting.pop(str(sent.number))
                self._answer(sent, _marked(marker))
            return
        rows = request_rows(
            partitions=1, log_ts=at_ms, request_id=str(sent.number), api=ask.api, api_version=ask.version,
            client_id=sent.name, client_host=f"/10.0.0.{ord(sent.name) - ord('a') + 1}", body=ask.body,
            proposed_member_id=ask.new_id,
        )  # fmt: skip
        self._hear(self.shard.feed(rows))

    def _hear(self, outcome: Outcome) -> None:
        assert not outcome.rejected, outcome.rejected
        for answer in outcome.answers:
            sent = self._waiting.pop(answer.request_id or "", None)
            if sent is None:
                continue
            body = _marked(sent.ask.body["markers"][0]) if sent.ask.api == "WriteTxnMarkers" else answer.body
            self._answer(sent, body)

    def _answer(self, sent: Pending, body: dict[str, Any]) -> None:
        """Makes an answer ready a little later; what changes something in the order in which it is written."""
        ready_us = self.now_us + 20
        if sent.ask.api not in _READS:
            ready_us = self._written_us = max(self._written_us, int(self.now_us + self._jitter(self.plan.written_ms)))
        ready_us = max(ready_us, sent.arrived_us + sent.queue_us + sent.local_us)
        done_us = ready_us + int(self.draw.uniform(10, 300))
        self._lines.append((done_us, sent, body, ready_us))
        if sent.ask.api == "CreatePartitions":
            (grown,) = sent.ask.body["topics"]
            self.at(ready_us + self.draw.uniform(0, 200) * _US, lambda: self._grow(grown["name"], grown["count"]))
        self.at(done_us + self.draw.uniform(50, 2_000), lambda: self._go_on(sent.name, sent.client, body))

    def _grow(self, name: str, count: int) -> None:
        known = self.topics[name]
        self.topics[name] = Topic(name, max(known.partitions, count), known.id)
        listed = [{"name": t.name, "partitions": t.partitions, "id": t.id} for t in self.topics.values()]
        self._hear(self.shard.control(START_MS + self.now_us // _US, "TopicMetadata", {"topics": listed}))

    def _told(self) -> TrueLog:
        told, ids = TrueLog(), {}
        for done_us, sent, body, ready_us in sorted(self._lines, key=lambda line: line[0]):
            remote_us = ready_us - sent.arrived_us - sent.queue_us - sent.local_us
            ids[sent.number] = told.log.add(
                _KEYS[sent.ask.api], sent.ask.body, body, arrives=sent.arrived_us / _US,
                takes=(done_us - sent.arrived_us) / _US, connection=sent.name, version=sent.ask.version,
                requestQueueTimeMs=sent.queue_us / _US, localTimeMs=sent.local_us / _US,
                remoteTimeMs=remote_us / _US,
            )  # fmt: skip
        told.request_ids = list(ids.values())
        told.truth = [(ids[sent.number], LOG_START_MS + at // _US) for at, sent in self._handled if sent.number in ids]
        return told


def _marked(marker: dict[str, Any]) -> dict[str, Any]:
    parts = [{"name": "__consumer_offsets", "partitions": [{"partitionIndex": 0, "errorCode": 0}]}]
    return {"markers": [{"producerId": marker["producerId"], "topics": parts}]}


def make(seed: int, plan: Plan) -> TrueLog:
    """Makes a log; the same one for a seed and a plan."""
    return Maker(seed, plan).run()


def read_true(path: Path) -> ReplaySource:
    """Reads such a log with what it can't tell: the topics that were there."""
    return read_source(path, "true", ReplayOptions(topics=TOPICS, partitions=1))
