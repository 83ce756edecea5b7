"""When each member of a world next does something by itself."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping

from coordinator_udf.simulation.process import Doing, Process

#: A time in milliseconds since the epoch, how often the process was woken before it, and the process's name.
Deadline = tuple[int, int, str]


class Deadlines:
    """Members' next deadlines, in the order in which members act: those of one moment as `World` says."""

    def __init__(self, processes: Mapping[str, Process]) -> None:
        self._processes = processes
        self._planned: list[Deadline] = []
        #: Members that were given something since deadlines were last planned, and the earliest times of these.
        self._given: dict[str, tuple[Process, int]] = {}

    def watch(self, process: Process, earliest_ms: int) -> None:
        """Has a member's next deadline planned: when this moment's inputs are all given, the last of which counts."""
        process.wakes += 1
        self._given[process.name] = process, earliest_ms

    def plan(self) -> None:
        """Plans the deadlines of those that were given something."""
        if not self._given:
            return
        for name, (process, earliest_ms) in self._given.items():
            if process.doing is Doing.GONE:
                continue
            deadline = process.next_deadline_ms()
            if deadline is not None:
                # A deadline at which nothing happened is not met twice in one millisecond.
                entry = deadline if deadline > earliest_ms else earliest_ms, process.wakes, name
                heapq.heappush(self._planned, entry)
        self._given.clear()

    def next(self) -> Deadline | None:
        """Returns the next deadline of a member that is still its next; forgets those that were put off."""
        while self._planned:
            deadline, wakes, name = self._planned[0]
            process = self._processes[name]
            if wakes == process.wakes and process.doing is not Doing.GONE:
                return deadline, wakes, name
            heapq.heappop(self._planned)
        return None

    def take_next(self) -> Process:
        """Takes the next deadline off, which `next` has just found; returns whose it is."""
        return self._processes[heapq.heappop(self._planned)[2]]

    def put_back(self, process: Process, until_ms: int) -> None:
        """Plans again, for later, the deadline of a process that was just taken off."""
        heapq.heappush(self._planned, (until_ms, process.wakes, process.name))

    def put_off(self, processes: Collection[str], by_ms: int) -> None:
        """Lets some processes' deadlines be so much later."""
        # Most entries are of deadlines that were put off since: to forget them here saves sorting them in.
        self._planned = [
            (deadline + by_ms if name in processes else deadline, wakes, name)
            for deadline, wakes, name in self._planned
            if wakes == self._processes[name].wakes
        ]
        heapq.heapify(self._planned)
