"""Finds the partitions that have not one owner at a world's end."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

import re2

from coordinator_udf.members.inputs import Subscribe, SubscribePattern, SubscribeRegex, TopicPartition
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.ownership import Owners
from coordinator_udf.simulation.violation import Violation

#: Of each group the processes that live, and who owns what.
LivingOwners = Mapping[str, tuple[AbstractSet[str], Owners]]


def unsettled(history: History, living: LivingOwners, without_place: AbstractSet[str]) -> Iterator[Violation]:
    """Yields the partitions that have no owner, or several, at a world's end.

    Args:
        living: as living_owners returns them.
        without_place: the processes whose group is full: what only they want needs no owner.
    """
    # Whoever waits for a lost answer has what it had, for it hasn't heard that it is another's; that is told by itself.
    # So has who was put out of a full group, and polls on.
    lost = frozenset(one.process for one in history.waiting if one.for_lost_join) | without_place
    # Nor does anybody have what was given to one that isn't told that it has joined.
    untold = {one.group_id for one in history.waiting} & history.short_polls
    for group_id, (alive, owners) in living.items():
        wanted = {topic for process in alive - without_place for topic in wanted_topics(history, process)}
        known = [history.known_partitions[process] for process in sorted(alive) if process in history.known_partitions]
        if group_id in untold:
            known.append({})
        yield from _badly_owned(history, group_id, owners, sorted(wanted), known=known, lost=lost)


def living_owners(history: History) -> LivingOwners:
    """Returns of each group the processes that live at a world's end, and who owns what."""
    groups: dict[str, tuple[set[str], Owners]] = defaultdict(lambda: (set(), Owners()))
    for event in history.events:
        alive, owners = groups[event.group_id]
        if event.event == "start":
            alive.add(event.process)
        elif event.event in {"crash", "close", "closed"}:
            alive.discard(event.process)
        owners.take(event)
    return groups


def wanted_topics(history: History, process: str) -> set[str]:
    """Returns the topics of those that there are at the end that a process has subscribed to."""
    match history.subscribed.get(process):
        case Subscribe(topics):
            return {topic for topic in topics if topic in history.partitions}
        case SubscribePattern(pattern):
            return {topic for topic in history.partitions if re.fullmatch(pattern, topic)}
        case SubscribeRegex(pattern):
            return {topic for topic in history.partitions if re2.fullmatch(pattern, topic)}
        case _:
            return set()


def _badly_owned(
    history: History,
    group_id: str,
    owners: Owners,
    topics: Iterable[str],
    *,
    known: Collection[Mapping[str, int]],
    lost: frozenset[str],
) -> Iterator[Violation]:
    """Yields the partitions of topics that haven't one owner.

    Args:
        known: how many partitions members know of that may have old metadata: those that came since need no owner yet.
        lost: the processes that wait for the lost answer to a JoinGroup, and those without a place.
    """
    for topic in topics:
        known_by_all = min((of_one.get(topic, 0) for of_one in known), default=history.partitions[topic])
        for number in range(history.partitions[topic]):
            names = owners.of(TopicPartition(topic, number))
            if len(names - lost) > 1 or (not names and number < known_by_all):
                detail = f"{topic}-{number} has {len(names)} owners at the end ({', '.join(sorted(names)) or 'none'})"
                yield Violation(history.end_ms, group_id, "unsettled", detail)
