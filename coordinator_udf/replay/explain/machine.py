"""One group's part of a shard, on its own: it can be put back to where it was, and timers fire when they are told to.

Groups of a shard don't see each other, so a group behaves alone as among the others. What happens to the shard as a
whole (topics, loading, the end of a transaction) is told to each group.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from coordinator_udf.groups.consumer.change import METADATA_REFRESH_INTERVAL_MS
from coordinator_udf.groups.consumer.regex import MIN_REFRESH_INTERVAL_MS
from coordinator_udf.groups.context import LogEntry
from coordinator_udf.groups.model.classic import ClassicGroup
from coordinator_udf.groups.model.consumer import ConsumerGroup, ResolvedRegex
from coordinator_udf.groups.model.offsets import CommittedOffset, OffsetStore, TopicOffsets
from coordinator_udf.groups.model.timers import (
    DATA,
    DEADLINE,
    JOIN,
    KEY,
    SEQ,
    SESSION,
    SYNC,
    Timer,
    TimerKey,
    Timers,
)
from coordinator_udf.groups.store import Group, GroupStore, SeenTwice
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.protocol.placeholders import fill_placeholders
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.apis import Availability
from coordinator_udf.shard.control_rows import loaded_assignments
from coordinator_udf.shard.sessions.columns import SessionColumns
from coordinator_udf.shard.shard import Shard

#: From this time after a resolution on expressions may be resolved again.
_REGEX_INTERVAL_MS = MIN_REFRESH_INTERVAL_MS + 1
#: The timers of a member of the classic protocol.
_PUT_OFF = frozenset({SESSION, JOIN, SYNC})

_encode = msgspec.msgpack.Encoder().encode
_decode_groups = msgspec.msgpack.Decoder(dict[str, Group]).decode
_decode_committed = msgspec.msgpack.Decoder(dict[str, dict[str, dict[int, CommittedOffset]]]).decode
_decode_pending = msgspec.msgpack.Decoder(dict[int, dict[str, dict[str, dict[int, CommittedOffset]]]]).decode

#: An answer: the request's id and its body as JSON.
Given = tuple[str, str]


def control_row(partition: int, at_ms: int, api: str, body: str) -> Request:
    """A row that is put between those of the log."""
    return Request(partition, 0, at_ms, None, api, 0, body=body)


class Written(NamedTuple):
    """What a shard's log got at one time, and before that."""

    before: Written | None
    entries: tuple[LogEntry, ...]


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
    resolving: dict[str, dict[str, ResolvedRegex]]

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


class GroupMachine:
    """A shard that has one group."""

    def __init__(self, partition: int, settings: Settings, *, keep_log: bool) -> None:
        """A group that nobody has heard of.

        Args:
            partition: the group's shard.
            settings: of the coordinator.
            keep_log: whether records are kept, for the shard to be loaded again.
        """
        self._shard = Shard(partition, settings, keep_log=keep_log)
        self._assignments: dict[int, dict[str, bytes]] = {}
        #: The shard's log, whose own list has nothing but while it is loaded: this goes back and forth without a copy.
        self._log: Written | None = None
        self._interval_ms = settings.group_consumer_assignment_interval_ms

    @property
    def now_ms(self) -> int:
        """The time up to which the group has been brought."""
        return self._shard.ctx.now_ms

    @property
    def timer_number(self) -> int:
        """The number that the timer armed next will have."""
        return self._shard.ctx.timers.next_seq

    # -- what happens ---------------------------------------------------------------------------------------------

    def handle(self, row: Request) -> list[Given]:
        """Handles one row at its time, and timers that it armed without a delay; the answers that came of it.

        Raises:
            PoisonRow: a handler raised; the state is then undefined.
        """
        if row.api == "LoadGroup" and row.body is not None:
            offset, assignments = loaded_assignments(row.body)
            self._assignments[offset] = assignments
        if row.api == "Failover" and self._shard.log is not None:
            self._shard.log[:] = self._written()
            self._shard.handle_row(row, 0)
            self._shard.log.clear()
        else:
            self._shard.handle_row(row, 0)
        return self._take()

    def _written(self) -> list[LogEntry]:
        """All that the log has, in order."""
        parts = []
        written = self._log
        while written is not None:
            parts.append(written.entries)
            written = written.before
        return [entry for entries in reversed(parts) for entry in entries]

    def adopt(self, body: str) -> list[Given]:
        """Puts the group in the state that the body of a row AdoptGroup tells; the answers that came of it.

        Raises:
            PoisonRow: the state can't be.
        """
        self._shard.handle_row(control_row(self._shard.partition, self.now_ms, "AdoptGroup", body), 0)
        return self._take()

    def delay(self, api: str, body: str) -> None:
        """Lets something come later, as the body of a row DelayTimers, DelayRegexes or KeepTimer tells."""
        self._shard.handle_row(control_row(self._shard.partition, self.now_ms, api, body), 0)

    def may_resolve(self, at_ms: int) -> bool:
        """Whether so much time has passed at a moment that regular expressions may be resolved again."""
        groups = (group for group in self._shard.store.groups.values() if isinstance(group, ConsumerGroup))
        newest = (next(iter(group.resolved_regexes.values()), None) for group in groups)
        return all(found is None or at_ms > found.timestamp + MIN_REFRESH_INTERVAL_MS for found in newest)

    @property
    def has_regexes(self) -> bool:
        """Whether a member is subscribed by a regular expression."""
        groups = (group for group in self._shard.store.groups.values() if isinstance(group, ConsumerGroup))
        return any(member.subscribed_topic_regex for group in groups for member in group.members.values())

    @property
    def is_resolving(self) -> bool:
        """Whether it is known what regular expressions match, but not told to the group yet."""
        return bool(self._shard.ctx.resolving)

    def timers_put_off(self, member_id: str, since_ms: int, until_ms: int) -> list[tuple[str, int]]:
        """Returns kinds and deadlines of a member's timers that are due after a time and by another.

        They are those that Kafka puts off once the records are written of what the member asked: of members of the
        classic protocol in a consumer group.
        """
        if not any(isinstance(group, ConsumerGroup) for group in self._shard.store.groups.values()):
            return []
        return [
            (entry[KEY].kind, entry[DEADLINE])
            for entry in self._shard.ctx.timers.as_objects()
            if entry[KEY].member_id == member_id
            and entry[KEY].kind in _PUT_OFF
            and since_ms < entry[DEADLINE] <= until_ms
        ]

    def due_by(self, at_ms: int) -> list[tuple[int, int]]:
        """Deadlines (ms) and numbers of the timers that are due by a time, in the order in which they fire."""
        return sorted((e[DEADLINE], e[SEQ]) for e in self._shard.ctx.timers.as_objects() if e[DEADLINE] <= at_ms)

    def fire(self, deadline_ms: int) -> list[Given]:
        """Fires the timers that are due at the next deadline; the answers that came of it.

        Raises:
            PoisonRow: a handler raised; the state is then undefined.
        """
        self._shard.run_timers(deadline_ms, 0)
        return self._take()

    def next_timer(self) -> tuple[int, int]:
        """Deadline (ms) and number of the timer that is due next; a deadline that never comes if none is armed."""
        return self._shard.ctx.timers.peek()

    def intervals(self) -> list[tuple[int, int]]:
        """Begin and length (ms) of intervals after which the group answers otherwise for no other reason."""
        found: list[tuple[int, int]] = []
        for group in self._shard.store.groups.values():
            if not isinstance(group, ConsumerGroup):
                continue
            if group.assignment_timestamp and self._interval_ms:
                found.append((group.assignment_timestamp, self._interval_ms))
            if group.metadata_refresh_ms:
                found.append((group.metadata_refresh_ms - METADATA_REFRESH_INTERVAL_MS, METADATA_REFRESH_INTERVAL_MS))
            found += {(resolved.timestamp, _REGEX_INTERVAL_MS) for resolved in group.resolved_regexes.values()}
        return found

    def _take(self) -> list[Given]:
        decided = self._shard.ctx.decisions
        for _, _, _, _, member_id, offset, payload in decided.assignments:
            self._assignments.setdefault(offset, {})[member_id] = payload
        log = self._shard.log
        if log:
            self._log = Written(self._log, tuple(log))
            log.clear()
        given = [(row[2], self._filled(row[9], row[10])) for row in decided.responses if row[2] is not None]
        for rows in decided.by_kind().values():
            rows.clear()
        return given

    def _filled(self, body: str, refs: str | None) -> str:
        return (
            body if refs is None else fill_placeholders(body, lambda offset, member: self._assignments[offset][member])
        )

    # -- what the group is ----------------------------------------------------------------------------------------

    def group(self, group_id: str) -> Group | None:
        """A copy of a group; None if it isn't there."""
        return self.copy_of(self._shard.store.get(group_id))

    @staticmethod
    def copy_of(group: Group | None) -> Group | None:
        """A copy that may be changed."""
        return None if group is None else _decode_groups(_encode({"": group}))[""]

    def assignments(self, group_id: str) -> dict[str, bytes]:
        """What the members of a classic group are assigned, as far as they are."""
        group = self._shard.store.get(group_id)
        if not isinstance(group, ClassicGroup):
            return {}
        return {
            member_id: self._assignments[ref.record_offset][ref.assigned_as]
            for member_id, member in group.members.items()
            if (ref := member.assignment) is not None and ref.size
        }

    def offsets(self, group_id: str) -> TopicOffsets:
        """A copy of what a group has committed."""
        committed = self._shard.store.offsets.committed.get(group_id, {})
        return {topic: dict(partitions) for topic, partitions in committed.items()}

    def timers(self, group_id: str) -> list[Timer]:
        """A group's timers."""
        return [timer for timer in self._shard.ctx.timers.in_order() if timer.key.group_id == group_id]

    def waiting(self, group_id: str) -> set[str]:
        """The requests that wait in a classic group."""
        group = self._shard.store.get(group_id)
        if not isinstance(group, ClassicGroup):
            return set()
        parked = (parked for m in group.members.values() for parked in (m.awaiting_join, m.awaiting_sync))
        return {waits.request_id for waits in parked if waits is not None and waits.request_id is not None}

    @property
    def topics(self) -> dict[str, Topic]:
        """The topics that there are."""
        return self._shard.ctx.topics

    # -- there and back -------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """What `restore` brings back."""
        shard = self._shard
        ctx, store = shard.ctx, shard.store
        timers = tuple((e[DEADLINE], e[SEQ], e[KEY], e[DATA]) for e in ctx.timers.as_objects())
        return Snapshot(
            _encode(store.groups),
            _encode(store.offsets.committed),
            _encode(store.offsets.pending),
            timers,
            ctx.timers.next_seq,
            ctx.now_ms,
            ctx.end_offset,
            ctx.next_seq,
            ctx.topics,
            ctx.topics_version,
            ctx.new_topics_version,
            dict(store.unlogged_ends),
            store.seen_twice,
            shard.availability,
            shard.started,
            self._log,
            dict(ctx.resolving),
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Puts the group back to where it was when the snapshot was made."""
        shard, ctx = self._shard, self._shard.ctx
        offsets = OffsetStore()
        offsets.committed = _decode_committed(snapshot.committed)
        offsets.pending = _decode_pending(snapshot.pending)
        shard.store = GroupStore(_decode_groups(snapshot.groups), offsets)
        shard.store.unlogged_ends = dict(snapshot.unlogged_ends)
        shard.store.seen_twice = snapshot.seen_twice
        shard.hot.clear()
        shard.session_columns = SessionColumns(shard.hot)
        ctx.timers = Timers(shard.session_columns, snapshot.next_timer_seq)
        for timer in snapshot.timers:
            ctx.timers.set(Timer(*timer))
        ctx.now_ms, ctx.end_offset, ctx.next_seq = snapshot.now_ms, snapshot.end_offset, snapshot.next_seq
        ctx.topics = snapshot.topics
        ctx.topics_version, ctx.new_topics_version = snapshot.topics_version, snapshot.new_topics_version
        ctx.resolving = dict(snapshot.resolving)
        ctx.reverted_to = None
        if ctx.appended is not None:
            ctx.appended.clear()
        for rows in ctx.decisions.by_kind().values():
            rows.clear()
        shard.availability, shard.started = snapshot.availability, snapshot.started
        self._log = snapshot.log
