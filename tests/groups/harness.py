"""A coordinator's whole outside in a few verbs: ask, let time pass, see what is answered, written and held.

Every request is an `Asked` that knows whether it still waits; no request may ever be answered twice. Time stands still
until `advance`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.protocol.wire.schema import request_message
from coordinator_udf.settings.file import topic_id
from tests.groups.bodies import Offsets, base64, by_topic, commit_topics, cut, join_protocols
from tests.groups.coordinators import START_MS, Answer, Coordinator, Outcome, Question, Written

TOPICS = [Topic(name="t0", partitions=4, id=topic_id("t0")), Topic(name="t1", partitions=2, id=topic_id("t1"))]
G = "g"
_MIX = 0x9E3779B97F4A7C15F39CC0605CEDC835


class Member(NamedTuple):
    """A member as it knows itself."""

    id: str
    generation: int = -1
    instance: str | None = None
    group: str = G
    leader: str = ""


class Asked:
    """One request and, once it is there, its answer."""

    def __init__(self, world: World, request_id: str, group: str, instance: str | None) -> None:
        self.world = world
        self.request_id = request_id
        self.group = group
        self.instance = instance

    @property
    def waits(self) -> bool:
        return self.request_id not in self.world.answers

    @property
    def answer(self) -> Answer:
        assert not self.waits, "the request still waits for its answer"
        return self.world.answers[self.request_id]

    @property
    def body(self) -> dict[str, Any]:
        return self.answer.body

    @property
    def error(self) -> str:
        """The name of the answer's error; NONE if it is none."""
        return Errors(self.body["errorCode"]).name

    @property
    def errors(self) -> dict[Any, str]:
        """The errors of an answer's parts: by topic and partition, by member or by group."""
        if "topics" in self.body:
            return {
                (topic.get("name") or topic.get("topicId"), part["partitionIndex"]): Errors(part["errorCode"]).name
                for topic in self.body["topics"]
                for part in topic["partitions"]
            }
        if "results" in self.body or "groups" in self.body:
            parts = self.body.get("results") or self.body["groups"]
            return {part["groupId"]: Errors(part["errorCode"]).name for part in parts}
        return {
            (part["memberId"] or part["groupInstanceId"]): Errors(part["errorCode"]).name
            for part in self.body["members"]
        }

    @property
    def after_ms(self) -> int:
        """When the answer was given, from the world's beginning."""
        return self.answer.ts - START_MS

    @property
    def by(self) -> str | None:
        """The request in whose handling the answer was given; None is a timer."""
        return self.answer.by

    @property
    def member(self) -> Member:
        """The member that a JoinGroup's answer makes of its client."""
        generation = self.body["generationId"]
        return Member(self.body["memberId"], generation, self.instance, self.group, self.body["leader"] or "")

    @property
    def records(self) -> list[Written]:
        return [record for record in self.world.coordinator_records if record.cause == self.request_id]


class World:
    """One coordinator under a clock that only `advance` moves."""

    def __init__(self, coordinator: Coordinator, records: list[Written]) -> None:
        self.coordinator = coordinator
        self.coordinator_records = records
        self.now_ms = START_MS
        self.answers: dict[str, Answer] = {}
        self.rejected: list[dict[str, Any]] = []
        self._seq = 0
        self._new_ids = 0

    # -- time ---------------------------------------------------------------------------------------------------------

    def advance(self, ms: int) -> None:
        """Lets time pass; timers fire at their own time."""
        self.now_ms += ms
        self._hear(self.coordinator.control(self.now_ms, "Tick"))

    def fail_over(self) -> None:
        """The coordinator goes away and another one loads what is stored."""
        self._hear(self.coordinator.control(self.now_ms, "Failover"))

    def control(self, api: str, body: Mapping[str, Any] | None = None) -> None:
        self._hear(self.coordinator.control(self.now_ms, api, body))

    def set_topics(self, *topics: Topic) -> None:
        named = [{"name": topic.name, "partitions": topic.partitions, "id": topic.id} for topic in topics]
        self.control("TopicMetadata", {"topics": named})

    # -- requests -----------------------------------------------------------------------------------------------------

    def ask(
        self,
        api: str,
        version: int,
        body: Mapping[str, Any],
        *,
        group: str = G,
        instance: str | None = None,
        client: str | None = "client",
        host: str | None = "/127.0.0.1",
        new_id: str | None = None,
    ) -> Asked:
        """Any request; of the body what the version can carry."""
        self._seq += 1
        request_id = str(self._seq)
        carried = cut(body, request_message(api, version))
        self._hear(
            self.coordinator.request(Question(self.now_ms, request_id, api, version, client, host, carried, new_id))
        )
        return Asked(self, request_id, group, instance)

    def join(
        self,
        member: Member | str = "",
        *,
        group: str = G,
        version: int = 9,
        instance: str | None = None,
        session_ms: int = 10_000,
        rebalance_ms: int = 20_000,
        type_: str = "consumer",
        protocols: Sequence[str] | Mapping[str, bytes] = ("range",),
        client: str | None = "client",
        new_id: str | None = None,
        reason: str | None = None,
        extensions: bool = False,
    ) -> Asked:
        """JoinGroup. Where it makes a new member, that one's id is ``new_id`` or a made-up one."""
        if isinstance(member, Member):
            group, instance = member.group, instance or member.instance
        if new_id is None:
            self._new_ids += 1
            # Kafka's form. Numbers would leave the order of its hash tables as it is, so they are mixed.
            new_id = f"{client if instance is None else instance}-{UUID(int=self._new_ids * _MIX % 2**128, version=4)}"
        body = {
            "groupId": group,
            "sessionTimeoutMs": session_ms,
            "rebalanceTimeoutMs": rebalance_ms,
            "memberId": member.id if isinstance(member, Member) else member,
            "groupInstanceId": instance,
            "protocolType": type_,
            "protocols": join_protocols(protocols),
            "reason": reason,
            **({"clientExtensions": True} if extensions else {}),
        }
        return self.ask("JoinGroup", version, body, group=group, instance=instance, client=client, new_id=new_id)

    def sync(
        self,
        member: Member,
        assign: Mapping[str, bytes] | None = None,
        *,
        version: int = 5,
        generation: int | None = None,
        type_: str | None = "consumer",
        protocol: str | None = "range",
        more: Mapping[str, Any] | None = None,
    ) -> Asked:
        """SyncGroup; the leader's has the assignments by member id. ``more`` are fields that Kafka hasn't got."""
        body = {
            "groupId": member.group,
            "generationId": member.generation if generation is None else generation,
            "memberId": member.id,
            "groupInstanceId": member.instance,
            "protocolType": type_,
            "protocolName": protocol,
            "assignments": [{"memberId": id_, "assignment": base64(data)} for id_, data in (assign or {}).items()],
            **(more or {}),
        }
        return self.ask("SyncGroup", version, body, group=member.group)

    def heartbeat(self, member: Member, *, version: int = 4) -> Asked:
        body = {
            "groupId": member.group,
            "generationId": member.generation,
            "memberId": member.id,
            "groupInstanceId": member.instance,
        }
        return self.ask("Heartbeat", version, body, group=member.group)

    def leave(self, *members: Member, version: int = 5, group: str = G, reason: str | None = None) -> Asked:
        """LeaveGroup of one or more; before version 3 of one."""
        body = {
            "groupId": members[0].group if members else group,
            "memberId": members[0].id if members else "",
            "members": [{"memberId": m.id, "groupInstanceId": m.instance, "reason": reason} for m in members],
        }
        return self.ask("LeaveGroup", version, body)

    def commit(
        self,
        member: Member | None,
        offsets: Offsets,
        *,
        version: int = 9,
        group: str = G,
        metadata: str | None = "",
        retention_ms: int = -1,
    ) -> Asked:
        """OffsetCommit: of a member, or of somebody who uses no membership."""
        who = member or Member("", -1, None, group)
        topics = commit_topics(offsets, metadata)
        body = {
            "groupId": who.group,
            "generationIdOrMemberEpoch": who.generation,
            "memberId": who.id,
            "groupInstanceId": who.instance,
            "retentionTimeMs": retention_ms,
            "topics": topics,
        }
        return self.ask("OffsetCommit", version, body)

    def txn_commit(
        self, offsets: Offsets, *, producer: int = 100, member: Member | None = None, version: int = 5, group: str = G
    ) -> Asked:
        who = member or Member("", -1, None, group)
        body = {
            "transactionalId": f"tx-{producer}",
            "groupId": who.group,
            "producerId": producer,
            "producerEpoch": 0,
            "generationId": who.generation,
            "memberId": who.id,
            "groupInstanceId": who.instance,
            "topics": commit_topics(offsets, ""),
        }
        return self.ask("TxnOffsetCommit", version, body)

    def end_txn(self, *, committed: bool, producer: int = 100) -> None:
        self._seq += 1
        body = {"producerId": producer, "producerEpoch": 0, "committed": committed}
        self._hear(self.coordinator.control(self.now_ms, "EndTxn", body, str(self._seq)))

    def fetch(
        self,
        group: str = G,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        version: int = 9,
        stable: bool = False,
    ) -> Asked:
        """OffsetFetch of one group: of some partitions, or of all that have an offset."""
        topics = None if partitions is None else by_topic(partitions)
        one = {"groupId": group, "memberId": None, "memberEpoch": -1, "topics": topics}
        return self.ask("OffsetFetch", version, {**one, "groups": [one], "requireStable": stable})

    def fetched(self, group: str = G, *, stable: bool = False) -> dict[tuple[str, int], int]:
        """All committed offsets of a group."""
        (answer,) = self.fetch(group, stable=stable).body["groups"]
        return {
            (t["name"], p["partitionIndex"]): p["committedOffset"] for t in answer["topics"] for p in t["partitions"]
        }

    def delete_offsets(self, *partitions: tuple[str, int], group: str = G) -> Asked:
        topics = [
            {"name": topic["name"], "partitions": [{"partitionIndex": index} for index in topic["partitionIndexes"]]}
            for topic in by_topic(partitions)
        ]
        return self.ask("OffsetDelete", 0, {"groupId": group, "topics": topics})

    def delete_groups(self, *groups: str, version: int = 2) -> Asked:
        return self.ask("DeleteGroups", version, {"groupsNames": list(groups)})

    def describe_groups(self, *groups: str, version: int = 6) -> list[dict[str, Any]]:
        body = {"groups": list(groups), "includeAuthorizedOperations": False}
        described: list[dict[str, Any]] = self.ask("DescribeGroups", version, body).body["groups"]
        return described

    def list_groups(self, *, states: Sequence[str] = (), types: Sequence[str] = (), version: int = 5) -> list[str]:
        """The ids of the groups that ListGroups names, sorted."""
        asked = self.ask("ListGroups", version, {"statesFilter": list(states), "typesFilter": list(types)})
        return sorted(group["groupId"] for group in asked.body["groups"])

    # -- what is inside -----------------------------------------------------------------------------------------------

    def inside(self, group: str = G) -> dict[str, Any] | None:
        """A group as the coordinator holds it; None if it holds none of that name."""
        return next((g for g in self.coordinator.describe(self.now_ms) if g["groupId"] == group), None)

    def state(self, group: str = G) -> str | None:
        found = self.inside(group)
        return None if found is None else str(found["state"])

    def members(self, group: str = G) -> list[str]:
        found = self.inside(group)
        return [] if found is None else sorted(member["memberId"] for member in found["members"])

    def generation(self, group: str = G) -> int:
        found = self.inside(group)
        assert found is not None
        return int(found["generationId"])

    # -- groups that are ready ----------------------------------------------------------------------------------------

    def new_ids(self, count: int, **how: Any) -> list[str]:
        """Ids of members that asked to join and were sent back for it."""
        return [str(self.join(**how).body["memberId"]) for _ in range(count)]

    def joined(self, count: int = 1, *, instances: Sequence[str] = (), **how: Any) -> list[Member]:
        """A new group in CompletingRebalance: members that have joined and not synced, the leader first."""
        asked = [self.join(instance=instance, **how) for instance in instances]
        asked += [self.join(member, **how) for member in self.new_ids(count - len(instances), **how)]
        waited = 0
        while any(one.waits for one in asked):
            self.advance(1_000)
            waited += 1
            assert waited < 60, "the group doesn't form"
        members = [one.member for one in asked]
        return sorted(members, key=lambda member: member.id != member.leader)

    def stable(self, count: int = 1, *, instances: Sequence[str] = (), **how: Any) -> list[Member]:
        """A new group in Stable, the leader first. Everybody's assignment is ``for <member id>``."""
        members = self.joined(count, instances=instances, **how)
        self.synced(members, type_=how.get("type_", "consumer"), protocol=next(iter(how.get("protocols", ("range",)))))
        return members

    def synced(self, members: Sequence[Member], **how: Any) -> None:
        """All sync, the leader last."""
        leader = next(member for member in members if member.id == member.leader)
        waiting = [self.sync(member, **how) for member in members if member != leader]
        waiting.append(self.sync(leader, {member.id: b"for " + member.id.encode() for member in members}, **how))
        assert [one.error for one in waiting] == ["NONE"] * len(members)

    def keep_alive(self, members: Sequence[Member], ms: int, step_ms: int = 3_000) -> None:
        """Lets time pass while these members send heartbeats."""
        while ms > 0:
            step = min(step_ms, ms)
            self.advance(step)
            ms -= step
            for member in members:
                self.heartbeat(member)

    def _hear(self, outcome: Outcome) -> None:
        for answer in outcome.answers:
            assert answer.request_id not in self.answers, f"answered twice: {answer}"
            self.answers[answer.request_id or ""] = answer
        self.rejected += outcome.rejected
