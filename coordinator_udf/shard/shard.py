"""A shard: the groups of one partition of the request log, and their timers. Rows in, rows out.

Rows come in the order of their offsets. Before a row at time t is handled, every timer with a deadline of at most t
fires, in the order of deadlines and stamped with its own. Nothing here reads a clock or draws a random number, so the
same rows give the same outputs, however they are cut into calls.
"""

from __future__ import annotations

import traceback
from typing import Any

from coordinator_udf.groups.cause import Cause
from coordinator_udf.groups.model import timers as kinds
from coordinator_udf.groups.model.timers import Timer
from coordinator_udf.groups.offsets.expiry import expire_offsets
from coordinator_udf.groups.timer_handlers import fire
from coordinator_udf.protocol.errors import BadRequest
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.settings.coordinator import SettingsError
from coordinator_udf.shard.apis import UNAVAILABLE, Handler, read_body
from coordinator_udf.shard.control_rows import CONTROLS
from coordinator_udf.shard.sessions.hot_group import HARMLESS
from coordinator_udf.shard.state import ShardState


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


class Shard(ShardState):
    """The state machine of one partition. What it says gathers in ``ctx.decisions`` until somebody takes it."""

    def handle_row(self, row: Request, index: int) -> None:
        """Handles one row, all timers that were due before it having fired. What comes of it is in ``ctx.decisions``.

        Args:
            index: which row of the call it is.

        Raises:
            PoisonRow: a handler raised; the state is then undefined.
        """
        ctx, log_ts, api = self.ctx, row.log_ts, row.api
        if log_ts > ctx.now_ms:  # noqa: PLR1730 - a call costs more
            ctx.now_ms = log_ts
        if not self.started:
            self.begin()
        if api not in HARMLESS:
            group_id = row.group_id
            # Of the requests of a rebalance only the first finds its group hot.
            if group_id is None or group_id in self.hot or group_id in self.session_columns.places:
                self.cool(group_id)
        handler = self.handlers.get(api)
        try:
            if handler is not None:
                self._handle(row, handler)
            elif api != "Tick":
                self._control(row)
            if ctx.appended:
                self._keep_appended()
            if ctx.reverted_to is not None:
                self.store.revert(ctx)
        except Exception as error:
            raise PoisonRow(index, None, "".join(traceback.format_exception(error))) from error
        # Timers armed without a delay fire at once and not with the next row.
        if log_ts >= self.ctx.timers.bound_ms:
            self.run_timers(log_ts, index)

    # -- one row --------------------------------------------------------------------------------------------------

    def _handle(self, row: Request, handler: Handler) -> None:
        group_id = row.group_id
        try:
            body = read_body(row)
            named = getattr(body, "group_id", group_id)
            if named != group_id and group_id is not None:
                raise BadRequest("groupId", named, f"{group_id!r}, which the column group_id says")
        except BadRequest as bad:
            self.reject(row, str(bad))
            return
        self.ctx.begin_request(row, body)
        handler(self.ctx, self.store, UNAVAILABLE[self.availability], row, body)

    def _control(self, row: Request) -> None:
        control = CONTROLS.get(row.api)
        if control is None:
            self.set_aside(row, f"api is {row.api!r}, expected one of {', '.join(self.handlers)}")
            return
        self.ctx.begin_request(row)
        try:
            control(self, row)
        except (BadRequest, SettingsError) as bad:
            self.reject(row, str(bad))

    def _keep_appended(self) -> None:
        """Takes the records that were appended into the shard's own log."""
        appended = self.ctx.appended or []
        if self.log is not None:
            self.log += [(*entry[:3], self._own(*entry[2:4]), entry[4]) for entry in appended]
        appended.clear()

    def _own(self, key: dict[str, Any], value: dict[str, Any] | None) -> dict[str, Any] | None:
        """Returns a record's value for loading: where the members' assignments lie in place of placeholders."""
        group = self.store.classic(key.get("group", ""))
        if value is None or "members" not in value or group is None:
            return value
        members = [
            {**member, "assignment": group.members[member["memberId"]].assignment} for member in value["members"]
        ]
        return {**value, "members": members}

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
                self.set_aside(row, reason, self.poisoned[timer])
                if timer.key.kind == kinds.EXPIRY:
                    self.arm_expiry()
                continue
            try:
                self._fire(timer, until_ms)
            except Exception as error:
                raise PoisonRow(index, timer, "".join(traceback.format_exception(error))) from error
            if self.ctx.appended:
                self._keep_appended()
            if self.ctx.reverted_to is not None:
                self.store.revert(self.ctx)

    def _fire(self, timer: Timer, until_ms: int) -> None:
        if timer.key.kind == kinds.EXPIRY:
            expire_offsets(self.ctx, self.store)
            self.arm_expiry(until_ms)
        else:
            fire(self.ctx, self.store, timer)
