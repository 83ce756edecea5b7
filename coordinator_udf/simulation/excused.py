"""Who may believe to own what is another's by now, at each moment of a world."""

from __future__ import annotations

from collections import deque

from coordinator_udf.simulation.history import (
    NO_LIMIT,
    ApplicationEvent,
    History,
    KnownMembership,
    Removed,
    Replaced,
    TurnedAway,
)


class Excused:
    """The processes that may believe to own what is another's by now.

    Who was removed is excused until it has heard of it: its application is told that it lost what it had, or its member
    has a new membership, of a generation or epoch that there wasn't yet when it was removed. Who is removed under an id
    that it has no more isn't. A static member of the classic protocol is removed by the next one of its instance, too,
    and a member of a full group as it is turned away: its application is told by an exception, and may poll on.
    """

    def __init__(self, history: History) -> None:
        self._process_of = history.process_of
        removed = *history.removals, *history.dismissals
        to_come: list[tuple[int, int, KnownMembership | Removed | TurnedAway]] = [
            (one.ts_ms, 0, one) for one in removed
        ]
        to_come += [(one.ts_ms, 0, one) for one in history.turned_away]
        to_come += [(one.ts_ms, 0, one) for one in history.replacements if self._may_live_on(one, history)]
        to_come += [(one.ts_ms, one.after, one) for one in history.memberships]
        self._to_come = deque(sorted(to_come, key=lambda one: one[:2]))
        self._members: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        self._gone: set[str] = set()
        self._removed: dict[str, Removed] = {}
        self._stalled: set[str] = set()
        self._closes_ms: dict[str, int] = {}
        self._poll_intervals_ms = history.poll_intervals_ms
        self._is_hearing: set[str] = set()

    @staticmethod
    def _may_live_on(replaced: Replaced, history: History) -> bool:
        """Tells whether the process of a replaced member may be there: between two members of KIP-848 it has left."""
        was_kip_848 = history.process_of.get(replaced.member_id) in history.kip_848
        return not (was_kip_848 and replaced.by_api == "ConsumerGroupHeartbeat")

    def take(self, place: int, event: ApplicationEvent) -> None:
        """Takes note of all that was before an event, and of the event, which has so many before it."""
        while self._to_come and self._to_come[0][0] <= event.ts_ms and self._to_come[0][1] <= place:
            happened = self._to_come.popleft()[2]
            if isinstance(happened, KnownMembership):
                self._learns(happened)
            elif isinstance(happened, TurnedAway):
                if self._members.get(happened.process) == happened.member_id:
                    number = self._numbers[happened.process]
                    self._removed[happened.process] = Removed(happened.ts_ms, happened.member_id, number)
            else:
                process = self._process_of.get(happened.member_id, "")
                if self._members.get(process, happened.member_id) == happened.member_id:
                    self._removed[process] = happened
        if event.event == "start":
            self._forget(event.process)
        elif event.event == "stall":
            self._stalled.add(event.process)
        elif event.event == "close":
            self._closes_ms[event.process] = event.ts_ms
        elif event.event == "resume":
            self._stalled.discard(event.process)
        elif event.event == "lost":
            self._stalled.discard(event.process)
            self._is_hearing.discard(event.process)
            self._removed.pop(event.process, None)
            self._gone.discard(event.process)

    def _forget(self, process: str) -> None:
        """Forgets what excused a process that ended and is started again under its name."""
        for excused in (self._stalled, self._is_hearing, self._gone):
            excused.discard(process)
        self._removed.pop(process, None)
        self._closes_ms.pop(process, None)

    def _learns(self, told: KnownMembership) -> None:
        if told.number <= 0:
            if self._members.pop(told.process, None) is not None:
                self._gone.add(told.process)
                # To close isn't to poll: where an answer is waited for that got lost, the member leaves meanwhile.
                # When the last poll was isn't known; who closes in order leaves at once.
                closes_ms = self._closes_ms.get(told.process, told.ts_ms)
                if told.ts_ms - closes_ms > self._poll_intervals_ms.get(told.process, NO_LIMIT) // 2:
                    self._stalled.add(told.process)
            return
        self._numbers[told.process] = told.number
        removed = self._removed.get(told.process)
        if removed is not None and told.number > removed.number:
            del self._removed[told.process]
        if self._members.get(told.process) != told.member_id:
            self._members[told.process] = told.member_id
            self._gone.discard(told.process)

    @property
    def now(self) -> set[str]:
        """The processes that are excused now."""
        return self._stalled | self._is_hearing | self._removed.keys()

    def is_told_late(self, process: str) -> bool:
        """Tells whether a process's member has left by itself, and its application hasn't heard of it.

        What that is told to have then is what the member had when it left.
        """
        return process in self._gone

    def hears(self, process: str) -> None:
        """Takes note that an application is in the poll that tells it that it lost what it had."""
        self._is_hearing.add(process)
