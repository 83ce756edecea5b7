"""The timers of a shard: deadlines in log time, fired in order of deadline and, where equal, in the order armed.

Nearly all that ever happens to a timer is that a heartbeat puts a session's deadline off. So an entry may be put off in
place, and the heap, which is built only when a deadline could have come, holds lower bounds of deadlines: an entry that
comes up too early goes back with the deadline that it has now.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

#: What a timer is for.
SESSION = "session"
JOIN = "join"
SYNC = "sync"
REBALANCE = "rebalance"
EXPIRY = "expiry"
COMPUTE = "compute"
REGEX = "regex"

#: Later than any deadline.
NEVER_MS = 2**63 - 1

# An entry is a list, for it is changed millions of times: its places are named here.
DEADLINE, SEQ, HEAPED, TIMEOUT, KEY, DATA = range(6)
#: In this order: the deadline, None once it is disarmed; seq; its item in the heap, if it has one; the session timeout,
#: in a group where a heartbeat does nothing but put its timer off, else None; the key; data.
Entry = list[Any]
_Item = tuple[int, int, Entry]


class SessionTimers(Protocol):
    """Session timers as a shard keeps them between micro-batches: as Arrow columns (shard/sessions).

    An `Entry` of one is made only when somebody asks for those of its group.
    """

    places: dict[str, int]
    bound_ms: int

    def to_objects(self, timers: Timers, group_id: str) -> None:
        """Gives the session timers of a group in the columns to `Timers.add_sessions`."""

    def due(self, now_ms: int) -> list[str]:
        """Returns the groups that have a session timer with a deadline of at most ``now_ms``.

        Makes ``bound_ms`` exact.
        """

    def put_off_one(self, group_id: str, member_id: str, deadline_ms: int, seq: int) -> bool:
        """Puts off a session timer of a group in the columns; False if it can't be."""

    def next_deadline_ms(self) -> int:
        """Returns the earliest deadline; NEVER_MS if there is none."""


class TimerKey(NamedTuple):
    """Names a timer. Arming a second one of the same name replaces the first."""

    kind: str
    group_id: str = ""
    member_id: str = ""


class Timer(NamedTuple):
    """An armed timer. ``deadline_ms`` in log time; ``data`` are numbers that its handler wants back."""

    deadline_ms: int
    seq: int
    key: TimerKey
    data: tuple[int, ...] = ()


class Timers:
    """All armed timers of a shard.

    Attributes:
        next_seq: the number of the next arming.
        bound_ms: no timer is due before.
    """

    def __init__(self, columns: SessionTimers | None = None, next_seq: int = 0) -> None:
        self.next_seq = next_seq
        self._columns = columns
        self._sessions: dict[str, dict[str, Entry]] = {}
        self.bound_ms = NEVER_MS
        self._others: dict[TimerKey, Entry] = {}
        self._heap: list[_Item] | None = None

    def arm(self, key: TimerKey, deadline_ms: int, *data: int) -> None:
        """Arms a timer, in place of one with the same key."""
        self._set(deadline_ms, self.next_seq, key, data)
        self.next_seq += 1

    def arm_session(self, group_id: str, member_id: str, deadline_ms: int) -> None:
        """Arms a member's session timer, in place of one that it may have."""
        if (
            self._columns is not None
            and group_id in self._columns.places
            and self._columns.put_off_one(group_id, member_id, deadline_ms, self.next_seq)
        ):
            self.next_seq += 1
            return
        self.arm_sessions(group_id, [(member_id, deadline_ms)])

    def arm_sessions(self, group_id: str, deadlines_ms: Iterable[tuple[str, int]]) -> None:
        """Arms session timers of a group's members, in place of those that they may have."""
        sessions = self.sessions_of(group_id)
        for member_id, deadline_ms in deadlines_ms:
            entry = sessions.get(member_id)
            if entry is None or deadline_ms < entry[DEADLINE]:
                self.arm(TimerKey(SESSION, group_id, member_id), deadline_ms)
                sessions = self._sessions[group_id]
            else:
                entry[DEADLINE], entry[SEQ], entry[DATA] = deadline_ms, self.next_seq, ()
                self.next_seq += 1

    def set(self, timer: Timer) -> Entry:
        """Arms a timer with the number that it already has."""
        return self._set(*timer)

    def _set(self, deadline_ms: int, seq: int, key: TimerKey, data: tuple[int, ...]) -> Entry:
        entries: dict[Any, Entry]
        if key.kind == SESSION:
            self.sessions_of(key.group_id)
            entries = self._sessions.setdefault(key.group_id, {})
            name: Any = key.member_id
        else:
            entries, name = self._others, key
        entry = entries.get(name)
        if entry is None:
            entry = entries[name] = [deadline_ms, seq, None, None, key, data]
        else:
            entry[DEADLINE], entry[SEQ], entry[DATA] = deadline_ms, seq, data
        if entry[HEAPED] is None or deadline_ms < entry[HEAPED][0]:
            self._bring_forward(entry)
        return entry

    def sessions_of(self, group_id: str) -> dict[str, Entry]:
        """Returns the entries of a group's session timers by member id.

        A caller may change an entry only by moving its deadline later, which the heap allows for.
        """
        if self._columns is not None and group_id in self._columns.places:
            self._columns.to_objects(self, group_id)
        return self._sessions.get(group_id, {})

    def all_to_objects(self) -> None:
        """Makes the entries of all session timers."""
        for group_id in list(self._columns.places) if self._columns is not None else ():
            self.sessions_of(group_id)

    def take_sessions(self, group_id: str) -> dict[str, Entry]:
        """Gives away the entries of a group's session timers, which are in the columns from now on."""
        # The heap still has items of these entries. It is dropped, and built again when it is needed.
        self._heap = None
        return self._sessions.pop(group_id)

    def add_sessions(
        self,
        group_id: str,
        member_ids: Sequence[str],
        deadlines_ms: Iterable[int],
        seqs: Iterable[int],
        timeouts_ms: Iterable[int],
    ) -> dict[str, Entry]:
        """Arms a group's session timers as they were when state was written."""
        sessions: dict[str, Entry] = {
            member_id: [deadline_ms, seq, None, timeout_ms, None, ()]
            for member_id, deadline_ms, seq, timeout_ms in zip(member_ids, deadlines_ms, seqs, timeouts_ms, strict=True)
        }
        for member_id, entry in sessions.items():
            entry[KEY] = TimerKey(SESSION, group_id, member_id)
            if self._heap is not None:
                self._push(self._heap, entry)
        self._sessions[group_id] = sessions
        return sessions

    def cancel(self, key: TimerKey) -> None:
        """Disarms a timer, if it is armed."""
        found = self.sessions_of(key.group_id).get(key.member_id) if key.kind == SESSION else self._others.get(key)
        if found is not None:
            self._forget(found)

    def is_armed(self, key: TimerKey) -> bool:
        """Returns whether a timer is armed."""
        if key.kind == SESSION:
            return key.member_id in self.sessions_of(key.group_id)
        return key in self._others

    def pop_due(self, now_ms: int) -> Timer | None:
        """Takes the next timer with a deadline of at most ``now_ms``."""
        if now_ms < self.bound_ms:
            return None
        for group_id in self._columns.due(now_ms) if self._columns is not None else ():
            self.sessions_of(group_id)
        deadline_ms, seq, entry = self._first()
        if entry is None or deadline_ms > now_ms:
            self.bound_ms = deadline_ms if self._columns is None else min(deadline_ms, self._columns.bound_ms)
            return None
        heapq.heappop(self._heap or [])
        self._forget(entry)
        return Timer(deadline_ms, seq, entry[KEY], entry[DATA])

    def peek(self) -> tuple[int, int]:
        """Returns deadline and number of the timer that is due next and leaves it armed; `NEVER_MS` and 0 if none is.

        Timers in the columns are not looked at.
        """
        deadline_ms, seq, _ = self._first()
        return deadline_ms, seq

    def find_bound(self) -> None:
        """Makes ``bound_ms`` the earliest deadline that there is."""
        deadline_ms, _, _ = self._first()
        self.bound_ms = deadline_ms if self._columns is None else min(deadline_ms, self._columns.next_deadline_ms())

    def _first(self) -> tuple[int, int, Entry | None]:
        """Drops entries that were put off from the heap; returns the first one left, with its deadline and number."""
        heap = self._heap if self._heap is not None else self._build_heap()
        while heap:
            item = heap[0]
            entry = item[2]
            if entry[HEAPED] is item and item[0] == entry[DEADLINE] and item[1] == entry[SEQ]:
                return item[0], item[1], entry
            heapq.heappop(heap)
            if entry[HEAPED] is item and entry[DEADLINE] is not None:
                # It was put off. An entry that was disarmed needs no item, one that was brought forward has another.
                self._push(heap, entry)
        return NEVER_MS, 0, None

    def next_deadline_ms(self) -> int | None:
        """Returns the earliest deadline; None if no timer is armed."""
        earliest = min((entry[DEADLINE] for entry in self.as_objects()), default=NEVER_MS)
        if self._columns is not None:
            earliest = min(earliest, self._columns.next_deadline_ms())
        return None if earliest == NEVER_MS else earliest

    def put_off_sessions(self, by_ms: int, groups: Iterable[str]) -> None:
        """Moves the deadlines of all sessions of some groups later by ``by_ms`` milliseconds."""
        for group_id in groups:
            for entry in self.sessions_of(group_id).values():
                entry[DEADLINE] += by_ms

    def entries(self) -> Iterable[Entry]:
        """Returns every armed entry, in no order that means anything."""
        self.all_to_objects()
        return self.as_objects()

    def in_order(self) -> list[Timer]:
        """Returns every armed timer, in the order in which they are to fire."""
        entries = sorted(self.entries(), key=lambda entry: (entry[DEADLINE], entry[SEQ]))
        return [Timer(entry[DEADLINE], entry[SEQ], entry[KEY], entry[DATA]) for entry in entries]

    def as_objects(self) -> list[Entry]:
        """Returns every armed timer that is an entry, so none of those in the columns."""
        sessions = self._sessions.values()
        return [*self._others.values(), *(entry for members in sessions for entry in members.values())]

    # -- the heap -------------------------------------------------------------------------------------------------

    def _bring_forward(self, entry: Entry) -> None:
        if self._heap is not None:
            self._push(self._heap, entry)
        self.bound_ms = min(self.bound_ms, entry[DEADLINE])

    def _push(self, heap: list[_Item], entry: Entry) -> None:
        item = (entry[DEADLINE], entry[SEQ], entry)
        entry[HEAPED] = item
        heapq.heappush(heap, item)

    def _build_heap(self) -> list[_Item]:
        heap: list[_Item] = []
        for entry in self.as_objects():
            entry[HEAPED] = item = (entry[DEADLINE], entry[SEQ], entry)
            heap.append(item)
        heapq.heapify(heap)
        self._heap = heap
        return heap

    def _forget(self, entry: Entry) -> None:
        entry[DEADLINE] = None
        key: TimerKey = entry[KEY]
        if key.kind == SESSION:
            members = self._sessions[key.group_id]
            del members[key.member_id]
            if not members:
                del self._sessions[key.group_id]
        else:
            del self._others[key]
