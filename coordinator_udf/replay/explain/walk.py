"""A walk through a group's events: what happens, and whether the broker's answers agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from coordinator_udf.replay.explain.machine import Given
from coordinator_udf.replay.explain.points import NOTHING, Mismatch
from coordinator_udf.replay.explain.position import Position
from coordinator_udf.replay.explain.results import Inserted, Option


class Walk(Position):
    """Walks through a group's steps, and back to where it was."""

    def take(self, option: Option) -> list[Mismatch]:
        """Lets something happen; the answers that the broker didn't give.

        Raises:
            PoisonRow: a handler raised.
        """
        number = self.machine.timer_number
        self.excused_now = 0
        if option.place is None:
            if option.late_ms:
                self._delay_timers(option.at_ms + 1)
            given, slack_ms = self._take_event(option.at_ms)
        else:
            step = self.steps[option.place]
            if option.late_ms:
                self._delay(option.at_ms + 1)
            if option.resolves_late:
                self._insert("DelayRegexes", option.at_ms + 1)
            given = self.machine.handle(step.request._replace(log_ts=option.at_ms))
            slack_ms = max(0, step.latest_ms - option.at_ms)
            self.course.append((option.place, option.at_ms))
            self.done.add(option.place)
            self._postponed -= {option.place}
            if option.kept is not None:
                kind, until_ms = option.kept
                self._insert("KeepTimer", until_ms, memberId=step.request.member_id, kind=kind)
            while self.first in self.done:
                self.done.discard(self.first)
                self.first += 1
        if option.postpones is not None:
            self._postponed |= {option.postpones}
        if self.machine.timer_number != number:
            self._armed_from.append(number)
            self._armed_slack_ms.append(slack_ms)
        mismatches = [*self._mismatches(given), *self._overdue(option.place, given)]
        if self._has_loaded:
            self._has_loaded = False
            self.loads.append(self.point()._replace(loads=len(self.loads) + 1, postponed=frozenset()))
        return mismatches

    def catch_up(self, at_ms: int, inserted: Sequence[Inserted]) -> None:
        """Lets what is due by a step's time happen as it did before that step, as late as it was then.

        Args:
            at_ms: the step's time.
            inserted: the rows that were put between the steps.
        """
        for found in inserted:
            if found.course != len(self.course):
                continue
            if not found.api:
                self._held_ms = found.at_ms
                continue
            self._take_due(found.at_ms)
            if found.api == "AdoptGroup":
                self.machine.adopt(found.body)
            else:
                self.machine.delay(found.api, found.body)
        self._take_due(at_ms)

    def _take_due(self, at_ms: int) -> None:
        while (due_ms := self.next_event()[0]) <= at_ms:
            self.take(Option(None, due_ms, True))

    def adopt(self, group_id: str, body: str, *, of_load: bool = False) -> int:
        """Puts the group in another state; how many requests waited in it that nobody answers any more, or otherwise.

        Args:
            of_load: whether it is what the broker had loaded.

        Raises:
            PoisonRow: the state can't be.
        """
        number, waited = self.machine.timer_number, self.machine.waiting(group_id)
        at_ms = self.machine.now_ms
        given = self.machine.adopt(body)
        ended = waited - self.machine.waiting(group_id)
        dropped = tuple(sorted(ended.difference(request_id for request_id, _ in given)))
        gone = {self._by_id[request_id].place for request_id in ended if request_id in self._by_id}
        self._parked = frozenset(waits for waits in self._parked if waits[1] not in gone)
        self.inserted.append(Inserted(len(self.course), at_ms, "AdoptGroup", body, dropped, of_load=of_load))
        if self.machine.timer_number != number:
            self._armed_from.append(number)
            self._armed_slack_ms.append(self.bounds.late_ms)
        return len(dropped) + len(list(self._mismatches(given)))

    def _take_event(self, at_ms: int) -> tuple[list[Given], int]:
        deadline_ms, _ = self.machine.next_timer()
        if deadline_ms <= at_ms:
            if self._shared_next < len(self._shared) and self._event_ms() < at_ms:
                # The event is later than these.
                self._held_ms = at_ms + 1
            return self.machine.fire(at_ms), self._late_ms(at_ms)
        event = self._shared[self._shared_next]
        self._shared_next += 1
        slack_ms = event.slack_ms
        if at_ms > event.at_ms:
            self.inserted.append(Inserted(len(self.course), at_ms, "", str(event.number)))
            slack_ms -= at_ms - event.at_ms
        given = self.machine.handle(event.request._replace(log_ts=max(at_ms, event.at_ms)))
        self._has_loaded = event.row["api"] == "Failover"
        return given, slack_ms

    def _delay(self, until_ms: int) -> None:
        """Lets what is due before a time happen then."""
        if self._shared_next < len(self._shared) and self._shared[self._shared_next].at_ms < until_ms:
            self._held_ms = until_ms
        self._delay_timers(until_ms)

    def _delay_timers(self, until_ms: int) -> None:
        timers = self.machine.due_by(until_ms)
        if not timers:
            return
        slacks_ms = [due_ms + self._timer_slack_ms(due_ms, number) - until_ms for due_ms, number in timers]
        number = self.machine.timer_number
        self._insert("DelayTimers", until_ms)
        for place, slack_ms in enumerate(slacks_ms):
            self._armed_from.append(number + place)
            self._armed_slack_ms.append(slack_ms - self._late_ms(until_ms))

    def _insert(self, api: str, until_ms: int, **fields: str | None) -> None:
        """Puts a row of the group's own behind what has happened."""
        at_ms = self.machine.now_ms
        body = msgspec.json.encode({"groupId": self.steps[0].group_id, **fields, "untilMs": until_ms}).decode()
        self.machine.delay(api, body)
        self.inserted.append(Inserted(len(self.course), at_ms, api, body))

    def _overdue(self, place: int | None, given: Sequence[Given]) -> Iterator[Mismatch]:
        """Yields the answers that wait although the broker had given them for certain."""
        parked = self._parked
        if place is not None and self.steps[place].waits:
            answer = self.steps[place].answer
            if answer is not None and answer.ts is not None:
                parked |= {(answer.ts + self.bounds.late_ms, place)}
        if not parked:
            return
        said = {request_id for request_id, _ in given}
        parked = frozenset(w for w in parked if self.steps[w[1]].request.request_id not in said)
        late = sorted(w for w in parked if w[0] < self.machine.now_ms)
        self._parked = parked.difference(late)
        for _, waiting in late:
            if self._excused(self.steps[waiting], NOTHING):
                self.excused_now += 1
            else:
                yield Mismatch(waiting, NOTHING)

    def _mismatches(self, given: Sequence[Given]) -> Iterator[Mismatch]:
        for request_id, body in given:
            step = self._by_id.get(request_id)
            if step is None or step.is_answered_by(body):
                continue
            if step.may_be_unwritten(self.machine.now_ms):
                # What is told when the log is over isn't missing in it.
                continue
            if self._excused(step, body):
                self.excused_now += 1
            else:
                yield Mismatch(step.place, body)
