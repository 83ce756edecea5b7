"""The short way of heartbeats, which are nearly all rows: one look at the generation, a new deadline, an answer.

Where heartbeats of stable groups stand together, all are checked and answered at once; elsewhere one after the other,
between the rows that take the long way. Their answers are kept as columns. `Shard.handle_row` says the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from coordinator_udf.groups.classic import ClassicGroup
from coordinator_udf.groups.timers import DEADLINE, SEQ, TIMEOUT
from coordinator_udf.protocol.rows import Output, Request
from coordinator_udf.shard import Shard
from coordinator_udf.shard_outputs import heartbeat_json

#: Columns of the request log, by name.
Columns = Mapping[str, Sequence[Any]]

BEAT_COLUMNS = ("log_ts", "group_id", "member_id", "generation_or_epoch", "group_instance_id")

#: Whether a row is a heartbeat whose columns say all, and then what decides about it: the values of `BEAT_COLUMNS`.
Beat = tuple[bool, int, Any, Any, Any, Any]


class PlainBeats(NamedTuple):
    """Heartbeats that name a group, a member and a generation, and no instance, as columns.

    Attributes:
        times: log time, milliseconds.
        groups: the different groups.
        group_of: of each heartbeat the place of its group in ``groups``.
        member_ids: who sent it.
        generation_ids: which generation it names.
    """

    times: np.ndarray
    groups: list[str]
    group_of: np.ndarray
    member_ids: list[str]
    generation_ids: np.ndarray


class Stretch(NamedTuple):
    """Rows that stand together, from ``start`` to before ``end``; as heartbeats if they are all plain ones."""

    start: int
    end: int
    beats: PlainBeats | None


class Rows(Protocol):
    """Rows of the request log, however they are held."""

    def __len__(self) -> int:
        """How many there are."""

    def row(self, index: int) -> Request:
        """One row."""

    def beats(self, start: int, end: int) -> Iterator[Beat]:
        """The rows in a range, as heartbeats."""

    def stretches(self, start: int, end: int) -> Iterator[Stretch]:
        """A range in pieces, those with nothing but plain heartbeats apart if they are long."""

    def unreadable(self) -> dict[int, str]:
        """The rows that don't have what a handler counts on, with what is wrong; in order."""


class HeartbeatAnswers:
    """The answers to heartbeats that took the short way, as columns.

    Attributes:
        rows: which of the rows that came in.
        seqs: the outputs' numbers.
        times: log time of the answers, milliseconds.
        codes: error codes.
    """

    __slots__ = ("codes", "rows", "seqs", "times")

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.seqs: list[int] = []
        self.times: list[int] = []
        self.codes: list[int] = []

    def cut(self, length: int) -> None:
        """Forgets all answers but the first ones."""
        for column in (self.rows, self.seqs, self.times, self.codes):
            del column[length:]

    def columns(self, source: str, columns: Columns) -> dict[str, list[Any]]:
        """The answers as the columns of schemas.outputs.SHARD_OUTPUT that aren't null in an answer to a heartbeat."""
        rows = self.rows
        request_ids = _take(columns["request_id"], rows)
        versions = _take(columns["api_version"], rows)
        return {
            "kind": ["response"] * len(rows),
            "source": [source] * len(rows),
            "partition": _take(columns["partition"], rows),
            "seq": self.seqs,
            "ts": self.times,
            "request_id": request_ids,
            "by": request_ids,
            "api": ["Heartbeat"] * len(rows),
            "api_version": versions,
            "group_id": _take(columns["group_id"], rows),
            "member_id": _take(columns["member_id"], rows),
            "error_code": self.codes,
            "body": [heartbeat_json(version, code) for version, code in zip(versions, self.codes, strict=True)],
            "parts": _take(columns["parts"], rows),
        }


def run_short_way(
    shard: Shard, rows: Rows, span: tuple[int, int], outputs: list[Output], answers: HeartbeatAnswers
) -> None:
    """Handles a range of readable rows: heartbeats of hot groups shortly, all other rows by `Shard.handle_row`.

    Raises:
        PoisonRow: a handler raised; the state is then undefined.
    """
    shard.origin = None
    for start, end, beats in rows.stretches(*span):
        if beats is None or not _run_together(shard, start, beats, answers):
            _run_one_by_one(shard, rows, (start, end), outputs, answers)


def run_leading(shard: Shard, rows: Rows, span: tuple[int, int], answers: HeartbeatAnswers) -> int:
    """Handles the heartbeats that a range begins with and that can be handled together; where the other rows begin.

    No handler is called, so nothing has to be kept for the case that one raises.
    """
    for start, _, beats in rows.stretches(*span):
        if beats is None or not _run_together(shard, start, beats, answers):
            return start
    return span[1]


def _run_together(shard: Shard, start: int, beats: PlainBeats, answers: HeartbeatAnswers) -> bool:
    """Handles heartbeats all at once, if no timer is due and each is a member's of a hot group; whether it did.

    What decides about them is checked first, so that nothing is changed where it can't be done.
    """
    timers = shard.ctx.timers
    if int(beats.times.max()) >= timers.bound_ms:
        return False
    groups = [shard.hot.get(group_id) or shard.wake(group_id) for group_id in beats.groups]
    known = [group for group in groups if group is not None]
    if len(known) < len(groups):
        return False
    if np.any(np.array([group.generation_id for group in known])[beats.group_of] != beats.generation_ids):
        return False
    sessions = [group.sessions for group in known]
    places = beats.group_of.tolist()
    try:
        entries = [sessions[place][member_id] for place, member_id in zip(places, beats.member_ids, strict=True)]
    except KeyError:
        return False
    timeouts_ms = [entry[TIMEOUT] for entry in entries]
    if None in timeouts_ms:
        return False
    now_ms = np.maximum(np.maximum.accumulate(beats.times), shard.ctx.now_ms)
    deadlines_ms = now_ms + np.array(timeouts_ms)
    if np.any(deadlines_ms < np.array([entry[DEADLINE] for entry in entries])):
        return False
    for seq, (entry, deadline_ms) in enumerate(zip(entries, deadlines_ms.tolist(), strict=True), timers.next_seq):
        entry[DEADLINE] = deadline_ms
        entry[SEQ] = seq
    count = len(entries)
    answers.rows += range(start, start + count)
    answers.seqs += range(shard.next_seq, shard.next_seq + count)
    answers.times += now_ms.tolist()
    answers.codes += np.array([group.error_code for group in known])[beats.group_of].tolist()
    timers.next_seq += count
    shard.next_seq += count
    shard.ctx.now_ms = int(now_ms[-1])
    return True


def _run_one_by_one(
    shard: Shard, rows: Rows, span: tuple[int, int], outputs: list[Output], answers: HeartbeatAnswers
) -> None:
    """Handles rows in a loop. It keeps the shard's counters in locals and gives them back before anybody may look."""
    start, end = span
    ctx, hot = shard.ctx, shard.hot
    timers = ctx.timers
    now_ms, next_seq, armed, bound_ms = ctx.now_ms, shard.next_seq, timers.next_seq, timers.bound_ms
    add_row, add_seq = answers.rows.append, answers.seqs.append
    add_time, add_code = answers.times.append, answers.codes.append
    for index, (is_plain, ts, group_id, member_id, generation_id, instance) in enumerate(rows.beats(start, end), start):
        if is_plain:
            if ts >= bound_ms:
                # Mostly no timer is due, but the deadlines that the bound was made of have been put off since.
                ctx.now_ms, shard.next_seq, timers.next_seq = now_ms, next_seq, armed
                shard.run_timers(ts, index, outputs)
                now_ms, next_seq, armed, bound_ms = ctx.now_ms, shard.next_seq, timers.next_seq, timers.bound_ms
            group = hot.get(group_id) or shard.wake(group_id)
            if group is not None and group.generation_id == generation_id:
                entry = group.sessions.get(member_id)
                if (
                    entry is not None
                    and entry[TIMEOUT] is not None
                    and (instance is None or group.instances.get(instance) == member_id)
                ):
                    if ts > now_ms:  # noqa: PLR1730 - a call costs more, and this loop sees nearly every row
                        now_ms = ts
                    deadline = now_ms + entry[TIMEOUT]
                    if deadline >= entry[DEADLINE]:
                        entry[DEADLINE] = deadline
                        entry[SEQ] = armed
                        armed += 1
                        add_row(index)
                        add_seq(next_seq)
                        add_time(now_ms)
                        add_code(group.error_code)
                        next_seq += 1
                        continue
        ctx.now_ms, shard.next_seq, timers.next_seq = now_ms, next_seq, armed
        row = rows.row(index)
        if ts >= bound_ms:
            shard.run_timers(ts, index, outputs)
        shard.handle_row(row, index, outputs)
        if is_plain:
            _missed(shard, row.group_id)
        ctx, timers = shard.ctx, shard.ctx.timers
        now_ms, next_seq, armed, bound_ms = ctx.now_ms, shard.next_seq, timers.next_seq, timers.bound_ms
    ctx.now_ms, shard.next_seq, timers.next_seq = now_ms, next_seq, armed


def _missed(shard: Shard, group_id: str | None) -> None:
    """A heartbeat took the long way. Making a group hot costs a look at each member, so it waits for enough of them."""
    if group_id is None or group_id in shard.hot:
        return
    group = shard.store.get(group_id)
    if not isinstance(group, ClassicGroup):
        return
    misses = shard.misses.get(group_id, 0) + 1
    if misses * 4 < len(group.members):
        shard.misses[group_id] = misses
        return
    shard.misses.pop(group_id, None)
    shard.heat(group)


def _take(column: Sequence[Any], rows: list[int]) -> list[Any]:
    # They rise, so where they are as many they are all.
    return list(column) if len(rows) == len(column) else [column[index] for index in rows]
