"""What a group's events mean for its partitions: how long they had no owner, and how often they moved.

A partition has an owner while some process that was told that it is assigned has not been told that it is revoked or
lost, was not killed and has not closed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from coordinator_udf.groups.decisions import PLACES, Decisions, Row
from coordinator_udf.groups.model.classic_states import GroupEvent
from coordinator_udf.groups.model.timers import JOIN, REBALANCE, SESSION, SYNC
from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.simulation.history import ApplicationEvent, History, Removed, Replaced
from coordinator_udf.simulation.ownership import Owners

_TRANSITION = PLACES["transitions"]
_RECORD = PLACES["records"]
#: The timers that remove members: of those of whom nothing was heard, and of those that are late with their part of a
#: rebalance (to join, to send SyncGroup, to give partitions up).
_REMOVING_TIMERS = frozenset({SESSION, REBALANCE, JOIN, SYNC})
#: The end of what is said when a static member is replaced.
BEFORE = re.compile(", before member (.+)$")
#: Events after which a process reads nothing more, and those that take partitions from it.
ENDS = frozenset({"close", "closed", "crash"})
_TAKES = frozenset({"revoked", "lost"})


#: A group's partitions, each with when it came to be, in milliseconds since the epoch.
Born = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Measures:
    """What happened to a group in a span of time.

    Attributes:
        rebalances: generations that were formed, or epochs of a group of type consumer.
        unowned_s: seconds without an owner, summed over partitions.
        moves: partitions that were assigned to another client than the last one; of several worlds maybe their mean.
        expulsions: how often the coordinator's timers removed a member: its session was over, or it was late with its
            part of a rebalance.
    """

    rebalances: int
    unowned_s: float
    moves: float
    expulsions: int


def measured(history: History, group_id: str, partitions: Born, span: tuple[int, int]) -> Measures:
    """Measures one group of a world in a span of milliseconds since the epoch."""
    events = [event for event in history.events if event.group_id == group_id]
    return Measures(
        rebalances=sum(span[0] <= ts_ms <= span[1] for ts_ms in rebalance_times(history.decisions, group_id)),
        unowned_s=unowned_ms(events, partitions, span) / 1000,
        moves=sum(span[0] <= ts_ms <= span[1] for ts_ms in move_times(events)),
        expulsions=sum(span[0] <= ts_ms <= span[1] for ts_ms in expulsion_times(history.decisions, group_id)),
    )


def rebalance_times(decisions: Iterable[Decisions], group_id: str) -> list[int]:
    """Returns when a group's join phases were complete with members in it, and when its epochs were bumped."""
    times: list[int] = []
    epoch = 0
    for decided in decisions:
        times += [
            row[_TRANSITION["ts"]]
            for row in decided.transitions
            if row[_TRANSITION["group_id"]] == group_id and row[_TRANSITION["to_state"]] == "CompletingRebalance"
        ]
        for row in decided.records:
            if row[_RECORD["group_id"]] == group_id and row[_RECORD["record_type"]] == "ConsumerGroupMetadata":
                value = row[_RECORD["body"]]
                bumped = 0 if value is None else json.loads(value)["epoch"]
                if bumped > epoch:
                    times.append(row[_RECORD["ts"]])
                epoch = bumped
    return times


def expulsion_times(decisions: Iterable[Decisions], group_id: str) -> list[int]:
    """Returns when the coordinator's timers removed members, once for each time that one was removed.

    A member of KIP-848 keeps its id, so one that was removed may come back and be removed again.
    """
    return sorted(ts_ms for ts_ms, _ in {(one.ts_ms, one.member_id) for one in removals(decisions, group_id)})


def removals(decisions: Iterable[Decisions], group_id: str | None = None) -> list[Removed]:
    """Returns whom the coordinator's timers removed, of one group or of all."""
    return [
        _removed(row)
        for decided in decisions
        for row in decided.transitions
        if group_id in {None, row[_TRANSITION["group_id"]]}
        and row[_TRANSITION["cause_timer"]] in _REMOVING_TIMERS
        and row[_TRANSITION["cause_member_id"]] is not None
        # Those that say who is in the group tell of what that did to it.
        and row[_TRANSITION["members"]] is None
    ]


def _removed(row: Row) -> Removed:
    return Removed(*(row[_TRANSITION[name]] for name in ("ts", "cause_member_id", "generation")))


def replacements(decisions: Iterable[Decisions]) -> list[Replaced]:
    """Returns which static members were replaced by others of their instances."""
    return [
        Replaced(
            row[_TRANSITION["ts"]],
            found[1],
            row[_TRANSITION["generation"]],
            row[_TRANSITION["group_id"]],
            row[_TRANSITION["cause_api"]],
        )
        for decided in decisions
        for row in decided.transitions
        if row[_TRANSITION["rule"]] == GroupEvent.STATIC_MEMBER_REPLACED
        and (found := BEFORE.search(row[_TRANSITION["reason"]])) is not None
    ]


def dismissals(decisions: Iterable[Decisions], asked: Collection[tuple[int, str]]) -> list[Removed]:
    """Returns whom administrators removed; ``asked``: when they asked for it, and in which group."""
    return [
        _removed(row)
        for decided in decisions
        for row in decided.transitions
        if row[_TRANSITION["cause_api"]] == "LeaveGroup"
        and row[_TRANSITION["rule"]] == GroupEvent.MEMBER_LEFT
        and row[_TRANSITION["members"]] is None
        and (row[_TRANSITION["ts"]], row[_TRANSITION["group_id"]]) in asked
    ]


def conclude(
    history: History,
    topic_names: Mapping[str, str],
    decisions: list[Decisions],
    of_each_shard: list[list[Decisions]],
) -> None:
    """Puts what a world's coordinator decided into its history, and whose memberships ended with it.

    Args:
        topic_names: of all topics that there were, by their ids.
    """
    history.topic_names = topic_names
    history.decisions, history.decided_by_each = decisions, of_each_shard
    history.removals = removals(decisions)
    history.replacements = replacements(decisions)
    history.dismissals = dismissals(decisions, history.asked_to_remove)


def unowned_ms(events: Sequence[ApplicationEvent], partitions: Born, span: tuple[int, int]) -> int:
    """Returns the milliseconds without an owner in a span, summed over partitions."""
    return sum(unowned_each_ms(events, partitions, span).values())


def unowned_each_ms(
    events: Sequence[ApplicationEvent], partitions: Born, span: tuple[int, int]
) -> dict[TopicPartition, int]:
    """Returns the milliseconds without an owner in a span, of each partition from when it came to be."""
    owners = Owners()
    start_ms, end_ms = span
    last_ms, found = start_ms, dict.fromkeys(partitions, 0)

    def pass_until(now_ms: int) -> None:
        if now_ms > last_ms:
            for partition in found:
                if not owners.of(partition):
                    found[partition] += max(now_ms - max(last_ms, partitions[partition]), 0)

    for event in events:
        now_ms = min(max(event.ts_ms, start_ms), end_ms)
        pass_until(now_ms)
        last_ms = now_ms
        owners.take(event)
    pass_until(end_ms)
    return found


def stopped_each_ms(events: Sequence[ApplicationEvent], span: tuple[int, int]) -> dict[str, int]:
    """Returns for how many milliseconds of a span each client's processes stood.

    A process stands from its start, or from when it was told that all it had is revoked or lost, until it is told what
    it is assigned (be it nothing), or ends. One that stalls with its partitions doesn't.
    """
    owners = Owners()
    found = {event.client_id: 0 for event in events}
    since: dict[str, ApplicationEvent] = {}
    ended: set[str] = set()
    for event in events:
        owners.take(event)
        if event.event == "start":
            ended.discard(event.process)
        elif event.event in ENDS:
            ended.add(event.process)
        has_none = event.event in _TAKES and not owners.owned_by(event.process)
        if event.process not in ended and (event.event == "start" or has_none):
            since.setdefault(event.process, event)
        elif event.event == "assigned" or event.event in ENDS:
            begun = since.pop(event.process, event)
            found[event.client_id] += _within(begun.ts_ms, event.ts_ms, span)
    for begun in since.values():
        found[begun.client_id] += _within(begun.ts_ms, span[1], span)
    return found


def _within(begun_ms: int, ended_ms: int, span: tuple[int, int]) -> int:
    """Returns how much of a time lies in a span."""
    return max(min(ended_ms, span[1]) - max(begun_ms, span[0]), 0)


def move_times(events: Iterable[ApplicationEvent]) -> list[int]:
    """Returns when partitions were assigned to another client than the one that last had them."""
    last: dict[TopicPartition, str] = {}
    times: list[int] = []
    for event in events:
        if event.event == "assigned":
            for partition in event.partitions:
                if last.setdefault(partition, event.client_id) != event.client_id:
                    times.append(event.ts_ms)
                    last[partition] = event.client_id
    return times
