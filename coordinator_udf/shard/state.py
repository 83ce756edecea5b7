"""What a shard holds between two rows, and what others than the shard itself may do to it."""

from __future__ import annotations

import json

from coordinator_udf.assignors import configured_assignors
from coordinator_udf.groups.context import Context, LogEntry
from coordinator_udf.groups.model import timers as kinds
from coordinator_udf.groups.model.classic import ClassicGroup
from coordinator_udf.groups.model.timers import Timer, TimerKey, Timers
from coordinator_udf.groups.offsets.expiry import next_expiry_ms
from coordinator_udf.groups.store import GroupStore
from coordinator_udf.protocol.answer_json import render
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.failed_answer import failed_answer
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.apis import Availability, served
from coordinator_udf.shard.sessions.columns import SessionColumns
from coordinator_udf.shard.sessions.hot_group import HotGroup, heat


class ShardState:
    """The groups of one partition, their timers, and what is kept aside for their heartbeats."""

    def __init__(self, partition: int, settings: Settings, *, keep_log: bool = False) -> None:
        """Begins a shard that has seen nothing.

        Args:
        partition: which one, as it stands in every output.
        keep_log: whether records are kept in memory, so that Failover rows can load the shard again.
        """
        self.partition = partition
        #: Groups whose heartbeats need no look at the group; how many heartbeats of others did; sessions in columns.
        self.hot: dict[str, HotGroup] = {}
        self.misses: dict[str, int] = {}
        self.session_columns = SessionColumns(self.hot)
        self.ctx = Context(settings, Timers(self.session_columns))
        #: What is answered.
        self.handlers = served(settings)
        self.ctx.assignors = configured_assignors(settings.group_consumer_assignors)
        self.store = GroupStore()
        self.availability = Availability.ACTIVE
        self.started = False
        #: Parts of the state row that the codec read or wrote last, plain and compressed.
        self.kept: dict[str, tuple[bytes, bytes]] = {}
        #: The state row that the shard was made of, as long as it has handled nothing and said nothing.
        self.origin: tuple[int, int | None, bytes, bytes] | None = None
        self.log: list[LogEntry] | None = [] if keep_log else None
        self.ctx.appended = [] if keep_log else None
        #: Timers whose handler raised and that are skipped when their rows are run again.
        self.poisoned: dict[Timer, str] = {}

    def cool(self, group_id: str | None) -> None:
        """Drops what is kept for a group's heartbeats, as it may no longer hold; None means all groups."""
        if group_id is None:
            self.ctx.timers.all_to_objects()
            self.hot.clear()
        else:
            self.session_columns.to_objects(self.ctx.timers, group_id)
            self.hot.pop(group_id, None)

    def forget_timers(self) -> None:
        """Disarms all timers. The number of the next one stays what it is."""
        self.hot.clear()
        self.session_columns = SessionColumns(self.hot)
        self.ctx.timers = Timers(self.session_columns, self.ctx.timers.next_seq)

    def is_hot(self, group_id: str) -> bool:
        """Returns whether heartbeats of a group need no look at it."""
        return group_id in self.hot or group_id in self.session_columns.places

    def to_objects(self, group_id: str) -> HotGroup | None:
        """Returns the hot side of a group whose sessions were in columns, and are objects now; None if they weren't."""
        if group_id not in self.session_columns.places:
            return None
        self.session_columns.to_objects(self.ctx.timers, group_id)
        return self.hot[group_id]

    def heat(self, group: ClassicGroup) -> None:
        """Keeps aside what the group's heartbeats need."""
        hot = heat(group, self.ctx.timers)
        if hot is not None:
            self.hot[group.group_id] = hot

    def reject(self, row: Request, reason: str, details: str | None = None, *, raw: Request | None = None) -> None:
        """Answers UNKNOWN_SERVER_ERROR and puts the row among the rejected ones.

        Where an error stands beside what was asked and that can't be read, the answer has no body: whoever holds the
        connection closes it, as Kafka does.

        Args:
            row: the row, fit to stand in an output.
            reason: what is wrong with it.
            details: the traceback, where there is one.
            raw: the row as it came, where it isn't fit.
        """
        self.ctx.now_ms = max(self.ctx.now_ms, row.log_ts)
        self.ctx.begin_request(row)
        if row.request_id is not None and row.api in self.handlers:
            error = Errors.UNKNOWN_SERVER_ERROR
            body = failed_answer(row.api, row.api_version, row.body, error)
            self.ctx.answer_in_json(
                row.request_id,
                row.api,
                row.api_version,
                None if body is None else render(row.api, row.api_version, body),
                error_code=int(error),
                group_id=row.group_id,
                member_id=row.member_id,
                parts=row.parts,
            )
        self.set_aside(row, reason, details, raw)

    def begin(self) -> None:
        """Starts the recurring timer with the first row of a shard's life; one at 0 says nothing of the time."""
        if self.ctx.now_ms > 0:
            self.started = True
            self.arm_expiry()

    def set_aside(self, row: Request, reason: str, details: str | None = None, raw: Request | None = None) -> None:
        """Puts a row among the rejected ones without an answer. Arguments as of `reject`."""
        # What is said here has a number: a state row of before would give it again.
        self.origin = None
        texts = (reason, json.dumps((raw or row)._asdict(), default=repr), details)
        # There may be anything in them, what can't be written too.
        told = (text and text.encode("utf-8", "backslashreplace").decode() for text in texts)
        ctx = self.ctx
        ctx.decisions.rejected.append((ctx.next_seq, ctx.now_ms, row.request_id, row.api, row.group_id, *told))
        ctx.next_seq += 1

    def arm_expiry(self, until_ms: int = 0) -> None:
        """Arms the timer of the next look for expired offsets anew.

        Args:
            until_ms: the time of the next row, if it is known. Looks that come before it, before any other timer and
                before an offset's time do nothing and are left out, for after a year without rows there are many.
        """
        now_ms, interval_ms = self.ctx.now_ms, self.ctx.settings.offsets_retention_check_interval_ms
        looks = 1
        if until_ms - now_ms > 2 * interval_ms:
            others = (self.ctx.timers.next_deadline_ms(), next_expiry_ms(self.ctx, self.store))
            idle_until_ms = min([until_ms, *(time for time in others if time is not None)])
            looks = max(1, -((now_ms - idle_until_ms) // interval_ms))
        self.ctx.timers.arm(TimerKey(kinds.EXPIRY), now_ms + looks * interval_ms)
