"""One group's part of a shard, on its own: it can be put back to where it was, and timers fire when they are told to.

Groups of a shard don't see each other, so a group behaves alone as among the others. What happens to the shard as a
whole (topics, loading, the end of a transaction) is told to each group.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import partial

import msgspec

from coordinator_udf.groups.consumer.regex import MIN_REFRESH_INTERVAL_MS
from coordinator_udf.groups.context import LogEntry
from coordinator_udf.groups.model.classic import ClassicGroup
from coordinator_udf.groups.model.offsets import CommittedOffset, OffsetStore, TopicOffsets
from coordinator_udf.groups.model.timers import (
    DATA,
    DEADLINE,
    JOIN,
    KEY,
    NEVER_MS,
    SEQ,
    SESSION,
    SYNC,
    Timer,
    TimerKey,
    Timers,
)
from coordinator_udf.groups.store import Group, GroupStore
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.protocol.placeholders import fill_placeholders
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.replay.explain.snapshot import Assigned, Snapshot, ToldBySnapshot, Written, told_by
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.control_rows import loaded_assignments
from coordinator_udf.shard.sessions.columns import SessionColumns
from coordinator_udf.shard.shard import Shard

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


class GroupMachine:
    """A shard that has one group.

    It goes back to a snapshot only when something happens there that isn't remembered.
    """

    def __init__(self, partition: int, settings: Settings, *, keep_log: bool) -> None:
        """A group that nobody has heard of.

        Args:
            partition: the group's shard.
            settings: of the coordinator.
            keep_log: whether records are kept, for the shard to be loaded again.
        """
        self._shard = Shard(partition, settings, keep_log=keep_log)
        self._assigned: Assigned | None = None
        #: The shard's log, whose own list has nothing but while it is loaded: this goes back and forth without a copy.
        self._log: Written | None = None
        self._interval_ms = settings.group_consumer_assignment_interval_ms
        #: Where the group is, if that is known.
        self._known: Snapshot | None = None
        #: Whether the shard isn't there.
        self._is_elsewhere = False
        #: What came of something at a snapshot, while that is remembered; the snapshots are kept for their parts.
        self._remembered: dict[Hashable, tuple[Snapshot, Snapshot, list[Given]]] | None = None
        self._told: dict[bytes, ToldBySnapshot] = {}

    @property
    def now_ms(self) -> int:
        """The time up to which the group has been brought."""
        return self._shard.ctx.now_ms if self._known is None else self._known.now_ms

    @property
    def timer_number(self) -> int:
        """The number that the timer armed next will have."""
        return self._shard.ctx.timers.next_seq if self._known is None else self._known.next_timer_seq

    def remember(self, *, is_on: bool) -> None:
        """Begins to remember what came of something at a snapshot, or forgets all of it.

        A search comes to the same state in many ways.
        """
        self._remembered = {} if is_on else None
        self._told.clear()

    # -- what happens ---------------------------------------------------------------------------------------------

    def handle(self, row: Request) -> list[Given]:
        """Handles one row at its time, and timers that it armed without a delay; the answers that came of it.

        Raises:
            PoisonRow: a handler raised; the state is then undefined.
        """
        return self._remembering((row, max(row.log_ts, self.now_ms)), partial(self._handle, row))

    def _remembering(self, what: Hashable, happen: Callable[[], list[Given]]) -> list[Given]:
        """Lets something happen; where it is remembered what came of it, the group goes there without that."""
        if self._remembered is None:
            return happen()
        here = self.snapshot()
        key = what, here.handles_alike()
        found = self._remembered.get(key)
        if found is None:
            given = happen()
            self._remembered[key] = here, self.snapshot(), given
            return given
        self.restore(found[1])
        return found[2]

    def _handle(self, row: Request) -> list[Given]:
        shard = self._there()
        if row.api == "LoadGroup" and row.body is not None:
            self._assigned = Assigned(self._assigned, *loaded_assignments(row.body))
        if row.api == "Failover" and shard.log is not None:
            shard.log[:] = self._written()
            shard.handle_row(row, 0)
            shard.log.clear()
        else:
            shard.handle_row(row, 0)
        return self._take()

    def _there(self) -> Shard:
        """Returns the shard, where the group is, for something to happen there."""
        if self._is_elsewhere and self._known is not None:
            self._bring(self._known)
        self._known, self._is_elsewhere = None, False
        return self._shard

    def _seen(self) -> Shard:
        """Returns the shard, where the group is, to look at."""
        if self._is_elsewhere and self._known is not None:
            self._bring(self._known)
            self._is_elsewhere = False
        return self._shard

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
        shard = self._there()
        shard.handle_row(control_row(shard.partition, shard.ctx.now_ms, "AdoptGroup", body), 0)
        return self._take()

    def delay(self, api: str, body: str) -> None:
        """Lets something come later, as the body of a row DelayTimers, DelayRegexes or KeepTimer tells."""
        shard = self._there()
        shard.handle_row(control_row(shard.partition, shard.ctx.now_ms, api, body), 0)

    def may_resolve(self, at_ms: int) -> bool:
        """Whether so much time has passed at a moment that regular expressions may be resolved again."""
        return all(at_ms > resolved_ms + MIN_REFRESH_INTERVAL_MS for resolved_ms in self._tell().resolved_ms)

    @property
    def has_regexes(self) -> bool:
        """Whether a member is subscribed by a regular expression."""
        return self._tell().has_regexes

    @property
    def is_resolving(self) -> bool:
        """Whether it is known what regular expressions match, but not told to the group yet."""
        return bool(self._shard.ctx.resolving if self._known is None else self._known.resolving)

    def _tell(self) -> ToldBySnapshot:
        """Returns what the group tells: of each state once."""
        if self._known is None:
            return told_by(self._shard.store.groups.values(), self._interval_ms)
        found = self._told.get(self._known.groups)
        if found is None:
            groups = _decode_groups(self._known.groups) if self._is_elsewhere else self._shard.store.groups
            found = self._told[self._known.groups] = told_by(groups.values(), self._interval_ms)
        return found

    def _timers(self) -> Iterable[tuple[int, int, TimerKey, tuple[int, ...]]]:
        """Returns the deadlines, numbers, keys and data of all timers."""
        if self._known is not None:
            return self._known.timers
        return ((e[DEADLINE], e[SEQ], e[KEY], e[DATA]) for e in self._shard.ctx.timers.as_objects())

    def timers_put_off(self, member_id: str, since_ms: int, until_ms: int) -> list[tuple[str, int]]:
        """Returns kinds and deadlines of a member's timers that are due after a time and by another.

        They are those that Kafka puts off once the records are written of what the member asked: of members of the
        classic protocol in a consumer group.
        """
        if not self._tell().is_consumer:
            return []
        return [
            (key.kind, due_ms)
            for due_ms, _, key, _ in self._timers()
            if key.member_id == member_id and key.kind in _PUT_OFF and since_ms < due_ms <= until_ms
        ]

    def due_by(self, at_ms: int) -> list[tuple[int, int]]:
        """Deadlines (ms) and numbers of the timers that are due by a time, in the order in which they fire."""
        return sorted((due_ms, number) for due_ms, number, _, _ in self._timers() if due_ms <= at_ms)

    def fire(self, deadline_ms: int) -> list[Given]:
        """Fires the timers that are due at the next deadline; the answers that came of it.

        Raises:
            PoisonRow: a handler raised; the state is then undefined.
        """
        return self._remembering(("", deadline_ms, max(deadline_ms, self.now_ms)), partial(self._fire, deadline_ms))

    def _fire(self, deadline_ms: int) -> list[Given]:
        self._there().run_timers(deadline_ms, 0)
        return self._take()

    def next_timer(self) -> tuple[int, int]:
        """Deadline (ms) and number of the timer that is due next; a deadline that never comes if none is armed."""
        if self._is_elsewhere:
            return min(((due_ms, number) for due_ms, number, _, _ in self._timers()), default=(NEVER_MS, 0))
        return self._shard.ctx.timers.peek()

    def intervals(self) -> list[tuple[int, int]]:
        """Begin and length (ms) of intervals after which the group answers otherwise for no other reason."""
        return self._tell().intervals

    def _take(self) -> list[Given]:
        decided = self._shard.ctx.decisions
        assigned: dict[int, dict[str, bytes]] = {}
        for _, _, _, _, member_id, offset, payload in decided.assignments:
            assigned.setdefault(offset, {})[member_id] = payload
        for offset, payloads in assigned.items():
            self._assigned = Assigned(self._assigned, offset, payloads)
        log = self._shard.log
        if log:
            self._log = Written(self._log, tuple(log))
            log.clear()
        # What has no room for an error is answered without a body.
        told = [row for row in decided.responses if row[2] is not None and row[9] is not None]
        given = [(row[2], self._filled(row[9], row[10])) for row in told]
        for rows in decided.by_kind().values():
            rows.clear()
        return given

    def _filled(self, body: str, refs: str | None) -> str:
        return body if refs is None else fill_placeholders(body, self._assignment)

    def _assignment(self, offset: int, member_id: str) -> bytes:
        """Returns what a member was assigned by a record.

        Raises:
            KeyError: there is none.
        """
        assigned = self._assigned
        while assigned is not None and assigned.offset != offset:
            assigned = assigned.before
        if assigned is None:
            raise KeyError(offset)
        return assigned.payloads[member_id]

    # -- what the group is ----------------------------------------------------------------------------------------

    def group(self, group_id: str) -> Group | None:
        """A copy of a group; None if it isn't there."""
        return self.copy_of(self._seen().store.get(group_id))

    @staticmethod
    def copy_of(group: Group | None) -> Group | None:
        """A copy that may be changed."""
        return None if group is None else _decode_groups(_encode({"": group}))[""]

    def assignments(self, group_id: str) -> dict[str, bytes]:
        """What the members of a classic group are assigned, as far as they are."""
        group = self._seen().store.get(group_id)
        if not isinstance(group, ClassicGroup):
            return {}
        return {
            member_id: self._assignment(ref.record_offset, ref.assigned_as)
            for member_id, member in group.members.items()
            if (ref := member.assignment) is not None and ref.size
        }

    def offsets(self, group_id: str) -> TopicOffsets:
        """A copy of what a group has committed."""
        committed = self._seen().store.offsets.committed.get(group_id, {})
        return {topic: dict(partitions) for topic, partitions in committed.items()}

    def timers(self, group_id: str) -> list[Timer]:
        """A group's timers."""
        return [timer for timer in self._seen().ctx.timers.in_order() if timer.key.group_id == group_id]

    def waiting(self, group_id: str) -> set[str]:
        """The requests that wait in a classic group."""
        group = self._seen().store.get(group_id)
        if not isinstance(group, ClassicGroup):
            return set()
        parked = (parked for m in group.members.values() for parked in (m.awaiting_join, m.awaiting_sync))
        return {waits.request_id for waits in parked if waits is not None and waits.request_id is not None}

    @property
    def topics(self) -> dict[str, Topic]:
        """The topics that there are."""
        return self._seen().ctx.topics

    # -- there and back -------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """What `restore` brings back."""
        if self._known is not None:
            return self._known
        shard = self._shard
        ctx, store = shard.ctx, shard.store
        timers = tuple((e[DEADLINE], e[SEQ], e[KEY], e[DATA]) for e in ctx.timers.as_objects())
        self._known = Snapshot(
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
            self._assigned,
            dict(ctx.resolving),
        )
        return self._known

    def restore(self, snapshot: Snapshot) -> None:
        """Puts the group back to where it was when the snapshot was made."""
        if self._known is not snapshot:
            self._known, self._is_elsewhere = snapshot, True

    def _bring(self, snapshot: Snapshot) -> None:
        """Puts the shard to where the group is."""
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
        self._log, self._assigned = snapshot.log, snapshot.assigned
