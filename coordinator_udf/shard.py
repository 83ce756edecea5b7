"""A shard: the groups of one partition of the request log, and their timers. Rows in, rows out.

Rows come in the order of their offsets. Before a row at time t is handled, every timer with a deadline of at most t
fires, in the order of deadlines and stamped with its own. Nothing here reads a clock or draws a random number, so the
same rows give the same outputs, however they are cut into calls.
"""

from __future__ import annotations

import traceback
from base64 import b64decode
from collections.abc import Iterable
from typing import Any

import msgspec

from coordinator_udf.groups import timers as kinds
from coordinator_udf.groups.classic import ClassicGroup
from coordinator_udf.groups.context import Cause, Context, Record
from coordinator_udf.groups.offsets import expire_offsets, forget_topics
from coordinator_udf.groups.rebalance import (
    answer_join,
    answer_sync,
    join_body,
    join_expired,
    prepare_rebalance,
    restart_session,
    session_expired,
    sync_body,
    sync_expired,
)
from coordinator_udf.groups.records import END_TXN_MARKER
from coordinator_udf.groups.states import ClassicGroupState, GroupEvent
from coordinator_udf.groups.store import GroupStore
from coordinator_udf.groups.timers import Timer, TimerKey, Timers
from coordinator_udf.protocol import requests as r
from coordinator_udf.protocol.errors import BadRequest, Errors
from coordinator_udf.protocol.rows import Output, Request
from coordinator_udf.protocol.settings import Settings
from coordinator_udf.shard_apis import HANDLERS, Availability, answer_request, read_body
from coordinator_udf.shard_describe import describe_state
from coordinator_udf.shard_outputs import to_output

#: One record of the shard's own log: offset, type, key, value, producer id.
LogEntry = tuple[int, str, dict[str, Any], dict[str, Any] | None, int | None]


class PoisonRow(Exception):
    """A row, or a timer that fired before it, made a handler raise. The shard has to be restored.

    Attributes:
        index: which of the rows that `Shard.process` was given.
        timer: the timer, if it was one.
        details: the traceback.
    """

    def __init__(self, index: int, timer: Timer | None, details: str) -> None:
        super().__init__(f"row {index} of the call can't be handled: {details.splitlines()[-1]}")
        self.index = index
        self.timer = timer
        self.details = details


class Shard:
    """The state machine of one partition."""

    def __init__(self, partition: int, settings: Settings, *, keep_log: bool = False) -> None:
        """Args:
        partition: which one, as it stands in every output.
        keep_log: whether records are kept in memory, so that Failover rows can load the shard again.
        """
        self.partition = partition
        self.ctx = Context(settings, Timers())
        self.store = GroupStore()
        self.availability = Availability.ACTIVE
        self.started = False
        self.next_seq = 0
        self.log: list[LogEntry] | None = [] if keep_log else None
        #: Timers whose handler raised and that are skipped when their rows are run again.
        self.poisoned: set[Timer] = set()

    def process(self, rows: Iterable[Request]) -> list[Output]:
        """Handles rows in order.

        Raises:
            PoisonRow: a handler raised; the state is then undefined.
        """
        outputs: list[Output] = []
        for index, row in enumerate(rows):
            self._run_timers(row.log_ts, index, outputs)
            self.ctx.now_ms = max(self.ctx.now_ms, row.log_ts)
            self._begin()
            try:
                self._handle(row, outputs)
            except Exception as error:
                raise PoisonRow(index, None, "".join(traceback.format_exception(error))) from error
            self._drain(outputs)
            # Timers armed without a delay fire at once and not with the next row.
            self._run_timers(row.log_ts, index, outputs)
        return outputs

    def reject(self, row: Request, reason: str, details: str | None = None) -> list[Output]:
        """Answers UNKNOWN_SERVER_ERROR where that can be, and puts the row among the rejected ones.

        Args:
            details: the traceback, where there is one.
        """
        outputs: list[Output] = []
        self.ctx.now_ms = max(self.ctx.now_ms, row.log_ts)
        self.ctx.cause = _cause(row)
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
            self._drain(outputs)
        outputs.append(self._rejected(row, reason, details))
        return outputs

    # -- one row --------------------------------------------------------------------------------------------------

    def _handle(self, row: Request, outputs: list[Output]) -> None:
        self.ctx.cause = _cause(row)
        if row.api == "Tick":
            return
        control = _CONTROLS.get(row.api)
        if control is not None:
            control(self, row)
            return
        if row.api not in HANDLERS:
            outputs.append(self._rejected(row, f"api is {row.api!r}, expected one of {', '.join(HANDLERS)}"))
            return
        try:
            body = read_body(row)
        except BadRequest as bad:
            outputs += self.reject(row, str(bad))
            return
        if isinstance(body, r.JoinGroup):
            self.ctx.cause = self.ctx.cause._replace(client_reason=body.reason)
        elif isinstance(body, r.LeaveGroup) and body.members:
            self.ctx.cause = self.ctx.cause._replace(client_reason=body.members[0].reason)
        answer_request(self.ctx, self.store, self.availability, row, body)

    def _begin(self) -> None:
        """The first row of a shard's life starts its recurring timer."""
        if not self.started:
            self.started = True
            self._arm_expiry()

    def _drain(self, outputs: list[Output]) -> None:
        for effect in self.ctx.take_effects():
            if self.log is not None and isinstance(effect, Record):
                self.log.append((effect.offset, effect.type, effect.key, self._own(effect), effect.producer_id))
            outputs.append(to_output(effect, self.partition, self.next_seq))
            self.next_seq += 1

    def _own(self, record: Record) -> dict[str, Any] | None:
        """A record's value as loading wants it: with where the members' assignments lie in place of placeholders."""
        group = self.store.get(record.key.get("group", ""))
        if record.value is None or "members" not in record.value or not isinstance(group, ClassicGroup):
            return record.value
        members = [
            {**member, "assignment": group.members[member["memberId"]].assignment} for member in record.value["members"]
        ]
        return {**record.value, "members": members}

    def _rejected(self, row: Request, reason: str, details: str | None = None) -> Output:
        raw = msgspec.json.encode(row._asdict()).decode()
        body = msgspec.json.encode({"reason": reason, "raw": raw, "traceback": details}).decode()
        seq = self.next_seq
        self.next_seq += 1
        return Output(
            "rejected",
            self.partition,
            seq,
            self.ctx.now_ms,
            row.request_id,
            api=row.api,
            api_version=row.api_version,
            group_id=row.group_id,
            member_id=row.member_id,
            body=body,
        )

    # -- timers ---------------------------------------------------------------------------------------------------

    def _run_timers(self, until_ms: int, index: int, outputs: list[Output]) -> None:
        while (timer := self.ctx.timers.pop_due(until_ms)) is not None:
            self.ctx.now_ms = max(self.ctx.now_ms, timer.deadline_ms)
            self.ctx.cause = Cause(member_id=timer.key.member_id or None, timer=timer.key.kind)
            if timer in self.poisoned:
                row = Request(
                    self.partition, -1, timer.deadline_ms, None, f"Timer {timer.key.kind}", 0, timer.key.group_id
                )
                outputs.append(self._rejected(row, f"the timer {timer.key} made its handler raise and was dropped"))
                continue
            try:
                self._fire(timer)
            except Exception as error:
                raise PoisonRow(index, timer, "".join(traceback.format_exception(error))) from error
            self._drain(outputs)

    def _fire(self, timer: Timer) -> None:
        if timer.key.kind == kinds.EXPIRY:
            expire_offsets(self.ctx, self.store)
            self._arm_expiry()
            return
        group = self.store.get(timer.key.group_id)
        if not isinstance(group, ClassicGroup):
            return
        if timer.key.kind == kinds.SESSION:
            session_expired(self.ctx, group, timer.key.member_id)
        elif timer.key.kind == kinds.JOIN:
            join_expired(self.ctx, group, timer.data)
        else:
            sync_expired(self.ctx, group, *timer.data)

    def _arm_expiry(self) -> None:
        interval_ms = self.ctx.settings.offsets_retention_check_interval_ms
        self.ctx.timers.arm(TimerKey(kinds.EXPIRY), self.ctx.now_ms + interval_ms)

    # -- control rows ---------------------------------------------------------------------------------------------

    def _load_group(self, row: Request) -> None:
        """One record of the shard's history; a row without one only says that the load has begun."""
        if self.availability is not Availability.LOADING:
            self._unload(Availability.LOADING)
        if row.body is None:
            return
        entry = msgspec.json.decode(row.body)
        key = entry["key"]
        loaded = (entry["offset"], key["type"], key, _with_bytes(entry["value"]), entry.get("producerId"))
        self._apply_loaded(loaded)
        if self.log is not None:
            self.log.append(loaded)
        self.ctx.end_offset = max(self.ctx.end_offset, entry["offset"] + 1)

    def _load_end(self, _: Request) -> None:
        """The shard is loaded: members get fresh sessions, and groups that are too large a rebalance."""
        self.availability = Availability.ACTIVE
        limit = self.ctx.settings.group_max_size
        for group in list(self.store.groups.values()):
            group.created_at = -1
            self.ctx.note(group, None, GroupEvent.LOADED)
            for member in group.in_order():
                restart_session(self.ctx, group, member)
            if len(group.members) > limit:
                reason = (
                    f"Freshly-loaded group {group.group_id} (size {len(group.members)}) is over capacity {limit}. "
                    "Rebalancing in order to give a chance for consumers to commit offsets"
                )
                prepare_rebalance(self.ctx, group, GroupEvent.OVER_CAPACITY, reason)
        self._arm_expiry()

    def _unload(self, availability: Availability) -> None:
        """The shard is no longer ours: who waits is sent elsewhere, and nothing is remembered."""
        for group in list(self.store.groups.values()):
            previous = group.state
            self.ctx.move(group, GroupEvent.UNLOADED)
            for member in group.in_order():
                if previous is ClassicGroupState.PREPARING_REBALANCE:
                    body = join_body(error=Errors.NOT_COORDINATOR, member_id=member.member_id)
                    answer_join(self.ctx, group, member, body)
                else:
                    answer_sync(self.ctx, group, member, sync_body(Errors.NOT_COORDINATOR))
        self.store = GroupStore()
        timers = Timers(next_seq=self.ctx.timers.next_seq)
        self.ctx.timers = timers
        self.availability = availability

    def _failover(self, row: Request) -> None:
        """The shard goes away and comes back, loaded from its own log."""
        if self.log is None:
            raise BadRequest("api", row.api, "a row that a shard without a log of its own can follow")
        self._unload(Availability.LOADING)
        for entry in self.log:
            self._apply_loaded(entry)
        self._load_end(row)

    def _apply_loaded(self, entry: LogEntry) -> None:
        offset, type_, key, value, producer_id = entry
        if type_ == END_TXN_MARKER:
            producer_id = key["producerId"]
        effects = self.ctx.effects
        self.ctx.effects = []
        self.store.apply(self.ctx, offset, type_, key, value, producer_id)
        self.ctx.effects = effects

    def _topic_metadata(self, row: Request) -> None:
        body: r.TopicMetadata = read_body(row)
        topics = {topic.name: topic for topic in body.topics}
        old = self.ctx.topics
        deleted = {name: topic.id for name, topic in old.items() if name not in topics or topics[name].id != topic.id}
        self.ctx.topics = topics
        if deleted and self.availability is Availability.ACTIVE:
            forget_topics(self.ctx, self.store, deleted)

    def _end_txn(self, row: Request) -> None:
        body: r.EndTxn = read_body(row)
        error: str | None = None
        if self.availability is Availability.ACTIVE:
            key = {"type": END_TXN_MARKER, "producerId": body.producer_id, "producerEpoch": body.producer_epoch}
            value = {"committed": body.committed}
            record = self.ctx.append(END_TXN_MARKER, key, None, value)
            self.store.apply(self.ctx, record.offset, END_TXN_MARKER, key, value, body.producer_id)
        else:
            error = Errors.NOT_COORDINATOR.name
        self.ctx.answer(row.request_id, "EndTxn", 0, {"error": error}, parts=row.parts)

    def _expire(self, _: Request) -> None:
        expire_offsets(self.ctx, self.store)

    def _describe(self, row: Request) -> None:
        body: r.Describe = read_body(row)
        described, refs = describe_state(self.store, body.groups)
        self.ctx.answer(row.request_id, "Describe", 0, described, refs=refs, parts=row.parts)

    def _group_config(self, _: Request) -> None:
        """Settings of one group concern consumer groups (KIP-848) only, of which there are none here."""


_CONTROLS = {
    "LoadGroup": Shard._load_group,
    "LoadEnd": Shard._load_end,
    "Unload": lambda shard, row: shard._unload(Availability.NOT_OWNED),
    "Failover": Shard._failover,
    "TopicMetadata": Shard._topic_metadata,
    "EndTxn": Shard._end_txn,
    "ExpireOffsets": Shard._expire,
    "Describe": Shard._describe,
    "GroupConfig": Shard._group_config,
}


def error_body(api: str, api_version: int, error: Errors) -> dict[str, Any]:
    """The shortest answer of an API that says an error, for requests that were not understood."""
    code = int(error)
    bodies: dict[str, dict[str, Any]] = {
        "JoinGroup": join_body(error=error),
        "SyncGroup": sync_body(error),
        "LeaveGroup": {"throttleTimeMs": 0, "errorCode": code, "members": []},
        "OffsetCommit": {"throttleTimeMs": 0, "topics": []},
        "TxnOffsetCommit": {"throttleTimeMs": 0, "topics": []},
        "OffsetFetch": {"throttleTimeMs": 0, "topics": [], "errorCode": code, "groups": []},
        "OffsetDelete": {"errorCode": code, "throttleTimeMs": 0, "topics": []},
        "DescribeGroups": {"throttleTimeMs": 0, "groups": []},
        "ListGroups": {"throttleTimeMs": 0, "errorCode": code, "groups": []},
        "DeleteGroups": {"throttleTimeMs": 0, "results": []},
    }
    return bodies.get(api, {"throttleTimeMs": 0, "errorCode": code})


def _cause(row: Request) -> Cause:
    return Cause(row.request_id, row.api, row.member_id, row.client_id, row.client_host)


def _with_bytes(value: dict[str, Any] | None) -> dict[str, Any] | None:
    """A record's value as it was read from JSON, with the bytes of members decoded."""
    if value is None or "members" not in value:
        return value
    members = [
        {**member, **{name: b64decode(member[name] or "") for name in ("subscription", "assignment")}}
        for member in value["members"]
    ]
    return {**value, "members": members}
