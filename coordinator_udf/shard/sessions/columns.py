"""Groups of which only heartbeats come: what these need to know of them, as columns.

While nothing but heartbeats comes for a group, its session timers are numbers in arrays: the heartbeats of a call are
looked up, checked and taken down all at once, and a state row holds the arrays as they are. Whoever wants to know more
of a group turns its timers into entries of `Timers` and what else heartbeats need into a `HotGroup` (`to_objects`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_udf.groups.model.timers import DEADLINE, NEVER_MS, SEQ, TIMEOUT, Timers
from coordinator_udf.shard.sessions.hot_group import HotGroup
from coordinator_udf.shard.sessions.numbers import pack_numbers, unpack_numbers

#: Groups move to the columns once heartbeats came for one of so many sessions there: all columns are made anew then.
_SESSIONS_A_HEARTBEAT: Final = 4

#: Of so many shards a process keeps what is in their indexes, which heartbeats don't change: a worker of Spark's gets
#: the same shards in each micro-batch, a few each. Of 12,400 members it is 1.3 MB, and spares 0.7 of 1.2 ms.
KEPT_INDEXES: Final = 16


class _Index(msgspec.Struct, array_like=True):
    """All that heartbeats don't change. Numbers as bytes: 32 bits each, timeouts 64."""

    group_ids: list[str]
    sizes: bytes
    generation_ids: bytes
    codes: bytes
    #: Group id -> group instance id -> member id, of the groups that have static members.
    instances: dict[str, dict[str, str]]
    timeouts_ms: bytes
    #: The member ids one after the other, and where each of them ends in there.
    member_ids: bytes
    ends: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Index)


def _numbers(values: Iterable[int] = ()) -> np.ndarray:
    return np.fromiter(values, np.int64)


@dataclass(slots=True)
class _Table:
    """Groups by place and their sessions by slot; those of a group stand together. Times in milliseconds."""

    group_ids: list[str] = field(default_factory=list)
    instances: list[dict[str, str]] = field(default_factory=list)
    starts: np.ndarray = field(default_factory=_numbers)
    sizes: np.ndarray = field(default_factory=_numbers)
    generation_ids: np.ndarray = field(default_factory=_numbers)
    codes: np.ndarray = field(default_factory=_numbers)
    is_in_columns: np.ndarray = field(default_factory=lambda: np.zeros(0, np.bool_))
    member_ids: pa.StringArray = field(default_factory=lambda: pa.array([], pa.string()))
    place_of: np.ndarray = field(default_factory=_numbers)
    deadlines_ms: np.ndarray = field(default_factory=_numbers)
    seqs: np.ndarray = field(default_factory=_numbers)
    timeouts_ms: np.ndarray = field(default_factory=_numbers)


class SessionColumns:
    """The groups of a shard whose sessions are in columns.

    Attributes:
        places: group id -> its place in the table.
        bound_ms: no session in the columns ends before.
    """

    def __init__(self, hot: dict[str, HotGroup]) -> None:
        """Makes columns without groups.

        Args:
            hot: where groups go that leave the columns.
        """
        self.places: dict[str, int] = {}
        self.bound_ms = NEVER_MS
        self._hot = hot
        self._table = _Table()
        self._has_gaps = False
        #: Place -> member id -> slot, of groups of which somebody asked for one.
        self._slots: dict[int, dict[str, int]] = {}
        self._waited = 0
        self._packed: bytes | None = None

    # -- to columns and back --------------------------------------------------------------------------------------

    def to_columns(self, timers: Timers, group_ids: Iterable[str]) -> None:
        """Moves hot groups to the columns; not those of which a session timer is of nobody who is a member."""
        groups = {
            group_id: hot
            for group_id in group_ids
            if (hot := self._hot.get(group_id)) is not None
            and hot.sessions
            and all(entry[TIMEOUT] is not None for entry in hot.sessions.values())
        }
        if not groups:
            return
        self._drop_gaps()
        for group_id in groups:
            del self._hot[group_id]
        self._append(groups, [timers.take_sessions(group_id) for group_id in groups])
        self._waited = 0

    def wants(self, group_ids: Sequence[str], count: int) -> list[str]:
        """Returns which of these groups are hot and worth moving to the columns after so many heartbeats."""
        waiting = [group_id for group_id in group_ids if group_id in self._hot]
        if not waiting:
            return []
        self._waited += count
        if self._waited * _SESSIONS_A_HEARTBEAT < len(self._table.seqs):
            return []
        return waiting

    def to_objects(self, timers: Timers, group_id: str) -> None:
        """Makes entries of a group's session timers again, if they are in the columns."""
        place = self.places.pop(group_id, None)
        if place is None:
            return
        table = self._table
        start = int(table.starts[place])
        end = start + int(table.sizes[place])
        sessions = timers.add_sessions(
            group_id,
            table.member_ids.slice(start, end - start).to_pylist(),
            table.deadlines_ms[start:end].tolist(),
            table.seqs[start:end].tolist(),
            table.timeouts_ms[start:end].tolist(),
        )
        table.is_in_columns[place] = False
        table.deadlines_ms[start:end] = NEVER_MS
        self._hot[group_id] = HotGroup(
            int(table.generation_ids[place]), int(table.codes[place]), sessions, table.instances[place]
        )
        self._has_gaps = True
        self._packed = None

    def due(self, now_ms: int) -> list[str]:
        """Returns the groups of which a session has ended by ``now_ms``."""
        if now_ms < self.bound_ms:
            return []
        table = self._table
        self.bound_ms = int(table.deadlines_ms.min(initial=NEVER_MS))
        if now_ms < self.bound_ms:
            return []
        places = np.unique(table.place_of[table.deadlines_ms <= now_ms])
        return [table.group_ids[place] for place in places.tolist()]

    def next_deadline_ms(self) -> int:
        """Returns when the first session ends if no heartbeat comes."""
        self.bound_ms = int(self._table.deadlines_ms.min(initial=NEVER_MS))
        return self.bound_ms

    # -- heartbeats -----------------------------------------------------------------------------------------------

    def find(
        self, groups: list[str], group_of: np.ndarray, member_ids: pa.StringArray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns where the sessions of heartbeats are.

        Args:
            groups: the different groups.
            group_of: of each heartbeat the place of its group in ``groups``.
            member_ids: of each heartbeat.

        Returns:
            Of each heartbeat the slot of its session, and the place of its group; -1 where there is none.
        """
        table = self._table
        places = np.array([self.places.get(group_id, -1) for group_id in groups], np.int64)
        place_of = places[group_of]
        known = places[places >= 0]
        if len(known) == 0:
            return place_of, place_of
        if not self._has_gaps and 2 * int(table.sizes[known].sum()) > len(table.seqs):
            slots = _or_none(pc.index_in(member_ids, value_set=table.member_ids))
        else:
            among = _ranges(table.starts[known], table.sizes[known])
            slots = _or_none(pc.index_in(member_ids, value_set=table.member_ids.take(pa.array(among))))
            slots[slots >= 0] = among[slots[slots >= 0]]
        # An id that two groups have is found in one of them only.
        place_of[(slots < 0) | (table.place_of[slots] != place_of)] = -1
        return slots, place_of

    def accepts(self, places: np.ndarray, generation_ids: np.ndarray) -> np.ndarray:
        """Returns which heartbeats `find` has found, of groups of the generation that they name."""
        if len(self._table.group_ids) == 0:
            return np.zeros(len(places), np.bool_)
        accepted: np.ndarray = (places >= 0) & (self._table.generation_ids[places] == generation_ids)
        return accepted

    def are_in_columns(self, places: np.ndarray) -> np.ndarray:
        """Returns which of the groups at these places are still in the columns."""
        found: np.ndarray = self._table.is_in_columns[places]
        return found

    def put_off(self, slots: np.ndarray, now_ms: np.ndarray, first_seq: int) -> int:
        """Begins sessions anew, up to the first of which the deadline would come earlier by that; how many.

        Args:
            slots: where they are; of one that is there twice the last counts.
            now_ms: when, never decreasing.
            first_seq: the number of the first of these armings.
        """
        table = self._table
        deadlines_ms = now_ms + table.timeouts_ms[slots]
        earlier = np.flatnonzero(deadlines_ms < table.deadlines_ms[slots])
        count = int(earlier[0]) if len(earlier) else len(slots)
        table.deadlines_ms[slots[:count]] = deadlines_ms[:count]
        table.seqs[slots[:count]] = np.arange(first_seq, first_seq + count)
        return count

    def put_off_one(self, group_id: str, member_id: str, deadline_ms: int, seq: int) -> bool:
        """Puts off one session in the columns; False if it can't be: there is none, or it would end earlier."""
        place, table = self.places[group_id], self._table
        slots = self._slots.get(place)
        if slots is None:
            start, size = int(table.starts[place]), int(table.sizes[place])
            member_ids = table.member_ids.slice(start, size).to_pylist()
            slots = self._slots[place] = dict(zip(member_ids, range(start, start + size), strict=True))
        slot = slots.get(member_id)
        if slot is None or deadline_ms < table.deadlines_ms[slot]:
            return False
        table.deadlines_ms[slot], table.seqs[slot] = deadline_ms, seq
        return True

    def codes(self, places: np.ndarray) -> np.ndarray:
        """Returns what heartbeats of groups are answered."""
        answers: np.ndarray = self._table.codes[places]
        return answers

    # -- the state row --------------------------------------------------------------------------------------------

    def pack(self) -> tuple[bytes, bytes, bytes]:
        """Returns all this as bytes: what heartbeats don't change; deadlines and numbers of the timers."""
        self._drop_gaps()
        table = self._table
        if self._packed is None:
            _, offsets, characters = table.member_ids.buffers()
            ends = np.frombuffer(offsets, np.int32, len(table.seqs) + 1)[1:] if len(table.seqs) else _numbers()
            index = _Index(
                table.group_ids,
                table.sizes.astype(np.int32).tobytes(),
                table.generation_ids.astype(np.int32).tobytes(),
                table.codes.astype(np.int32).tobytes(),
                {
                    group_id: instances
                    for group_id, instances in zip(table.group_ids, table.instances, strict=True)
                    if instances
                },
                table.timeouts_ms.tobytes(),
                memoryview(characters)[: ends[-1]].tobytes() if len(ends) else b"",
                ends.astype(np.int32).tobytes(),
            )
            self._packed = _encoder.encode(index)
        return self._packed, pack_numbers(table.deadlines_ms), pack_numbers(table.seqs)

    def unpack(self, packed: bytes, deadlines_ms: bytes, seqs: bytes) -> None:
        """Puts those groups into the columns that `pack` packed."""
        table, places = _unpacked(packed)
        self._table = replace(
            table,
            is_in_columns=np.ones(len(places), np.bool_),
            deadlines_ms=unpack_numbers(deadlines_ms),
            seqs=unpack_numbers(seqs),
        )
        self.places = places.copy()
        self._has_gaps = False
        self._packed = packed
        self.next_deadline_ms()

    # -- the table ------------------------------------------------------------------------------------------------

    def _append(self, groups: dict[str, HotGroup], sessions: list[dict[str, Any]]) -> None:
        table, hot = self._table, list(groups.values())
        entries = [entry for of_group in sessions for entry in of_group.values()]
        sizes = np.array([len(of_group) for of_group in sessions], np.int64)
        first, slots = len(table.group_ids), len(table.seqs)
        new = _Table(
            list(groups),
            [group.instances for group in hot],
            slots + np.cumsum(sizes) - sizes,
            sizes,
            _numbers(group.generation_id for group in hot),
            _numbers(group.error_code for group in hot),
            np.ones(len(hot), np.bool_),
            pa.array([member_id for of_group in sessions for member_id in of_group], pa.string()),
            np.repeat(np.arange(first, first + len(hot)), sizes),
            _numbers(entry[DEADLINE] for entry in entries),
            _numbers(entry[SEQ] for entry in entries),
            _numbers(entry[TIMEOUT] for entry in entries),
        )
        columns = [_together(getattr(table, name), getattr(new, name)) for name in _Table.__slots__]
        self._table = _Table(*columns)
        self.places.update(zip(groups, range(first, first + len(hot)), strict=True))
        self.bound_ms = min(self.bound_ms, int(new.deadlines_ms.min()))
        self._packed = None

    def _drop_gaps(self) -> None:
        """Makes the table anew without the groups that have left it."""
        if not self._has_gaps:
            return
        table = self._table
        stays = table.is_in_columns
        slots = stays[table.place_of]
        sizes = table.sizes[stays]
        self._table = _Table(
            [group_id for group_id, stay in zip(table.group_ids, stays.tolist(), strict=True) if stay],
            [instances for instances, stay in zip(table.instances, stays.tolist(), strict=True) if stay],
            np.cumsum(sizes) - sizes,
            sizes,
            table.generation_ids[stays],
            table.codes[stays],
            np.ones(len(sizes), np.bool_),
            table.member_ids.filter(pa.array(slots)),
            np.repeat(np.arange(len(sizes)), sizes),
            table.deadlines_ms[slots],
            table.seqs[slots],
            table.timeouts_ms[slots],
        )
        self.places = dict(zip(self._table.group_ids, range(len(sizes)), strict=True))
        self._has_gaps = False
        self._slots.clear()


@lru_cache(maxsize=KEPT_INDEXES)
def _unpacked(packed: bytes) -> tuple[_Table, dict[str, int]]:
    """Returns what was packed but for times, and the places of the groups. Nobody changes it: it is given out again."""
    index = _decoder.decode(packed)
    sizes = np.frombuffer(index.sizes, np.int32).astype(np.int64)
    offsets = b"\0\0\0\0" + index.ends
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(index.member_ids)]
    table = _Table(
        group_ids=index.group_ids,
        instances=[index.instances.get(group_id, {}) for group_id in index.group_ids],
        starts=np.cumsum(sizes) - sizes,
        sizes=sizes,
        generation_ids=np.frombuffer(index.generation_ids, np.int32).astype(np.int64),
        codes=np.frombuffer(index.codes, np.int32).astype(np.int64),
        member_ids=pa.Array.from_buffers(pa.string(), len(index.ends) // 4, buffers),
        place_of=np.repeat(np.arange(len(sizes)), sizes),
        timeouts_ms=np.frombuffer(index.timeouts_ms, np.int64),
    )
    return table, dict(zip(index.group_ids, range(len(sizes)), strict=True))


def _together(first: Any, second: Any) -> Any:
    if isinstance(first, list):
        return first + second
    if isinstance(first, np.ndarray):
        return np.concatenate([first, second])
    return pa.concat_arrays([first, second])


def _or_none(found: pa.Array) -> np.ndarray:
    """Places as `pyarrow.compute.index_in` gives them, with -1 for those that there aren't."""
    return np.array(pc.fill_null(found, -1) if found.null_count else found, np.int64)


def _ranges(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Returns the numbers of all ranges, one range after the other."""
    ends = np.cumsum(sizes)
    numbers: np.ndarray = np.arange(int(ends[-1])) + np.repeat(starts - (ends - sizes), sizes)
    return numbers
