"""Where a walk through a group's events is, and what may happen next."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

from coordinator_udf.groups.model.timers import NEVER_MS
from coordinator_udf.replay.explain.bounds import Bounds
from coordinator_udf.replay.explain.machine import GroupMachine
from coordinator_udf.replay.explain.points import OtherBegin, Point, Tail
from coordinator_udf.replay.explain.prompt import Prompt
from coordinator_udf.replay.explain.results import Inserted, Option
from coordinator_udf.replay.explain.steps import SharedEvent, Step


class Position:
    """Where a walk through a group's steps is; the machine is always where the walk is.

    Attributes:
        first: everything before has happened.
        course: what has happened: the steps with their times.
    """

    def __init__(
        self,
        machine: GroupMachine,
        steps: Sequence[Step],
        shared: Sequence[SharedEvent],
        bounds: Bounds,
        excused: Callable[[Step, str], bool],
        *,
        prompt: Prompt,
    ) -> None:
        """Begins before all steps.

        Args:
            excused: whether an answer may differ, for the log itself can't tell what is right.
            prompt: the requests to the shard that tell by when it got to what was due.
        """
        self.machine = machine
        self.steps = steps
        self.bounds = bounds
        self._prompt = prompt
        self._late_ms_at: dict[int, int] = {}
        self._shared = shared
        self._excused = excused
        #: Steps that are known to have been handled later than they usually are.
        self.delayed: set[int] = set()
        self._by_id = {step.request.request_id: step for step in steps}
        self.first = 0
        self.done: set[int] = set()
        self._shared_next = 0
        self.course: list[tuple[int, int]] = []
        #: Rows between the steps: late timers and events, and states that the group was put in.
        self.inserted: list[Inserted] = []
        #: Events of the shard come no earlier.
        self._held_ms = 0
        #: How many answers differed in what was taken last where the log itself can't tell what is right.
        self.excused_now = 0
        #: From which number of a timer on the time of its arming is uncertain by how many ms.
        self._armed_from: list[int] = []
        self._armed_slack_ms: list[int] = []
        #: Where the walk was when the shard had been loaded anew.
        self.loads: list[Point] = []
        self._has_loaded = False
        #: Steps whose answers wait, each with the time by which the broker had answered for certain.
        self._parked: frozenset[tuple[int, int]] = frozenset()
        #: Steps that others come before, as many as their windows allow.
        self._postponed: frozenset[int] = frozenset()

    @property
    def is_finished(self) -> bool:
        """Whether everything has happened."""
        return self.first == len(self.steps) and self._shared_next == len(self._shared)

    def lost_from(self) -> int:
        """Returns the next step that found the shard lost, by the usual order; how many steps there are if none did."""
        lost = (event.at_ms for event in self._shared[self._shared_next :] if event.row["api"] == "Unload")
        at_ms = next(lost, NEVER_MS)
        later = (step.place for step in self.steps[self.first :] if step.natural_ms >= at_ms)
        return next(later, len(self.steps))

    def has_happened(self, place: int) -> bool:
        """Returns whether a step has happened."""
        return place < self.first or place in self.done

    # -- there and back -------------------------------------------------------------------------------------------

    def point(self) -> Point:
        """Returns where the walk is now."""
        return Point(
            self.machine.snapshot(),
            self.first,
            frozenset(self.done),
            self._shared_next,
            len(self.course),
            len(self._armed_from),
            len(self.inserted),
            self._held_ms,
            len(self.loads),
            self._parked,
            self._postponed,
        )

    def tail(self, since: Point) -> Tail:
        """Returns what was noted after a point, for a return to where the walk is now."""
        return Tail(
            since.course,
            self.course[since.course :],
            since.armings,
            self._armed_from[since.armings :],
            self._armed_slack_ms[since.armings :],
            since.inserted,
            self.inserted[since.inserted :],
            since.loads,
            self.loads[since.loads :],
        )

    def forward_to(self, point: Point, tail: Tail) -> None:
        """Goes to where the walk was before it went back."""
        self.course[tail.course_from :] = tail.course
        self._armed_from[tail.armings_from :] = tail.armed_from
        self._armed_slack_ms[tail.armings_from :] = tail.armed_slack_ms
        self.inserted[tail.inserted_from :] = tail.inserted
        self.loads[tail.loads_from :] = tail.loads
        self.back_to(point)

    def back_to(self, point: Point) -> None:
        """Goes back to where the walk was."""
        self.machine.restore(point.snapshot)
        self.first, self.done, self._shared_next = point.first, set(point.done), point.shared
        del self.course[point.course :]
        del self._armed_from[point.armings :]
        del self._armed_slack_ms[point.armings :]
        del self.inserted[point.inserted :]
        del self.loads[point.loads :]
        self._held_ms = point.held_ms
        self._parked, self._postponed = point.parked, point.postponed

    # -- what may happen ------------------------------------------------------------------------------------------

    def next_event(self) -> tuple[int, int]:
        """Returns when the next timer or event of the shard is due, and by how much it may be late, in milliseconds."""
        deadline_ms, number = self.machine.next_timer()
        if self._shared_next < len(self._shared):
            event = self._shared[self._shared_next]
            at_ms = self._event_ms()
            if at_ms < deadline_ms:
                return at_ms, event.at_ms + event.slack_ms - at_ms
        return deadline_ms, 0 if deadline_ms == NEVER_MS else self._timer_slack_ms(deadline_ms, number)

    def _event_ms(self) -> int:
        """Returns when the shard's next event is taken to happen."""
        return max(self._shared[self._shared_next].at_ms, self._held_ms)

    def _timer_slack_ms(self, due_ms: int, number: int) -> int:
        place = bisect_right(self._armed_from, number) - 1
        return self._late_ms(due_ms) + (self._armed_slack_ms[place] if place >= 0 else 0)

    def _late_ms(self, due_ms: int) -> int:
        """Returns how late a timer may fire that is due at a time for certain."""
        found = self._late_ms_at.get(due_ms)
        if found is None:
            found = self._late_ms_at[due_ms] = self._prompt.late_ms(due_ms, self.bounds.late_ms)
        return found

    def _may_be_late(self, until_ms: int) -> bool:
        """Returns whether all that is due before a time may happen as late as that."""
        timers = self.machine.due_by(until_ms)
        events = (event for event in self._shared[self._shared_next :] if event.at_ms < until_ms)
        return all(due_ms + self._timer_slack_ms(due_ms, number) >= until_ms for due_ms, number in timers) and all(
            event.at_ms + event.slack_ms >= until_ms for event in events
        )

    def usual(self) -> Option | None:
        """Returns what is taken to happen next; None if everything has happened."""
        due_ms, _ = self.next_event()
        if self.first == len(self.steps):
            return None if self._shared_next == len(self._shared) else Option(None, due_ms, True)
        if self.first in self.delayed:
            found = next(self.options(), None)
            if found is not None:
                return found
        step = self.steps[self.first]
        at_ms = max(self.machine.now_ms, step.natural_ms)
        return Option(None, due_ms, True) if due_ms <= at_ms else Option(self.first, at_ms, True)

    def options(self) -> Iterator[Option]:
        """Yields what may happen next, the usual first."""
        found = []
        for option in self._orders():
            found.append(option)
            yield option
        yield from self._with_kept_timers(found)
        if not found or not self.machine.may_resolve(max(option.at_ms for option in found)):
            return
        known = self.machine.has_regexes
        for option in found:
            if option.place is not None and self.steps[option.place].brings_regex(known=known):
                yield option._replace(usual=False, resolves_late=True)

    def _with_kept_timers(self, found: Sequence[Option]) -> Iterator[Option]:
        """Yields steps whose member has a timer that fires before the step's records are written, which puts it off."""
        for option in found:
            if option.place is None or not (step := self.steps[option.place]).waits or not step.request.member_id:
                continue
            written_ms = step.latest_ms if step.answer is None or step.answer.ts is None else step.answer.ts + 1
            # What is late is due right after the step.
            since_ms = 0 if option.late_ms else option.at_ms
            for kind, due_ms in self.machine.timers_put_off(step.request.member_id, since_ms, written_ms):
                yield option._replace(usual=False, kept=(kind, max(due_ms, option.at_ms + 1)))

    def _orders(self) -> Iterator[Option]:
        """Yields what may happen next with regular expressions resolved at once, the usual first."""
        due_ms, slack_ms = self.next_event()
        now_ms = self.machine.now_ms
        candidates, latest_ms = self._candidates()
        if not candidates:
            if self._shared_next < len(self._shared):
                yield Option(None, due_ms, True)
            return
        if now_ms > latest_ms:
            return
        times = {place: self._at_ms(place, latest_ms) for place in candidates}
        in_turn = [place for place in candidates if place not in self._postponed]
        usual = self._usual_of(in_turn or candidates, latest_ms)
        following = self._usual_of([place for place in in_turn if place != usual] or [usual], latest_ms)
        fires = due_ms <= times[usual]
        # What is late stays late: going on before it in the usual order is no further change.
        stays_late = now_ms == due_ms - 1
        for place in candidates:
            if place in self._postponed and place != usual:
                in_time = times[place] < due_ms
                yield from self._before(due_ms, slack_ms, place, times[place], usual=in_time or stays_late)
        yield Option(None, due_ms, True) if fires else Option(usual, times[usual], True)
        postpones = None if fires or usual in self._postponed else usual
        for place in in_turn or [usual]:
            if fires or place != usual:
                is_usual = place == usual and stays_late
                for option in self._before(due_ms, slack_ms, place, times[place], usual=is_usual):
                    yield option if place != following else option._replace(postpones=postpones)
        if not fires and due_ms <= latest_ms:
            yield Option(None, due_ms, usual in self._postponed, postpones=postpones)
        yield from self._event_before_timers(latest_ms)
        yield from self._timers_before_event(latest_ms, usual=stays_late)
        yield from self._around_intervals(candidates, times, latest_ms)

    def _usual_of(self, candidates: Sequence[int], latest_ms: int) -> int:
        """Returns which of these steps is taken to come next if others don't."""
        usual = candidates[0]
        if usual in self.delayed and self.steps[usual].natural_ms > latest_ms:
            # What was answered before comes before.
            usual = min(candidates, key=lambda place: self.steps[place].latest_ms)
        return usual

    def _event_before_timers(self, latest_ms: int) -> Iterator[Option]:
        """Yields the next event of the shard before timers that are due by then, which are late."""
        if self._shared_next == len(self._shared):
            return
        event = self._shared[self._shared_next]
        at_ms = max(self._event_ms(), self.machine.now_ms)
        timers = self.machine.due_by(at_ms)
        if not timers or at_ms > min(latest_ms, event.at_ms + event.slack_ms):
            return
        if all(due_ms + self._timer_slack_ms(due_ms, number) > at_ms for due_ms, number in timers):
            yield Option(None, at_ms, False, at_ms + 1 - timers[0][0])

    def _timers_before_event(self, latest_ms: int, *, usual: bool) -> Iterator[Option]:
        """Yields timers that are due after the next event of the shard, which is later than they are."""
        if self._shared_next == len(self._shared):
            return
        event = self._shared[self._shared_next]
        deadline_ms, _ = self.machine.next_timer()
        if self._event_ms() < deadline_ms <= min(latest_ms, event.at_ms + event.slack_ms - 1):
            yield Option(None, deadline_ms, usual)

    def _at_ms(self, place: int, latest_ms: int) -> int:
        """Returns when a step is taken to happen if it is the next, and another has happened by ``latest_ms``."""
        step = self.steps[place]
        if step.is_read and place != self.first:
            # It takes no time from what it comes before.
            latest_ms = min(latest_ms, self.steps[self.first].natural_ms)
        return max(self.machine.now_ms, step.arrived_ms, min(step.natural_ms, latest_ms))

    def _before(self, due_ms: int, slack_ms: int, place: int, at_ms: int, *, usual: bool) -> Iterator[Option]:
        """Yields a step before what is due next: at a time before that, or else what is due is late."""
        step = self.steps[place]
        if at_ms >= due_ms > max(self.machine.now_ms, step.arrived_ms):
            at_ms = due_ms - 1
        if at_ms >= due_ms:
            at_ms = max(self.machine.now_ms, step.arrived_ms, min(at_ms, due_ms + slack_ms - 1))
        if at_ms <= step.latest_ms:
            yield from self._late_if_due(place, at_ms, due_ms, usual=usual)

    def _late_if_due(self, place: int, at_ms: int, due_ms: int, *, usual: bool) -> Iterator[Option]:
        """Yields a step at a time; what is due by then is late, if it may be."""
        late_ms = max(0, at_ms + 1 - due_ms)
        if not late_ms or self._may_be_late(at_ms + 1):
            yield Option(place, at_ms, usual, late_ms)

    def _around_intervals(self, candidates: Sequence[int], times: dict[int, int], latest_ms: int) -> Iterator[Option]:
        """Steps shortly before or after the end of an interval."""
        due_ms, _ = self.next_event()
        for begin_ms, length_ms in self.machine.intervals():
            end_ms = begin_ms + length_ms
            for place in candidates:
                step, at_ms = self.steps[place], min(times[place], due_ms - 1)
                after_ms = max(end_ms, self.machine.now_ms, step.arrived_ms)
                if at_ms < end_ms and after_ms <= min(step.latest_ms, latest_ms):
                    at_ms = after_ms
                elif max(self.machine.now_ms, step.arrived_ms) < end_ms <= times[place]:
                    at_ms = end_ms - 1
                else:
                    continue
                yield from self._late_if_due(place, at_ms, due_ms, usual=False)

    def _candidates(self) -> tuple[list[int], int]:
        """Returns the steps that may come next, in the estimated order.

        Returns, too, by when one of those to come has happened.
        """
        candidates: list[int] = []
        connections: set[str] = set()
        latest_ms = NEVER_MS
        for place in range(self.first, len(self.steps)):
            if place in self.done:
                continue
            step = self.steps[place]
            if step.arrived_ms > latest_ms:
                break
            if step.connection not in connections and len(candidates) < self.bounds.candidates:
                candidates.append(place)
            connections.add(step.connection)
            latest_ms = min(latest_ms, step.latest_ms)
        return [place for place in candidates if self.steps[place].asked_ms <= latest_ms], latest_ms

    def later_begins(self, at_ms: int, intervals: Iterable[tuple[int, int]]) -> list[OtherBegin]:
        """Steps that may have begun one of some intervals so much later that it isn't over at a time.

        Args:
            intervals: begin and length of each, in milliseconds.
        """
        found = []
        for begin_ms, length_ms in intervals:
            needed_ms = at_ms - length_ms + 1
            if begin_ms < needed_ms:
                found += [
                    OtherBegin(place, needed_ms, length_ms)
                    for place in self._begun_at(begin_ms)
                    if needed_ms <= self.steps[place].latest_ms
                ]
        return found

    def earlier_begins(self, at_ms: int, latest_ms: int) -> list[OtherBegin]:
        """Steps that may have begun an interval so much earlier that it is over at a time, or at a later one."""
        found = []
        for begin_ms, length_ms in self.machine.intervals():
            if begin_ms + length_ms <= at_ms:
                continue
            for place in self._begun_at(begin_ms):
                arrived_ms = self.steps[place].arrived_ms
                if arrived_ms < begin_ms and arrived_ms + length_ms <= latest_ms:
                    found.append(OtherBegin(place, max(arrived_ms, at_ms - length_ms), length_ms))
        return found

    def _begun_at(self, begin_ms: int) -> list[int]:
        """Returns the steps that may have begun an interval at a time.

        They are all that happened then: what has an assignment made may only be as late as what it came after.
        """
        first = bisect_left(self.course, begin_ms, key=_time)
        then = self.course[first : bisect_right(self.course, begin_ms, lo=first, key=_time)]
        return [place for place, _ in then]


def _time(handled: tuple[int, int]) -> int:
    return handled[1]
