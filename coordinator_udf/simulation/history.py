"""What happened in a world, for its measures, its invariants and its tables. Times in milliseconds since the epoch."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from coordinator_udf.groups.decisions import PLACES, Decisions, Row
from coordinator_udf.members.inputs import Input, TopicPartition
from coordinator_udf.members.outputs import ClassicStateChange, StateChange
from coordinator_udf.simulation.noted import (
    CutShort,
    FatalError,
    GoesOn,
    NumberTaken,
    SentTooSeldom,
    SentWithoutCause,
    WronglyRefused,
)
from coordinator_udf.simulation.process_names import process_name

#: No commit is on its way for longer (request.timeout.ms): it is tried again within a second or so of its refusal.
_LONGEST_RETRY_MS = 30_000
_RECORD: Final = PLACES["records"]
#: As large a group as there may be if nobody says how large (the default of group.max.size).
NO_LIMIT: Final = 2**31 - 1


class ApplicationEvent(msgspec.Struct, frozen=True):
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
        return process_name(self.client_id, self.run)


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
        is_retry: whether a commit of its process had failed shortly before, in such a way that it is tried again.
    """

    ts_ms: int
    group_id: str
    partition: TopicPartition
    offset: int
    process: str
    is_late: bool = False
    is_retry: bool = False


@dataclass(frozen=True, slots=True)
class Waiting:
    """A process that waits.

    Attributes:
        for_lost_join: whether it is for the answer to a JoinGroup, which got lost, or which was never asked.
        since_ms: from when on.
    """

    group_id: str
    process: str
    for_lost_join: bool
    since_ms: int


class KnownMembership(msgspec.Struct, frozen=True):
    """What a process's member knows of its membership from a time on.

    Attributes:
        after: how many events there were before.
        number: the generation or epoch; none above 0 if it has no membership.
        is_stable: whether it takes part in that, and doesn't only know of it.
    """

    ts_ms: int
    after: int
    group_id: str
    process: str
    member_id: str
    number: int
    is_stable: bool


class Removed(msgspec.Struct, frozen=True):
    """The end of a membership by the coordinator's timers or an administrator.

    Timers remove members that were silent or missed a phase of a rebalance.

    Attributes:
        number: the group's generation or epoch by then: no membership that ended with it has a higher one.
    """

    ts_ms: int
    member_id: str
    number: int


class Replaced(Removed, frozen=True):
    """The end of a membership because another process joined with its instance id.

    Attributes:
        by_api: the API by which it did.
    """

    group_id: str
    by_api: str


class TurnedAway(msgspec.Struct, frozen=True):
    """A process that was told that its group is full (GROUP_MAX_SIZE_REACHED).

    Attributes:
        member_id: the one with which it asked; empty if it had none.
        instance_id: its group.instance.id; None if it has none.
    """

    ts_ms: int
    group_id: str
    process: str
    member_id: str
    instance_id: str | None


class WrittenRecord(NamedTuple):
    """A record that the coordinator wrote to its log.

    Attributes:
        member_id: whose it is; None for one of a whole group.
        value: what it says; None: it takes back what those before it said.
    """

    ts_ms: int
    group_id: str
    record_type: str
    member_id: str | None
    value: Any


class Unsettled(msgspec.Struct, frozen=True):
    """A time in which a process that was there was not stable, or closed."""

    group_id: str
    process: str
    since_ms: int
    until_ms: int


@dataclass(slots=True)
class History:
    """All that happened in a world, in order.

    Attributes:
        start_ms: from when on it counts; some of its events may be from before.
        requests: how many requests of each API came to the coordinator.
        answered: the answered requests, where the plan wants them kept.
        commits: the last acknowledged commit of each group's partitions.
        overtaken: acknowledged commits, each with the one of a lower offset that was acknowledged after it.
        lost: commits that the coordinator took and means to acknowledge, and hasn't got later.
        retention_ms: how long the coordinator keeps commits at least while their topics are there.
        deleted: when which topics were deleted.
        refused: when which group's commits were refused, be it one partition of them.
        failed_commit_ms: when a process's commit last failed in such a way that its member tries it again: a topic was
            gone, or the connection of a KIP-848 member got lost.
        waiting: the processes that in the end are neither settled nor gone.
        decisions: what the coordinator decided, in order.
        decided_by_each: the same, of each of its shards.
        process_of: the process that had a member id.
        removals: whom the coordinator's timers removed.
        numbers_taken: which requests of generations and epochs that were over the coordinator took.
        wrongly_refused: which requests of members it refused as if they weren't theirs.
        not_told_fenced: which requests of replaced static members it refused otherwise than for that.
        sent_without_cause: which requests members sent without cause.
        sent_too_seldom: which requests they hadn't sent for too long.
        standstill_ms: when the world ended because all went on at one time; None if it came to its end.
        fatal_errors: which members were told an error that is to end them.
        polls_within_ms: within which time the processes poll that poll all the time.
        going_on: which requests members sent after an error that should have ended them.
        cut_short: whom they removed for being silent that wasn't.
        subscribed: what processes subscribed to last.
        misbehaving: the processes that don't keep to the protocol.
        cooperative: the classic ones that can't but rebalance cooperatively.
        kip_848: the processes whose members are of KIP-848.
        accepted_ms: when the last request came that the coordinator took from a member id, in worlds of static members.
        dismissals: whom administrators removed.
        asked_to_remove: when administrators asked for that, and in which group.
        replacements: which static members others of their instances replaced.
        made_again: when which topics were made again that had been deleted: they are others, of the same name.
        turned_away: who was told that its group is full.
        classic_max_size, consumer_max_size: how many members a group of either type may have.
        memberships: what members knew of their memberships, each time that changed.
        unsettled: the times in which processes were not stable, those excepted that aren't over.
        topic_names: of all topics that there were, by their ids.
        lost_joins: when processes gave up waiting for the answer to a JoinGroup that got lost.
        quiet_from_ms: when all that the plan has in store was over.
        quiet_ms: how long members may take to be stable from then on; None: up to the end.
        loses_connections: whether connections get lost at random, up to the end.
        short_polls: the groups that may wait for members whose polls are too short for their pattern.
        poll_intervals_ms: max.poll.interval.ms of each process.
        longest_stays_ms: for how long processes may be in their groups from when on their applications stand still.
        rebalance_timeouts_ms: how long a phase of a rebalance may take in each group, where that can be told.
        leave_on_close: the processes that leave their groups when they close, and nothing keeps them from that.
        always_heard: the processes of which nothing gets lost or late, and that keep to the protocol.
        commits_first_ms: how old the last commit of processes may be that are to give partitions up.
        committed_ms: when commits of each of these were acknowledged.
        longest_session_ms, shortest_session_ms: the longest and the shortest session that its classic members may have.
        even_groups: the groups whose members are to have equal shares, with whether of each topic.
        with_static_members: the groups that have static members.
        known_partitions: how many partitions of each topic a process knows of at the end, however old its metadata is.
    """

    start_ms: int
    end_ms: int
    partitions: dict[str, int]
    events: list[ApplicationEvent] = field(default_factory=list)
    requests: dict[str, int] = field(default_factory=dict)
    answered: list[AnsweredRequest] = field(default_factory=list)
    commits: dict[tuple[str, TopicPartition], Commit] = field(default_factory=dict)
    overtaken: list[tuple[Commit, Commit]] = field(default_factory=list)
    lost: list[Commit] = field(default_factory=list)
    retention_ms: int = 0
    deleted: list[tuple[int, str]] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)
    failed_commit_ms: dict[str, int] = field(default_factory=dict)
    waiting: list[Waiting] = field(default_factory=list)
    decisions: list[Decisions] = field(default_factory=list)
    decided_by_each: list[list[Decisions]] = field(default_factory=list)
    process_of: dict[str, str] = field(default_factory=dict)
    removals: list[Removed] = field(default_factory=list)
    numbers_taken: list[NumberTaken] = field(default_factory=list)
    wrongly_refused: list[WronglyRefused] = field(default_factory=list)
    not_told_fenced: list[WronglyRefused] = field(default_factory=list)
    sent_without_cause: list[SentWithoutCause] = field(default_factory=list)
    sent_too_seldom: list[SentTooSeldom] = field(default_factory=list)
    standstill_ms: int | None = None
    fatal_errors: list[FatalError] = field(default_factory=list)
    polls_within_ms: dict[str, int] = field(default_factory=dict)
    going_on: list[GoesOn] = field(default_factory=list)
    cut_short: list[CutShort] = field(default_factory=list)
    subscribed: dict[str, Input] = field(default_factory=dict)
    misbehaving: frozenset[str] = frozenset()
    cooperative: frozenset[str] = frozenset()
    kip_848: frozenset[str] = frozenset()
    accepted_ms: dict[str, int] = field(default_factory=dict)
    dismissals: list[Removed] = field(default_factory=list)
    asked_to_remove: set[tuple[int, str]] = field(default_factory=set)
    replacements: list[Replaced] = field(default_factory=list)
    made_again: list[tuple[int, str]] = field(default_factory=list)
    turned_away: list[TurnedAway] = field(default_factory=list)
    classic_max_size: int = NO_LIMIT
    consumer_max_size: int = NO_LIMIT
    memberships: list[KnownMembership] = field(default_factory=list)
    unsettled: list[Unsettled] = field(default_factory=list)
    lost_joins: list[tuple[int, str]] = field(default_factory=list)
    quiet_from_ms: int = 0
    quiet_ms: int | None = None
    loses_connections: bool = False
    short_polls: frozenset[str] = frozenset()
    poll_intervals_ms: dict[str, int] = field(default_factory=dict)
    longest_stays_ms: dict[str, int] = field(default_factory=dict)
    rebalance_timeouts_ms: dict[str, int] = field(default_factory=dict)
    leave_on_close: frozenset[str] = frozenset()
    always_heard: frozenset[str] = frozenset()
    commits_first_ms: dict[str, int] = field(default_factory=dict)
    committed_ms: dict[str, set[int]] = field(default_factory=dict)
    longest_session_ms: int = 0
    shortest_session_ms: int = 0
    even_groups: dict[str, bool] = field(default_factory=dict)
    with_static_members: frozenset[str] = frozenset()
    known_partitions: dict[str, dict[str, int]] = field(default_factory=dict)
    topic_names: Mapping[str, str] = field(default_factory=dict)
    _known: dict[str, tuple[str, int, bool]] = field(default_factory=dict)
    _unsettled_since_ms: dict[str, int] = field(default_factory=dict)

    @property
    def limits_sizes(self) -> bool:
        """Whether groups have a greatest size."""
        return min(self.classic_max_size, self.consumer_max_size) < NO_LIMIT

    def take(self, event: ApplicationEvent) -> None:
        """Takes note of something that an application did or was told."""
        self.events.append(event)
        if event.event == "start":
            self.failed_commit_ms.pop(event.process, None)
        if event.event in {"start", "close"}:
            self.settles(event.ts_ms, event.group_id, event.process, is_settled=False)

    def records(self, record_types: Collection[str]) -> Iterator[WrittenRecord]:
        """Yields the records of some types, in the order of the log."""
        for decided in self.decisions:
            for row in decided.records:
                if row[_RECORD["record_type"]] in record_types:
                    ts_ms, group_id, record_type, member_id, body = (
                        row[_RECORD[name]] for name in ("ts", "group_id", "record_type", "member_id", "body")
                    )
                    value = None if body is None else json.loads(body)
                    yield WrittenRecord(ts_ms, group_id, record_type, member_id, value)

    def transitions(self) -> Iterator[Row]:
        """Yields what the coordinator told of the states of groups and of who came and went, in order."""
        for decided in self.decisions:
            yield from decided.transitions

    def was_told(self, process: str, events: Collection[str], since_ms: int) -> bool:
        """Tells whether one of some kinds of events came to a process since a time, in milliseconds."""
        for event in reversed(self.events):
            if event.ts_ms < since_ms:
                return False
            if event.process == process and event.event in events:
                return True
        return False

    def refuses_commits(self, group_id: str, since_ms: int, until_ms: int) -> bool:
        """Tells whether a commit of a group was refused in a time, in milliseconds."""
        return any(group == group_id and since_ms <= ts_ms <= until_ms for ts_ms, group in self.refused)

    def membership_at(self, process: str, ts_ms: int) -> KnownMembership | None:
        """Returns what a process's member knew of its membership at a time; None if it knew of none yet."""
        return next((one for one in reversed(self.memberships) if one.process == process and one.ts_ms <= ts_ms), None)

    def is_another(self, topic: str, before_ms: int, ts_ms: int) -> bool:
        """Tells whether a topic is another one at a time than it was before, for it was made again."""
        return any(name == topic and before_ms < at_ms <= ts_ms for at_ms, name in self.made_again)

    def learns(self, ts_ms: int, group_id: str, process: str, state: StateChange) -> None:
        """Takes note of what is true of a process's member from now on."""
        if state.member_id:
            self.process_of[state.member_id] = process
        number = state.generation_id if isinstance(state, ClassicStateChange) else state.member_epoch
        known = state.member_id, number, state.state == "STABLE"
        if self._known.get(process) != known:
            self._known[process] = known
            self.memberships.append(KnownMembership(ts_ms, len(self.events), group_id, process, *known))

    def is_stable(self, process: str) -> bool:
        """Tells whether a process's member takes part in its generation or epoch now."""
        return self._known.get(process, ("", 0, False))[2]

    def settles(self, ts_ms: int, group_id: str, process: str, *, is_settled: bool) -> None:
        """Takes note of whether a process is stable from now on, or gone, or not."""
        if not is_settled:
            self._unsettled_since_ms.setdefault(process, ts_ms)
            return
        since_ms = self._unsettled_since_ms.pop(process, ts_ms)
        if since_ms < ts_ms:
            self.unsettled.append(Unsettled(group_id, process, since_ms, ts_ms))

    def unsettled_since_ms(self, process: str) -> int:
        """Returns from when on a process has not been stable; the end, if it is."""
        return self._unsettled_since_ms.get(process, self.end_ms)

    def acknowledge(self, commit: Commit) -> None:
        """Takes note of a commit that was acknowledged."""
        before = self.commits.get((commit.group_id, commit.partition))
        if before is not None and commit.offset < before.offset:
            failed_ms = self.failed_commit_ms.get(commit.process)
            is_retry = failed_ms is not None and commit.ts_ms - failed_ms <= _LONGEST_RETRY_MS
            self.overtaken.append((before, msgspec.structs.replace(commit, is_retry=is_retry)))
        self.commits[commit.group_id, commit.partition] = commit
        if commit.process in self.commits_first_ms:
            self.committed_ms.setdefault(commit.process, set()).add(commit.ts_ms)

    def count(self, api: str, number: int = 1) -> None:
        """Counts requests."""
        self.requests[api] = self.requests.get(api, 0) + number
