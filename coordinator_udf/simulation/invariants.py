"""What must hold in every world, and where it didn't.

A partition has one owner at a time, as far as the protocols promise it: a member that is cut off or stalled may believe
to own what the coordinator has given to another once its session is over, so an owner that the coordinator has removed
doesn't count, nor one whose application stands still. Nor does a member break a promise that is given partitions after
it was removed, and before it heard of it: it finishes what it had been told before.

A commit that was acknowledged stays, until one of a higher offset is: applications read on from what is committed, so
only a process that doesn't know that its partitions are another's could commit less.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from coordinator_udf.groups.decisions import COLUMNS
from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.simulation.history import History, MemberEvent
from coordinator_udf.simulation.ownership import Ownership

_RECORD = {name: place for place, name in enumerate(COLUMNS["records"])}
#: What records call the number that only rises, by their type.
_RISING = {"GroupMetadata": "generation", "ConsumerGroupMetadata": "epoch"}
#: A classic member waits for the lost answer to its JoinGroup as long as a rebalance may take.
LOST_JOIN = "lost join"
#: A member's application isn't told of all partitions that it has lost.
KEPT_UNAWARES = "kept unawares"
#: A commit of a connection that its member has given up comes after one of the next connection.
LATE_COMMIT = "late commit"
#: What follows from Kafka's protocol and clients as they are (docs/scenarios.md shows how).
KAFKAS_OWN = frozenset({LOST_JOIN, KEPT_UNAWARES, LATE_COMMIT})


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must not be. ``ts_ms`` is in milliseconds since the epoch."""

    ts_ms: int
    group_id: str
    kind: str
    detail: str


def violations(history: History) -> list[Violation]:
    """Returns what must not be in a world, in the order of time."""
    found = [
        *_two_owners(history),
        *_falling_numbers(history),
        *_commits(history),
        *_unsettled(history),
        *_waiting(history),
    ]
    return sorted(found, key=lambda violation: violation.ts_ms)


def _two_owners(history: History) -> Iterator[Violation]:
    owners: dict[str, Ownership] = defaultdict(Ownership)
    excused: set[str] = set()
    removals = iter(sorted(history.removals))
    removal = next(removals, None)
    for event in history.events:
        process = event.process
        while removal is not None and removal[0] <= event.ts_ms:
            excused.add(history.process_of.get(removal[1], ""))
            removal = next(removals, None)
        if event.event == "stall":
            excused.add(process)
        if event.event in {"lost", "resume"}:
            # It has heard what happened to it, and counts again.
            excused.discard(process)
        if event.event == "assigned":
            for partition in event.partitions:
                others = sorted(owners[event.group_id].of(partition) - {process} - excused)
                if others and process not in excused:
                    detail = (
                        f"{partition.topic}-{partition.partition} was given to {process} and is {', '.join(others)}'s"
                    )
                    yield Violation(event.ts_ms, event.group_id, "two owners", detail)
        if event.event == "lost":
            yield from _kept_unawares(event, owners[event.group_id])
        owners[event.group_id].take(event)


def _kept_unawares(event: MemberEvent, owners: Ownership) -> Iterator[Violation]:
    """Yields what a member loses without its application being told of it."""
    kept = sorted(owners.owned_by(event.process) - set(event.partitions))
    if kept:
        names = ", ".join(f"{partition.topic}-{partition.partition}" for partition in kept)
        detail = f"{event.process} is not told that it lost {names} with its other partitions"
        yield Violation(event.ts_ms, event.group_id, KEPT_UNAWARES, detail)


def _falling_numbers(history: History) -> Iterator[Violation]:
    last: dict[tuple[str, str], int] = {}
    for said in history.decisions:
        for row in said.records:
            group_id, kind, body = (row[_RECORD[name]] for name in ("group_id", "record_type", "body"))
            if kind not in _RISING:
                continue
            if body is None:
                # The group is deleted, or of another type from now on, and a new one begins anew.
                last.pop((group_id, kind), None)
                continue
            number = json.loads(body)[_RISING[kind]]
            if number < last.get((group_id, kind), number):
                detail = f"{_RISING[kind]} {number} after {last[group_id, kind]}"
                yield Violation(row[_RECORD["ts"]], group_id, "falling number", detail)
            last[group_id, kind] = number


def _commits(history: History) -> Iterator[Violation]:
    """Yields commits that were acknowledged, and overtaken by one of an earlier owner or lost."""
    for before, after in history.overtaken:
        if before.process == after.process and after.process in history.misbehaving:
            # It harms itself: the partition is its own.
            continue
        where = f"{after.partition.topic}-{after.partition.partition}"
        detail = (
            f"{after.process} committed {after.offset} of {where} after {before.process} had committed {before.offset}"
        )
        is_own = after.is_late and before.process == after.process
        yield Violation(after.ts_ms, after.group_id, LATE_COMMIT if is_own else "overtaken commit", detail)
    for commit in history.lost:
        where = f"{commit.partition.topic}-{commit.partition.partition}"
        detail = f"offset {commit.offset} of {where}, which {commit.process} committed, is not there at the end"
        yield Violation(history.end_ms, commit.group_id, "lost commit", detail)


def _waiting(history: History) -> Iterator[Violation]:
    for one in history.waiting:
        if one.for_lost_join:
            detail = f"{one.process} still waits for the answer to a JoinGroup that got lost"
            yield Violation(history.end_ms, one.group_id, LOST_JOIN, detail)
        else:
            detail = f"{one.process} waits at the end, long after the last fault"
            yield Violation(history.end_ms, one.group_id, "waiting", detail)


def _unsettled(history: History) -> Iterator[Violation]:
    """Yields the partitions that have no owner, or several, at a world's end."""
    owners: dict[str, Ownership] = defaultdict(Ownership)
    groups: dict[str, set[str]] = defaultdict(set)
    for event in history.events:
        if event.event == "start":
            groups[event.group_id].add(event.process)
        elif event.event in {"crash", "close", "closed"}:
            groups[event.group_id].discard(event.process)
        owners[event.group_id].take(event)
    for group_id, alive in groups.items():
        if alive:
            yield from _badly_owned(history, group_id, owners[group_id], history.subscribed.get(group_id, ()))


def _badly_owned(history: History, group_id: str, owners: Ownership, topics: Iterable[str]) -> Iterator[Violation]:
    for topic in topics:
        for number in range(history.partitions.get(topic, 0)):
            names = owners.of(TopicPartition(topic, number))
            if len(names) != 1:
                detail = f"{topic}-{number} has {len(names)} owners at the end ({', '.join(sorted(names)) or 'none'})"
                yield Violation(history.end_ms, group_id, "unsettled", detail)
