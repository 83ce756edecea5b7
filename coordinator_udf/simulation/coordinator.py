"""The coordinator of a world: its shards, each on one of several brokers, which answer at once or once in a while."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from random import Random
from typing import Any

import msgspec

from coordinator_udf.groups.decisions import Decisions
from coordinator_udf.groups.model.timers import JOIN, KEY, REBALANCE, SESSION, SYNC
from coordinator_udf.log.rows import request_rows
from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.members.outputs import Request
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.partitioner import partition_for
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.in_virtual_time import Answer, VirtualTimeShard
from coordinator_udf.shard.state_row.codec import encode
from coordinator_udf.simulation.history import Commit
from coordinator_udf.simulation.network import Connection
from coordinator_udf.simulation.placed_shard import BROKERS, PlacedShard
from coordinator_udf.simulation.plan import MemberPlan
from coordinator_udf.simulation.process import drawn_id
from coordinator_udf.simulation.process_names import client_and_run

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


def _gives_no_id(answer: Answer, request_id: str) -> bool:
    """Tells whether an answer refuses a JoinGroup without giving an id to join with."""
    return answer.request_id == request_id and bool(answer.body["errorCode"]) and not answer.body["memberId"]


class MemberIds:
    """The ids that the coordinator gives to classic members: those of their plans, then drawn ones."""

    def __init__(self, members: Iterable[MemberPlan], draws: Random) -> None:
        known = list(members)
        #: Those that were not given yet.
        self._planned = {member.name: deque(member.member_ids) for member in known if member.member_ids}
        self._shared = {member.name: member.sent_client_id for member in known}
        self._clients: dict[str, tuple[str, str]] = {}
        self._draws = draws

    def client_of(self, member: str) -> tuple[str, str]:
        """Returns the client id that a process sends, by its name, and its host."""
        known = self._clients.get(member)
        if known is None:
            name, run = client_and_run(member)
            known = self._clients[member] = self._shared.get(member, name), f"/process-{run}"
        return known

    def proposed_to(self, member: str, request: Request) -> str | None:
        """Returns the id for a member that joins, if it joins without one; None for any other request."""
        if request.api != "JoinGroup":
            return None
        planned = self._planned.get(member)
        if planned and not request.body["memberId"]:
            return planned[0]
        return f"{self.client_of(member)[0]}-{drawn_id(self._draws)}"

    def take(self, member: str, proposed: str) -> None:
        """Takes note that a member that joins was given the id that was proposed."""
        planned = self._planned.get(member)
        if planned and planned[0] == proposed:
            planned.popleft()


class SimulatedCoordinator:
    """A coordinator. It says which groups are whose only through what it answers.

    Attributes:
        decisions: what all its shards decided, in order.
    """

    def __init__(
        self,
        settings: Settings,
        topics: Iterable[Topic],
        now_ms: int,
        member_ids: MemberIds,
        *,
        shards: int = 1,
        fails_over: bool = True,
    ) -> None:
        """Makes one that is there; ``fails_over``: its shards may go away and come back."""
        self._member_ids = member_ids
        known = list(topics)
        self.decisions: list[Decisions] = []
        self._placed = [
            PlacedShard(
                VirtualTimeShard(
                    settings,
                    known,
                    now_ms,
                    keep_log=fails_over,
                    partition=partition,
                    decided_by_all=self.decisions,
                ),
                partition % BROKERS,
            )
            for partition in range(shards)
        ]
        #: Answers what comes to a broker that doesn't have the shard of a request's group.
        self._elsewhere = PlacedShard(VirtualTimeShard(settings, known, now_ms, keep_log=False), -1)
        self._elsewhere.go_down(now_ms)
        self._asked: dict[str, tuple[Connection, Request]] = {}
        self._numbers = 0

    def shard_of(self, group_id: str) -> int:
        """Returns the number of the shard that a group belongs to."""
        return partition_for(group_id, len(self._placed))

    def decided_by_each(self) -> list[list[Decisions]]:
        """Returns what each shard decided."""
        return [placed.shard.decisions for placed in self._placed]

    def stands_still(self, request: Request) -> bool:
        """Tells whether a request has to wait until a shard goes on."""
        if request.api == "FindCoordinator":
            return False
        placed = self._placed_of(request.body["groupId"])
        return placed.paused_until_ms > 0 and placed.is_at(request.to)

    def request(self, now_ms: int, connection: Connection, request: Request) -> list[Answered]:
        """Handles a request; returns what is answered at this moment, to it and to others."""
        if request.api == "FindCoordinator":
            return [Answered(connection, request, now_ms, self._where(request))]
        self._numbers += 1
        request_id = str(self._numbers)
        self._asked[request_id] = connection, request
        client_id, client_host = self._member_ids.client_of(connection.member)
        proposed = self._member_ids.proposed_to(connection.member, request)
        placed = self._placed_of(request.body["groupId"])
        shard = placed if placed.is_at(request.to) else self._elsewhere
        rows = request_rows(
            partitions=len(self._placed),
            log_ts=now_ms,
            request_id=request_id,
            api=request.api,
            api_version=request.api_version,
            client_id=client_id,
            client_host=client_host,
            body=request.body,
            proposed_member_id=proposed,
        )
        answers = shard.handle(rows)
        if proposed is not None and not any(_gives_no_id(answer, request_id) for answer in answers):
            self._member_ids.take(connection.member, proposed)
        return self._told(answers)

    def remove(self, now_ms: int, body: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Answered]]:
        """Handles an administrator's LeaveGroup; returns its answer, and what others are answered."""
        self._numbers += 1
        request_id = str(self._numbers)
        placed = self._placed_of(body["groupId"])
        shard = self._elsewhere if placed.is_down else placed
        rows = request_rows(
            partitions=len(self._placed),
            log_ts=now_ms,
            request_id=request_id,
            api="LeaveGroup",
            api_version=5,
            client_id="admin",
            client_host="/admin",
            body=body,
        )
        answers = shard.handle(rows)
        own = next(answer.body for answer in answers if answer.request_id == request_id)
        return own, self._told(answers)

    def advance(self, now_ms: int) -> list[Answered]:
        """Lets timers fire that are due; returns what is answered."""
        answers: list[Answer] = []
        for placed in self._placed:
            if placed.may_be_due(now_ms):
                placed.shard.advance(now_ms)
                answers += placed.shard.answers()
        return self._told(answers)

    def set_topics(self, now_ms: int, topics: Iterable[Topic]) -> None:
        """Says which topics exist from now on."""
        known = list(topics)
        for placed in self._placed:
            placed.set_topics(now_ms, known)
        self._elsewhere.set_topics(now_ms, self._topics_elsewhere(known))

    def _topics_elsewhere(self, known: list[Topic]) -> list[Topic]:
        """Returns the topics that are known to brokers that don't have the shard of a request's group."""
        return known

    def go_down(self, now_ms: int, shard: int) -> list[Answered]:
        """Takes a shard away; who waits is told."""
        placed = self._placed[shard]
        placed.go_down(now_ms)
        return self._told(placed.shard.answers())

    def come_back(self, now_ms: int, shard: int, node: int | None = None) -> None:
        """Loads a shard on a broker, on the next one if none is said."""
        self._placed[shard].come_back(now_ms, node)

    def pause(self, shard: int, until_ms: int) -> None:
        """Lets a shard stand still if it is there."""
        self._placed[shard].pause(until_ms)

    def go_on(self, now_ms: int, shard: int) -> bool:
        """Lets a shard go on if its pause is over, and returns whether it is; its timers are late until `catch_up`."""
        return self._placed[shard].go_on(now_ms)

    def catch_up(self, now_ms: int, shard: int) -> list[Answered]:
        """Lets a shard's timers fire that were due while it stood still; returns what they answer."""
        placed = self._placed[shard]
        placed.catch_up(now_ms)
        return self._told(placed.shard.answers())

    def is_paused(self, group_id: str) -> bool:
        """Tells whether a group's shard stands still."""
        return self._placed_of(group_id).paused_until_ms > 0

    def committed(self, group_id: str, partition: TopicPartition) -> int | None:
        """Returns the committed offset of a partition, 0 if there is none; None if its group's shard doesn't work."""
        placed = self._placed_of(group_id)
        if not placed.works:
            return None
        found = placed.shard.shard.store.offsets.get(group_id, partition.topic, partition.partition)
        return 0 if found is None else found.offset

    def sessions(self, groups: Collection[str]) -> int | None:
        """Returns how many sessions of some groups are open.

        None if a shard of theirs doesn't work, or waits for anything else of them.
        """
        found = 0
        for number in set(map(self.shard_of, groups)):
            placed = self._placed[number]
            keys = [entry[KEY] for entry in placed.shard.shard.ctx.timers.entries()]
            kinds = [key.kind for key in keys if key.group_id in groups]
            if not placed.works or {JOIN, SYNC, REBALANCE}.intersection(kinds):
                return None
            found += kinds.count(SESSION)
        return found

    def state_bytes(self) -> int:
        """Returns the size of the shards' state rows."""
        rows = [encode(placed.shard.shard, all_to_columns=False) for placed in self._placed]
        return sum(len(hot) + len(cold) for _, _, hot, cold in rows)

    def put_off(self, by_ms: int, groups: Collection[str]) -> None:
        """Lets sessions of some groups end so much later."""
        for number in set(map(self.shard_of, groups)):
            self._placed[number].shard.shard.ctx.timers.put_off_sessions(by_ms, groups)

    def next_deadline_ms(self, by_ms: int) -> int | None:
        """Returns the time of the next timer, or None where none is due by a time."""
        next_ms: int | None = None
        for placed in self._placed:
            if placed.may_be_due(by_ms):
                due_ms = placed.shard.next_deadline_ms()
                if due_ms is not None and (next_ms is None or due_ms < next_ms):
                    next_ms = due_ms
        return next_ms

    def _placed_of(self, group_id: str) -> PlacedShard:
        return self._placed[self.shard_of(group_id)]

    def _told(self, answers: Iterable[Answer]) -> list[Answered]:
        """Returns the answers that go to members, each with the request that it answers."""
        return [
            Answered(*self._asked.pop(answer.request_id), answer.ts_ms, answer.body)
            for answer in answers
            if answer.request_id in self._asked
        ]

    def _where(self, request: Request) -> dict[str, Any]:
        """Returns the answer to FindCoordinator."""
        if request.api_version < 4:
            return {"throttleTimeMs": 0, **self._place_of(request.body["key"])}
        return {
            "throttleTimeMs": 0,
            "coordinators": [{"key": key, **self._place_of(key)} for key in request.body["coordinatorKeys"]],
        }

    def _place_of(self, group_id: str) -> dict[str, Any]:
        """Returns what is told of the place of a group's shard."""
        placed = self._placed_of(group_id)
        if placed.is_down:
            error, node, text = _COORDINATOR_NOT_AVAILABLE, -1, "The coordinator is not available."
        else:
            error, node, text = _NONE, placed.node, "NONE"
        told = {"nodeId": node, "host": "" if node < 0 else f"broker{node}", "port": -1 if node < 0 else 9092}
        return {**told, "errorCode": error, "errorMessage": text}
