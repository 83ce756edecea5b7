"""Members that don't keep to the protocol: a real member, and between it and the network what spoils its requests.

What such a member does to itself is its own affair; what it must not do is to harm others: a coordinator refuses what
isn't right, and removes who doesn't take part. So what must hold in every world holds for the members beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from msgspec.structs import replace

from coordinator_udf.members.classic import requests
from coordinator_udf.members.inputs import Disconnect, Input, Response, Tick
from coordinator_udf.members.machine import MemberMachine
from coordinator_udf.members.metadata import ConsumerMetadata
from coordinator_udf.members.outputs import Hangup, Output, Request
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.unchanged_heartbeat import unchanged_heartbeat
from coordinator_udf.simulation.plan import Habit

#: Requests that a member hasn't made itself have numbers from here on, which its own never reach.
_OWN_REQS = 1_000_000_000
#: Of so many generations a zombie still has the commits: its own last one and two before.
_KEPT_GENERATIONS = 3
#: For the requests of its own, in milliseconds: Kafka's request.timeout.ms.
_TIMEOUT_MS = 30_000
_HEARTBEAT_VERSION = 1
_COORDINATOR = "coordinator-"


def is_added(request: Request) -> bool:
    """Tells whether a request is none that the member itself has made."""
    return request.req >= _OWN_REQS


class Misbehaving:
    """A member of a habit (see `coordinator_udf.members.machine.MemberMachine`)."""

    def __init__(self, member: MemberMachine, group_id: str, habit: Habit, every_ms: int, draws: Random) -> None:
        """Makes one of a member that has done nothing yet.

        Args:
            every_ms: how often it does what it does besides being a member.
            draws: gives what it makes up.
        """
        self._member = member
        self._group_id = group_id
        self._habit = habit
        self._every_ms = every_ms
        self._draws = draws
        self._next_ms: int | None = None
        self._made = 0
        self._coordinator: str | None = None
        self._is_kip_848 = False
        self._joining: Request | None = None
        self._asked: dict[int, Request] = {}
        self._commits: dict[tuple[str, int], Request] = {}

    # ---- the machine

    @property
    def metadata(self) -> ConsumerMetadata | None:
        """What the member knows of the cluster."""
        return self._member.metadata

    @property
    def is_joining(self) -> bool:
        """Whether the member has begun to join, and its application hasn't been told yet of how that ended."""
        return self._member.is_joining

    def handle(self, now_ms: int, event: Input) -> list[Output]:
        """Takes an input and returns what comes of it, with what is left out, changed or added."""
        outputs: list[Output] = []
        if self._next_ms is None:
            self._next_ms = now_ms + self._every_ms
        if isinstance(event, Tick) and now_ms >= self._next_ms:
            self._next_ms = now_ms + self._every_ms
            outputs += self._extra()
        if isinstance(event, Disconnect):
            self._asked = {req: asked for req, asked in self._asked.items() if asked.to != event.node}
        if isinstance(event, Response):
            if event.req >= _OWN_REQS:
                return outputs
            event = replace(event, body=self._heard(self._asked.pop(event.req, None), event.body))
        for output in self._member.handle(now_ms, event):
            outputs += self._sent(output) if isinstance(output, Request) else [output]
            if isinstance(output, Hangup):
                self._coordinator = None
        return outputs

    def next_deadline_ms(self) -> int | None:
        """Returns the member's own deadline, or when it next does something besides."""
        own_ms = self._member.next_deadline_ms()
        if own_ms is None or self._next_ms is None:
            return self._next_ms if own_ms is None else own_ms
        return min(own_ms, self._next_ms)

    def call_deadline_ms(self) -> int | None:
        """Returns the member's own."""
        return self._member.call_deadline_ms()

    def poll_deadline_ms(self) -> int | None:
        """Returns the member's own."""
        return self._member.poll_deadline_ms()

    # ---- its requests

    def _sent(self, request: Request) -> Iterator[Request]:
        """Yields what goes out for a request of the member's."""
        if request.to.startswith(_COORDINATOR):
            self._coordinator = request.to
        self._is_kip_848 = self._is_kip_848 or request.api == "ConsumerGroupHeartbeat"
        self._asked[request.req] = request
        if request.api in {"JoinGroup", "ConsumerGroupHeartbeat"} and self._joining is None:
            self._joining = request
        if request.api == "OffsetCommit":
            body = request.body
            self._commits[body["memberId"], body["generationIdOrMemberEpoch"]] = request
            if len(self._commits) > _KEPT_GENERATIONS:
                self._commits.pop(next(iter(self._commits)))
        if self._habit is Habit.NEVER_SYNCS:
            if request.api == "SyncGroup":
                return
            if request.api == "ConsumerGroupHeartbeat" and request.body["memberEpoch"] > 0:
                request = replace(request, body={**request.body, "topicPartitions": None})
        yield request
        if self._habit is Habit.REPEATS:
            yield self._own(request.to, request.api, request.api_version, request.body)

    def _heard(self, asked: Request | None, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns what the member hears of an answer."""
        if self._habit is not Habit.DEAF or asked is None:
            return body
        if asked.api == "Heartbeat" and body["errorCode"] == Errors.REBALANCE_IN_PROGRESS:
            return {**body, "errorCode": Errors.NONE}
        if asked.api == "ConsumerGroupHeartbeat" and asked.body["memberEpoch"] > 0 and not body["errorCode"]:
            # As if it had been told the epoch that it has, and nothing new.
            return {**body, "memberEpoch": asked.body["memberEpoch"], "assignment": None}
        return body

    def _extra(self) -> Iterator[Request]:
        """Yields what goes out besides, from time to time."""
        if self._coordinator is None:
            return
        match self._habit:
            case Habit.FORGETFUL if self._joining is not None:
                nobody = {"memberId": self._drawn_id() if self._is_kip_848 else "", self._instance_field(): None}
                body = {**self._joining.body, **nobody}
                yield self._own(self._coordinator, self._joining.api, self._joining.api_version, body)
            case Habit.STRANGER:
                yield self._of_a_stranger(self._coordinator)
            case Habit.ZOMBIE:
                # The newest is its own, and may still hold.
                for commit in list(self._commits.values())[:-1]:
                    yield self._own(self._coordinator, commit.api, commit.api_version, commit.body)

    def _instance_field(self) -> str:
        return "instanceId" if self._is_kip_848 else "groupInstanceId"

    def _of_a_stranger(self, node: str) -> Request:
        member_id, generation = self._drawn_id(), self._draws.choice((1, 2, 3, 10, 2**31 - 1))
        topics = [
            {"name": "t", "partitions": [{"partitionIndex": 0, "committedOffset": 1, "committedLeaderEpoch": -1}]}
        ]
        builder = self._draws.choice(
            (
                requests.heartbeat(self._group_id, member_id, None, generation),
                requests.leave_group(self._group_id, member_id, "it was never here"),
                requests.offset_commit(self._group_id, member_id, None, generation, topics),
                requests.sync_group(
                    self._group_id,
                    member_id,
                    None,
                    generation,
                    protocol_type="consumer",
                    protocol_name="range",
                    assignments=[],
                    extensions={},
                ),
                None,
            )
        )
        if builder is None:
            body = unchanged_heartbeat(self._group_id, member_id, generation, _HEARTBEAT_VERSION)
            return self._own(node, "ConsumerGroupHeartbeat", _HEARTBEAT_VERSION, body)
        return self._own(node, builder.api, builder.latest_version, builder.body(builder.latest_version))

    def _drawn_id(self) -> str:
        return f"{self._draws.getrandbits(128):032x}"

    def _own(self, node: str, api: str, version: int, body: Mapping[str, Any]) -> Request:
        self._made += 1
        return Request(_OWN_REQS + self._made, node, api, version, _TIMEOUT_MS, body)
