"""What is to happen in a world, in the order of time, and what time it is."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection

from coordinator_udf.simulation import events as e

#: An event with its time, its place, its number, and whether the world's plan has it.
_Entry = tuple[int, float, int, bool, e.Event]
#: What happens to a member in one millisecond, and of what it does, is some tens of things at most.
_MOST_AT_ONCE = 100


class Agenda:
    """Events to come; those of one time in the order of their places, then in that in which they were planned.

    Attributes:
        now_ms: the world's time, in milliseconds since the epoch.
    """

    def __init__(self, start_ms: int, members: int) -> None:
        """Begins at a time, in milliseconds since the epoch, for so many members."""
        self.now_ms = start_ms
        self._most_at_once = _MOST_AT_ONCE * (members + 10)
        self._at_once = 0
        self._order = 0
        self._queue: list[_Entry] = []
        #: Those timeouts that came in order, most of which are over before they come up: they needn't be sorted in.
        self._timeouts: deque[_Entry] = deque()

    def at(self, ts_ms: int, event: e.Event, *, place: float = 0, is_of_plan: bool = False) -> None:
        """Plans an event, for now if its time is past.

        Args:
            place: where it comes among the events of its millisecond, before those of a higher place.
        """
        self._order = order = self._order + 1
        heapq.heappush(self._queue, (ts_ms if ts_ms > self.now_ms else self.now_ms, place, order, is_of_plan, event))

    def goes_on(self, now_ms: int) -> bool:
        """Lets it be a time, or goes on at the same. Returns False if that goes on and on."""
        self._at_once = self._at_once + 1 if now_ms == self.now_ms else 0
        self.now_ms = now_ms
        return self._at_once <= self._most_at_once

    def times_out(self, ts_ms: int, event: e.TimesOut, *, place: float = 0) -> None:
        """Plans, as `at` does, that a request is given up, which doesn't happen if it is answered before."""
        timeouts = self._timeouts
        while timeouts and timeouts[-1][0] > ts_ms and _is_over(timeouts[-1][4]):
            timeouts.pop()
        if timeouts and timeouts[-1][:2] > (ts_ms, place):
            self.at(ts_ms, event, place=place)
        else:
            self._order = order = self._order + 1
            timeouts.append((ts_ms, place, order, False, event))

    def next_ms(self, never_ms: int) -> int:
        """Returns the time of the next event, a time that is told if there is none."""
        queue, timeouts = self._queue, self._timeouts
        while queue and _is_over(queue[0][4]):
            heapq.heappop(queue)
        next_ms = queue[0][0] if queue else never_ms
        while timeouts and timeouts[0][0] <= next_ms:
            if not _is_over(timeouts[0][4]):
                return timeouts[0][0]
            timeouts.popleft()
        return next_ms

    def pop(self) -> tuple[bool, e.Event]:
        """Takes the next event off, which `next_ms` has just found; returns whether the world's plan has it, and it."""
        queue, timeouts = self._queue, self._timeouts
        entry = timeouts.popleft() if timeouts and (not queue or timeouts[0] < queue[0]) else heapq.heappop(queue)
        return entry[3], entry[4]

    def put_off(self, by_ms: int, processes: Collection[str] | None) -> None:
        """Lets the events of some processes, or (None) of all, come so much later, but for those that the plan has."""
        planned = [*self._queue, *self._timeouts]
        self._timeouts.clear()
        self._queue = [
            (ts_ms + by_ms, place, order, False, event)
            if not is_of_plan and (processes is None or e.process_of(event) in processes)
            else (ts_ms, place, order, is_of_plan, event)
            for ts_ms, place, order, is_of_plan, event in planned
            if is_of_plan or not _is_over(event)
        ]
        heapq.heapify(self._queue)


def _is_over(event: e.Event) -> bool:
    """Tells whether an event is that of a request that was answered before it would have been given up."""
    return type(event) is e.TimesOut and event.req not in event.connection.in_flight
