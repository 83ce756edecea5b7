"""The short way of heartbeats, which are nearly all rows: one look at the generation, a new deadline, an answer.

Where heartbeats of stable groups stand together, all are checked and answered at once; elsewhere one after the other,
between the rows that take the long way. Their answers are kept as columns. `Shard.handle_row` says the same.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from coordinator_udf.groups.model.timers import DEADLINE, SEQ, TIMEOUT
from coordinator_udf.shard.batch_rows import BatchRows, PlainHeartbeats
from coordinator_udf.shard.shard import Shard

#: So many rows at a time are looked at together; a shard's sessions are hashed once for them. Measured with 16,000
#: heartbeats of 4,000 members in a call (CPU time each, the lower quarter of 25 runs): 0.22 us, with half as many 0.29,
#: with twice as many 0.22. With a commit in ten rows, or a rebalance in 200, these don't differ.
_ROWS_TOGETHER: Final = 8_192

#: Making a group hot costs a look at each member: that is worth while once one in so many was heard.
_MEMBERS_A_MISS: Final = 16


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
        """Returns where the answers of now end, for `cut`."""
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
        """Returns rows, numbers of the outputs, times and error codes of all answers."""
        self.mark()
        if len(self._blocks) == 1:
            return self._blocks[0]
        nothing = np.zeros(0, np.int64)
        return tuple(np.concatenate(parts) for parts in zip((nothing,) * 4, *self._blocks, strict=True))


def run_short_way(shard: Shard, rows: BatchRows, span: tuple[int, int], answers: HeartbeatAnswers) -> None:
    """Handles a range of readable rows: heartbeats of hot groups shortly, all other rows by `Shard.handle_row`.

    Raises:
        PoisonRow: a handler raised; the state is then undefined.
    """
    shard.origin = None
    for start in range(span[0], span[1], _ROWS_TOGETHER):
        _run_piece(shard, rows, (start, min(start + _ROWS_TOGETHER, span[1])), answers)


def _run_piece(shard: Shard, rows: BatchRows, span: tuple[int, int], answers: HeartbeatAnswers) -> None:
    row, end = span
    heartbeats = rows.plain_heartbeats(row, end)
    together = None if heartbeats is None else _Together(shard, heartbeats, answers)
    while row < end:
        others = end
        if together is not None:
            row = together.run(row)
            others = together.next_after(row, end)
        if row < end:
            run = _run_one_by_one if rows.has_plain(row, others) else run_long_way
            run(shard, rows, (row, others), answers)
        row = others


def run_leading(shard: Shard, rows: BatchRows, span: tuple[int, int], answers: HeartbeatAnswers) -> int:
    """Handles the heartbeats that a range begins with and that can be handled together; where the other rows begin.

    No handler is called, so nothing has to be kept for the case that one raises.
    """
    row, end = span
    while row < end:
        piece = min(row + _ROWS_TOGETHER, end)
        heartbeats = rows.plain_heartbeats(row, piece)
        row = row if heartbeats is None else _Together(shard, heartbeats, answers).run(row)
        if row < piece:
            break
    return row


class _Together:
    """The plain heartbeats among some rows, of which those that stand together are handled at once, if all is in order.

    What decides about a heartbeat is checked before anything changes.
    """

    def __init__(self, shard: Shard, heartbeats: PlainHeartbeats, answers: HeartbeatAnswers) -> None:
        self._shard = shard
        self._answers = answers
        self._columns = columns = shard.session_columns
        #: The heartbeat that comes next.
        self._at = 0
        columns.to_columns(shard.ctx.timers, columns.wants(heartbeats.groups, len(heartbeats.times)))
        self._slots, self._places = columns.find(heartbeats.groups, heartbeats.group_of, heartbeats.member_ids)
        #: Those whose group was in the columns when this was made, and is of the generation that they name.
        self._is_fine = columns.accepts(self._places, heartbeats.generation_ids)
        #: Log time when each is handled, if it is not before what the shard has seen.
        self._times = np.maximum.accumulate(heartbeats.times)
        self._rows = heartbeats.rows.tolist()
        self._gaps = [*(np.flatnonzero(np.diff(heartbeats.rows) != 1) + 1).tolist(), len(self._rows)]
        self._gap = 0

    def run(self, row: int) -> int:
        """Handles heartbeats from a row on; the first row after it that has to be looked at on its own."""
        while self._at < len(self._rows) and self._rows[self._at] == row:
            taken = self._take_down(self._in_order())
            if taken == 0:
                break
            self._at += taken
            row += taken
        return row

    def next_after(self, row: int, end: int) -> int:
        """Returns where `run` can go on: behind the rows that have to be looked at one by one, or ``end``."""
        at = self._at + (self._at < len(self._rows) and self._rows[self._at] == row)
        if self._shard.session_columns is not self._columns:
            at = len(self._rows)
        while at < len(self._rows):
            fine = self._is_fine[at:]
            step = int(fine.argmax())
            at += step if fine[step] else len(fine)
            if at == len(self._rows) or self._columns.are_in_columns(self._places[at : at + 1])[0]:
                break
            self._is_fine[at:] &= self._columns.are_in_columns(self._places[at:])
        self._at = at
        return self._rows[at] if at < len(self._rows) else end

    def _in_order(self) -> int:
        """Returns up to which of consecutive heartbeats all are in order, and no timer is due."""
        while self._gaps[self._gap] <= self._at:
            self._gap += 1
        at, end = self._at, self._gaps[self._gap]
        if self._shard.session_columns is not self._columns or not self._is_fine[at]:
            return at
        fine = self._is_fine[at:end] & self._columns.are_in_columns(self._places[at:end])
        if not fine.all():
            end = at + int(fine.argmin())
        timers = self._shard.ctx.timers
        if end > at and int(self._times[end - 1]) >= timers.bound_ms:
            in_time = int(np.searchsorted(self._times[at:end], timers.bound_ms))
            if in_time == 0:
                timers.find_bound()
                in_time = int(np.searchsorted(self._times[at:end], timers.bound_ms))
            end = at + in_time
        return end

    def _take_down(self, end: int) -> int:
        shard, at = self._shard, self._at
        if end == at:
            return 0
        timers = shard.ctx.timers
        now_ms = np.maximum(self._times[at:end], shard.ctx.now_ms)
        count = shard.session_columns.put_off(self._slots[at:end], now_ms, timers.next_seq)
        if count == 0:
            return 0
        first = self._rows[at]
        self._answers.add(
            np.arange(first, first + count),
            np.arange(shard.ctx.next_seq, shard.ctx.next_seq + count),
            now_ms[:count],
            shard.session_columns.codes(self._places[at : at + count]),
        )
        timers.next_seq += count
        shard.ctx.next_seq += count
        shard.ctx.now_ms = int(now_ms[count - 1])
        return count


def _run_one_by_one(shard: Shard, rows: BatchRows, span: tuple[int, int], answers: HeartbeatAnswers) -> None:
    """Handles rows in a loop. It keeps the shard's counters in locals and gives them back before anybody may look."""
    start, end = span
    ctx, hot = shard.ctx, shard.hot
    timers = ctx.timers
    now_ms, next_seq, armed, bound_ms = ctx.now_ms, ctx.next_seq, timers.next_seq, timers.bound_ms
    add_row, add_seq = answers.rows.append, answers.seqs.append
    add_time, add_code = answers.times.append, answers.codes.append
    for index, (is_plain, ts, group_id, member_id, generation_id, instance) in enumerate(
        rows.heartbeats(start, end), start
    ):
        if is_plain:
            if ts >= bound_ms:
                # Mostly no timer is due, but the deadlines that the bound was made of have been put off since.
                ctx.now_ms, ctx.next_seq, timers.next_seq = now_ms, next_seq, armed
                shard.run_timers(ts, index)
                now_ms, next_seq, armed, bound_ms = ctx.now_ms, ctx.next_seq, timers.next_seq, timers.bound_ms
            group = hot.get(group_id) or shard.to_objects(group_id)
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
        ctx.now_ms, ctx.next_seq, timers.next_seq = now_ms, next_seq, armed
        row = rows.row(index)
        if ts >= bound_ms:
            shard.run_timers(ts, index)
        shard.handle_row(row, index)
        if is_plain:
            _missed(shard, row.group_id)
        ctx, timers = shard.ctx, shard.ctx.timers
        now_ms, next_seq, armed, bound_ms = ctx.now_ms, ctx.next_seq, timers.next_seq, timers.bound_ms
    ctx.now_ms, ctx.next_seq, timers.next_seq = now_ms, next_seq, armed


def run_long_way(shard: Shard, rows: BatchRows, span: tuple[int, int], _: HeartbeatAnswers) -> None:
    """Handles a range of readable rows by `Shard.handle_row`, whatever they are.

    Raises:
        PoisonRow: a handler raised; the state is then undefined.
    """
    shard.origin = None
    for index in range(*span):
        row = rows.row(index)
        if row.log_ts >= shard.ctx.timers.bound_ms:
            shard.run_timers(row.log_ts, index)
        shard.handle_row(row, index)


def _missed(shard: Shard, group_id: str | None) -> None:
    """Counts a heartbeat that took the long way; after enough of them its group is made hot."""
    if group_id is None or group_id in shard.hot:
        return
    group = shard.store.classic(group_id)
    if group is None:
        return
    misses = shard.misses.get(group_id, 0) + 1
    if misses * _MEMBERS_A_MISS < len(group.members):
        shard.misses[group_id] = misses
        return
    shard.misses.pop(group_id, None)
    shard.heat(group)
