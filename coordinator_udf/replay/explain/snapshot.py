"""Where one group's part of a shard is, as it is kept to go back there, and what its groups tell. Data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from coordinator_udf.groups.consumer.change import METADATA_REFRESH_INTERVAL_MS
from coordinator_udf.groups.consumer.regex import MIN_REFRESH_INTERVAL_MS
from coordinator_udf.groups.context import LogEntry
from coordinator_udf.groups.model.consumer import ConsumerGroup, ResolvedRegex
from coordinator_udf.groups.model.timers import TimerKey
from coordinator_udf.groups.store import Group, SeenTwice
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.shard.apis import Availability

#: From this time after a resolution on expressions may be resolved again.
_REGEX_INTERVAL_MS = MIN_REFRESH_INTERVAL_MS + 1


class Written(NamedTuple):
    """What a shard's log got at one time, and before that."""

    before: Written | None
    entries: tuple[LogEntry, ...]


class Assigned(NamedTuple):
    """What the members were assigned by a record of the offsets topic, and by those before."""

    before: Assigned | None
    offset: int
    payloads: dict[str, bytes]


class Snapshot(NamedTuple):
    """All that a group is, and all that its further course depends on."""

    groups: bytes
    committed: bytes
    pending: bytes
    timers: tuple[tuple[int, int, TimerKey, tuple[int, ...]], ...]
    next_timer_seq: int
    now_ms: int
    end_offset: int
    next_seq: int
    topics: dict[str, Topic]
    topics_version: int
    new_topics_version: int
    unlogged_ends: dict[str, tuple[int, Group]]
    seen_twice: SeenTwice
    availability: Availability
    started: bool
    log: Written | None
    assigned: Assigned | None
    resolving: dict[str, dict[str, ResolvedRegex]]

    def handles_alike(self) -> tuple[Any, ...]:
        """What two snapshots have in common after which the same happens, to the last number, whatever comes next.

        What they refer to has to be kept as long as this.
        """
        told_later = tuple((group_id, *resolved.items()) for group_id, resolved in self.resolving.items())
        head = self.assigned
        assigned = None if head is None else (head.offset, *head.payloads.items(), id(head.before))
        kept = self.seen_twice, id(self.log), assigned
        numbers = self.next_timer_seq, self.end_offset, self.next_seq, self.topics_version, self.new_topics_version
        ends = tuple((name, id(end)) for name, end in self.unlogged_ends.items())
        return *self.kept(), self.timers, numbers, kept, ends, self.availability, self.started, told_later

    def key(self, until_ms: int) -> tuple[Any, ...]:
        """What two snapshots have in common that behave alike up to a time, in milliseconds.

        Numbers given to timers and outputs don't count, nor do timers that are due later.
        """
        timers = tuple((deadline, key, data) for deadline, _, key, data in self.timers if deadline <= until_ms)
        told_later = tuple(tuple(resolved.items()) for resolved in self.resolving.values())
        return (self.now_ms, *self.kept(), timers, told_later, self.topics_version, self.availability)

    def kept(self) -> tuple[bytes, bytes, bytes]:
        """What is on record: groups, committed offsets, and those of transactions."""
        return self.groups, self.committed, self.pending


class ToldBySnapshot(NamedTuple):
    """What a snapshot's groups tell: of consumer groups whether there is one, and what depends on the time."""

    is_consumer: bool
    intervals: list[tuple[int, int]]
    resolved_ms: list[int]
    has_regexes: bool


def told_by(groups: Iterable[Group], interval_ms: int) -> ToldBySnapshot:
    """Returns what groups tell.

    Args:
        interval_ms: the least time between two assignments of a consumer group; 0 for none.
    """
    consumers = [group for group in groups if isinstance(group, ConsumerGroup)]
    intervals: list[tuple[int, int]] = []
    for group in consumers:
        if group.assignment_timestamp and interval_ms:
            intervals.append((group.assignment_timestamp, interval_ms))
        if group.metadata_refresh_ms:
            intervals.append((group.metadata_refresh_ms - METADATA_REFRESH_INTERVAL_MS, METADATA_REFRESH_INTERVAL_MS))
        intervals += ((resolved.timestamp, _REGEX_INTERVAL_MS) for resolved in group.resolved_regexes.values())
    newest = (next(iter(group.resolved_regexes.values()), None) for group in consumers)
    return ToldBySnapshot(
        bool(consumers),
        list(dict.fromkeys(intervals)),
        [found.timestamp for found in newest if found is not None],
        any(member.subscribed_topic_regex for group in consumers for member in group.members.values()),
    )
