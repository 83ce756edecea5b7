"""A member that can compute its group's assignment (KIP-848's client-side mode)."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.settings.file import topic_id
from tests.groups.bodies import base64
from tests.groups.consumer_member import SETTINGS, Consumer
from tests.groups.harness import Asked, World

CLIENT_SIDE = {**SETTINGS, "group.consumer.client.assignors.enable": True}

#: An assignment by member id and topic name.
Plan = Mapping[str, Mapping[str, Sequence[int]]]


def assignor(
    name: str = "turns", *, least: int = 0, most: int = 1, reason: int = 0, version: int = 1, metadata: bytes = b""
) -> dict[str, Any]:
    """An element of ClientAssignors."""
    return {
        "name": name,
        "minimumVersion": least,
        "maximumVersion": most,
        "reason": reason,
        "metadataVersion": version,
        "metadata": base64(metadata),
    }


def in_turns(prepared: Mapping[str, Any]) -> dict[str, dict[str, list[int]]]:
    """Assigns all partitions in order to the members in turn, each of those that are subscribed to the topic."""
    plan: dict[str, dict[str, list[int]]] = {member["memberId"]: {} for member in prepared["members"]}
    for topic in prepared["topics"]:
        wanting = sorted(m["memberId"] for m in prepared["members"] if topic["topicId"] in m["subscribedTopicIds"])
        for partition in range(topic["numPartitions"]):
            member = wanting[partition % len(wanting)]
            plan[member].setdefault(topic["topicName"], []).append(partition)
    return plan


class Computing(Consumer):
    """One client with assignors. It computes when `compute` is called and not by itself."""

    def __init__(
        self, world: World, id_: str, *args: Any, assignors: Sequence[Any] = (assignor(),), **how: Any
    ) -> None:
        super().__init__(world, id_, *args, **how)
        self.wishes["clientAssignors"] = list(assignors)
        self._asked = False
        self.error = 0
        self.metadata: tuple[int, bytes] | None = None

    def _hear(self, asked: Asked) -> Asked:
        before = self.epoch
        super()._hear(asked)
        if self.epoch != before:
            # An error is of the assignment that it was told with.
            self.error = 0
        self._asked = asked.body.get("shouldComputeAssignment", False)
        assignment = asked.body["assignment"] or {}
        self.error = assignment.get("error", 0) if assignment else self.error
        if "metadataVersion" in assignment:
            self.metadata = assignment["metadataVersion"], b64decode(assignment.get("metadata", ""))
        return asked

    def is_asked(self) -> bool:
        """Whether the last answer told the member to compute."""
        return self._asked

    def prepare(self, epoch: int | None = None) -> Asked:
        body = {"groupId": self.group, "memberId": self.id, "memberEpoch": self.epoch if epoch is None else epoch}
        return self.world.ask("ConsumerGroupPrepareAssignment", 0, body, group=self.group)

    def install(
        self,
        plan: Plan,
        group_epoch: int,
        *,
        error: int = 0,
        epoch: int | None = None,
        metadata: Mapping[str, bytes] | None = None,
    ) -> Asked:
        told = metadata or {}
        members = [
            {
                "memberId": member_id,
                "partitions": [
                    {"topicId": topic_id(name) if len(name) != 22 else name, "partitions": list(parts)}
                    for name, parts in topics.items()
                ],
                "metadataVersion": 1 if member_id in told else -1,
                "metadata": base64(told.get(member_id, b"")),
            }
            for member_id, topics in plan.items()
        ]
        body = {
            "groupId": self.group,
            "memberId": self.id,
            "memberEpoch": self.epoch if epoch is None else epoch,
            "groupEpoch": group_epoch,
            "error": error,
            "members": members,
        }
        return self.world.ask("ConsumerGroupInstallAssignment", 0, body, group=self.group)

    def compute(self, assign: Callable[[Mapping[str, Any]], Plan] = in_turns) -> Asked:
        """Prepares, runs an assignor and installs; returns the answer to the latter."""
        prepared = self.prepare()
        assert error_of(prepared) == "NONE"
        return self.install(assign(prepared.body), prepared.body["groupEpoch"])


def error_of(asked: Asked) -> str:
    return Errors(asked.body["errorCode"]).name


def settle_computing(*members: Consumer, rounds: int = 8) -> None:
    """Heartbeats, and computes where it is asked for, until everybody has what it shall have."""
    for _ in range(rounds):
        for member in members:
            assert member.beat().error == "NONE"
            if isinstance(member, Computing) and member.is_asked():
                assert error_of(member.compute()) == "NONE"
