"""The short way of heartbeats, which are nearly all rows: one look at the generation, a new deadline, an answer.

Where heartbeats of stable groups stand together, all are checked and answered at once; elsewhere one after the other,
between the rows that take the long way. Their answers are kept as columns. `Shard.handle_row` says the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from coordinator_udf.groups.classic import ClassicGroup
from coordinator_udf.groups.timers import DEADLINE, SEQ, TIMEOUT
from coordinator_udf.protocol.rows import Output, Request
from coordinator_udf.shard import Shard
from coordinator_udf.shard_outputs import heartbeat_json

#: Columns of the request log, by name.
Columns = Mapping[str, Sequence[Any]]

BEAT_COLUMNS = ("log_ts", "group_id", "member_id", "generation_or_epoch", "group_instance_id")

#: So many heartbeats have to stand together for it to be worth while to handle them at once.
LEAST_TOGETHER: Final = 16

#: Making a group hot costs a look at each member: that is worth while once one in so many was heard.
_MEMBERS_A_MISS: Final = 16

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
    member_ids: pa.StringArray
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

    def has_plain(self, start: int, end: int) -> bool:
        """Whether a row of a range may be a heartbeat whose columns say all."""

    def beats(self, start: int, end: int) -> Iterator[Beat]:
        """The rows in a range, as heartbeats."""

    def stretches(self, start: int, end: int) -> Iterator[Stretch]:
        """A range in pieces, those with nothing but plain heartbeats apart if they are long."""

    def unreadable(self) -> dict[int, str]:
        """The rows that don't have what a handler counts on, with what is wrong; in order."""


class HeartbeatAnswers:
    """The answers to heartbeats that took the short way, as columns.

    Those that were handled one by one are added by `rows`, `seqs`, `times` and `codes`: the numbers of the row that
    came in and of the output, log time in milliseconds and the error code. Those handled together are added by `add`.
    """

    __slots__ = ("_blocks", "codes", "rows", "seqs", "times")

    def __init__(self) -> None:
        self._blocks: list[tuple[np.ndarray, ...]] = []
        self._begin()

    def _begin(self) -> None:
        self.rows: list[int] = []
        self.seqs: list[int] = []
        self.times: list[int] = []
        self.codes: list[int] = []

    def add(self, rows: np.ndarray, seqs: np.ndarray, times: np.ndarray, codes: np.ndarray) -> None:
        """Adds the next answers."""
        self.mark()
        self._blocks.append((rows, seqs, times, codes))

    def mark(self) -> int:
        """Where the answers of now end, for `cut`."""
        if self.rows:
            columns = (self.rows, self.seqs, self.times, self.codes)
            self._blocks.append(tuple(np.array(column, np.int64) for column in columns))
            self._begin()
        return len(self._blocks)

    def cut(self, mark: int) -> None:
        """Forgets all answers that came after a mark."""
        del self._blocks[mark:]
        self._begin()

    def arrays(self) -> tuple[np.ndarray, ...]:
        """Rows, numbers of the outputs, times and error codes of all answers."""
        self.mark()
        if len(self._blocks) == 1:
            return self._blocks[0]
        nothing = np.zeros(0, np.int64)
        return tuple(np.concatenate(parts) for parts in zip((nothing,) * 4, *self._blocks, strict=True))

    def columns(self, source: str, columns: Columns) -> dict[str, list[Any]]:
        """The answers as the columns of schemas.outputs.SHARD_OUTPUT that aren't null in an answer to a heartbeat."""
        rows, seqs, times, codes = (column.tolist() for column in self.arrays())
        request_ids = _take(columns["request_id"], rows)
        versions = _take(columns["api_version"], rows)
        return {
            "kind": ["response"] * len(rows),
            "source": [source] * len(rows),
            "partition": _take(columns["partition"], rows),
            "seq": seqs,
            "ts": times,
            "request_id": request_ids,
            "by": request_ids,
            "api": ["Heartbeat"] * len(rows),
            "api_version": versions,
            "group_id": _take(columns["group_id"], rows),
            "member_id": _take(columns["member_id"], rows),
            "error_code": codes,
            "body": [heartbeat_json(version, code) for version, code in zip(versions, codes, strict=True)],
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
        if beats is None:
            run = _run_one_by_one if rows.has_plain(start, end) else run_long_way
            run(shard, rows, (start, end), outputs, answers)
            continue
        together = _Together(shard, start, beats, answers)
        while (done := together.run()) < end:
            others = together.others()
            _run_one_by_one(shard, rows, (done, others), outputs, answers)


def run_leading(shard: Shard, rows: Rows, span: tuple[int, int], answers: HeartbeatAnswers) -> int:
    """Handles the heartbeats that a range begins with and that can be handled together; where the other rows begin.

    No handler is called, so nothing has to be kept for the case that one raises.
    """
    for start, end, beats in rows.stretches(*span):
        if beats is None:
            return start
        done = _Together(shard, start, beats, answers).run()
        if done < end:
            return done
    return span[1]


class _Together:
    """Heartbeats that stand together, of which runs are handled at once where all is in order.

    What decides about a heartbeat is checked before anything changes.
    """

    def __init__(self, shard: Shard, start: int, beats: PlainBeats, answers: HeartbeatAnswers) -> None:
        self._shard = shard
        self._start = start
        self._beats = beats
        self._answers = answers
        self._done = 0
        rest, count = shard.rest, len(beats.times)
        rest.lay_down(shard.ctx.timers, rest.wants(beats.groups, count))
        self._slots, self._places = rest.find(beats.groups, beats.group_of, beats.member_ids)
        #: Log time when each is handled, if it is not before what the shard has seen.
        self._now_ms = np.maximum.accumulate(beats.times)

    def run(self) -> int:
        """Handles heartbeats up to the first that has to be looked at on its own; which row that is."""
        count = len(self._now_ms)
        while self._done < count:
            end = self._in_order()
            if end <= self._done:
                break
            taken = self._take_down(end)
            self._done += taken
            if taken == 0:
                break
        return self._start + self._done

    def others(self) -> int:
        """Passes over what has to be looked at one by one; which row comes after that."""
        is_fine = self._accepted()
        # Up to where so many stand together again that it is worth while.
        changes = np.flatnonzero(np.diff(np.concatenate([[False], is_fine[1:], [False]]))) + 1
        begins, ends = changes[::2], changes[1::2]
        long = begins[ends - begins >= LEAST_TOGETHER]
        self._done += int(long[0]) if len(long) else len(is_fine)
        return self._start + self._done

    def _accepted(self) -> np.ndarray:
        rest_of = slice(self._done, None)
        return self._shard.rest.accepts(
            self._slots[rest_of], self._places[rest_of], self._beats.generation_ids[rest_of]
        )

    def _in_order(self) -> int:
        """How far heartbeats can be handled before one that is not in order, or a timer."""
        refused = np.flatnonzero(~self._accepted())
        end = self._done + int(refused[0]) if len(refused) else len(self._now_ms)
        timers = self._shard.ctx.timers
        in_time = int(np.searchsorted(self._now_ms, timers.bound_ms))
        if in_time < end:
            timers.find_bound()
            in_time = int(np.searchsorted(self._now_ms, timers.bound_ms))
        return min(end, in_time)

    def _take_down(self, end: int) -> int:
        shard, span = self._shard, slice(self._done, end)
        timers, first = shard.ctx.timers, self._start + self._done
        now_ms = np.maximum(self._now_ms[span], shard.ctx.now_ms)
        count = shard.rest.put_off(self._slots[span], now_ms, timers.next_seq)
        if count == 0:
            return 0
        self._answers.add(
            np.arange(first, first + count),
            np.arange(shard.next_seq, shard.next_seq + count),
            now_ms[:count],
            shard.rest.codes(self._places[span][:count]),
        )
        timers.next_seq += count
        shard.next_seq += count
        shard.ctx.now_ms = int(now_ms[count - 1])
        return count


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


def run_long_way(shard: Shard, rows: Rows, span: tuple[int, int], outputs: list[Output], _: HeartbeatAnswers) -> None:
    """Handles a range of readable rows by `Shard.handle_row`, whatever they are.

    Raises:
        PoisonRow: a handler raised; the state is then undefined.
    """
    shard.origin = None
    for index in range(*span):
        row = rows.row(index)
        if row.log_ts >= shard.ctx.timers.bound_ms:
            shard.run_timers(row.log_ts, index, outputs)
        shard.handle_row(row, index, outputs)


def _missed(shard: Shard, group_id: str | None) -> None:
    """A heartbeat took the long way. After enough of them its group is made hot."""
    if group_id is None or group_id in shard.hot:
        return
    group = shard.store.get(group_id)
    if not isinstance(group, ClassicGroup):
        return
    misses = shard.misses.get(group_id, 0) + 1
    if misses * _MEMBERS_A_MISS < len(group.members):
        shard.misses[group_id] = misses
        return
    shard.misses.pop(group_id, None)
    shard.heat(group)


def _take(column: Sequence[Any], rows: list[int]) -> list[Any]:
    # They rise, so where they are as many they are all.
    return list(column) if len(rows) == len(column) else [column[index] for index in rows]
