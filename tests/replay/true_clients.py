"""Clients of a coordinator that say what members of both protocols say, and others: what they send next, and when."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any, NamedTuple
from uuid import UUID

from coordinator_udf.protocol.wire.schema import request_message
from tests.groups.bodies import base64, by_topic, commit_topics, consumer_heartbeat, cut, join_protocols, subscription


class Plan(NamedTuple):
    """How a log is made: how late requests reach the shard, and answers are ready, at most, in milliseconds."""

    groups: tuple[tuple[str, str], ...] = (("c", "classic"), ("k", "consumer"), ("m", "mixed"))
    members: int = 3
    width_ms: float = 50
    written_ms: float = 50
    lasts_ms: int = 8_000
    pause_ms: int = 300
    admins: int = 1
    #: Whether a topic gets more partitions.
    grows: bool = True


class Ask(NamedTuple):
    """What a client sends, or how long it waits (ms)."""

    api: str
    version: int
    body: dict[str, Any]
    new_id: str | None = None


Client = Generator["Ask | float", "dict[str, Any]", None]


class Clients:
    """The clients of one log."""

    def __init__(self, draw: random.Random, plan: Plan) -> None:
        self.draw = draw
        self.plan = plan
        #: What zombies borrow: the newest ids and generations, by group.
        self.known: dict[str, list[tuple[str, int]]] = {}
        self._ids = 0

    def _new_id(self, name: str) -> str:
        self._ids += 1
        return f"{name}-{UUID(int=self.draw.getrandbits(128), version=4)}"

    def _pause(self) -> float:
        return self.draw.uniform(0, self.plan.pause_ms * 2)

    def _some_offsets(self) -> dict[tuple[str, int], int]:
        return {("t0", self.draw.randrange(4)): self.draw.randrange(1_000) for _ in range(self.draw.randrange(1, 3))}

    def _commit(self, group_id: str, member_id: str, generation: int, instance: str | None) -> Ask:
        body = {
            "groupId": group_id, "generationIdOrMemberEpoch": generation, "memberId": member_id,
            "groupInstanceId": instance, "retentionTimeMs": -1, "topics": commit_topics(self._some_offsets(), ""),
        }  # fmt: skip
        return _ask("OffsetCommit", 9, body)

    def classic(self, group_id: str, name: str, instance: str | None) -> Client:
        member_id, generation = "", -1
        protocols = {"range": subscription("t0", *(["t1"] if self.draw.random() < 0.5 else []))}
        while True:
            answer = yield self._join(group_id, member_id, instance, protocols, name)
            if answer["errorCode"] == 79:
                member_id = answer["memberId"]
                continue
            if answer["errorCode"]:
                member_id = ""
                yield self._pause()
                continue
            member_id, generation = answer["memberId"], answer["generationId"]
            self.known.setdefault(group_id, []).append((member_id, generation))
            if self.draw.random() < 0.5:
                yield self.draw.uniform(0, 30)
            members = [each["memberId"] for each in answer["members"]]
            answer = yield self._sync(group_id, member_id, instance, generation, members)
            again = answer["errorCode"] != 0
            if answer["errorCode"] not in {0, 27}:
                member_id = ""
            if again:
                yield self._pause()
            while not again:
                yield self._pause()
                chance = self.draw.random()
                if chance < 0.04:
                    left = [{"memberId": member_id, "groupInstanceId": instance, "reason": None}]
                    yield _ask("LeaveGroup", 5, {"groupId": group_id, "members": left})
                    member_id, again = "", True
                    yield self._pause()
                elif chance < 0.08:
                    again = True
                elif chance < 0.3:
                    answer = yield self._commit(group_id, member_id, generation, instance)
                else:
                    beat = {
                        "groupId": group_id, "generationId": generation, "memberId": member_id,
                        "groupInstanceId": instance,
                    }  # fmt: skip
                    answer = yield _ask("Heartbeat", 4, beat)
                    again = answer["errorCode"] != 0
                    if answer["errorCode"] in {25, 82}:
                        member_id = ""

    def _join(self, group_id: str, member_id: str, instance: str | None, protocols: Any, name: str) -> Ask:
        body = {
            "groupId": group_id, "sessionTimeoutMs": 6_000, "rebalanceTimeoutMs": self.draw.choice([1_000, 5_000]),
            "memberId": member_id, "groupInstanceId": instance, "protocolType": "consumer",
            "protocols": join_protocols(protocols), "reason": None,
        }  # fmt: skip
        return _ask("JoinGroup", 9, body, None if member_id else self._new_id(instance or name))

    def _sync(self, group_id: str, member_id: str, instance: str | None, generation: int, members: list[str]) -> Ask:
        assigned = [
            {"memberId": each, "assignment": base64(_assignment(place % 4))} for place, each in enumerate(members)
        ]
        body = {
            "groupId": group_id, "generationId": generation, "memberId": member_id, "groupInstanceId": instance,
            "protocolType": "consumer", "protocolName": "range", "assignments": assigned,
        }  # fmt: skip
        return _ask("SyncGroup", 5, body)

    def consumer(self, group_id: str, name: str, instance: str | None) -> Client:
        member_id = self._new_id(name)
        while True:
            epoch, owned = 0, []
            joins = {
                "instanceId": instance, "rebalanceTimeoutMs": self.draw.choice([1_000, 5_000]), "topicPartitions": [],
                "subscribedTopicNames": self.draw.choice([["t0"], ["t0", "t1"]]),
            }  # fmt: skip
            more: dict[str, Any] = joins
            while True:
                answer = yield _ask("ConsumerGroupHeartbeat", 1, consumer_heartbeat(group_id, member_id, epoch, **more))
                more = {}
                if answer["errorCode"]:
                    if self.draw.random() < 0.5 and instance is None:
                        member_id = self._new_id(name)
                    yield self._pause()
                    break
                epoch = answer["memberEpoch"]
                self.known.setdefault(group_id, []).append((member_id, epoch))
                if answer["assignment"] is not None:
                    owned = [
                        {"topicId": each["topicId"], "partitions": each["partitions"]}
                        for each in answer["assignment"]["topicPartitions"]
                    ]
                    more = {"topicPartitions": owned}
                    yield self.draw.uniform(0, 50)
                else:
                    yield self._pause()
                chance = self.draw.random()
                if chance < 0.15:
                    yield self._commit(group_id, member_id, epoch, instance)
                elif chance < 0.2:
                    more = {**more, "subscribedTopicNames": self.draw.choice([["t0"], ["t1"], ["t0", "t1"]])}
                elif chance < 0.25:
                    gone = -2 if instance is not None and self.draw.random() < 0.5 else -1
                    body = consumer_heartbeat(group_id, member_id, gone, instanceId=instance)
                    yield _ask("ConsumerGroupHeartbeat", 1, body)
                    yield self._pause()
                    member_id = self._new_id(name)
                    break

    def zombie(self, group_id: str, kind: str) -> Client:
        """Says what a member might have said, on a connection of its own."""
        producer = 100 + len(group_id) + ord(group_id[0])
        while True:
            yield self._pause()
            if group_id not in self.known:
                continue
            member_id, generation = self.draw.choice(self.known[group_id][-4:])
            chance = self.draw.random()
            if chance < 0.3:
                yield self._commit(group_id, member_id, generation, None)
            elif chance < 0.5:
                body = {
                    "transactionalId": f"x{producer}", "groupId": group_id, "producerId": producer, "producerEpoch": 0,
                    "generationId": generation, "memberId": member_id, "groupInstanceId": None,
                    "topics": commit_topics(self._some_offsets(), ""),
                }  # fmt: skip
                yield _ask("TxnOffsetCommit", 3, body)
                if self.draw.random() < 0.5:
                    yield self._pause()
                marker = {
                    "producerId": producer, "producerEpoch": 0, "transactionResult": self.draw.random() < 0.7,
                    "topics": [{"name": "__consumer_offsets", "partitionIndexes": [0]}], "coordinatorEpoch": 0,
                    "transactionVersion": 0,
                }  # fmt: skip
                yield Ask("WriteTxnMarkers", 2, {"markers": [marker]})
            elif kind == "consumer" or (kind == "mixed" and chance < 0.6):
                yield _ask("ConsumerGroupHeartbeat", 1, consumer_heartbeat(group_id, member_id, generation))
            else:
                # Nobody leaves for a member: where it waits for its assignment, Kafka answers it no more.
                beat = {"groupId": group_id, "generationId": generation, "memberId": member_id, "groupInstanceId": None}
                yield _ask("Heartbeat", 4, beat)

    def admin(self) -> Client:
        grown = 4
        names = [group_id for group_id, _ in self.plan.groups]
        while True:
            yield self._pause()
            chance, group_id = self.draw.random(), self.draw.choice(names)
            if chance < 0.25:
                yield _ask("DescribeGroups", 6, {"groups": [group_id], "includeAuthorizedOperations": False})
            elif chance < 0.5:
                yield _ask("ConsumerGroupDescribe", 1, {"groupIds": names, "includeAuthorizedOperations": False})
            elif chance < 0.6:
                yield _ask("ListGroups", 5, {"statesFilter": [], "typesFilter": []})
            elif chance < 0.65 and grown < 7 and self.plan.grows:
                grown += 1
                wanted = [{"name": "t0", "count": grown, "assignments": None}]
                yield Ask("CreatePartitions", 3, {"topics": wanted, "timeoutMs": 1_000, "validateOnly": False})
            elif chance < 0.75:
                topics = [
                    {"name": topic["name"], "partitions": [{"partitionIndex": i} for i in topic["partitionIndexes"]]}
                    for topic in by_topic(self._some_offsets())
                ]
                yield _ask("OffsetDelete", 0, {"groupId": group_id, "topics": topics})
            elif chance < 0.78:
                yield _ask("DeleteGroups", 2, {"groupsNames": [group_id]})
            else:
                one = {"groupId": group_id, "memberId": None, "memberEpoch": -1, "topics": None}
                yield _ask("OffsetFetch", 9, {"groups": [one], "requireStable": self.draw.random() < 0.3})


def _ask(api: str, version: int, body: dict[str, Any], new_id: str | None = None) -> Ask:
    return Ask(api, version, cut(body, request_message(api, version)), new_id)


def _assignment(partition: int) -> bytes:
    """One partition of t0, in the consumers' own form."""
    return b"\0\0\0\0\0\1\0\2t0\0\0\0\1" + partition.to_bytes(4) + b"\xff\xff\xff\xff"
