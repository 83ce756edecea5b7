"""One shard of a broker's log: what happens to it happens to all of its groups at one time."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any

from coordinator_udf.groups.model.timers import NEVER_MS
from coordinator_udf.log.rows import control_rows
from coordinator_udf.replay.explain.bounds import Bounds
from coordinator_udf.replay.explain.excused import excused_by
from coordinator_udf.replay.explain.machine import GroupMachine
from coordinator_udf.replay.explain.prompt import Prompt
from coordinator_udf.replay.explain.rebase import Rebase
from coordinator_udf.replay.explain.results import Explained, GroupKey, Outcome
from coordinator_udf.replay.explain.search import Search
from coordinator_udf.replay.explain.steps import (
    LIST_GROUPS,
    Row,
    SharedEvent,
    Step,
    loads_another,
    lost_by,
    named_groups,
    not_before,
    served_from,
    shared_event,
    steps_of,
)
from coordinator_udf.replay.explain.unseen_joins import UnseenJoin, rows_with
from coordinator_udf.replay.explain.walk import Walk
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.inputs.broker_log.undecided import LogFacts
from coordinator_udf.replay.recording import Answer, ReplaySource
from coordinator_udf.shard.shard import PoisonRow
from schemas.requests import CONTROL_APIS


class ShardSearch:
    """One shard of a log: what happens to it happens to all of its groups at one time.

    Attributes:
        rows: the shard's, in the log's order.
        outcomes: of the groups that were searched; `steps` has those of each.
        broken: those that couldn't be, for handling one of their rows raises: why.
        unseen: the joins that the log doesn't have.
        once_searched: whether what the log may lack was looked for in vain (LogFacts.undecided).
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
        once_searched: bool = False,
    ) -> None:
        self.outcomes: dict[GroupKey, Outcome] = {}
        self.broken: dict[GroupKey, str] = {}
        self.unseen: list[UnseenJoin] = []
        self.once_searched = once_searched
        self.partition, self.source, self.facts = partition, source, facts
        self._answers, self._bounds, self.rows, self._listed = answers, bounds, rows, listed
        self._own: defaultdict[str, list[Row]] = defaultdict(list)
        for row in rows:
            in_list = (group_id for shard, group_id in listed.get(row["request_id"], ()) if shard == partition)
            for group_id in dict.fromkeys((*named_groups(row), *in_list)):
                self._own[group_id].append(row)
        asked = {row["request_id"] for row in rows if row["request_id"] in facts.entries}
        self._prompt = Prompt((facts.entries[request_id] for request_id in asked), bounds.handover_ms, facts.hangs)
        self.shared = _shared(rows, facts.entries, bounds, self._prompt)
        self.steps: dict[str, list[Step]] = {}

    def with_joins(self, joins: Sequence[UnseenJoin], until_ms: int = NEVER_MS) -> ShardSearch:
        """Returns the shard, not searched yet, with joins that the log doesn't have; only what happens by a time."""
        facts = self.facts.with_entries({join.row["request_id"]: join.entry for join in joins})
        answers = {**self._answers, **{join.row["request_id"]: join.answer for join in joins}}
        rows = [row for row in rows_with(self.rows, joins) if row["log_ts"] <= until_ms]
        given: dict[str, Any] = {
            "source": self.source,
            "facts": facts,
            "answers": answers,
            "once_searched": self.once_searched,
        }
        other = ShardSearch(self.partition, rows, **given, bounds=self._bounds, listed=self._listed)
        other.unseen = [*self.unseen, *joins]
        return other

    def searched_anew(self, *, once_searched: bool) -> ShardSearch:
        """Returns the shard with all its groups searched again, with what the log's end leaves open as open or not."""
        other = copy(self)
        other.once_searched = once_searched
        other.begin_anew(self.shared)
        other.search(sorted(self._own))
        return other

    def or_if_better(self, other: ShardSearch) -> ShardSearch:
        """Searches all groups of the shard as it may be, too; returns that if it leaves less unexplained, or this."""
        other.search(sorted(self._own))
        return other if other.unexplained < self.unexplained else self

    def begin_anew(self, shared: Sequence[SharedEvent]) -> None:
        """Forgets what came of the search; from now on these are the shard's events."""
        self.shared, self.outcomes, self.broken, self.steps = list(shared), {}, {}, {}

    @property
    def unexplained(self) -> int:
        """How many answers nothing explains."""
        return sum(len(outcome.unexplained) for outcome in self.outcomes.values()) + len(self.broken)

    @property
    def waits_in_vain(self) -> int:
        """How many requests waited in groups that were put in another state."""
        return sum(len(adopted.dropped) for outcome in self.outcomes.values() for adopted in outcome.adopted)

    @property
    def events(self) -> list[tuple[str, int]]:
        """What happened to the shard: the control row's API, and when (ms)."""
        return [(event.row["api"], event.at_ms) for event in self.shared]

    def know(self, known: Explained) -> None:
        """Takes over what came of groups of which no list tells more than was looked at."""
        told = {key for keys in self._listed.values() for key in keys}
        events = known.events.get(self.partition, self.events)
        self.shared = list(_not_before(self.shared, [at_ms for _, at_ms in events]))
        for key, outcome in known.outcomes.items():
            if key[0] == self.partition and key not in told:
                self.outcomes[key], self.steps[key[1]] = outcome, self._steps_of(key[1])

    def _steps_of(self, group_id: str) -> list[Step]:
        return steps_of(self._own[group_id], group_id, self.facts.entries, self._answers, self._prompt)

    def search(self, wanted: Sequence[str]) -> None:
        """Searches groups. Where one needs an event later than it usually is, the others are searched with that."""
        groups = [group_id for group_id in wanted if (self.partition, group_id) not in self.outcomes]
        while True:
            for group_id in groups:
                self._search(group_id)
            late_ms = self._late_ms()
            moved = [late_ms.get(event.number, 0) for event in self.shared]
            if all(event.at_ms >= at_ms for event, at_ms in zip(self.shared, moved, strict=True)):
                return
            before, self.shared = self.shared, list(_not_before(self.shared, moved))
            spans = [(old.at_ms, new.at_ms) for old, new in zip(before, self.shared, strict=True) if old != new]
            groups = [group_id for group_id in self._own if self._is_touched(group_id, spans)]

    def _search(self, group_id: str) -> None:
        steps = self._steps_of(group_id)
        key = (self.partition, group_id)
        shared = [event for event in self.shared if not loads_another(event.row, group_id)]
        try:
            self.outcomes[key] = _search(
                self.source,
                key,
                steps,
                shared=shared,
                bounds=self._bounds,
                excused=excused_by(self.source.source, self.facts, once_searched=self.once_searched),
                prompt=self._prompt,
            )
        except PoisonRow as poison:
            self.broken[key] = poison.details
        else:
            self.steps[group_id] = steps

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
        key = (self.partition, group_id)
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
            group_id: list(_course(self.partition, self.steps[group_id], outcome))
            for (_, group_id), outcome in self.outcomes.items()
        }
        return _merged(self.rows, courses, _moved(self.shared))


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
    key: GroupKey,
    steps: list[Step],
    *,
    shared: Sequence[SharedEvent],
    bounds: Bounds,
    excused: Callable[[Step, str], bool],
    prompt: Prompt,
) -> Outcome:
    partition, group_id = key
    keep_log = any(event.row["api"] == "Failover" for event in shared)
    machine = GroupMachine(partition, source.settings, keep_log=keep_log)
    walk = Walk(machine, steps, shared, bounds, excused, prompt=prompt)
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
