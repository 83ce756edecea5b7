"""A classic member with an application and a coordinator of its own; what it promises is checked all the time."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from coordinator_udf.members import inputs, outputs
from coordinator_udf.members.classic.member import ClassicMember
from coordinator_udf.members.cluster_view import ClusterView, TopicView
from coordinator_udf.members.config import MemberConfig
from coordinator_udf.members.inputs import CallbackError, TopicPartition

START_MS = 1_700_000_000_000
TIMES_MS = {
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 2_000,
    "max.poll.interval.ms": 9_000,
    "auto.commit.interval.ms": 1_000,
    "request.timeout.ms": 5_000,
    "retry.backoff.ms": 100,
    "retry.backoff.max.ms": 800,
    "metadata.max.age.ms": 4_000,
}

#: The fields of a JoinGroup answer that brings an error.
FAILED_JOIN: dict[str, Any] = {"generationId": -1, "protocolName": None, "leader": "", "memberId": "", "members": []}


class OneMemberCoordinator:
    """Answers as Kafka's coordinator would whose group has this one member."""

    def __init__(self) -> None:
        self.generation = 0
        self.member_id = ""
        self._assignment = ""
        self._ids = 0

    def answer(self, request: outputs.Request) -> dict[str, Any]:
        """Returns the good answer, or the error that the member has earned."""
        body = request.body
        match request.api:
            case "FindCoordinator":
                return {"coordinators": [{"key": "g", "nodeId": 0, "errorCode": 0, "host": "h", "port": 1}]}
            case "JoinGroup":
                return self._join(body)
            case "OffsetCommit":
                error = self._error(body["memberId"], body["generationIdOrMemberEpoch"])
                return commit_answer(request, error)
            case "LeaveGroup":
                self.member_id = ""
                return {"errorCode": 0, "members": []}
            case "SyncGroup":
                error = self._error(body["memberId"], body["generationId"])
                for assignment in body["assignments"]:
                    self._assignment = assignment["assignment"]
                return {"errorCode": error, "assignment": "" if error else self._assignment}
            case _:
                return {"errorCode": self._error(body["memberId"], body["generationId"])}

    def _join(self, body: Mapping[str, Any]) -> dict[str, Any]:
        if not body["memberId"]:
            self._ids += 1
            self.member_id = f"m-{self._ids}"
            return {**FAILED_JOIN, "errorCode": 79, "memberId": self.member_id}
        if body["memberId"] != self.member_id:
            return {**FAILED_JOIN, "errorCode": 25}
        self.generation += 1
        chosen = body["protocols"][0]
        return {
            "errorCode": 0,
            "generationId": self.generation,
            "protocolType": "consumer",
            "protocolName": chosen["name"],
            "leader": self.member_id,
            "memberId": self.member_id,
            "members": [{"memberId": self.member_id, "metadata": chosen["metadata"]}],
        }

    def _error(self, member_id: str, generation: int) -> int:
        if member_id != self.member_id:
            return 25
        return 0 if generation == self.generation else 22


def commit_answer(request: outputs.Request, error: int) -> dict[str, Any]:
    """Returns an answer to a commit that has this error for each partition."""
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    {"partitionIndex": partition["partitionIndex"], "errorCode": error}
                    for partition in topic["partitions"]
                ],
            }
            for topic in request.body["topics"]
        ]
    }


class World:
    """A member, the time, the network, the cluster and the application.

    Attributes:
        held: the partitions that the application was given and has not had to give back.
        in_flight: the requests that wait for an answer.
        held_at_lookup: what the application held when it made calls that may commit, by the lookup of the coordinator
            that such a commit waits for.
    """

    def __init__(self, strategy: str, *, auto_commit: bool = True, static: bool = False) -> None:
        properties = {
            "group.id": "g",
            **TIMES_MS,
            "partition.assignment.strategy": strategy,
            "enable.auto.commit": auto_commit,
            **({"group.instance.id": "i0"} if static else {}),
        }
        self.now_ms = START_MS
        self.member = ClassicMember(MemberConfig.parse(properties), lambda: 1.0, fetches=False)
        self._commits_itself = auto_commit
        self.coordinator = OneMemberCoordinator()
        self.partitions = {"t0": 3, "t1": 2}
        self.held: set[TopicPartition] = set()
        self.in_flight: dict[int, outputs.Request] = {}
        self.held_at_lookup: dict[int, list[frozenset[TopicPartition]]] = {}
        self.callback: str | None = None
        self.wants_metadata = False
        self.calls_under_way = 0
        self.state: outputs.ClassicStateChange | None = None
        self.errors: list[outputs.ErrorRaised] = []
        self.give(inputs.Tick())

    # ---- what happens

    def give(self, event: inputs.Input) -> None:
        """Gives the member an input, and checks what it does."""
        held = frozenset(self.held)
        for output in self.member.handle(self.now_ms, event):
            self._check(output)
        self._remember_waiting(event, held)

    def call(self, event: inputs.Input) -> None:
        """Makes a call, if the application isn't in one."""
        if self.callback is None and self.member.call_deadline_ms() is None:
            self.give(event)

    def end_callback(self, *, throws: bool = False) -> None:
        """Ends the running callback, after a seek to each partition that it brought."""
        method, self.callback = self.callback, None
        assert method is not None
        error = CallbackError("IllegalStateException", "it was to throw") if throws else None
        self.give(inputs.CallbackDone(method, error))

    def answer(self, req: int, body: Mapping[str, Any] | None = None) -> None:
        """Answers a request, well unless a body is given."""
        request = self.in_flight.pop(req)
        self.give(inputs.Response(req, self.coordinator.answer(request) if body is None else body))

    def disconnect(self, node: str) -> None:
        """Loses a connection."""
        self.in_flight = {req: request for req, request in self.in_flight.items() if request.to != node}
        self.give(inputs.Disconnect(node))

    def give_metadata(self) -> None:
        """Answers the metadata request."""
        self.wants_metadata = False
        topics = {name: TopicView(name, f"{name:A<22}", count) for name, count in self.partitions.items()}
        self.give(inputs.Metadata(ClusterView((0, 1), topics)))

    def pass_time(self, duration_ms: int) -> None:
        """Lets time pass; the member is ticked when it wants to, and requests time out."""
        end_ms = self.now_ms + duration_ms
        for _ in range(10_000):
            due_ms = self.member.next_deadline_ms()
            if due_ms is None or due_ms > end_ms:
                break
            before = self.now_ms
            self.now_ms = max(due_ms, self.now_ms)
            self.give(inputs.Tick())
            again = self.member.next_deadline_ms()
            assert again is None or again > before, "a tick must move the deadline on"
        else:
            raise AssertionError("the member wants ticks without end")
        self.now_ms = end_ms

    # ---- what is promised

    def _check(self, output: outputs.Output) -> None:
        match output:
            case outputs.Request():
                self.in_flight[output.req] = output
                if output.api == "OffsetCommit":
                    self._check_commit(output)
            case outputs.Hangup(_, reqs):
                for req in reqs:
                    self.in_flight.pop(req, None)
            case outputs.MetadataRequest():
                self.wants_metadata = True
            case outputs.Callback(method, partitions):
                self._check_callback(method, set(partitions))
            case outputs.ClassicStateChange():
                self.state = output
            case outputs.ErrorRaised():
                self.errors.append(output)
            case _:
                pass

    def _check_commit(self, request: outputs.Request) -> None:
        committed = partitions_of(request)
        # Kafka fixes what an asynchronous commit commits when it is called, and sends it once the coordinator is found
        # (ConsumerCoordinator.commitOffsetsAsync).
        waited = [held for each in self.held_at_lookup.values() for held in each]
        assert any(committed <= held for held in (self.held, *waited)), "a commit for a partition that it has lost"

    def _remember_waiting(self, event: inputs.Input, held: frozenset[TopicPartition]) -> None:
        """Remembers what a commit may be made of that waits for a lookup; forgets it when that is over."""
        lookups = [req for req, request in self.in_flight.items() if request.api == "FindCoordinator"]
        if self.callback is None:
            # Answers that come while a callback runs are taken after it.
            self.held_at_lookup = {req: each for req, each in self.held_at_lookup.items() if req in lookups}
        by_itself = self._commits_itself and isinstance(event, inputs.Poll | inputs.CallbackDone)
        if lookups and (by_itself or isinstance(event, inputs.CommitAsync)):
            self.held_at_lookup.setdefault(max(lookups), []).append(held)

    def _check_callback(self, method: str, partitions: set[TopicPartition]) -> None:
        assert self.callback is None, "two callbacks at once"
        self.callback = method
        if method == "onPartitionsAssigned":
            assert not partitions & self.held, "assigned again without being revoked"
            self.held |= partitions
            self.give(inputs.Seek(dict.fromkeys(partitions, 7)))
        else:
            assert partitions <= self.held, "revoked or lost without being assigned"
            self.held -= partitions

    # ---- the way back

    def heal(self, bound_ms: int) -> None:
        """Answers all well from now on, and polls; the member must be stable within the bound."""
        deadline_ms = self.now_ms + bound_ms
        while not self.is_well():
            assert self.now_ms < deadline_ms, f"still {self.state} after {bound_ms} ms; {self.errors[-3:]}"
            self.pass_time(50)
            for _ in range(20):
                if self.callback is not None:
                    self.end_callback()
                elif self.wants_metadata:
                    self.give_metadata()
                elif self.in_flight:
                    self.answer(min(self.in_flight))
                else:
                    break
            self.call(inputs.Poll())

    def heal_until_callback(self, method: str) -> None:
        """Answers all well and polls until this callback runs."""
        for _ in range(200):
            if self.callback == method:
                return
            if self.callback is not None:
                self.end_callback()
            for req in list(self.in_flight):
                self.answer(req)
            self.call(inputs.Poll())
            self.pass_time(50)
        raise AssertionError(f"no {method}")

    def is_well(self) -> bool:
        """Tells whether the member is in its group with all partitions that it should have."""
        state = self.state
        if state is None or state.state != "STABLE" or state.rejoin_needed or self.callback is not None:
            return False
        return not self.in_flight and not self.wants_metadata and self.held == set(state.assignment) != set()


def partitions_of(commit: outputs.Request) -> set[TopicPartition]:
    """Returns what an OffsetCommit commits of."""
    return {
        TopicPartition(topic["name"], partition["partitionIndex"])
        for topic in commit.body["topics"]
        for partition in topic["partitions"]
    }


def encode(data: bytes) -> str:
    """Bytes as they stand in JSON."""
    return base64.b64encode(data).decode()
