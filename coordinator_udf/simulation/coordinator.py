"""The coordinator of a world: a shard on one of several brokers, which answers at once or once in a while."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from random import Random
from typing import Any

import msgspec

from coordinator_udf.groups.model.timers import JOIN, KEY, REBALANCE, SESSION, SYNC
from coordinator_udf.log.rows import request_rows
from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.members.outputs import Request
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.in_virtual_time import Answer, VirtualTimeShard
from coordinator_udf.shard.state_row.codec import encode
from coordinator_udf.simulation.history import Commit
from coordinator_udf.simulation.network import Connection
from coordinator_udf.simulation.plan import MemberPlan
from coordinator_udf.simulation.process import drawn_id

#: How many brokers a world has: the coordinator moves from one to another, and a third is neither.
BROKERS = 3
_NONE, _COORDINATOR_NOT_AVAILABLE = 0, 15


class Answered(msgspec.Struct, frozen=True):
    """An answer for the connection on which its request came."""

    connection: Connection
    request: Request
    ts_ms: int
    body: Mapping[str, Any]


#: What members only are told.
_TO_MEMBERS = frozenset({Errors.NONE, Errors.REBALANCE_IN_PROGRESS})
#: What a commit is refused with for a topic that is gone.
_NO_TOPIC = frozenset({Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.UNKNOWN_TOPIC_ID})


def acknowledged_commits(answer: Answered, names: Mapping[str, str]) -> Iterator[Commit]:
    """Yields the offsets that an answer to an OffsetCommit acknowledges.

    Args:
        names: the topics' names by their ids.
    """
    refused = set(refused_partitions(answer, names))
    group_id, member, is_late = answer.request.body["groupId"], answer.connection.member, not answer.connection.is_open
    for topic in answer.request.body["topics"]:
        name = topic.get("name") or names[topic["topicId"]]
        for place in topic["partitions"]:
            partition = TopicPartition(name, place["partitionIndex"])
            if partition not in refused:
                yield Commit(answer.ts_ms, group_id, partition, place["committedOffset"], member, is_late)


def refused_partitions(answer: Answered, names: Mapping[str, str]) -> Iterator[TopicPartition]:
    """Yields the partitions whose offsets an answer to an OffsetCommit refuses; ``names``: the topics' by their ids."""
    for topic in answer.body["topics"]:
        for place in topic["partitions"]:
            if place["errorCode"]:
                yield TopicPartition(topic.get("name") or names[topic["topicId"]], place["partitionIndex"])


def commit_errors(body: Mapping[str, Any]) -> Iterator[int]:
    """Yields the error codes of an answer to an OffsetCommit, one for each partition."""
    return (place["errorCode"] for topic in body["topics"] for place in topic["partitions"])


def is_accepted(answer: Answered) -> bool:
    """Tells whether an answer to a heartbeat, a SyncGroup or an OffsetCommit takes who asked for a member."""
    match answer.request.api:
        case "Heartbeat" | "SyncGroup" | "ConsumerGroupHeartbeat":
            return answer.body["errorCode"] in _TO_MEMBERS
        case "OffsetCommit":
            return not all(commit_errors(answer.body))
        case _:
            return False


def misses_topic(answer: Answered) -> bool:
    """Tells whether an answer to an OffsetCommit refuses a topic, or a partition, that there is not."""
    return any(error in _NO_TOPIC for error in commit_errors(answer.body))


class MemberIds:
    """The ids that the coordinator gives to classic members: those of their plans, then drawn ones."""

    def __init__(self, members: Iterable[MemberPlan], draws: Random) -> None:
        known = list(members)
        self._planned = {member.name: list(member.member_ids) for member in known if member.member_ids}
        self._shared = {member.name: member.sent_client_id for member in known}
        self._clients: dict[str, tuple[str, str]] = {}
        self._draws = draws

    def client_of(self, member: str) -> tuple[str, str]:
        """Returns the client id that a process sends, by its name, and its host."""
        known = self._clients.get(member)
        if known is None:
            name, _, run = member.partition("/")
            known = self._clients[member] = self._shared.get(member, name), f"/process-{run}"
        return known

    def proposed_to(self, member: str, request: Request) -> str | None:
        """Returns the id for a member that joins without one; None for any other request."""
        if request.api != "JoinGroup":
            return None
        planned = self._planned.get(member)
        if planned and not request.body["memberId"]:
            return planned.pop(0)
        return f"{self.client_of(member)[0]}-{drawn_id(self._draws)}"


class SimulatedCoordinator:
    """A coordinator. It says which groups are whose only through what it answers."""

    def __init__(
        self,
        settings: Settings,
        topics: Iterable[Topic],
        now_ms: int,
        member_ids: MemberIds,
        *,
        fails_over: bool = True,
    ) -> None:
        """Makes one that is there; ``fails_over``: it may go away and come back."""
        self._member_ids = member_ids
        known = list(topics)
        self.shard = VirtualTimeShard(settings, known, now_ms, keep_log=fails_over)
        #: Answers what comes to a broker that doesn't have the coordinator.
        self.elsewhere = VirtualTimeShard(settings, known, now_ms, keep_log=False)
        self.elsewhere.unload(now_ms)
        self._node = 0
        self._is_down = False
        self._asked: dict[str, tuple[Connection, Request]] = {}
        self._numbers = 0

    def request(self, now_ms: int, connection: Connection, request: Request) -> list[Answered]:
        """Handles a request; returns what is answered at this moment, to it and to others."""
        if request.api == "FindCoordinator":
            return [Answered(connection, request, now_ms, self._where(request))]
        self._numbers += 1
        request_id = str(self._numbers)
        self._asked[request_id] = connection, request
        client_id, client_host = self._member_ids.client_of(connection.member)
        here = request.to == f"coordinator-{self._node}" and not self._is_down
        shard = self.shard if here else self.elsewhere
        rows = request_rows(
            partitions=1,
            log_ts=now_ms,
            request_id=request_id,
            api=request.api,
            api_version=request.api_version,
            client_id=client_id,
            client_host=client_host,
            body=request.body,
            proposed_member_id=self._member_ids.proposed_to(connection.member, request),
        )
        shard.handle(rows)
        return self._answers(shard)

    def remove(self, now_ms: int, body: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Answered]]:
        """Handles an administrator's LeaveGroup; returns its answer, and what others are answered."""
        self._numbers += 1
        request_id = str(self._numbers)
        shard = self.elsewhere if self._is_down else self.shard
        rows = request_rows(
            partitions=1,
            log_ts=now_ms,
            request_id=request_id,
            api="LeaveGroup",
            api_version=5,
            client_id="admin",
            client_host="/admin",
            body=body,
        )
        shard.handle(rows)
        answers = shard.answers()
        own = next(answer.body for answer in answers if answer.request_id == request_id)
        return own, self._told(answers)

    def advance(self, now_ms: int) -> list[Answered]:
        """Lets timers fire that are due; returns what is answered."""
        self.shard.advance(now_ms)
        return self._answers(self.shard)

    def set_topics(self, now_ms: int, topics: Iterable[Topic]) -> None:
        """Says which topics exist from now on."""
        known = list(topics)
        for shard in (self.shard, self.elsewhere):
            shard.set_topics(now_ms, known)

    def go_down(self, now_ms: int) -> list[Answered]:
        """Takes the coordinator away; who waits is told."""
        self._is_down = True
        self.shard.unload(now_ms)
        return self._answers(self.shard)

    def come_back(self, now_ms: int, node: int | None = None) -> None:
        """Loads the coordinator on a broker, on the next one if none is said."""
        self._is_down = False
        self._node = (self._node + 1) % BROKERS if node is None else node
        self.shard.load(now_ms)

    def committed(self, group_id: str, partition: TopicPartition) -> int | None:
        """Returns the committed offset of a partition, 0 if there is none; None while the coordinator is down."""
        if self._is_down:
            return None
        found = self.shard.shard.store.offsets.get(group_id, partition.topic, partition.partition)
        return 0 if found is None else found.offset

    def sessions(self, groups: Collection[str]) -> int | None:
        """Returns how many sessions of some groups are open; None if it is down or waits for anything else of them."""
        keys = [entry[KEY] for entry in self.shard.shard.ctx.timers.entries()]
        kinds = [key.kind for key in keys if key.group_id in groups]
        waits = self._is_down or {JOIN, SYNC, REBALANCE}.intersection(kinds)
        return None if waits else kinds.count(SESSION)

    def state_bytes(self) -> int:
        """Returns the size of the shard's state row."""
        _, _, hot, cold = encode(self.shard.shard, all_to_columns=False)
        return len(hot) + len(cold)

    def put_off(self, by_ms: int, groups: Collection[str]) -> None:
        """Lets sessions of some groups end so much later."""
        self.shard.shard.ctx.timers.put_off_sessions(by_ms, groups)

    def next_deadline_ms(self, by_ms: int) -> int | None:
        """Returns the time of the next timer, or None where none is due by a time."""
        if self._is_down or self.shard.shard.ctx.timers.bound_ms > by_ms:
            return None
        return self.shard.next_deadline_ms()

    def _answers(self, shard: VirtualTimeShard) -> list[Answered]:
        return self._told(shard.answers())

    def _told(self, answers: Iterable[Answer]) -> list[Answered]:
        """Returns the answers that go to members, each with the request that it answers."""
        return [
            Answered(*self._asked.pop(answer.request_id), answer.ts_ms, answer.body)
            for answer in answers
            if answer.request_id in self._asked
        ]

    def _where(self, request: Request) -> dict[str, Any]:
        """Returns the answer to FindCoordinator."""
        error = _COORDINATOR_NOT_AVAILABLE if self._is_down else _NONE
        node = -1 if self._is_down else self._node
        told = {"nodeId": node, "host": "" if node < 0 else f"broker{node}", "port": -1 if node < 0 else 9092}
        told |= {"errorCode": error, "errorMessage": "NONE" if error == _NONE else "The coordinator is not available."}
        if request.api_version < 4:
            return {"throttleTimeMs": 0, **told}
        return {
            "throttleTimeMs": 0,
            "coordinators": [{"key": key, **told} for key in request.body["coordinatorKeys"]],
        }
