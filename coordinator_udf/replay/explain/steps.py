"""What may happen to a group of a broker's log: its requests, each with the window in which it was handled.

A request was handled between its arrival and its answer. What happens to a whole shard (topics that come, a shard that
is lost, a transaction's end) is an event of each of its groups: it took effect at a moment or a little after it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import msgspec

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.protocol.requests import SPANNING
from coordinator_udf.replay.explain.prompt import WAITING, Prompt
from coordinator_udf.replay.inputs.broker_log.facts import LOST, findings
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.judge.canonical import canonical_answer
from coordinator_udf.replay.recording import Answer
from schemas.requests import CONTROL_APIS

Row = dict[str, Any]

#: Fields of a body that hold one item a group: of requests and of answers.
_GROUPS_OF_REQUESTS = ("groups", "groupsNames", "groupIds")
_GROUPS_OF_ANSWERS = ("groups", "results")
_US = 1_000
LIST_GROUPS = "ListGroups"
#: They see what is committed, which may be less than what was handled.
_READS = frozenset({"DescribeGroups", "ConsumerGroupDescribe", "OffsetFetch", LIST_GROUPS})
_REQUEST_FIELDS = Request._fields


@dataclass(slots=True)
class Step:
    """One request, as far as it asks about one group. Times in milliseconds.

    Attributes:
        place: which of the group's steps it is, in the estimated order.
        row: the log's row; its time is set when the order is known.
        request: the same for the state machine.
        connection: requests of one connection keep their order.
        arrived_ms, latest_ms: between which the coordinator handled it.
        natural_ms: the most likely moment.
        answer: what the broker answered; None if that isn't in the log.
        group_id: the group.
        is_read: whether it only reads. What it sees was committed before: it may come before what had been handled
            when it arrived, but not answered; then ``arrived_ms`` is earlier than ``asked_ms``.
        asked_ms: what was answered before this time comes before it.
    """

    place: int
    row: Row
    request: Request
    connection: str
    arrived_ms: int
    latest_ms: int
    natural_ms: int
    group_id: str
    answer: Answer | None
    is_read: bool = False
    asked_ms: int = 0
    _part: Any = field(default=None)
    #: What was compared last, and whether it agreed: a search comes by the same again and again.
    _compared: tuple[str, bool] | None = field(default=None)

    @property
    def waits(self) -> bool:
        """Whether its answer may wait for other requests."""
        return self.row["api"] in WAITING

    @property
    def is_unseen(self) -> bool:
        """Whether it is supposed (unseen_joins), and nobody was answered."""
        return self.answer is not None and not self.answer.body

    def may_be_unwritten(self, at_ms: int) -> bool:
        """Returns whether an answer at a time may have no line, for the log ended before it was written."""
        unwritten_ms = None if self.answer is None else self.answer.unwritten_ms
        return unwritten_ms is not None and unwritten_ms <= at_ms

    def brings_regex(self, *, known: bool) -> bool:
        """Returns whether regular expressions may be resolved because of the request.

        Args:
            known: whether its group has some.
        """
        api, body = self.row["api"], self.row["body"] or ""
        if api == "ConsumerGroupHeartbeat":
            return known or ('"subscribedTopicRegex":"' in body and '"subscribedTopicRegex":""' not in body)
        return known and api == "JoinGroup"

    def is_answered_by(self, body: str) -> bool:
        """Returns whether the broker said the same of the group as this JSON does."""
        if self.answer is None:
            return True
        if self._compared is None or self._compared[0] != body:
            self._compared = body, self._agrees(self.answer, body)
        return self._compared[1]

    def _agrees(self, answer: Answer, body: str) -> bool:
        ours = msgspec.json.decode(body)
        if ours == answer.body:
            return True
        if self.is_unseen:
            # The end of its shard may have ended it, of which no client heard.
            return bool(ours["errorCode"] == Errors.NOT_COORDINATOR)
        if self._part is None:
            self._part = part_of(answer.api, answer.body, self.group_id)
        return bool(part_of(answer.api, ours, self.group_id) == self._part)


@dataclass(slots=True)
class SharedEvent:
    """What happens to the group's whole shard, at a time or up to ``slack_ms`` later; which of its events it is."""

    row: Row
    request: Request
    at_ms: int
    slack_ms: int
    number: int


def request_of(row: Row) -> Request:
    """Returns a row of the log for the state machine."""
    return Request(*(row[name] for name in _REQUEST_FIELDS))


def part_of(api: str, body: Mapping[str, Any], group_id: str) -> Any:
    """Returns what an answer says of one group, in canonical form."""
    canonical = canonical_answer(api, body, of_many_shards=True)
    for name in _GROUPS_OF_ANSWERS:
        if api in SPANNING and isinstance(canonical.get(name), list):
            own = [item for item in canonical[name] if item.get("groupId") == group_id]
            return {**canonical, name: own}
    return canonical


def named_groups(row: Row) -> Iterator[str]:
    """Yields the groups that a row asks about; none for a list of all."""
    if row["group_id"] is not None:
        yield row["group_id"]
    elif row["body"] is not None and row["api"] in SPANNING:
        body = msgspec.json.decode(row["body"])
        for name in _GROUPS_OF_REQUESTS:
            for group in body.get(name) or ():
                yield group["groupId"] if isinstance(group, dict) else group


def loads_another(row: Row, group_id: str) -> bool:
    """Returns whether a control row loads a record of another group."""
    if row["api"] != "LoadGroup" or row["body"] is None:
        return False
    key = msgspec.json.decode(row["body"]).get("key") or {}
    return bool(key.get("group", key.get("groupId", group_id)) != group_id)


def split_by_group(rows: Sequence[Row], wanted: Collection[tuple[int, str]] | None = None) -> list[Row]:
    """Returns the rows, with those that ask about several groups split into one a group: each may have its own moment.

    Args:
        wanted: shards and groups; rows that ask about none of them stay as they are. None for all.
    """

    def is_wanted(row: Row) -> bool:
        return wanted is None or any((row["partition"], group_id) in wanted for group_id in named_groups(row))

    split = [list(_split(row)) if is_wanted(row) else [row] for row in rows]
    parts: dict[str, int] = {}
    for row, pieces in zip(rows, split, strict=True):
        if row["api"] not in CONTROL_APIS and row["request_id"] is not None:
            parts[row["request_id"]] = parts.get(row["request_id"], 0) + len(pieces)
    return [
        piece if parts.get(row["request_id"], 1) == 1 else {**piece, "parts": parts[row["request_id"]]}
        for row, pieces in zip(rows, split, strict=True)
        for piece in pieces
    ]


def _split(row: Row) -> Iterator[Row]:
    groups = list(dict.fromkeys(named_groups(row))) if row["group_id"] is None else []
    if len(groups) < 2 or row["api"] in CONTROL_APIS:
        yield row
        return
    body = msgspec.json.decode(row["body"])
    name = next(name for name in _GROUPS_OF_REQUESTS if body.get(name))
    for group_id in groups:
        own = [item for item in body[name] if (item["groupId"] if isinstance(item, dict) else item) == group_id]
        yield {**row, "body": msgspec.json.encode({**body, name: own}).decode()}


def steps_of(
    rows: Sequence[Row], group_id: str, entries: Mapping[str, Entry], answers: Mapping[str, Answer], prompt: Prompt
) -> list[Step]:
    """Returns a group's steps in the estimated order.

    Args:
        rows: the group's requests in that order.
        entries: the lines of the log by request id.
        answers: the broker's, by request id.
        prompt: the requests to the shard that tell by when it got to those whose answers wait for others.
    """
    steps = []
    for place, row in enumerate(rows):
        entry = entries[row["request_id"]]
        latest_us = entry.answered_us
        if entry.api in WAITING:
            latest_us = min(latest_us, prompt.handled_by_us(entry))
        steps.append(
            Step(
                place,
                row,
                request_of(row),
                entry.connection,
                (entry.arrived_us - entry.exact_us) // _US,
                (latest_us + entry.exact_us) // _US + 1,
                entry.handled_us // _US,
                group_id,
                answers.get(row["request_id"]),
                entry.api in _READS and not entry.request.get("requireStable"),
            )
        )
    _let_reads_be_stale(steps)
    bound_ms = steps[-1].natural_ms if steps else 0
    for step in reversed(steps):
        # No later than a request behind it was handled: an error of the estimate is on the early side.
        bound_ms = min(bound_ms, step.natural_ms)
        step.natural_ms = max(bound_ms, step.arrived_ms)
    return steps


def _let_reads_be_stale(steps: Sequence[Step]) -> None:
    """Lets the windows of what only reads begin with those of the changes that were under way when it arrived.

    Source: CoordinatorRuntime.scheduleReadOperation, which reads as of the last committed offset.
    """
    under_way: list[Step] = []
    for step in sorted(steps, key=_arrived_ms):
        under_way = [other for other in under_way if other.latest_ms >= step.arrived_ms]
        if step.is_read:
            step.asked_ms = step.arrived_ms
            step.arrived_ms = min((other.arrived_ms for other in under_way), default=step.arrived_ms)
        else:
            under_way.append(step)


def _arrived_ms(step: Step) -> int:
    return step.arrived_ms


def shared_event(row: Row, slack_ms: int, number: int) -> SharedEvent:
    """Returns a control row as an event of a group."""
    return SharedEvent(row, request_of(row), row["log_ts"], slack_ms, number)


def not_before(event: SharedEvent, at_ms: int) -> SharedEvent:
    """Returns the event, no earlier than a time; by when it has happened stays as it is."""
    if event.at_ms >= at_ms:
        return event
    slack_ms = max(event.slack_ms - (at_ms - event.at_ms), 0)
    return SharedEvent(event.row, event.request._replace(log_ts=at_ms), at_ms, slack_ms, event.number)


def with_early_loads(
    events: Sequence[SharedEvent], rows: Sequence[Row], entries: Mapping[str, Entry]
) -> list[SharedEvent]:
    """Returns a shard's events with each load right after the last answer that said that it wasn't loaded.

    Args:
        events: those of the control rows, in their order.
        rows: the shard's.
        entries: the lines of the log by request id.
    """
    moved = list(events)
    number = lost_ms = 0
    for row in rows:
        if row["api"] not in CONTROL_APIS:
            entry = entries.get(row["request_id"] or "")
            if entry is not None and any(finding in LOST for _, finding in findings(entry)):
                lost_ms = max(lost_ms, entry.answered_us // _US + 1)
            continue
        event = moved[number]
        if row["api"] == "Unload":
            lost_ms = 0
        elif row["api"] == "Failover" and lost_ms:
            # What has begun may end a millisecond later.
            moved[number] = not_after(event, max(lost_ms, moved[number - 1].at_ms + 1 if number else 0))
        number += 1
    return moved


def not_after(event: SharedEvent, at_ms: int) -> SharedEvent:
    """Returns the event, at a time at the latest if nothing says otherwise; by when it happens stays as it is."""
    if event.at_ms <= at_ms:
        return event
    slack_ms = max(event.slack_ms, 0) + event.at_ms - at_ms
    return SharedEvent(event.row, event.request._replace(log_ts=at_ms), at_ms, slack_ms, event.number)


def with_news_after_loading(rows: Sequence[Row]) -> list[Row]:
    """Returns a shard's rows, with topics that came while it wasn't loaded told right after it is loaded.

    A broker makes a change of its metadata known to one part after another, the groups' coordinator last: creating the
    partitions that a shard is loaded from may keep what came after them waiting. Where it hears of it before, the shard
    keeps the offsets of topics that are gone. Source: BrokerMetadataPublisher, CoordinatorRuntime.
    """
    ordered: list[Row] = []
    lost_at: int | None = None
    for row in rows:
        if row["api"] == "Unload" and lost_at is None:
            lost_at = len(ordered)
        ordered.append(row)
        if row["api"] == "Failover" and lost_at is not None:
            meanwhile = ordered[lost_at:]
            news = ({**told, "log_ts": row["log_ts"]} for told in meanwhile if told["api"] == "TopicMetadata")
            ordered[lost_at:] = [*(other for other in meanwhile if other["api"] != "TopicMetadata"), *news]
            lost_at = None
    return ordered


def served_from(rows: Sequence[Row], entries: Mapping[str, Entry]) -> list[int]:
    """Returns by a shard's row when the first answer behind it was given before the shard was lost, in ms."""
    found: list[int] = []
    first_ms = 0
    for row in reversed(rows):
        if row["api"] == "Unload":
            first_ms = 0
        elif row["request_id"] in entries and row["api"] not in CONTROL_APIS:
            answered_ms = entries[row["request_id"]].answered_us // _US
            first_ms = min(first_ms or answered_ms, answered_ms)
        found.append(first_ms)
    return found[::-1]


def lost_by(rows: Sequence[Row], place: int, entries: Mapping[str, Entry]) -> int:
    """Returns by when a shard was lost that is at a row: when the first answer behind it was given, in ms; else 0."""
    behind = (row["request_id"] for row in islice(rows, place + 1, None) if row["api"] not in CONTROL_APIS)
    found = next((entries[request_id] for request_id in behind if request_id in entries), None)
    return 0 if found is None else found.answered_us // _US
