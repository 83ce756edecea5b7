"""What is to happen in a world, in the order of time, and what time it is."""

from __future__ import annotations

import heapq
from collections.abc import Collection

from coordinator_udf.simulation import events as e


class Agenda:
    """Events to come; those of one time in the order of their places, then in that in which they were planned.

    Attributes:
        now_ms: the world's time, in milliseconds since the epoch.
    """

    def __init__(self, start_ms: int) -> None:
        self.now_ms = start_ms
        self._order = 0
        #: Events with their times, their places, their numbers, and whether the world's plan has them.
        self._queue: list[tuple[int, float, int, bool, e.Event]] = []

    def at(self, ts_ms: int, event: e.Event, *, place: float = 0, is_of_plan: bool = False) -> None:
        """Plans an event, for now if its time is past.

        Args:
            place: where it comes among the events of its millisecond, before those of a higher place.
        """
        self._order += 1
        heapq.heappush(self._queue, (max(ts_ms, self.now_ms), place, self._order, is_of_plan, event))

    def next_ms(self) -> int | None:
        """Returns the time of the next event, None if there is none."""
        queue = self._queue
        while queue and _is_over(queue[0][4]):
            heapq.heappop(queue)
        return queue[0][0] if queue else None

    def pop(self) -> tuple[bool, e.Event]:
        """Takes the next event off; returns it, and before it whether the world's plan has it."""
        _, _, _, is_of_plan, event = heapq.heappop(self._queue)
        return is_of_plan, event

    def put_off(self, by_ms: int, processes: Collection[str] | None) -> None:
        """Lets the events of some processes, or (None) of all, come so much later, but for those that the plan has."""
        self._queue = [
            (ts_ms + by_ms, place, order, False, event)
            if not is_of_plan and (processes is None or e.process_of(event) in processes)
            else (ts_ms, place, order, is_of_plan, event)
            for ts_ms, place, order, is_of_plan, event in self._queue
            if is_of_plan or not _is_over(event)
        ]
        heapq.heapify(self._queue)


def _is_over(event: e.Event) -> bool:
    """Tells whether an event is that of a request that was answered before it would have been given up."""
    return isinstance(event, e.TimesOut) and event.req not in event.connection.in_flight
