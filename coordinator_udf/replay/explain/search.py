"""Finds an order and times of a group's events that explain every answer, or shows that there is none within bounds.

Forward: the group is walked in the usual order up to the first answer that differs. Then what overlaps with what led
there is searched, from a snapshot before it, by the number of changes to the usual order (limited discrepancy search),
as one checks whether a concurrent history is linearizable (Wing & Gong; Lowe). States that were seen are not gone
through again. It is one change that something comes earlier, or that it comes later, past whatever may come before it.
The first order that explains the window is taken, and the walk goes on from its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from coordinator_udf.replay.explain.begins import OtherBegins
from coordinator_udf.replay.explain.points import Mismatch, Point, Tail
from coordinator_udf.replay.explain.rebase import Chosen, Rebase
from coordinator_udf.replay.explain.results import Explanation, Outcome, Unexplained
from coordinator_udf.replay.explain.walk import Walk
from coordinator_udf.replay.explain.window import Path, WindowSearch


class _Mark(NamedTuple):
    """All that `Search` notes, for a return to where it was.

    Attributes:
        natural_ms: of the steps from ``first`` on.
    """

    here: Point
    tail: Tail
    points: list[Point]
    explanations: list[Explanation]
    last_bad: int | None
    farthest: int
    first: int
    natural_ms: list[int]
    delayed: frozenset[int]


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
        #: How many answers in a row nothing explained.
        self._fruitless = 0
        #: How many steps were tried for answers that nothing explained.
        self._in_vain = 0
        #: The loads of the shard (how much had happened then) of which it is known what the broker had loaded.
        self._known_loads: set[int] = set()
        #: The answer that nothing explained where walking on up to a step ended; None if that was another reason.
        self._stopped_at: int | None = None

    def run(self) -> Outcome:
        """Walks through the whole group."""
        walk = self._walk
        self._go_on(None)
        self._outcome.course, self._outcome.inserted = walk.course, walk.inserted
        return self._outcome

    def _go_on(self, until: int | None) -> bool:
        """Walks on, to the end, or up to a step or the first answer that nothing explains; False at that."""
        walk = self._walk
        kept_at = -1
        while not walk.is_finished and (until is None or walk.first < until):
            if not walk.done and walk.first % self._bounds.keep_every == 0 and walk.first != kept_at:
                kept_at = walk.first
                self._points.append(walk.point())
                if until is None:
                    self._thin_out()
            option = walk.usual()
            if option is None:
                break
            mismatches = walk.take(option)
            excused = walk.excused_now
            if any(mismatch.place not in self._rebase.given_up for mismatch in mismatches):
                window = self._explain(mismatches)
                if window is not None and not (self._was_loaded_otherwise() or (excused and self._began(mismatches))):
                    if until is not None:
                        self._stopped_at = mismatches[0].place
                        return False
                    self._give_up(mismatches, window)
                kept_at = walk.first
            elif excused:
                if until is not None:
                    self._stopped_at = None
                    return False
                self._put_right(None)
        return True

    def _goes_on_as_it_is(self, *, as_if_right: bool) -> bool:
        """Walks on through the answers that come next if orders explain all of them; else the walk stays where it is.

        Then the answer that nothing explains says nothing of the group.

        Args:
            as_if_right: whether there are as many tries as if nothing had been wrong before: where all orders were
                tried, one may be missing that only this answer spoke against.
        """
        walk = self._walk
        goal = min(walk.first + self._bounds.rebase_ahead, len(walk.steps))
        mark = self._mark(self._points[0], goal)
        if as_if_right:
            self._last_bad = None
        if self._go_on(goal):
            return True
        self._return_to(mark)
        return False

    def _mark(self, since: Point, goal: int) -> _Mark:
        """Returns where the search is, for a return from up to a step, and from no point before ``since``."""
        walk, outcome = self._walk, self._outcome
        first = since.first
        return _Mark(
            walk.point(),
            walk.tail(since),
            list(self._points),
            list(outcome.explanations),
            self._last_bad,
            self._farthest,
            first,
            [step.natural_ms for step in walk.steps[first:goal]],
            frozenset(walk.delayed),
        )

    def _return_to(self, mark: _Mark) -> None:
        walk = self._walk
        for step, own_ms in zip(walk.steps[mark.first :], mark.natural_ms, strict=False):
            step.natural_ms = own_ms
        walk.delayed.clear()
        walk.delayed.update(mark.delayed)
        walk.forward_to(mark.here, mark.tail)
        self._outcome.explanations[:] = mark.explanations
        self._points, self._last_bad, self._farthest = list(mark.points), mark.last_bad, mark.farthest

    def _was_loaded_otherwise(self) -> bool:
        """Goes on from another state that the broker may have loaded, if all answers since then follow from one.

        What was under way when a broker stopped is in no log of requests, nor how much of its own it could read. One
        state is taken a load: it has to explain, within the windows, all that was answered since, and what comes next.
        """
        walk = self._walk
        load = walk.loads[-1] if walk.loads else None
        if load is None or load.course in self._known_loads or not self._is_patient():
            return False
        goal = min(walk.first + self._bounds.confirm, walk.lost_from())
        oldest = load if load.course < self._points[0].course else self._points[0]
        mark = self._mark(oldest, goal)
        first = walk.first
        as_it_is = 1 + self._rebase.differing_as_it_is(goal)
        for differing, body in self._rebase.loaded(load, goal):
            if self._holds(load, body, goal, mark):
                return True
            wrong = self._stopped_at
            # With fewer such answers than if the group goes on as it is, one says nothing of what was loaded.
            if wrong is not None and wrong >= first and differing < as_it_is and self._holds(load, body, wrong, mark):
                return True
        return False

    def _holds(self, load: Point, body: str, goal: int, mark: _Mark) -> bool:
        """Goes on up to a step from a state that was loaded, if that explains all answers; else nothing changes."""
        walk, in_vain = self._walk, self._in_vain
        walk.back_to(load)
        self._points = [load]
        self._outcome.explanations[:] = [e for e in mark.explanations if walk.has_happened(e.place)]
        walk.adopt(self._rebase.group_id, body, of_load=True)
        self._points.append(walk.point())
        self._known_loads.add(load.course)
        if self._go_on(goal):
            return True
        self._known_loads.discard(load.course)
        self._return_to(mark)
        # What a wrong state cost isn't missing where answers are looked at that come later.
        self._in_vain = in_vain
        return False

    def _thin_out(self) -> None:
        """Drops points so that near ones stay, and of those farther back ever fewer."""
        near = max(self._bounds.back) // self._bounds.keep_every + 2
        if len(self._points) > 2 * near + self._bounds.points_far_back:
            far, close = self._points[:-near], self._points[-near:]
            self._points = far[len(far) % 2 :: 2] + close

    def _explain(self, mismatches: list[Mismatch]) -> WindowSearch | None:
        """Takes an order in which the answers that differ don't; what was searched if there is none."""
        walk = self._walk
        here, tail = walk.point(), walk.tail(self._points[0])
        goal = min(here.first + self._bounds.ahead, len(walk.steps))
        window = WindowSearch(walk, goal, mismatches[0].place, self._points[0], self._rebase.given_up)
        walk.machine.remember(is_on=True)
        path = self._search(window, here)
        walk.machine.remember(is_on=False)
        if path is not None:
            self._take(path, mismatches[0].place, window.tries)
            return None
        walk.forward_to(here, tail)
        if window.best is not None and window.best.end.first > self._farthest and self._differs_ahead():
            self._take(window.best, mismatches[0].place, window.tries)
            return None
        self._spend(window.tries)
        self._in_vain += window.tries
        walk.forward_to(here, tail)
        return window

    def _search(self, window: WindowSearch, here: Point) -> Path | None:
        """Returns an order that explains the window; None within the tries that there are."""
        most = self._bounds.tries if not self._follows(here.first) else self._bounds.tries_of_follow_ups
        if self._is_patient():
            begins = OtherBegins(self._walk, self._points, window)
            path = begins.search(min(window.tries + most, self._budget()), self._farthest)
            if path is not None:
                return path
        limit = min(window.tries + most, self._budget())
        path = self._least_changed(window, self._starts(here.first), limit)
        window.is_cut = path is None and window.tries >= limit
        return path

    def _least_changed(self, window: WindowSearch, starts: Sequence[Point], limit: int) -> Path | None:
        """Returns the least changed order, of those the one from the nearest point; None up to that number of tries.

        Few changes are looked for everywhere, but not for long, before one search is gone through to its end: first of
        orders in which no step is postponed, which are far fewer.
        """
        changes = range(1, self._bounds.changes + 1)
        rounds = ((changes[:2], self._bounds.tries_at_first, True), (changes, limit, False), (changes, limit, True))
        for numbers, most, postpones in rounds:
            for number in numbers:
                for start in starts:
                    if window.tries >= limit:
                        return None
                    path = window.search(start, number, min(limit, window.tries + most), postpones=postpones)
                    if path is not None:
                        return path
        return None

    def _differs_ahead(self) -> bool:
        """Returns whether answers soon after this one differ as well if nothing is done about it."""
        walk = self._walk
        goal = min(walk.first + self._bounds.ahead, len(walk.steps))
        while walk.first < goal and (option := walk.usual()) is not None:
            if any(mismatch.place not in self._rebase.given_up for mismatch in walk.take(option)):
                return True
        return False

    def _starts(self, place: int) -> list[Point]:
        """Returns the points from which the windows begin, nearest first."""
        starts: list[Point] = []
        for back in (0, *self._bounds.back):
            found = [point for point in self._points if point.first <= place - back]
            start = found[-1] if found else (self._points[0] if self._points else None)
            if start is not None and start not in starts:
                starts.append(start)
        return starts

    def _is_patient(self) -> bool:
        """Returns whether the answer at hand is looked at as closely as can be."""
        return not self._follows(self._walk.first) or self._bounds.is_patient(self._fruitless)

    def _take(self, path: Path, place: int, tries: int) -> None:
        self._fruitless = 0
        self._spend(tries)
        walk = self._walk
        if path.begun is not None:
            step, at_ms = walk.steps[path.begun], path.moved[0].at_ms
            if at_ms > step.natural_ms:
                walk.delayed.add(path.begun)
            step.natural_ms = at_ms
        walk.forward_to(path.end, path.tail)
        self._outcome.explanations.append(Explanation(place, path.moved, tries))
        self._points = [point for point in self._points if point.course <= path.start.course]
        self._points.append(path.end)
        self._farthest = max(self._farthest, path.end.first)

    def _give_up(self, mismatches: list[Mismatch], window: WindowSearch) -> None:
        """Notes what stays unexplained and goes on from there."""
        self._fruitless = self._fruitless + 1 if self._follows(self._walk.first) else 1
        for mismatch in mismatches:
            others = dict.fromkeys([mismatch.ours, *window.seen.get(mismatch.place, ())])
            if mismatch.place not in self._rebase.given_up:
                found = Unexplained(mismatch.place, tuple(others), window.tries, self._searched(window))
                self._outcome.unexplained.append(found)
            self._rebase.given_up.add(mismatch.place)
        self._last_bad = self._walk.first
        self._farthest = max(self._farthest, self._walk.first)
        self._put_right(mismatches[0].place, decided=not window.is_cut)

    def _searched(self, window: WindowSearch) -> str:
        """Returns which orders were tried for an answer that none of them explains, or what ended that."""
        if window.is_cut:
            return f"not decided: the bound of {window.tries} steps was reached before all orders were tried"
        bounds = self._bounds
        return f"no order with up to {bounds.changes} changes in the last {max(bounds.back)} steps explains it"

    def _before(self, place: int) -> Point | None:
        """Returns the point before an answer came to be that the walk has just come by.

        The walk is where it was afterwards.
        """
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

    def _began(self, mismatches: list[Mismatch]) -> bool:
        """Puts the group right before answers, if with the state that it is in then these are right, and the next ones.

        That is so where a rebalance goes on of whose beginning the log has nothing.
        """
        before, until = self._before(mismatches[0].place), self._rebase.horizon()
        if before is None or until == self._walk.first:
            return False
        chosen = self._rebase.choose(before, len(mismatches), until)
        if chosen is None or chosen.differing or chosen.start is not before:
            return False
        self._go_from(chosen)
        return True

    def _put_right(self, place: int | None, *, decided: bool = False) -> None:
        """Puts the group in the state that later answers tell, if they say that it is in another.

        Args:
            place: the answer that nothing explains; None where the log itself can't tell what is right.
            decided: whether all orders were tried for it.
        """
        until = self._rebase.horizon()
        differing = self._rebase.differing_soon(until)
        if not differing or (not self._rebase.is_brief and self._goes_on_as_it_is(as_if_right=decided)):
            return
        chosen = self._rebase.choose(None if place is None else self._before(place), differing, until)
        if chosen is None:
            return
        self._go_from(chosen)
        if not chosen.differing:
            self._last_bad = None

    def _go_from(self, chosen: Chosen) -> None:
        self._walk.back_to(chosen.start)
        self._walk.adopt(self._rebase.group_id, chosen.body)
        # What was before can't be searched any more: the state doesn't follow from it.
        self._points = [self._walk.point()]

    def _follows(self, first: int) -> bool:
        """Returns whether what differs here may well follow from what differed before."""
        return self._last_bad is not None and first - self._last_bad <= self._bounds.confirm

    def _budget(self) -> int:
        """Returns how many tries are left here."""
        bounds, steps = self._bounds, self._walk.steps
        return bounds.tries + bounds.tries_a_step * (len(steps) + self._farthest) - self._in_vain

    def _spend(self, tries: int) -> None:
        self._outcome.tries += tries
