"""Which topics existed when, as far as a broker's request log tells.

A topic's creation, growth and deletion are in the log where they happened while it was written. Of topics that are
older only traces are seen: commits that were accepted or refused, partitions that were assigned. They are taken to
exist from the beginning, with as many partitions as were seen. Where a topic's id is nowhere beside its name, the two
are matched by what was committed and fetched, by who was subscribed to what was assigned, and by what owners ask for.
Where a topic's name is nowhere at all, it has one that the expressions match by which it was assigned.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

import msgspec

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.requests import ZERO_UUID, Topic
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.inputs.broker_log.topic_expressions import names_by_expressions
from coordinator_udf.replay.inputs.broker_log.topic_names import names_by_offsets
from coordinator_udf.replay.inputs.broker_log.topic_owners import names_by_owners
from coordinator_udf.replay.inputs.broker_log.topic_subscriptions import (
    names_by_subscriptions,
    some_names_by_subscriptions,
)
from coordinator_udf.replay.judge.compare import REFUSED_BEFORE

OFFSETS_TOPIC = "__consumer_offsets"

#: A partition that was seen once, beside others that were seen so often, is an answer that can't be right. Measured
#: with 14 recorded logs (tests/conformance/test_broker_logs.py): with half and with double every answer is judged as
#: with this.
_OFTEN = 8


class TopicChange(NamedTuple):
    """The topics that exist from a moment on: by name, their partitions and id."""

    ts_us: int
    topics: tuple[Topic, ...]


class TopicHistory(msgspec.Struct, frozen=True):
    """The topics at the beginning, each later change, and the ids whose topic's name the log doesn't tell."""

    at_start: tuple[Topic, ...]
    changes: list[TopicChange]
    nameless: tuple[str, ...]
    #: The number of partitions of the offsets topic, where the log tells.
    offsets_partitions: int | None
    #: How many ids were matched with names by what answers imply.
    matched: int

    @property
    def names(self) -> dict[str, str]:
        """The names of all topics of the log, by id."""
        lists = (self.at_start, *(change.topics for change in self.changes))
        return {topic.id: topic.name for topics in lists for topic in topics}

    @property
    def deleted(self) -> frozenset[str]:
        """The names and ids of all topics that were there and were deleted."""
        found: set[str] = set()
        before = set(self.at_start)
        for change in self.changes:
            now = set(change.topics)
            names = {topic.name for topic in now}
            found |= {text for topic in before - now if topic.name not in names for text in (topic.name, topic.id)}
            before = now
        return frozenset(found)


class AnsweredChange(NamedTuple):
    """A creation, growth or deletion that was answered without an error, and when it was asked for."""

    ts_us: int
    kind: str
    name: str
    partitions: int
    topic_id: str
    arrived_us: int


def topic_history(
    traces: TopicTraces,
    changes: Sequence[AnsweredChange],
    entries: Callable[[], Iterable[Entry]],
    given: Sequence[Topic] = (),
) -> TopicHistory:
    """Returns what the log tells of topics.

    Args:
        traces: of topics, in all of the log.
        changes: in the log's order.
        entries: goes through the log in order; asked only if there are ids whose names aren't known.
        given: topics that are known to exist at the beginning; they are taken as given.
    """
    topics = {topic.name: topic for topic in given}
    ids = traces.ids()
    said = len(ids)
    created = {change.name: change for change in changes if change.kind == "create"}
    counts, counts_of_id = traces.counts()
    named = {name: topic.id for name, topic in topics.items() if topic.id != ZERO_UUID}
    named |= {name: change.topic_id for name, change in created.items() if change.topic_id != ZERO_UUID}
    if (counts_of_id.keys() | traces.mentioned) - {*named.values(), *ids.values(), ZERO_UUID}:
        _match(entries, ids, named, {name: change.partitions for name, change in created.items()}, counts_of_id)
    matched = len(ids) - said
    for name in sorted(set(counts) | set(ids)):
        if name not in topics and name not in created:
            topics[name] = Topic(name, counts.get(name, 1), ids.get(name, ZERO_UUID))
    created_ids = {change.topic_id for change in changes if change.kind == "create"}
    known = {topic.id for topic in topics.values()} | created_ids | set(ids.values())
    counts_of_nameless = {**traces.known_by_id, **counts_of_id}
    nameless = tuple(sorted(set(counts_of_nameless) - known))
    unidentified = {name for name, topic in topics.items() if topic.id == ZERO_UUID}
    made = names_by_expressions(entries(), nameless, unidentified) if nameless and traces.has_expressions else {}
    for topic_id in nameless:
        name = made.get(topic_id, topic_id)
        if name not in unidentified and (name in topics or name in created):
            name = topic_id
        topics[name] = Topic(name, max(counts.get(name, 1), counts_of_nameless[topic_id]), topic_id)
    nameless = tuple(topic_id for topic_id in nameless if made.get(topic_id) not in unidentified)
    stated = {topic.name: topic.partitions for topic in given}
    grown = _grown(changes)
    for name, topic in topics.items():
        partitions = max(topic.partitions, counts_of_id.get(topic.id, 0))
        if name in grown:
            # What was seen later may have come with the growth.
            before = traces.count_before(name, topic.id, grown[name].arrived_us)
            partitions = max(before, stated.get(name, 1))
        topics[name] = with_id(Topic(name, partitions, topic.id))
    replayed = _replayed(topics, [_identified(change, ids) for change in changes])
    return TopicHistory(tuple(topics.values()), replayed, nameless, _offsets_partitions(changes), matched)


def _grown(changes: Iterable[AnsweredChange]) -> dict[str, AnsweredChange]:
    """Returns the first growth of each topic that was neither made nor deleted before, by the topic's name."""
    first: dict[str, AnsweredChange] = {}
    for change in changes:
        first.setdefault(change.name, change)
    return {name: change for name, change in first.items() if change.kind == "grow"}


def _match(
    entries: Callable[[], Iterable[Entry]],
    ids: dict[str, str],
    named: Mapping[str, str],
    partitions: Mapping[str, int],
    counts_of_id: Mapping[str, int],
) -> None:
    """Notes the ids of names that the log doesn't say outright, until what one way finds helps no other."""
    ways = deque[Callable[[], dict[str, str]]](
        (
            lambda: names_by_subscriptions(entries(), {**named, **ids}, partitions, counts_of_id),
            lambda: names_by_owners(entries(), {**named, **ids}),
            lambda: names_by_offsets(entries(), {*named.values(), *ids.values()}),
        )
    )
    fruitless = 0
    while fruitless < len(ways):
        found = {name: topic_id for name, topic_id in ways[0]().items() if name not in ids}
        ids.update(found)
        ways.rotate(-1)
        fruitless = 0 if found else fruitless + 1
    for name, topic_id in some_names_by_subscriptions(entries(), {**named, **ids}, partitions, counts_of_id).items():
        ids.setdefault(name, topic_id)


def _identified(change: AnsweredChange, ids: Mapping[str, str]) -> AnsweredChange:
    """Returns a creation with the topic's id, where that was answered without it."""
    if change.kind != "create" or change.topic_id != ZERO_UUID:
        return change
    return change._replace(topic_id=ids.get(change.name, ZERO_UUID))


def with_id(topic: Topic) -> Topic:
    """Returns the topic; one whose id nobody ever says has one all the same, which no other has."""
    if topic.id != ZERO_UUID:
        return topic
    made = urlsafe_b64encode(uuid5(NAMESPACE_URL, f"topic:{topic.name}").bytes).decode().rstrip("=")
    return Topic(topic.name, topic.partitions, made)


def _replayed(topics: dict[str, Topic], changes: Iterable[AnsweredChange]) -> list[TopicChange]:
    """Returns the topics after each change that is one: what was forwarded to the controller is told twice."""
    current, out = dict(topics), []
    for change in changes:
        name, known = change.name, current.get(change.name)
        is_same = known is not None and change.topic_id in {"", ZERO_UUID, known.id}
        if change.kind == "create" and not is_same:
            current[name] = with_id(Topic(name, change.partitions, change.topic_id))
        elif change.kind == "grow" and known is not None and change.partitions > known.partitions:
            current[name] = Topic(name, change.partitions, known.id)
        elif change.kind == "delete" and is_same:
            del current[name]
        else:
            continue
        out.append(TopicChange(change.ts_us, tuple(current.values())))
    return out


def topic_changes(entry: Entry) -> Iterator[AnsweredChange]:
    """Yields what a request changed of the topics."""
    answer: dict[str, Any] = entry.response or {}
    ts_us, arrived_us = entry.answered_us, entry.arrived_us
    if entry.request.get("validateOnly"):
        return
    if entry.api == "CreateTopics":
        asked = {topic["name"]: topic for topic in entry.request.get("topics") or ()}
        for topic in _without_error(answer.get("topics")):
            wanted = asked.get(topic["name"], {})
            counts = (topic.get("numPartitions"), wanted.get("numPartitions"), len(wanted.get("assignments") or ()))
            partitions = next((count for count in counts if count and count > 0), 1)
            topic_id = topic.get("topicId") or ZERO_UUID
            yield AnsweredChange(ts_us, "create", topic["name"], partitions, topic_id, arrived_us)
    elif entry.api == "CreatePartitions":
        counts_of = {topic["name"]: topic["count"] for topic in entry.request.get("topics") or ()}
        for topic in _without_error(answer.get("results")):
            yield AnsweredChange(ts_us, "grow", topic["name"], counts_of[topic["name"]], "", arrived_us)
    elif entry.api == "DeleteTopics":
        for topic in _without_error(answer.get("responses")):
            topic_id = topic.get("topicId") or ZERO_UUID
            yield AnsweredChange(ts_us, "delete", topic["name"], 0, topic_id, arrived_us)


def _without_error(items: Any) -> Iterator[dict[str, Any]]:
    for item in items or ():
        if item.get("errorCode") == Errors.NONE and item.get("name"):
            yield item


def _offsets_partitions(changes: Iterable[AnsweredChange]) -> int | None:
    return next((c.partitions for c in changes if c.kind == "create" and c.name == OFFSETS_TOPIC), None)


class TopicTraces:
    """The traces of topics in requests and answers."""

    def __init__(self) -> None:
        #: By name and by id, how often each partition was seen.
        self._by_name: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._by_id: defaultdict[str, Counter[int]] = defaultdict(Counter)
        #: By name or id, when each partition was told first (us).
        self._first_us: defaultdict[str, dict[int, int]] = defaultdict(dict)
        #: Topic name -> when its id was told last, and the id.
        self._ids: dict[str, tuple[int, str]] = {}
        #: Ids that were asked for and of which no partition need have been seen.
        self.mentioned: set[str] = set()
        #: Those of them that were known, and how many partitions the fetches tell of: of such as there aren't, too.
        self.known_by_id: dict[str, int] = {}
        #: Whether anybody subscribed by a regular expression.
        self.has_expressions = False

    def ids(self) -> dict[str, str]:
        """Returns topic name -> id."""
        return {name: topic_id for name, (_, topic_id) in self._ids.items()}

    def counts(self) -> tuple[dict[str, int], dict[str, int]]:
        """Returns the numbers of partitions, by name and by id."""
        by_name = {name: _count(partitions) for name, partitions in self._by_name.items()}
        by_id = {topic_id: _count(partitions) for topic_id, partitions in self._by_id.items()}
        return by_name, by_id

    def count_before(self, name: str, topic_id: str, before_us: int) -> int:
        """Returns the number of a topic's partitions by what was told before a time; 0 if nothing was."""
        counts = [0]
        for seen, key in ((self._by_name, name), (self._by_id, topic_id)):
            first_us = self._first_us.get(key, {})
            told = {p: often for p, often in seen.get(key, {}).items() if first_us[p] < before_us}
            counts += [_count(Counter(told))] if told else []
        return max(counts)

    def note(self, entry: Entry) -> None:
        """Takes note of an entry's topics."""
        answer = entry.response or {}
        if entry.api in {"OffsetCommit", "TxnOffsetCommit"}:
            for topic in answer.get("topics") or ():
                for partition in topic.get("partitions") or ():
                    # All but these come from the coordinator, which hears of partitions only that exist.
                    if partition["errorCode"] not in REFUSED_BEFORE:
                        self._partition(topic, partition["partitionIndex"], entry)
        elif entry.api == "OffsetFetch":
            for group in answer.get("groups") or ():
                self._fetched(topic for topic in group.get("topics") or () if topic.get("topicId"))
        elif entry.api == "ConsumerGroupHeartbeat":
            self.has_expressions |= bool(entry.request.get("subscribedTopicRegex"))
            self._assigned((answer.get("assignment") or {}).get("topicPartitions"), entry)
        elif entry.api == "ConsumerGroupDescribe":
            for group in answer.get("groups") or ():
                for member in group.get("members") or ():
                    for name in ("assignment", "targetAssignment"):
                        self._assigned((member.get(name) or {}).get("topicPartitions"), entry)
        elif entry.api == "DeleteTopics":
            for topic in _without_error(answer.get("responses")):
                if topic.get("topicId"):
                    self._name(topic["name"], topic["topicId"], entry.arrived_us)

    def _fetched(self, topics: Iterable[Mapping[str, Any]]) -> None:
        for topic in topics:
            topic_id: str = topic["topicId"]
            self.mentioned.add(topic_id)
            for told in topic.get("partitions") or ():
                if told.get("errorCode", 0) != Errors.UNKNOWN_TOPIC_ID and topic_id != ZERO_UUID:
                    partitions = int(told["partitionIndex"]) + 1
                    self.known_by_id[topic_id] = max(partitions, self.known_by_id.get(topic_id, 0))

    def join(self, later: TopicTraces) -> None:
        """Takes note of what a later stretch of the log told."""
        for mine, others in ((self._by_name, later._by_name), (self._by_id, later._by_id)):
            for topic, partitions in others.items():
                mine[topic].update(partitions)
        for topic, first_us in later._first_us.items():
            for partition, at_us in first_us.items():
                self._note_first(topic, partition, at_us)
        for name, (ts_us, topic_id) in later._ids.items():
            self._name(name, topic_id, ts_us)
        self.mentioned |= later.mentioned
        for topic_id, count in later.known_by_id.items():
            self.known_by_id[topic_id] = max(count, self.known_by_id.get(topic_id, 0))
        self.has_expressions |= later.has_expressions

    def _name(self, name: str, topic_id: str, ts_us: int) -> None:
        if ts_us >= self._ids.get(name, (ts_us, ""))[0]:
            self._ids[name] = ts_us, topic_id

    def _assigned(self, topics: Any, entry: Entry) -> None:
        for topic in topics or ():
            for partition in topic.get("partitions") or ():
                self._partition({"name": topic.get("topicName"), "topicId": topic.get("topicId")}, partition, entry)

    def _partition(self, topic: dict[str, Any], partition: int, entry: Entry) -> None:
        name, topic_id = topic.get("name"), topic.get("topicId")
        if name:
            self._by_name[name][partition] += 1
            self._note_first(name, partition, entry.answered_us)
        if topic_id and topic_id != ZERO_UUID:
            self._by_id[topic_id][partition] += 1
            self._note_first(topic_id, partition, entry.answered_us)
            if name:
                self._name(name, topic_id, entry.arrived_us)

    def _note_first(self, topic: str, partition: int, at_us: int) -> None:
        first_us = self._first_us[topic]
        first_us[partition] = min(at_us, first_us.get(partition, at_us))


def _count(partitions: Counter[int]) -> int:
    """Returns the number of partitions, of how often each was seen."""
    known = sorted(partitions)
    often = sum(partitions.values()) / len(known) >= _OFTEN
    while often and len(known) > 1 and partitions[known[-1]] == 1:
        known.pop()
    return known[-1] + 1
