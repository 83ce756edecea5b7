"""The timers of a shard: deadlines in log time, fired in order of deadline and, where equal, in the order armed.

Nearly all that ever happens to a timer is that a heartbeat puts a session's deadline off. So an entry may be put off in
place, and the heap, which is built only when a deadline could have come, holds lower bounds of deadlines: an entry that
comes up too early goes back with the deadline that it has now.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, NamedTuple

#: What a timer is for.
SESSION = "session"
JOIN = "join"
SYNC = "sync"
REBALANCE = "rebalance"
EXPIRY = "expiry"

_NEVER = 2**63 - 1

# An entry is a list, for it is changed millions of times: its places are named here.
DEADLINE, SEQ, HEAPED, TIMEOUT, KEY, DATA = range(6)
#: [deadline or None once it is disarmed, seq, its item in the heap if any, session timeout if heartbeats may put it off
#: without looking at the group, key, data].
Entry = list[Any]
_Item = tuple[int, int, Entry]


#: Makes the entries of a group that rests at a place of a state row.
Wake = Callable[["Timers", str, int], None]


class TimerKey(NamedTuple):
    """One timer a key: arming it again replaces it."""

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
        resting: groups whose session timers have no entries yet, and their places in the state row.
        bound_ms: no timer is due before.
    """

    def __init__(self, next_seq: int = 0) -> None:
        self.next_seq = next_seq
        self.resting: dict[str, int] = {}
        self._wake: Wake | None = None
        self._sessions: dict[str, dict[str, Entry]] = {}
        self.bound_ms = _NEVER
        self._others: dict[TimerKey, Entry] = {}
        self._heap: list[_Item] | None = None

    def arm(self, key: TimerKey, deadline_ms: int, *data: int) -> None:
        """Arms a timer, in place of one with the same key."""
        self._set(deadline_ms, self.next_seq, key, data)
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
        """The entries of a group's session timers by member id. Whoever changes one only ever puts its deadline off."""
        if (place := self.resting.pop(group_id, None)) is not None and self._wake is not None:
            self._wake(self, group_id, place)
        return self._sessions.get(group_id, {})

    def wake_all(self) -> None:
        """Makes the entries of all session timers."""
        for group_id in list(self.resting):
            self.sessions_of(group_id)

    def rest(self, places: dict[str, int], wake: Wake) -> None:
        """Begins with session timers of which only their groups' places in a state row are known.

        Args:
            places: group id -> place.
            wake: is given these timers, a group and its place when somebody needs that group's timers, and calls
                `add_sessions`. The caller of `rest` lowers ``bound_ms``.
        """
        self.resting, self._wake = places, wake

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
        self._sessions[group_id] = sessions
        return sessions

    def cancel(self, key: TimerKey) -> None:
        """Disarms a timer, if it is armed."""
        found = self.sessions_of(key.group_id).get(key.member_id) if key.kind == SESSION else self._others.get(key)
        if found is not None:
            self._forget(found)

    def is_armed(self, key: TimerKey) -> bool:
        """Whether a timer is armed."""
        if key.kind == SESSION:
            return key.member_id in self.sessions_of(key.group_id)
        return key in self._others

    def pop_due(self, now_ms: int) -> Timer | None:
        """Takes the next timer with a deadline of at most ``now_ms``."""
        if now_ms < self.bound_ms:
            return None
        heap = self._heap if self._heap is not None else self._build_heap()
        while heap and heap[0][0] <= now_ms:
            item = heapq.heappop(heap)
            entry = item[2]
            if entry[HEAPED] is not item or entry[DEADLINE] is None:
                continue  # disarmed, or brought forward since
            if item[0] != entry[DEADLINE] or item[1] != entry[SEQ]:
                self._push(heap, entry)  # put off since
                continue
            self._forget(entry)
            return Timer(item[0], item[1], entry[KEY], entry[DATA])
        self.bound_ms = heap[0][0] if heap else _NEVER
        return None

    def next_deadline_ms(self) -> int | None:
        """The earliest deadline; None if no timer is armed."""
        return min((entry[DEADLINE] for entry in self.entries()), default=None)

    def entries(self) -> Iterable[Entry]:
        """Every armed entry, in no order that means anything."""
        self.wake_all()
        yield from self._others.values()
        for members in self._sessions.values():
            yield from members.values()

    def others(self, groups: Container[str]) -> list[Entry]:
        """Every armed entry that is not a session's, and those of sessions of other groups than these.

        Groups that rest are none of the others.
        """
        left_out = [sessions for group_id, sessions in self._sessions.items() if group_id not in groups]
        return [*self._others.values(), *(entry for sessions in left_out for entry in sessions.values())]

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
        for entry in self.entries():
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
