"""What the requests and answers of one group tell of its members, in the estimated order of the log."""

from __future__ import annotations

import re
from base64 import b64decode
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from coordinator_udf.protocol.consumer_protocol import MalformedConsumerProtocol, decode_assignment
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.replay.explain.steps import Step
from coordinator_udf.replay.judge.compare import coordinator_error

#: Who gets one of these is a member.
_OF_MEMBERS = frozenset(
    {
        Errors.NONE,
        Errors.REBALANCE_IN_PROGRESS,
        Errors.ILLEGAL_GENERATION,
        Errors.FENCED_MEMBER_EPOCH,
        Errors.STALE_MEMBER_EPOCH,
    }
)
_MEMBER_APIS = frozenset({"Heartbeat", "SyncGroup", "JoinGroup", "OffsetCommit", "ConsumerGroupHeartbeat"})

#: How Kafka tells who a static member's instance id belongs to (ConsumerGroup.throwIfInstanceIdIsUnreleased).
_OWNER = re.compile(r"the instance id is owned by (\S+) member\.$")

#: Topic id -> partitions.
Partitions = dict[str, tuple[int, ...]]


class Told(NamedTuple):
    """One request with its answer.

    Attributes:
        place: the step's place in the estimated order of the log.
        at_ms: when it was handled by that order, in milliseconds.
        api: Kafka's name of it.
        member_id: who asked; empty where nobody is named.
        error: the answer's error code.
        epoch: the generation or member epoch that the request names, if any.
        request: its body, in Kafka's JSON field names.
        answer: the answer's.
        step: the step of the log that all this is of.
    """

    place: int
    at_ms: int
    api: str
    member_id: str
    error: int
    epoch: int | None
    request: dict[str, Any]
    answer: dict[str, Any]
    step: Step

    @property
    def comes(self) -> bool:
        """Tells whether the member may have come by this request, so that later ones say nothing of before."""
        if self.api == "ConsumerGroupHeartbeat":
            return self.epoch == 0
        return self.api == "JoinGroup" and not self.step.row["member_id"]

    @property
    def is_member(self) -> bool | None:
        """Tells whether who asked was a member then; None if the answer doesn't say."""
        if self.api not in _MEMBER_APIS or not self.member_id or self.epoch == -1:
            return None
        if self.error == Errors.UNKNOWN_MEMBER_ID:
            return False
        return True if self.error in _OF_MEMBERS else None


class Going(NamedTuple):
    """How a member goes that says nothing any more.

    Attributes:
        described: the step that describes it last, with the group's epoch then; None if none does.
        gone_ms: when it was first described as gone.
    """

    described: tuple[int, int] | None
    gone_ms: int


class GroupTold:
    """All requests of one group that were answered."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps

    @cached_property
    def all(self) -> list[Told]:
        """Reads the steps once and returns what was told, in the order of the steps."""
        return [told for step in self._steps if (told := _told(step)) is not None]

    @cached_property
    def has_consumers(self) -> bool:
        """Tells whether anybody asks as a member of KIP-848; else the group is never of that kind."""
        return any(told.api == "ConsumerGroupHeartbeat" for told in self.all)

    @cached_property
    def _consumers(self) -> frozenset[str]:
        return frozenset(told.member_id for told in self.all if told.api == "ConsumerGroupHeartbeat")

    def is_consumer(self, member_id: str) -> bool:
        """Tells whether a member asks as one of KIP-848."""
        return member_id in self._consumers

    @cached_property
    def _descriptions(self) -> dict[int, dict[str, Any]]:
        """Returns the group as each ConsumerGroupDescribe tells it, by the step's place."""
        return {
            told.place: group
            for told in self.all
            if told.api == "ConsumerGroupDescribe"
            for group in told.answer.get("groups") or ()
            if group.get("groupId") == told.step.group_id and group.get("errorCode") == Errors.NONE
        }

    @cached_property
    def _described(self) -> list[int]:
        """Returns the steps that describe the group."""
        return list(self._descriptions)

    def described_at(self, place: int) -> dict[str, Any] | None:
        """Returns the group as the ConsumerGroupDescribe of a step tells it, if it is one that tells it."""
        return self._descriptions.get(place)

    def described_member(self, member_id: str, place: int) -> tuple[dict[str, Any], str | None]:
        """Returns what the next ConsumerGroupDescribe says of a member, or else the last one, and the group's assignor.

        Nothing, and None, where none tells of the member.

        Args:
            place: the step from which on a description is the next.
        """
        first = bisect_left(self._described, place)
        later, before = self._described[first:], self._described[:first]
        for at in chain(later, reversed(before)):
            group = self._descriptions[at]
            for member in group.get("members") or ():
                if member.get("memberId") == member_id:
                    return member, group.get("assignorName") or None
        return {}, None

    @cached_property
    def _spoke(self) -> dict[str, list[int]]:
        """Returns the steps in which each member asks something, or is taken out."""
        found: dict[str, list[int]] = {}
        for told in self.all:
            leaving = (str(member.get("memberId")) for member in _leaving(told))
            for member_id in dict.fromkeys((told.member_id, *leaving)):
                found.setdefault(member_id, []).append(told.place)
        return found

    def goes(self, member_id: str, place: int) -> Going | None:
        """Returns how a member of a step goes that says nothing any more: it is described, and later it isn't."""
        spoke, described = self._spoke.get(member_id, ()), self._described
        next_spoke = bisect_left(spoke, place)
        until = spoke[next_spoke] if next_spoke < len(spoke) else len(self._steps)
        last: tuple[int, int] | None = None
        for at in described[bisect_left(described, place) : bisect_left(described, until)]:
            group = self._descriptions[at]
            if all(member.get("memberId") != member_id for member in group.get("members") or ()):
                return Going(last, self.all[self._number(at)].at_ms)
            last = at, group["groupEpoch"]
        return None

    @cached_property
    def instances(self) -> dict[str, str]:
        """Returns the instance ids that members name anywhere in the log, by member id."""
        named = ((told.member_id, told.request.get("instanceId")) for told in self.all)
        return {member_id: instance_id for member_id, instance_id in named if instance_id}

    def before(self, place: int) -> Iterator[Told]:
        """Yields what was told before a step, the last first."""
        return (self.all[number] for number in range(self._number(place) - 1, -1, -1))

    def since(self, place: int, until: int) -> list[Told]:
        """Returns what is told from the step ``place`` on, up to the step ``until``, which is left out."""
        return self.all[self._number(place) : self._number(until)]

    def _number(self, place: int) -> int:
        """Returns how much was told before a step."""
        return bisect_left(self.all, place, key=_place)

    def members_since(self, place: int, until: int) -> dict[str, bool]:
        """Returns for each member id whether it is a member at a step, as far as later answers tell."""
        found: dict[str, bool | None] = {}
        for told in self.since(place, until):
            if told.member_id in found:
                continue
            if told.comes:
                found[told.member_id] = None
            elif told.is_member is not None:
                found[told.member_id] = told.is_member
        return {member_id: said for member_id, said in found.items() if said is not None}

    def owners_since(self, place: int, until: int) -> dict[str, str]:
        """Returns for each instance id that is refused to others who has it at a step, by member id.

        That may be somebody who asks for nothing any more, whom only refusals name.
        """
        found: dict[str, str | None] = {}
        for told in self.since(place, until):
            instance_id = told.request.get("instanceId")
            if told.api != "ConsumerGroupHeartbeat" or not instance_id or instance_id in found:
                continue
            if told.error == Errors.UNRELEASED_INSTANCE_ID:
                owner = _OWNER.search(str(told.answer.get("errorMessage") or ""))
                found[instance_id] = owner[1] if owner is not None else None
            elif told.error == Errors.NONE:
                found[instance_id] = None
        return {instance_id: owner for instance_id, owner in found.items() if owner is not None}


def _place(told: Told) -> int:
    return told.place


def _leaving(told: Told) -> Sequence[dict[str, Any]]:
    """Returns the members that a LeaveGroup takes out."""
    return told.request.get("members") or () if told.api == "LeaveGroup" else ()


def _told(step: Step) -> Told | None:
    if step.answer is None:
        return None
    row, answer = step.row, step.answer.body
    request: dict[str, Any] = {} if row["body"] is None else msgspec.json.decode(row["body"])
    api = row["api"]
    member_id = row["member_id"] or ""
    if api in {"JoinGroup", "ConsumerGroupHeartbeat"}:
        member_id = member_id or str(answer.get("memberId") or "")
    error, epoch = coordinator_error(answer), row["generation_or_epoch"]
    return Told(step.place, step.natural_ms, api, member_id, error, epoch, request, answer, step)


def partitions_of(assignment: Any) -> Partitions:
    """Returns the partitions, by topic id, in an assignment of a ConsumerGroupHeartbeat or a ConsumerGroupDescribe."""
    topics = (assignment or {}).get("topicPartitions") or () if not isinstance(assignment, list) else assignment
    return {topic["topicId"]: tuple(sorted(topic["partitions"])) for topic in topics if topic["partitions"]}


def assigned_in(item: Told, topics: Mapping[str, Topic]) -> Partitions | None:
    """Returns the partitions, by topic id, that an answer assigns to its member; None if it says nothing of them.

    Args:
        topics: by name, those that there are.
    """
    assignment = item.answer.get("assignment")
    if item.api == "ConsumerGroupHeartbeat":
        return None if assignment is None else partitions_of(assignment)
    if item.api != "SyncGroup":
        return None
    try:
        by_name = decode_assignment(base64_bytes(assignment)).partitions
    except MalformedConsumerProtocol:
        return None
    return {topics[name].id: tuple(sorted(own)) for name, own in by_name.items() if own and name in topics}


def base64_bytes(text: Any) -> bytes:
    """Decodes a base64 text of the log; anything else, as in an answer that was changed, gives no bytes."""
    try:
        return b64decode(text or "", validate=True)
    except (ValueError, TypeError):
        return b""
