"""Explains a broker's log: puts its rows in an order, and at times, that explain the broker's answers."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any

import msgspec

from coordinator_udf.log.rows import control_rows
from coordinator_udf.protocol.errors import error_name
from coordinator_udf.replay.explain.bounds import Bounds
from coordinator_udf.replay.explain.looks import MOST_UNEXPLAINED, times_of_looks, with_look
from coordinator_udf.replay.explain.machine import GroupMachine
from coordinator_udf.replay.explain.rebase import Rebase
from coordinator_udf.replay.explain.results import Explained, GroupKey, Outcome
from coordinator_udf.replay.explain.search import Search
from coordinator_udf.replay.explain.steps import (
    LIST_GROUPS,
    Prompt,
    Row,
    SharedEvent,
    Step,
    loads_another,
    lost_by,
    named_groups,
    not_before,
    part_of,
    served_from,
    shared_event,
    split_by_group,
    steps_of,
    with_early_loads,
    with_news_after_loading,
)
from coordinator_udf.replay.explain.walk import Walk
from coordinator_udf.replay.explain.wanted import groups_in_lists, groups_that_differ
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.inputs.broker_log.undecided import LogFacts
from coordinator_udf.replay.judge.compare import Difference, answer_error
from coordinator_udf.replay.recording import Answer, ReplaySource, number_offsets
from coordinator_udf.shard.shard import PoisonRow
from schemas.requests import CONTROL_APIS


def explain(
    source: ReplaySource,
    facts: LogFacts,
    differing: Mapping[str, Difference],
    bounds: Bounds = Bounds(),  # noqa: B008 - a tuple
    *,
    lists: Collection[str] = (),
    known: Explained | None = None,
) -> Explained:
    """Changes the order and times of a source's rows so that they explain the broker's answers, as far as any do.

    Args:
        facts: what the log tells that the rows don't.
        differing: the answers that differ as the rows stand, by request; the groups in which they do are looked at.
        lists: the requests for lists of all groups of which what is told of a group is looked at as well.
        known: what came of groups in the same rows before that was looked at; it stands for the others.
    """
    explained = Explained()
    listed = groups_in_lists(source, {each: differing[each] for each in lists if each in differing}, facts)
    wanted = sorted(
        {*groups_that_differ(source.rows, differing, facts), *(key for keys in listed.values() for key in keys)}
    )
    if not wanted:
        return explained
    rows = split_by_group(source.rows, set(wanted))
    answers = {answer.request_id: answer for answer in source.recording.answers}
    by_shard: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_shard[row["partition"]].append(row)
    source.rows[:] = []
    for partition, in_order in sorted(by_shard.items()):
        own = [group_id for place, group_id in wanted if place == partition]
        make = partial(_Shard, partition, source=source, facts=facts, answers=answers, bounds=bounds, listed=listed)
        if known is not None:
            # What was looked at before stands in the order that was found.
            shard = make(in_order)
            shard.know(known)
            shard.search(own)
        else:
            shard = _searched(make, in_order, own)
        explained.outcomes |= shard.outcomes
        explained.broken |= shard.broken
        explained.events_ms[partition] = shard.events_ms
        source.rows += shard.rows_in_order()
    number_offsets(source.rows)
    return explained


def _searched(make: Callable[[Sequence[Row]], _Shard], rows: Sequence[Row], wanted: Sequence[str]) -> _Shard:
    """Searches groups of a shard as it usually is; where that leaves something unexplained, as it may be as well.

    Args:
        make: makes the shard of its rows.
    """
    usual = with_news_after_loading(rows)
    shard = make(usual)
    shard.search(wanted)
    shard = shard.better_with_other_looks(make).better_with_early_loads()
    return shard.or_if_better(make(rows)) if shard.unexplained and usual != rows else shard


class _Shard:
    """One shard of a log: what happens to it happens to all of its groups at one time.

    Attributes:
        outcomes: of the groups that were searched.
        broken: those that couldn't be, for handling one of their rows raises: why.
    """

    def __init__(
        self,
        partition: int,
        rows: Sequence[Row],
        *,
        source: ReplaySource,
        facts: LogFacts,
        answers: Mapping[str, Answer],
        bounds: Bounds,
        listed: Mapping[str | None, Sequence[GroupKey]],
    ) -> None:
        self.outcomes: dict[GroupKey, Outcome] = {}
        self.broken: dict[GroupKey, str] = {}
        self._partition, self._source, self._facts = partition, source, facts
        self._answers, self._bounds, self._rows, self._listed = answers, bounds, rows, listed
        self._own: defaultdict[str, list[Row]] = defaultdict(list)
        for row in rows:
            in_list = (group_id for shard, group_id in listed.get(row["request_id"], ()) if shard == partition)
            for group_id in {*named_groups(row), *in_list}:
                self._own[group_id].append(row)
        asked = {row["request_id"] for row in rows if row["request_id"] in facts.entries}
        self._prompt = Prompt((facts.entries[request_id] for request_id in asked), bounds.handover_ms, facts.hangs)
        self._shared = _shared(rows, facts.entries, bounds, self._prompt)
        self._steps: dict[str, list[Step]] = {}

    def better_with_other_looks(self, make: Callable[[Sequence[Row]], _Shard]) -> _Shard:
        """Returns the shard as it is if it looked for what has expired at other times, if that leaves less unexplained.

        Args:
            make: makes the shard of its rows.
        """
        interval_ms = self._source.settings.offsets_retention_check_interval_ms
        for (_, group_id), outcome in sorted(self.outcomes.items()):
            for at_ms in self._times_of_looks(group_id, outcome, interval_ms):
                rows = with_look(self._rows, self._partition, at_ms, interval_ms)
                if rows is None:
                    continue
                other = make(rows)
                other.search([group_id])
                if other.unexplained < len(outcome.unexplained) and (better := self.or_if_better(other)) is other:
                    return better
        return self

    def _times_of_looks(self, group_id: str, outcome: Outcome, interval_ms: int) -> list[int]:
        """Returns the times at which a look may explain what nothing explains of what was told of a group."""
        steps = [self._steps[group_id][found.place] for found in outcome.unexplained]
        if not 0 < len(steps) <= MOST_UNEXPLAINED:
            return []
        unexplained = {step.row["request_id"]: step for step in steps}
        rows = [row for row in self.rows_in_order() if row["api"] in CONTROL_APIS or group_id in named_groups(row)]
        machine = GroupMachine(self._partition, self._source.settings, keep_log=True)
        try:
            return times_of_looks(machine, rows, unexplained, interval_ms)
        except PoisonRow:
            return []

    def better_with_early_loads(self) -> _Shard:
        """Returns the shard with its loads as early as they may be if that leaves less unexplained, or else as it is.

        Where answers leave open whether it was loading, a load is taken to be in the middle of them.
        """
        if not self.unexplained:
            return self
        early = with_early_loads(self._shared, self._rows, self._facts.entries)
        if early == self._shared:
            return self
        other = copy(self)
        other.begin_anew(early)
        return self.or_if_better(other)

    def or_if_better(self, other: _Shard) -> _Shard:
        """Searches all groups of the shard as it may be, too; returns that if it leaves less unexplained, or this."""
        other.search(sorted(self._own))
        return other if other.unexplained < self.unexplained else self

    def begin_anew(self, shared: Sequence[SharedEvent]) -> None:
        """Forgets what came of the search; from now on these are the shard's events."""
        self._shared, self.outcomes, self.broken, self._steps = list(shared), {}, {}, {}

    @property
    def unexplained(self) -> int:
        """How many answers nothing explains."""
        return sum(len(outcome.unexplained) for outcome in self.outcomes.values()) + len(self.broken)

    @property
    def events_ms(self) -> list[int]:
        """When what happened to the shard did."""
        return [event.at_ms for event in self._shared]

    def know(self, known: Explained) -> None:
        """Takes over what came of groups of which no list tells more than was looked at."""
        told = {key for keys in self._listed.values() for key in keys}
        self._shared = list(_not_before(self._shared, known.events_ms.get(self._partition, self.events_ms)))
        for key, outcome in known.outcomes.items():
            if key[0] == self._partition and key not in told:
                self.outcomes[key], self._steps[key[1]] = outcome, self._steps_of(key[1])

    def _steps_of(self, group_id: str) -> list[Step]:
        return steps_of(self._own[group_id], group_id, self._facts.entries, self._answers, self._prompt)

    def search(self, wanted: Sequence[str]) -> None:
        """Searches groups. Where one needs an event later than it usually is, the others are searched with that."""
        groups = [group_id for group_id in wanted if (self._partition, group_id) not in self.outcomes]
        while True:
            for group_id in groups:
                self._search(group_id)
            late_ms = self._late_ms()
            moved = [late_ms.get(event.number, 0) for event in self._shared]
            if all(event.at_ms >= at_ms for event, at_ms in zip(self._shared, moved, strict=True)):
                return
            before, self._shared = self._shared, list(_not_before(self._shared, moved))
            spans = [(old.at_ms, new.at_ms) for old, new in zip(before, self._shared, strict=True) if old != new]
            groups = [group_id for group_id in self._own if self._is_touched(group_id, spans)]

    def _search(self, group_id: str) -> None:
        steps = self._steps_of(group_id)
        key = (self._partition, group_id)
        shared = [event for event in self._shared if not loads_another(event.row, group_id)]
        try:
            self.outcomes[key] = _search(
                self._source, self._facts, key, steps, shared=shared, bounds=self._bounds, prompt=self._prompt
            )
        except PoisonRow as poison:
            self.broken[key] = poison.details
        else:
            self._steps[group_id] = steps

    def _late_ms(self) -> dict[int, int]:
        """Returns when the groups need events that are late, by the event's number."""
        late: dict[int, int] = {}
        for outcome in self.outcomes.values():
            for found in outcome.inserted:
                if not found.api:
                    late[int(found.body)] = max(late.get(int(found.body), 0), found.at_ms)
        return late

    def _is_touched(self, group_id: str, spans: Sequence[tuple[int, int]]) -> bool:
        """Returns whether something happens to a group between an event's usual time and its later one."""
        key = (self._partition, group_id)
        if key in self.broken:
            return False
        if key in self.outcomes:
            times = (at_ms for _, at_ms in self.outcomes[key].course)
        else:
            times = (row["log_ts"] for row in self._own[group_id])
        return any(first <= at_ms <= last for at_ms in times for first, last in spans)

    def rows_in_order(self) -> Iterator[Row]:
        """Returns the shard's rows in the order that was found."""
        courses = {
            group_id: list(_course(self._partition, self._steps[group_id], outcome))
            for (_, group_id), outcome in self.outcomes.items()
        }
        return _merged(self._rows, courses, _moved(self._shared))


def _not_before(events: Sequence[SharedEvent], moved: Sequence[int]) -> Iterator[SharedEvent]:
    """Yields the events no earlier than they are needed, and those behind with them."""
    latest_ms = 0
    for event, at_ms in zip(events, moved, strict=True):
        latest_ms = max(latest_ms, at_ms)
        yield not_before(event, latest_ms)


def _moved(events: Sequence[SharedEvent]) -> list[Row]:
    """Moves the rows of a shard's events to where its groups need them; the rows that were moved."""
    moved = [event for event in events if event.row["log_ts"] != event.at_ms]
    for event in moved:
        event.row["log_ts"] = event.at_ms
    return [event.row for event in moved]


def _shared(rows: Sequence[Row], entries: Mapping[str, Entry], bounds: Bounds, prompt: Prompt) -> list[SharedEvent]:
    """Returns what happens to a shard; it begins when it does, and all else may be late.

    A shard that was lost is loaded by its first answer. Of topics that come up to then it may hear some time after.
    """
    served_ms = served_from(rows, entries)
    events: list[SharedEvent] = []
    lost = False
    for place, row in enumerate(rows):
        if row["api"] not in CONTROL_APIS:
            continue
        at_ms = row["log_ts"]
        lost = row["api"] == "Unload" or (lost and at_ms <= served_ms[place])
        slack_ms = prompt.late_ms(at_ms, bounds.late_ms)
        if not events or at_ms <= events[0].at_ms:
            slack_ms = -1
        elif row["api"] == "TopicMetadata" and lost:
            slack_ms = max(slack_ms, served_ms[place] + bounds.news_ms - at_ms)
        elif row["api"] == "Failover":
            slack_ms = max(slack_ms, served_ms[place] - at_ms)
        elif row["api"] == "Unload":
            # It is taken to be lost as soon as it may be; timers may have fired before the first answer that says so.
            slack_ms = max(slack_ms, lost_by(rows, place, entries) - at_ms)
        events.append(shared_event(row, slack_ms, len(events)))
    return events


def _search(
    source: ReplaySource,
    facts: LogFacts,
    key: GroupKey,
    steps: list[Step],
    *,
    shared: Sequence[SharedEvent],
    bounds: Bounds,
    prompt: Prompt,
) -> Outcome:
    partition, group_id = key
    keep_log = any(event.row["api"] == "Failover" for event in shared)
    machine = GroupMachine(partition, source.settings, keep_log=keep_log)
    walk = Walk(machine, steps, shared, bounds, _excused(source.source, facts), prompt=prompt)
    outcome = Search(walk, Rebase(walk, group_id, source.settings)).run()
    # When a list was made is told for its whole shard, once its groups are as they were listed.
    outcome.unexplained = [found for found in outcome.unexplained if steps[found.place].row["api"] != LIST_GROUPS]
    outcome.request_ids = [step.row["request_id"] for step in steps]
    outcome.natural_ms = [step.natural_ms for step in steps]
    outcome.windows_ms = [(step.arrived_ms, step.latest_ms) for step in steps]
    return outcome


def _course(partition: int, steps: list[Step], outcome: Outcome) -> Iterator[Row]:
    """Yields a group's rows in the order that was found, with those that put it in another state."""
    inserted = [row for row in outcome.inserted if row.api]
    for number in range(len(outcome.course) + 1):
        while inserted and inserted[0].course == number:
            found = inserted.pop(0)
            row = control_rows(partitions=1, log_ts=found.at_ms, api=found.api)[0]
            yield {**row, "partition": partition, "body": found.body}
        if number < len(outcome.course):
            place, at_ms = outcome.course[number]
            if steps[place].row["api"] != LIST_GROUPS:
                yield {**steps[place].row, "log_ts": at_ms}


def _excused(source: str, facts: LogFacts) -> Callable[[Step, str], bool]:
    """Returns what tells whether one group's answer may differ, for the log itself can't tell what is right.

    It is found out once for each answer that differs: a search comes by the same ones again and again.
    """
    found: dict[tuple[int, str], bool] = {}

    def excused(step: Step, body: str) -> bool:
        known = found.get((step.place, body))
        if known is None:
            known = found[step.place, body] = may_differ(step, body)
        return known

    def may_differ(step: Step, body: str) -> bool:
        answer = step.answer
        if answer is None:
            return True
        sides = answer.body, msgspec.json.decode(body)
        if answer.api == LIST_GROUPS and sides[1] is not None:
            sides = part_of(answer.api, sides[0], step.group_id), part_of(answer.api, sides[1], step.group_id)
        shown = ({"body": sides[0]}, None if sides[1] is None else {"body": sides[1]})
        error = error_name(answer_error(answer.body))
        difference = Difference(source, "answer", answer.api, answer.request_id, error, *shown)
        return facts.undecided(difference) is not None

    return excused


def _merged(rows: Sequence[Row], courses: Mapping[str, list[Row]], moved: Sequence[Row]) -> Iterator[Row]:
    """Yields a shard's rows in the order of time; those of searched groups in the order that was found."""
    elsewhere = {id(row) for row in moved}
    rest = [
        row
        for row in rows
        if id(row) not in elsewhere
        and (row["api"] in CONTROL_APIS or not any(group_id in courses for group_id in named_groups(row)))
    ]
    yield from heapq.merge(moved, rest, *courses.values(), key=_time)


def _time(row: dict[str, Any]) -> tuple[int, bool]:
    # What happens to the whole shard comes before what is asked in the same millisecond.
    return row["log_ts"], row["api"] not in CONTROL_APIS
