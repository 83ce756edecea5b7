"""Settles what a broker's log leaves open of the order and time of requests, by what the broker answered.

The log tells when each request arrived and was answered, and the coordinator handled it in between. Where those times
of two requests on different connections overlap, either may have come first; and a timer or an interval may or may not
have run out before a request. Where an answer differs, the request is moved past others that it overlaps with, or the
requests before it are taken to have been handled as early as they can have been. A move stays if its group's answers
then differ less often. Nothing is ever moved further, so an answer that no possible order and time explains goes on to
differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec

from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.inputs.broker_log.order import let_time_go_on
from coordinator_udf.replay.judge.canonical import canonical_answer
from coordinator_udf.replay.judge.our_answers import said_of
from coordinator_udf.replay.recording import Answer, ReplaySource, number_offsets
from coordinator_udf.replay.tasks.in_process import run_shard
from coordinator_udf.settings.coordinator import Settings
from schemas.requests import CONTROL_APIS

#: How far an estimated time may be off, in microseconds: the line's time is exact to the millisecond.
_SLACK_US = 1_000
#: How long the coordinator may take to get to a request that it was given; measured on a busy machine.
_HANDOVER_US = 5_000
#: How many orders are tried for one group: each is a replay of the group.
_TRIES_PER_GROUP = 60
#: How many for one log, so that a log under wrong settings doesn't take forever.
_TRIES_PER_LOG = 600
#: How many of a group's differences are tried to be settled before it is given up.
_DIFFERENCES_TRIED = 4
#: Before a request that may have missed a timer, requests this far back may have armed it; in milliseconds.
_BACK_MS = (0, 2_000, 15_000, 70_000, 400_000)
#: A group with more differences than that has another reason for them than the order of a few requests.
_DIFFERENCES_MAX = 200

Row = dict[str, Any]
#: The ids of the requests that differ, in the order of the rows.
Differing = list[str]


def settle_order(source: ReplaySource, entries: Mapping[str, Entry], differing: set[str]) -> int:
    """Changes the order and times of a source's rows where that explains answers; the number of changes.

    Args:
        entries: the lines of the log by request id.
        differing: the requests whose answers differ as the rows stand.
    """
    answers = {answer.request_id: answer for answer in source.recording.answers}
    moved = tries = 0
    for partition, group_id in sorted(_groups(source, differing)):
        if tries >= _TRIES_PER_LOG:
            break
        settler = _GroupSettler(source.settings, partition, group_id, answers, entries)
        rows = [row for row in source.rows if settler.concerns(row)]
        settled = settler.settle(rows)
        tries += settler.tries
        if settler.moved:
            moved += settler.moved
            places = [place for place, row in enumerate(source.rows) if settler.concerns(row)]
            for place, row in zip(places, settled, strict=True):
                source.rows[place] = row
    if moved:
        let_time_go_on(source.rows)
        number_offsets(source.rows)
    return moved


def _groups(source: ReplaySource, differing: set[str]) -> set[tuple[int, str]]:
    found = set()
    for row in source.rows:
        if row["request_id"] in differing and row["api"] not in CONTROL_APIS:
            found |= {(row["partition"], group_id) for group_id in _named(row)}
    return found


def _named(row: Row) -> Iterator[str]:
    """The groups that a row asks about; none for a list of all."""
    if row["group_id"] is not None:
        yield row["group_id"]
    elif row["body"] is not None:
        body = msgspec.json.decode(row["body"])
        for group in [*(body.get("groups") or ()), *(body.get("groupsNames") or ()), *(body.get("groupIds") or ())]:
            yield group["groupId"] if isinstance(group, dict) else group


class _GroupSettler:
    """Tries orders and times of one group's rows."""

    def __init__(
        self,
        settings: Settings,
        partition: int,
        group_id: str,
        answers: Mapping[str, Answer],
        entries: Mapping[str, Entry],
    ) -> None:
        self._settings = settings
        self._partition = partition
        self._group_id = group_id
        self._answers = answers
        self._entries = entries
        self.tries = 0
        self.moved = 0

    def concerns(self, row: Row) -> bool:
        """Whether a row bears on the group: its requests, and what happens to its shard."""
        if row["partition"] != self._partition:
            return False
        return row["api"] in CONTROL_APIS or row["group_id"] == self._group_id or self._group_id in _named(row)

    def settle(self, rows: list[Row]) -> list[Row]:
        """The rows in the best order and at the best times that were found."""
        differing = self._differing(rows)
        while differing and len(differing) <= _DIFFERENCES_MAX:
            better = self._better(rows, differing)
            if better is None:
                break
            rows, differing = better
            self.moved += 1
        return rows

    def _better(self, rows: list[Row], differing: Differing) -> tuple[list[Row], Differing] | None:
        for request_id in differing[:_DIFFERENCES_TRIED]:
            place = next(i for i, row in enumerate(rows) if row["request_id"] == request_id)
            for order in chain(self._orders(rows, place), self._times(rows, place)):
                if self.tries >= _TRIES_PER_GROUP:
                    return None
                self.tries += 1
                left = self._differing(order)
                if len(left) < len(differing):
                    return order, left
        return None

    def _orders(self, rows: list[Row], place: int) -> Iterator[list[Row]]:
        """The rows with one of them elsewhere, as far as the log leaves that open."""
        for target in self._targets(rows, place):
            yield _move(rows, place, target)

    def _times(self, rows: list[Row], place: int) -> Iterator[list[Row]]:
        """The rows with the ones before a place, and then that one too, as early as the log allows."""
        for end in (place, place + 1):
            for back_ms in _BACK_MS:
                since = rows[place]["log_ts"] - back_ms
                yield [
                    self._early(row) if number < end and row["log_ts"] >= since else row
                    for number, row in enumerate(rows)
                ]

    def _early(self, row: Row) -> Row:
        entry = self._entries.get(row["request_id"] or "")
        return row if entry is None else {**row, "log_ts": min(row["log_ts"], entry.log_ts)}

    def _targets(self, rows: Sequence[Row], place: int) -> Iterator[int]:
        """Where a row may go: past neighbours, one after the other, as long as each may have come in either order."""
        for step in (-1, 1):
            target = place + step
            while 0 <= target < len(rows) and self._overlap(rows[place], rows[target]):
                yield target
                target += step

    def _overlap(self, row: Row, other: Row) -> bool:
        first, second = self._entries.get(row["request_id"]), self._entries.get(other["request_id"])
        if first is None or second is None or first.connection == second.connection:
            return False
        (start, end), (other_start, other_end) = handled_between(first), handled_between(second)
        return start <= other_end + _SLACK_US and other_start <= end + _SLACK_US

    def _differing(self, rows: Sequence[Row]) -> Differing:
        said = said_of(run_shard("", self._settings, self._partition, rows)).answers
        differing = []
        for row in rows:
            recorded = self._answers.get(row["request_id"] or "")
            if recorded is None or row["api"] in CONTROL_APIS or row["api"] == "ListGroups":
                continue
            ours = said.get(recorded.request_id)
            if ours is None or self._part(recorded) != self._part(ours):
                differing.append(recorded.request_id)
        return differing

    def _part(self, answer: Answer) -> Any:
        """What an answer says of this group."""
        body = canonical_answer(answer.api, answer.body, of_many_shards=True)
        for field in ("groups", "results"):
            if field in body:
                return [item for item in body[field] if item["groupId"] == self._group_id]
        return body


def handled_between(entry: Entry) -> tuple[int, int]:
    """The moments, in microseconds, between which the coordinator handled a request; the answer may have waited."""
    latest = entry.handled_us + entry.local_us + _HANDOVER_US
    return entry.arrived_us, min(entry.answered_us, latest)


def _move(rows: Sequence[Row], place: int, target: int) -> list[Row]:
    """The rows with one moved; it takes the time of the row whose place it takes, so that time goes on."""
    order = list(rows)
    row = order.pop(place)
    order.insert(target, {**row, "log_ts": rows[target]["log_ts"]})
    return order
