"""Finds an order and times of a group's events that explain every answer, or shows that there is none within bounds.

Forward: the group is walked in the usual order up to the first answer that differs. Then what overlaps with what led
there is searched, from a snapshot before it, by the number of changes to the usual order (limited discrepancy search),
as one checks whether a concurrent history is linearizable (Wing & Gong; Lowe). States that were seen are not gone
through again. The first order that explains the window is taken, and the walk goes on from its end.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Sequence
from typing import NamedTuple

from coordinator_udf.replay.explain.rebase import Rebase
from coordinator_udf.replay.explain.results import Explanation, Option, Outcome, Unexplained
from coordinator_udf.replay.explain.walk import LaterBegin, Mismatch, Point, Tail, Walk


class _Path(NamedTuple):
    """A way from a point on: where it ended, what was noted on it, and what was moved."""

    start: Point
    end: Point
    tail: Tail
    moved: tuple[Option, ...]


class Search:
    """The search for one group's order."""

    def __init__(self, walk: Walk, rebase: Rebase) -> None:
        self._walk = walk
        self._rebase = rebase
        self._bounds = walk.bounds
        self._outcome = Outcome()
        self._points: list[Point] = []
        #: The last step whose answer nothing explained.
        self._last_bad: int | None = None
        #: How far answers are explained, or given up.
        self._farthest = 0

    def run(self) -> Outcome:
        """Walks through the whole group."""
        walk = self._walk
        kept_at = -1
        while not walk.is_finished:
            if not walk.done and walk.first % self._bounds.keep_every == 0 and walk.first != kept_at:
                kept_at = walk.first
                self._points.append(walk.point())
                self._thin_out()
            option = walk.usual()
            if option is None:
                break
            mismatches = walk.take(option)
            excused = walk.excused_now
            if any(mismatch.place not in self._rebase.given_up for mismatch in mismatches):
                self._explain(mismatches)
                kept_at = walk.first
            elif excused:
                self._put_right(None)
        self._outcome.course, self._outcome.inserted = walk.course, walk.inserted
        return self._outcome

    def _thin_out(self) -> None:
        """Drops points so that near ones stay, and of those farther back ever fewer."""
        near = max(self._bounds.back) // self._bounds.keep_every + 2
        if len(self._points) > 2 * near + self._bounds.points_far_back:
            far, close = self._points[:-near], self._points[-near:]
            self._points = far[len(far) % 2 :: 2] + close

    def _explain(self, mismatches: list[Mismatch]) -> None:
        """Finds an order in which the answers that differ don't, or notes that there is none."""
        walk = self._walk
        here, tail = walk.point(), walk.tail(self._points[0])
        goal = min(here.first + self._bounds.ahead, len(walk.steps))
        window = _Window(walk, goal, mismatches[0].place, self._points[0], self._rebase.given_up)
        most = self._bounds.tries if not self._follows(here.first) else self._bounds.tries_of_follow_ups
        path = self._with_later_begin(window, mismatches[0].place)
        if path is not None:
            self._take(path, mismatches[0].place, window.tries)
            return
        most += window.tries
        path = self._least_changed(window, self._starts(here.first), min(most, self._budget()))
        if path is not None:
            self._take(path, mismatches[0].place, window.tries)
            return
        walk.forward_to(here, tail)
        if window.best is not None and window.best.end.first > self._farthest and self._differs_ahead():
            self._take(window.best, mismatches[0].place, window.tries)
            return
        self._spend(window.tries)
        walk.forward_to(here, tail)
        self._give_up(mismatches, window)

    def _least_changed(self, window: _Window, starts: Sequence[Point], limit: int) -> _Path | None:
        """The least changed order, of those the one from the nearest point; None up to that number of tries.

        Few changes are looked for everywhere, but not for long, before one search is gone through to its end.
        """
        changes = range(1, self._bounds.changes + 1)
        rounds = ((changes[:2], self._bounds.tries_at_first), (changes, limit))
        for numbers, most in rounds:
            for number in numbers:
                for start in starts:
                    if window.tries >= limit:
                        return None
                    path = window.search(start, number, min(limit, window.tries + most))
                    if path is not None:
                        return path
        return None

    def _differs_ahead(self) -> bool:
        """Whether answers soon after this one differ as well if nothing is done about it."""
        walk = self._walk
        goal = min(walk.first + self._bounds.ahead, len(walk.steps))
        while walk.first < goal and (option := walk.usual()) is not None:
            if any(mismatch.place not in self._rebase.given_up for mismatch in walk.take(option)):
                return True
        return False

    def _with_later_begin(self, window: _Window, place: int) -> _Path | None:
        """An order in which a step that began an interval was handled so late that the interval isn't over yet."""
        walk = self._walk
        at_ms = walk.machine.now_ms
        walk.back_to(self._points[-1])
        while walk.first < place and (option := walk.usual()) is not None:
            walk.take(option)
        for begun in walk.later_begins(at_ms):
            earlier = [point for point in self._points if point.first <= begun.place and begun.place not in point.done]
            if earlier and (path := self._begun_later(window, earlier[-1], begun)) is not None:
                return path
        return None

    def _begun_later(self, window: _Window, start: Point, begun: LaterBegin) -> _Path | None:
        """The same of one such step: as much later as the answers need that follow."""
        walk = self._walk
        step, was_delayed = walk.steps[begun.place], begun.place in walk.delayed
        natural_ms = step.natural_ms
        walk.delayed.add(begun.place)
        times: list[int] = [begun.needed_ms]
        limit = window.tries + self._bounds.tries
        for changes in range(3):
            for needed_ms in times:
                step.natural_ms = needed_ms
                path = window.follow(start, Option(begun.place, needed_ms, False), changes, limit)
                if path is not None:
                    return path
                later_ms = window.failed_ms - begun.length_ms + 1
                if not changes and needed_ms < later_ms <= step.latest_ms:
                    times.append(later_ms)
        step.natural_ms = natural_ms
        if not was_delayed:
            walk.delayed.discard(begun.place)
        return None

    def _starts(self, place: int) -> list[Point]:
        """The points from which the windows begin, nearest first."""
        starts: list[Point] = []
        for back in (0, *self._bounds.back):
            found = [point for point in self._points if point.first <= place - back]
            start = found[-1] if found else (self._points[0] if self._points else None)
            if start is not None and start not in starts:
                starts.append(start)
        return starts

    def _take(self, path: _Path, place: int, tries: int) -> None:
        self._spend(tries)
        self._walk.forward_to(path.end, path.tail)
        self._outcome.explanations.append(Explanation(place, path.moved, tries))
        self._points = [point for point in self._points if point.course <= path.start.course]
        self._points.append(path.end)
        self._farthest = max(self._farthest, path.end.first)

    def _give_up(self, mismatches: list[Mismatch], window: _Window) -> None:
        """Notes what stays unexplained and goes on from there."""
        for mismatch in mismatches:
            others = dict.fromkeys([mismatch.ours, *window.seen.get(mismatch.place, ())])
            if mismatch.place not in self._rebase.given_up:
                self._outcome.unexplained.append(Unexplained(mismatch.place, tuple(others), window.tries))
            self._rebase.given_up.add(mismatch.place)
        self._last_bad = self._walk.first
        self._farthest = max(self._farthest, self._walk.first)
        self._put_right(mismatches[0].place)

    def _before(self, place: int) -> Point | None:
        """The point before an answer came to be that the walk has just come by; the walk is where it was afterwards."""
        walk = self._walk
        here, tail = walk.point(), walk.tail(self._points[-1])
        walk.back_to(self._points[-1])
        found: Point | None = None
        while len(walk.course) <= here.course and (option := walk.usual()) is not None:
            point = walk.point()
            if any(mismatch.place == place for mismatch in walk.take(option)):
                found = point
                break
        walk.forward_to(here, tail)
        return found

    def _put_right(self, place: int | None) -> None:
        """Puts the group in the state that later answers tell, if they say that it is in another.

        Args:
            place: the answer that nothing explains; None where the log itself can't tell what is right.
        """
        walk = self._walk
        chosen = self._rebase.choose(None if place is None else self._before(place))
        if chosen is None:
            return
        walk.back_to(chosen.start)
        walk.adopt(self._rebase.group_id, chosen.body)
        # What was before can't be searched any more: the state doesn't follow from it.
        self._points = [walk.point()]
        if not chosen.differing:
            self._last_bad = None

    def _follows(self, first: int) -> bool:
        """Whether what differs here may well follow from what differed before."""
        return self._last_bad is not None and first - self._last_bad <= self._bounds.confirm

    def _budget(self) -> int:
        """How many tries are left here."""
        bounds, steps = self._bounds, self._walk.steps
        return bounds.tries + bounds.tries_a_step * (len(steps) + self._farthest) - self._outcome.tries

    def _spend(self, tries: int) -> None:
        self._outcome.tries += tries


class _Window:
    """The search of the windows before one answer that differs."""

    def __init__(self, walk: Walk, goal: int, place: int, since: Point, given_up: Container[int]) -> None:
        """A window that begins with no point before ``since``; what is given up needn't be explained again."""
        self._walk = walk
        self._given_up = given_up
        self._here, self._tail = walk.point(), walk.tail(since)
        self._start = self._since = since
        self._goal = goal
        self._place = place
        self._visited: dict[Hashable, int] = {}
        self._limit = 0
        self.tries = 0
        #: When the farthest answer differed that `follow` came to.
        self.failed_ms = 0
        #: The order that explains most of what comes next, if none explains all up to the goal.
        self.best: _Path | None = None
        #: What was answered in the orders that were tried, by step.
        self.seen: dict[int, list[str]] = {}
        self._moved: list[Option] = []

    def search(self, start: Point, changes: int, limit: int) -> _Path | None:
        """An order from a point on with so many changes at most that explains all up to the goal; None within tries."""
        self._visited.clear()
        self._limit = limit
        self._begin(start)
        self._moved = []
        return self._path(self._walk.point()) if self._go_on(changes) else None

    def follow(self, start: Point, moved: Option, changes: int, limit: int) -> _Path | None:
        """The usual order from a point on, where a step has another time, if it explains all up to the goal.

        Args:
            changes: how many more there may be.
            limit: up to which number of tries.
        """
        self._visited.clear()
        self._limit, self.failed_ms = limit, 0
        self._begin(start)
        self._moved = []
        if not self._go_on(changes):
            return None
        path = self._path(self._walk.point())
        return path._replace(moved=(moved, *path.moved))

    def _go_on(self, changes: int) -> bool:
        """Whether the goal can be reached from where the walk is, with at most so many changes."""
        walk = self._walk
        if walk.is_finished or (walk.first >= self._goal < len(walk.steps) and not walk.done):
            return True
        if self.tries >= self._limit:
            return False
        here = walk.point()
        key = (here.first, here.done, here.shared, here.held_ms, here.snapshot.key())
        if self._visited.get(key, -1) >= changes:
            return False
        self._visited[key] = changes
        if not walk.done and here.first > self._place and (self.best is None or here.first > self.best.end.first):
            self.best = self._path(here)
        for number, option in enumerate(list(walk.options())):
            cost = 0 if option.usual else 1
            if cost > changes:
                continue
            if number:
                walk.back_to(here)
            self.tries += 1
            mismatches = [found for found in walk.take(option) if found.place not in self._given_up]
            if option.resolves_late and not walk.machine.is_resolving:
                continue
            if mismatches:
                self._note(mismatches)
                self.failed_ms = max(self.failed_ms, option.at_ms)
                continue
            if cost:
                self._moved.append(option)
            if self._go_on(changes - cost):
                return True
            if cost:
                self._moved.pop()
        return False

    def _begin(self, start: Point) -> None:
        # What was noted before the start may have been cut by a search that began earlier.
        self._walk.forward_to(self._here, self._tail)
        self._walk.back_to(start)
        self._start = start

    def _path(self, end: Point) -> _Path:
        return _Path(self._start, end, self._walk.tail(self._since), tuple(self._moved))

    def _note(self, mismatches: list[Mismatch]) -> None:
        for mismatch in mismatches:
            said = self.seen.setdefault(mismatch.place, [])
            if mismatch.ours not in said:
                said.append(mismatch.ours)
