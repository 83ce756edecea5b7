"""Settles the order of requests that a broker handled at the same moment, by what it answered.

The log tells when each request arrived and was answered; where those times of two requests on different connections
overlap, either may have come first. Where an answer differs, the request is moved past others that it overlaps with,
within its group, and the move stays if the group's answers then differ less often. Nothing else is ever moved, so a
request that no possible order explains goes on to differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from coordinator_udf.protocol.settings import Settings
from coordinator_udf.replay.canonical import canonical_answer
from coordinator_udf.replay.in_process import run_shard
from coordinator_udf.replay.kafka_line import Entry
from coordinator_udf.replay.recording import Answer, ReplaySource, number_offsets
from coordinator_udf.replay.said import said_of
from schemas.requests import CONTROL_APIS

#: How far an estimated time may be off, in microseconds: the line's time is exact to the millisecond.
_SLACK_US = 1_000
#: How long the coordinator may take to get to a request that it was given; measured on a busy machine.
_HANDOVER_US = 5_000
#: How many orders are tried for one group: each is a replay of the group.
_TRIES_PER_GROUP = 60
#: How many of a group's differences are tried to be settled before it is given up.
_DIFFERENCES_TRIED = 4
#: A group with more differences than that has another reason for them than the order of a few requests.
_DIFFERENCES_MAX = 200

Row = dict[str, Any]
#: The ids of the requests that differ, in the order of the rows.
Differing = list[str]


def settle_order(source: ReplaySource, entries: Mapping[str, Entry], differing: set[str]) -> int:
    """Reorders a source's rows where that explains answers; the number of requests that were moved.

    Args:
        entries: the lines of the log by request id.
        differing: the requests whose answers differ as the rows stand.
    """
    answers = {answer.request_id: answer for answer in source.recording.answers}
    moved = 0
    for partition, group_id in sorted(_groups(source, differing)):
        settler = _GroupSettler(source.settings, partition, group_id, answers, entries)
        rows = [row for row in source.rows if settler.concerns(row)]
        settled = settler.settle(rows)
        if settler.moved:
            moved += settler.moved
            places = [place for place, row in enumerate(source.rows) if settler.concerns(row)]
            for place, row in zip(places, settled, strict=True):
                source.rows[place] = row
    if moved:
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
    """Tries orders of one group's rows."""

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
        self._tries = 0
        self.moved = 0

    def concerns(self, row: Row) -> bool:
        """Whether a row bears on the group: its requests, and what happens to its shard."""
        if row["partition"] != self._partition:
            return False
        return row["api"] in CONTROL_APIS or row["group_id"] == self._group_id or self._group_id in _named(row)

    def settle(self, rows: list[Row]) -> list[Row]:
        """The rows in the best order that was found."""
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
            for order in self._orders(rows, request_id, len(differing)):
                return order
        return None

    def _orders(self, rows: list[Row], request_id: str, at_most: int) -> Iterator[tuple[list[Row], Differing]]:
        """Orders with this request moved in which fewer answers differ."""
        place = next(i for i, row in enumerate(rows) if row["request_id"] == request_id)
        for target in self._targets(rows, place):
            if self._tries >= _TRIES_PER_GROUP:
                return
            self._tries += 1
            order = _move(rows, place, target)
            differing = self._differing(order)
            if len(differing) < at_most:
                yield order, differing

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
