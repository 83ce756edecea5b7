"""The search of other times of steps that began an interval, such as the one between two assignments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from coordinator_udf.replay.explain.points import OtherBegin, Point
from coordinator_udf.replay.explain.results import Inserted, Option
from coordinator_udf.replay.explain.walk import Walk
from coordinator_udf.replay.explain.window import Path, WindowSearch

#: From so many steps back it is looked which intervals were over. With half and with double two logs of busy machines
#: come out the same.
_STEPS_BACK: Final = 16


class _Begin(NamedTuple):
    """A step that may have begun an interval at another time, later or earlier; the times (ms) that are tried."""

    begun: OtherBegin
    is_later: bool
    times_ms: list[int]


class OtherBegins:
    """The steps that may have begun an interval at another time than usual, before one answer that differs."""

    def __init__(self, walk: Walk, points: Sequence[Point], window: WindowSearch) -> None:
        """Begins where the answer differed.

        Args:
            points: where the walk was before, the latest last.
            window: the search of that answer's windows.
        """
        self._walk, self._points, self._window = walk, points, window

    def search(self, limit: int, farthest: int) -> Path | None:
        """Returns an order in which a step that began an interval was handled at another time: so it is over or isn't.

        Later, so late that the interval isn't over where the answer differs; or earlier, so that it is.

        Args:
            limit: up to which number of tries of the window.
            farthest: how far answers are explained: an order that explains more of them is better than none.
        """
        walk, window = self._walk, self._window
        place = window.place
        at_ms = walk.machine.now_ms
        near = [point for point in self._points if point.first <= place - _STEPS_BACK]
        start = near[-1] if near else self._points[0]
        course, inserted = walk.course[start.course :], walk.inserted[start.inserted :]
        has_intervals = bool(walk.machine.intervals())
        walk.back_to(start)
        if not has_intervals and not walk.machine.intervals():
            return None
        over = self._over_before(place, course, inserted)
        earlier = walk.earlier_begins(at_ms, walk.steps[place].latest_ms)
        later = [*walk.later_begins(at_ms, walk.machine.intervals()), *over]
        begins = [
            *(_Begin(begun, True, [begun.needed_ms]) for begun in later),
            *(_Begin(begun, False, [begun.needed_ms, walk.steps[begun.place].arrived_ms]) for begun in earlier),
        ]
        for changes in range(3):
            for begin in begins:
                begun = begin.begun
                before = [p for p in self._points if p.first <= begun.place and begun.place not in p.done]
                if before and (path := self._begun(before[-1], begin, changes, limit)) is not None:
                    return path
            best = window.best
            if best is not None and best.begun in walk.delayed and best.end.first > farthest:
                # It was later than was taken before: as much as this answer needs; the next ones may need more.
                return best
        return None

    def _over_before(
        self, place: int, course: Sequence[tuple[int, int]], inserted: Sequence[Inserted]
    ) -> list[OtherBegin]:
        """Returns steps that began an interval that was over shortly before a step, at which another one began.

        What came of its end may be seen only in a later answer. The walk is before that step afterwards.

        Args:
            course: what happened from where the walk is.
            inserted: what was put between those steps.
        """
        walk, found = self._walk, list[OtherBegin]()
        for going, at_ms in course:
            if walk.first >= place:
                break
            walk.catch_up(at_ms, inserted)
            before = walk.machine.intervals()
            walk.take(Option(going, at_ms, True))
            after = walk.machine.intervals()
            if any(begin_ms == at_ms for begin_ms, _ in after):
                found[:0] = walk.later_begins(at_ms, [each for each in before if each not in after])
        return found

    def _begun(self, start: Point, begin: _Begin, changes: int, limit: int) -> Path | None:
        """Returns such an order for one step, at the times that are known or that the following answers need."""
        walk, window, begun = self._walk, self._window, begin.begun
        steps = walk.steps[start.first : begun.place + 1]
        natural_ms = [step.natural_ms for step in steps]
        was_delayed = begun.place in walk.delayed
        if begin.is_later:
            walk.delayed.add(begun.place)
        for needed_ms in begin.times_ms:
            steps[-1].natural_ms = needed_ms
            if not begin.is_later:
                for step, own_ms in zip(steps, natural_ms, strict=True):
                    # What comes before it does so no later.
                    step.natural_ms = min(own_ms, max(needed_ms, step.arrived_ms))
            path = window.follow(start, Option(begun.place, needed_ms, False), changes, limit)
            if path is not None:
                return path
            # At the latest if what differs next needs it later still, for that may have been handled earlier.
            later_ms = min(window.failed_ms - begun.length_ms + 1, steps[-1].latest_ms)
            if begin.is_later and begin.times_ms[-1] < later_ms:
                begin.times_ms.append(later_ms)
        for step, own_ms in zip(steps, natural_ms, strict=True):
            step.natural_ms = own_ms
        if not was_delayed:
            walk.delayed.discard(begun.place)
        return None
