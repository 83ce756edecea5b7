"""A shard: the groups of one partition of the request log, and their timers. Rows in, rows out.

Rows come in the order of their offsets. Before a row at time t is handled, every timer with a deadline of at most t
fires, in the order of deadlines and stamped with its own. Nothing here reads a clock or draws a random number, so the
same rows give the same outputs, however they are cut into calls.
"""

from __future__ import annotations

import json
import traceback
from typing import Any

import msgspec

from coordinator_udf.assignors import configured_assignors
from coordinator_udf.groups.cause import Cause
from coordinator_udf.groups.context import Context, LogEntry
from coordinator_udf.groups.model import timers as kinds
from coordinator_udf.groups.model.classic import ClassicGroup
from coordinator_udf.groups.model.timers import Timer, TimerKey, Timers
from coordinator_udf.groups.offsets.expiry import expire_offsets, next_expiry_ms
from coordinator_udf.groups.store import GroupStore
from coordinator_udf.groups.timer_handlers import fire
from coordinator_udf.protocol.errors import BadRequest, Errors
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.settings.coordinator import Settings, SettingsError
from coordinator_udf.shard.apis import HANDLERS, Availability, answer_request, error_body, read_body
from coordinator_udf.shard.control_rows import CONTROLS
from coordinator_udf.shard.sessions.columns import Rest
from coordinator_udf.shard.sessions.hot_group import HARMLESS, HotGroup, heat


class PoisonRow(Exception):
    """A row, or a timer that fired before it, made a handler raise. The shard has to be restored.

    Attributes:
        index: which of the rows of the call it is, or was to come after the timer.
        timer: the timer, if it was one.
        details: the traceback.
    """

    def __init__(self, index: int, timer: Timer | None, details: str) -> None:
        super().__init__(f"row {index} of the call can't be handled: {details.splitlines()[-1]}")
        self.index = index
        self.timer = timer
        self.details = details


class Shard:
    """The state machine of one partition. What it says gathers in ``ctx.said`` until somebody takes it."""

    def __init__(self, partition: int, settings: Settings, *, keep_log: bool = False) -> None:
        """A shard that has seen nothing.

        Args:
        partition: which one, as it stands in every output.
        keep_log: whether records are kept in memory, so that Failover rows can load the shard again.
        """
        self.partition = partition
        #: Groups whose heartbeats need no look at the group; how many heartbeats of others did; those that rest.
        self.hot: dict[str, HotGroup] = {}
        self.misses: dict[str, int] = {}
        self.rest = Rest(self.hot)
        self.ctx = Context(settings, Timers(self.rest))
        self.ctx.assignors = configured_assignors(settings.group_consumer_assignors)
        self.store = GroupStore()
        self.availability = Availability.ACTIVE
        self.started = False
        #: Parts of the state row that the codec read or wrote last, plain and compressed.
        self.kept: dict[str, tuple[bytes, bytes]] = {}
        #: The state row that the shard was made of, as long as it has handled nothing.
        self.origin: tuple[int, int | None, bytes, bytes] | None = None
        self.log: list[LogEntry] | None = [] if keep_log else None
        self.ctx.appended = [] if keep_log else None
        #: Timers whose handler raised and that are skipped when their rows are run again.
        self.poisoned: dict[Timer, str] = {}

    def handle_row(self, row: Request, index: int) -> None:
        """Handles one row, all timers that were due before it having fired. What comes of it is in ``ctx.said``.

        Args:
            index: which row of the call it is.

        Raises:
            PoisonRow: a handler raised; the state is then undefined.
        """
        ctx, log_ts, api = self.ctx, row.log_ts, row.api
        if log_ts > ctx.now_ms:  # noqa: PLR1730 - a call costs more
            ctx.now_ms = log_ts
        if not self.started:
            self._begin()
        if api not in HARMLESS:
            group_id = row.group_id
            # Of the requests of a rebalance only the first finds its group hot.
            if group_id is None or group_id in self.hot or group_id in self.rest.places:
                self.cool(group_id)
        try:
            if api in HANDLERS:
                self._handle(row)
            elif api != "Tick":
                self._control(row)
            if ctx.appended:
                self._keep_appended()
        except Exception as error:
            raise PoisonRow(index, None, "".join(traceback.format_exception(error))) from error
        # Timers armed without a delay fire at once and not with the next row.
        if log_ts >= self.ctx.timers.bound_ms:
            self.run_timers(log_ts, index)

    def cool(self, group_id: str | None) -> None:
        """What is kept for a group's heartbeats may no longer hold; None means all groups."""
        if group_id is None:
            self.ctx.timers.wake_all()
            self.hot.clear()
        else:
            self.rest.wake(self.ctx.timers, group_id)
            self.hot.pop(group_id, None)

    def forget_timers(self) -> None:
        """No timer is armed any more. The number of the next one stays what it is."""
        self.hot.clear()
        self.rest = Rest(self.hot)
        self.ctx.timers = Timers(self.rest, self.ctx.timers.next_seq)

    def is_hot(self, group_id: str) -> bool:
        """Whether heartbeats of a group need no look at it."""
        return group_id in self.hot or group_id in self.rest.places

    def wake(self, group_id: str) -> HotGroup | None:
        """A group that rests; None if it doesn't."""
        if group_id not in self.rest.places:
            return None
        self.rest.wake(self.ctx.timers, group_id)
        return self.hot[group_id]

    def heat(self, group: ClassicGroup) -> None:
        """Keeps aside what the group's heartbeats need."""
        hot = heat(group, self.ctx.timers)
        if hot is not None:
            self.hot[group.group_id] = hot

    def reject(self, row: Request, reason: str, details: str | None = None, *, raw: Request | None = None) -> None:
        """Answers UNKNOWN_SERVER_ERROR where that can be, and puts the row among the rejected ones.

        Args:
            row: the row, fit to stand in an output.
            reason: what is wrong with it.
            details: the traceback, where there is one.
            raw: the row as it came, where it isn't fit.
        """
        self.ctx.now_ms = max(self.ctx.now_ms, row.log_ts)
        self.ctx.begin_request(row)
        if row.request_id is not None and row.api in HANDLERS:
            body = error_body(row.api, row.api_version, Errors.UNKNOWN_SERVER_ERROR)
            self.ctx.answer(
                row.request_id,
                row.api,
                row.api_version,
                body,
                group_id=row.group_id,
                member_id=row.member_id,
                parts=row.parts,
            )
        self._set_aside(row, reason, details, raw)

    # -- one row --------------------------------------------------------------------------------------------------

    def _handle(self, row: Request) -> None:
        try:
            body = read_body(row)
            group_id = getattr(body, "group_id", row.group_id)
            if group_id != row.group_id and row.group_id is not None:
                raise BadRequest("groupId", group_id, f"{row.group_id!r}, which the column group_id says")
        except BadRequest as bad:
            self.reject(row, str(bad))
            return
        self.ctx.begin_request(row, body)
        answer_request(self.ctx, self.store, self.availability, row, body)

    def _control(self, row: Request) -> None:
        control = CONTROLS.get(row.api)
        if control is None:
            self._set_aside(row, f"api is {row.api!r}, expected one of {', '.join(HANDLERS)}")
            return
        self.ctx.begin_request(row)
        try:
            control(self, row)
        except (BadRequest, SettingsError) as bad:
            self.reject(row, str(bad))

    def _begin(self) -> None:
        """The first row of a shard's life starts its recurring timer; one at 0 says nothing of the time."""
        if self.ctx.now_ms > 0:
            self.started = True
            self.arm_expiry()

    def _keep_appended(self) -> None:
        """Takes the records that were appended into the shard's own log."""
        appended = self.ctx.appended or []
        if self.log is not None:
            self.log += [(*entry[:3], self._own(*entry[2:4]), entry[4]) for entry in appended]
        appended.clear()

    def _own(self, key: dict[str, Any], value: dict[str, Any] | None) -> dict[str, Any] | None:
        """A record's value as loading wants it: with where the members' assignments lie in place of placeholders."""
        group = self.store.get(key.get("group", ""))
        if value is None or "members" not in value or not isinstance(group, ClassicGroup):
            return value
        members = [
            {**member, "assignment": group.members[member["memberId"]].assignment} for member in value["members"]
        ]
        return {**value, "members": members}

    def _set_aside(self, row: Request, reason: str, details: str | None = None, raw: Request | None = None) -> None:
        told = {"reason": reason, "raw": json.dumps((raw or row)._asdict(), default=repr), "traceback": details}
        # There may be anything in it, what can't be written too.
        told = {name: text and text.encode("utf-8", "backslashreplace").decode() for name, text in told.items()}
        body = msgspec.json.encode(told).decode()
        ctx = self.ctx
        ctx.said.rejected.append(
            (ctx.next_seq, ctx.now_ms, row.request_id, row.api, row.api_version, row.group_id, row.member_id, body)
        )
        ctx.next_seq += 1

    # -- timers ---------------------------------------------------------------------------------------------------

    def run_timers(self, until_ms: int, index: int) -> None:
        """Fires every timer with a deadline of at most ``until_ms``, in order.

        Raises:
            PoisonRow: a handler raised; the state is then undefined.
        """
        while (timer := self.ctx.timers.pop_due(until_ms)) is not None:
            self.ctx.now_ms = max(self.ctx.now_ms, timer.deadline_ms)
            self.ctx.begin_timer(Cause(member_id=timer.key.member_id or None, timer=timer.key.kind))
            self.cool(timer.key.group_id)
            if timer in self.poisoned:
                row = Request(
                    self.partition, -1, timer.deadline_ms, None, f"Timer {timer.key.kind}", 0, timer.key.group_id
                )
                reason = f"the timer {timer.key} made its handler raise and was dropped"
                self._set_aside(row, reason, self.poisoned[timer])
                if timer.key.kind == kinds.EXPIRY:
                    self.arm_expiry()
                continue
            try:
                self._fire(timer, until_ms)
            except Exception as error:
                raise PoisonRow(index, timer, "".join(traceback.format_exception(error))) from error
            if self.ctx.appended:
                self._keep_appended()

    def _fire(self, timer: Timer, until_ms: int) -> None:
        if timer.key.kind == kinds.EXPIRY:
            expire_offsets(self.ctx, self.store)
            self.arm_expiry(until_ms)
            return
        fire(self.ctx, self.store, timer)

    def arm_expiry(self, until_ms: int = 0) -> None:
        """The timer of the next look for expired offsets begins anew.

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
