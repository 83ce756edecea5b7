"""The search of the stretches before one answer that differs: orders other than the usual one, fewest changes first."""

from __future__ import annotations

from collections.abc import Container, Hashable, Sequence
from typing import NamedTuple

from coordinator_udf.replay.explain.points import Mismatch, Point, Tail
from coordinator_udf.replay.explain.results import Option
from coordinator_udf.replay.explain.walk import Walk


class Path(NamedTuple):
    """A way from a point on: where it ended, what was noted on it, and what was moved.

    ``begun`` is the step that began an interval at another time, which is the first move then.
    """

    start: Point
    end: Point
    tail: Tail
    moved: tuple[Option, ...]
    begun: int | None = None


class WindowSearch:
    """The search of the windows before one answer that differs."""

    def __init__(self, walk: Walk, goal: int, place: int, since: Point, given_up: Container[int]) -> None:
        """Begins at no point before ``since``; what is given up needn't be explained again."""
        self._walk = walk
        self._given_up = given_up
        self._here, self._tail = walk.point(), walk.tail(since)
        self._start = self._since = since
        self._goal = goal
        #: Timers that are due later don't matter.
        self._until_ms = walk.steps[goal - 1].latest_ms + walk.bounds.late_ms
        self.place = place
        self._visited: dict[Hashable, tuple[int, frozenset[int]]] = {}
        self._limit = 0
        self._postpones = True
        self.tries = 0
        #: Whether the search ended before all orders within its bounds were tried.
        self.is_cut = False
        #: When the farthest answer differed that `follow` came to.
        self.failed_ms = 0
        #: The order that explains most of what comes next, if none explains all up to the goal.
        self.best: Path | None = None
        #: What was answered in the orders that were tried, by step.
        self.seen: dict[int, list[str]] = {}
        #: The changes, each with how many steps had happened before.
        self._moved: list[tuple[Option, int]] = []
        self._begun: int | None = None

    def search(self, start: Point, changes: int, limit: int, *, postpones: bool) -> Path | None:
        """Returns an order from a point on with so many changes at most that explains all up to the goal.

        Returns None where none was found within the tries.

        Args:
            postpones: whether it is one change if a step comes after several others; else it is one for each of them.
        """
        self._postpones = postpones
        return self._from(start, (), changes, limit)

    def follow(self, start: Point, moved: Option, changes: int, limit: int) -> Path | None:
        """Returns the usual order from a point on, where a step has another time, if it explains all up to the goal.

        Args:
            changes: how many more there may be.
            limit: up to which number of tries.
        """
        self.failed_ms = 0
        self._postpones = False
        return self._from(start, (moved,), changes, limit)

    def _from(self, start: Point, moved: tuple[Option, ...], changes: int, limit: int) -> Path | None:
        self._visited.clear()
        self._limit = limit
        self._begin(start)
        self._moved = [(option, start.course) for option in moved]
        self._begun = moved[0].place if moved else None
        return self._path(self._walk.point()) if self._go_on(self._walk.point(), changes, frozenset()) else None

    def _go_on(self, here: Point, changes: int, asleep: frozenset[int]) -> bool:
        """Returns whether the goal can be reached from where the walk is, with at most so many changes.

        Args:
            here: where the walk is.
            asleep: steps that needn't be tried now, for they were before what has happened since, and neither of both
                changes anything: in the other order it would be the same (sleep sets; Godefroid).
        """
        walk = self._walk
        if walk.is_finished or (walk.first >= self._goal < len(walk.steps) and not walk.done):
            return True
        if self.tries >= self._limit or self._was_seen(here, changes, asleep):
            return False
        if not walk.done and here.first > self.place and (self.best is None or here.first > self.best.end.first):
            self.best = self._path(here)
        tried: set[int | None] = set()
        idle: set[int] = set()
        for number, option in enumerate(list(walk.options())):
            cost = 0 if option.usual else 1
            is_plain = option.place not in tried and option.is_plain
            tried.add(option.place)
            if cost > changes or (is_plain and option.place in asleep):
                continue
            if number:
                walk.back_to(here)
            there = self._take(option)
            if there is None:
                continue
            is_idle = is_plain and option.place is not None and there.snapshot.kept() == here.snapshot.kept()
            if cost:
                self._moved.append((option, here.course))
            if self._go_on(there, changes - cost, asleep | idle if is_idle else frozenset()):
                return True
            if cost:
                self._moved.pop()
            if is_idle and option.place is not None:
                idle.add(option.place)
        return False

    def _was_seen(self, here: Point, changes: int, asleep: frozenset[int]) -> bool:
        """Returns whether it was gone on from the same state before, with as many changes and as many steps to try."""
        key = (here.first, here.done, here.shared, here.held_ms, here.postponed, here.snapshot.key(self._until_ms))
        before = self._visited.get(key)
        if before is not None and before[0] >= changes and before[1] <= asleep:
            return True
        self._visited[key] = changes, asleep
        return False

    def _take(self, option: Option) -> Point | None:
        """Lets something happen; where the walk is then, or None if an answer differs or nothing came of it."""
        walk = self._walk
        self.tries += 1
        if not self._postpones and option.postpones is not None:
            option = option._replace(postpones=None)
        mismatches = [found for found in walk.take(option) if found.place not in self._given_up]
        if option.resolves_late and not walk.machine.is_resolving:
            return None
        if mismatches:
            self._note(mismatches)
            self.failed_ms = max(self.failed_ms, option.at_ms)
            return None
        return walk.point()

    def _begin(self, start: Point) -> None:
        # What was noted before the start may have been cut by a search that began earlier.
        self._walk.forward_to(self._here, self._tail)
        self._walk.back_to(start)
        self._start = start

    def _path(self, end: Point) -> Path:
        tail = self._walk.tail(self._since)
        moved = tuple(_shown(option, tail.course[number - tail.course_from :]) for option, number in self._moved)
        return Path(self._start, end._replace(postponed=frozenset()), tail, moved, self._begun)

    def _note(self, mismatches: list[Mismatch]) -> None:
        for mismatch in mismatches:
            said = self.seen.setdefault(mismatch.place, [])
            if mismatch.ours not in said:
                said.append(mismatch.ours)


def _shown(option: Option, course: Sequence[tuple[int, int]]) -> Option:
    """Returns a step that others came before, at its time, in place of the first of several that did."""
    places = [place for place, _ in course]
    if not option.is_plain or option.postpones not in places[1 if option.place is None else 2 :]:
        return option
    place, at_ms = course[places.index(option.postpones)]
    return Option(place, at_ms, False)
