"""What happened in a world, for its measures, its invariants and its tables. Times in milliseconds since the epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from coordinator_udf.groups.decisions import Decisions
from coordinator_udf.members.inputs import TopicPartition


class MemberEvent(msgspec.Struct, frozen=True):
    """Something that a member's application did or was told.

    Attributes:
        event: start, assigned, revoked, lost, stall, resume, close, closed, crash or error.
    """

    ts_ms: int
    group_id: str
    client_id: str
    run: int
    event: str
    partitions: tuple[TopicPartition, ...] = ()
    detail: str | None = None

    @property
    def process(self) -> str:
        """The process's name, as its plan has it."""
        return f"{self.client_id}/{self.run}"


class AnsweredRequest(msgspec.Struct, frozen=True):
    """A request of a process as its coordinator had it, with the answer. Times in milliseconds since the epoch."""

    process: str
    group_id: str
    api: str
    arrived_ms: int
    answered_ms: int
    request: Mapping[str, Any]
    response: Mapping[str, Any]


class Commit(msgspec.Struct, frozen=True):
    """A committed offset that was acknowledged.

    Attributes:
        ts_ms: in milliseconds since the epoch.
        is_late: whether its process had given up the connection on which it came.
    """

    ts_ms: int
    group_id: str
    partition: TopicPartition
    offset: int
    process: str
    is_late: bool = False


@dataclass(frozen=True, slots=True)
class Waiting:
    """A process that waits.

    Attributes:
        for_lost_join: whether it is for the answer to a JoinGroup, which got lost, or which was never asked.
    """

    group_id: str
    process: str
    for_lost_join: bool


@dataclass(slots=True)
class History:
    """All that happened in a world, in order.

    Attributes:
        start_ms: from when on it counts; some of its events may be from before.
        requests: how many requests of each API came to the coordinator.
        answered: the answered requests, where the plan wants them kept.
        commits: the last acknowledged commit of each group's partitions.
        overtaken: acknowledged commits, each with the one of a lower offset that was acknowledged after it.
        lost: acknowledged commits that are not there in the end.
        refused: when which group's commits were refused, be it one partition of them.
        waiting: the processes that in the end are neither settled nor gone.
        decisions: what the coordinator decided.
        process_of: the process that had a member id.
        removals: when the coordinator removed which member id, for it was silent or missed a phase of a rebalance.
        subscribed: the topics that a group's members want.
        misbehaving: the processes that don't keep to the protocol.
    """

    start_ms: int
    end_ms: int
    partitions: dict[str, int]
    events: list[MemberEvent] = field(default_factory=list)
    requests: dict[str, int] = field(default_factory=dict)
    answered: list[AnsweredRequest] = field(default_factory=list)
    commits: dict[tuple[str, TopicPartition], Commit] = field(default_factory=dict)
    overtaken: list[tuple[Commit, Commit]] = field(default_factory=list)
    lost: list[Commit] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)
    decisions: list[Decisions] = field(default_factory=list)
    process_of: dict[str, str] = field(default_factory=dict)
    removals: list[tuple[int, str]] = field(default_factory=list)
    subscribed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    misbehaving: frozenset[str] = frozenset()

    def acknowledge(self, commit: Commit) -> None:
        """Takes note of a commit that was acknowledged."""
        before = self.commits.get((commit.group_id, commit.partition))
        if before is not None and commit.offset < before.offset:
            self.overtaken.append((before, commit))
        self.commits[commit.group_id, commit.partition] = commit

    def count(self, api: str, number: int = 1) -> None:
        """Counts requests."""
        self.requests[api] = self.requests.get(api, 0) + number
