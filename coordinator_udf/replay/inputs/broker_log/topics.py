"""Which topics existed when, as far as a broker's request log tells.

A topic's creation, growth and deletion are in the log where they happened while it was written. Of topics that are
older only traces are seen: commits that were accepted or refused, partitions that were assigned. They are taken to
exist from the beginning, with as many partitions as were seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.requests import ZERO_UUID, Topic
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.inputs.broker_log.topic_names import names_by_offsets

OFFSETS_TOPIC = "__consumer_offsets"


class TopicChange(NamedTuple):
    """The topics that exist from a moment on: by name, their partitions and id."""

    ts_us: int
    topics: tuple[Topic, ...]


class TopicHistory(NamedTuple):
    """The topics at the beginning, each later change, and the ids whose topic's name the log doesn't tell."""

    at_start: tuple[Topic, ...]
    changes: list[TopicChange]
    nameless: tuple[str, ...]
    #: The number of partitions of the offsets topic, where the log tells.
    offsets_partitions: int | None


def topic_history(entries: Sequence[Entry], given: Iterable[Topic] = ()) -> TopicHistory:
    """What the log tells of topics.

    Args:
        entries: the log in order.
        given: topics that are known to exist at the beginning; they are taken as given.
    """
    changes = [change for entry in entries for change in _changes(entry)]
    seen = _Seen()
    for entry in entries:
        seen.look_at(entry)
    topics = {topic.name: topic for topic in given}
    born = {name for _, kind, name, _, _ in changes if kind == "create"}
    for name, topic_id in names_by_offsets(entries, seen.known_ids(changes)).items():
        seen.ids.setdefault(name, topic_id)
    names = {topic_id: name for name, topic_id in seen.ids.items()}
    for name in sorted(set(seen.partitions) | set(seen.ids)):
        if name not in topics and name not in born:
            topics[name] = Topic(name, seen.partitions.get(name, 1), seen.ids.get(name, ZERO_UUID))
    created = {topic_id for _, kind, _, _, topic_id in changes if kind == "create"}
    known = {topic.id for topic in topics.values()} | created | set(names)
    nameless = tuple(sorted(set(seen.partitions_of_id) - known))
    for topic_id in nameless:
        topics[topic_id] = Topic(topic_id, seen.partitions_of_id[topic_id], topic_id)
    for name, topic in topics.items():
        partitions = max(topic.partitions, seen.partitions_of_id.get(topic.id, 0))
        topics[name] = Topic(name, partitions, topic.id)
    return TopicHistory(tuple(topics.values()), _replayed(topics, changes), nameless, _offsets_partitions(changes))


def _replayed(topics: dict[str, Topic], changes: Iterable[tuple[int, str, str, int, str]]) -> list[TopicChange]:
    current, out = dict(topics), []
    for ts_us, kind, name, partitions, topic_id in changes:
        before = dict(current)
        if kind == "create":
            current[name] = Topic(name, partitions, topic_id)
        elif kind == "grow" and name in current:
            current[name] = Topic(name, partitions, current[name].id)
        elif kind == "delete":
            current.pop(name, None)
        if current != before:
            out.append(TopicChange(ts_us, tuple(current.values())))
    return out


def _changes(entry: Entry) -> Iterator[tuple[int, str, str, int, str]]:
    """Creations, growths and deletions that were answered without an error: (when, what, name, partitions, id)."""
    answer: dict[str, Any] = entry.response or {}
    if entry.api == "CreateTopics":
        asked = {topic["name"]: topic for topic in entry.request.get("topics") or ()}
        if not entry.request.get("validateOnly"):
            for topic in _without_error(answer.get("topics")):
                partitions = topic.get("numPartitions") or asked.get(topic["name"], {}).get("numPartitions", 1)
                yield entry.answered_us, "create", topic["name"], max(partitions, 1), topic.get("topicId") or ZERO_UUID
    elif entry.api == "CreatePartitions":
        counts = {topic["name"]: topic["count"] for topic in entry.request.get("topics") or ()}
        if not entry.request.get("validateOnly"):
            for topic in _without_error(answer.get("results")):
                yield entry.answered_us, "grow", topic["name"], counts[topic["name"]], ""
    elif entry.api == "DeleteTopics":
        for topic in _without_error(answer.get("responses")):
            yield entry.answered_us, "delete", topic["name"], 0, topic.get("topicId") or ZERO_UUID


def _without_error(items: Any) -> Iterator[dict[str, Any]]:
    for item in items or ():
        if item.get("errorCode") == Errors.NONE and item.get("name"):
            yield item


def _offsets_partitions(changes: Iterable[tuple[int, str, str, int, str]]) -> int | None:
    return next((n for _, kind, name, n, _ in changes if kind == "create" and name == OFFSETS_TOPIC), None)


class _Seen:
    """The traces of topics in requests and answers."""

    def __init__(self) -> None:
        self.partitions: dict[str, int] = {}
        self.partitions_of_id: dict[str, int] = {}
        self.ids: dict[str, str] = {}

    def known_ids(self, changes: Iterable[tuple[int, str, str, int, str]]) -> set[str]:
        """The ids whose topic's name the log says outright."""
        return {*self.ids.values(), *(topic_id for _, kind, _, _, topic_id in changes if kind == "create")}

    def look_at(self, entry: Entry) -> None:
        answer = entry.response or {}
        if entry.api in {"OffsetCommit", "TxnOffsetCommit"}:
            for topic in answer.get("topics") or ():
                for partition in topic.get("partitions") or ():
                    if partition["errorCode"] == Errors.NONE:
                        self._partition(topic, partition["partitionIndex"])
        elif entry.api == "ConsumerGroupHeartbeat":
            self._assigned((answer.get("assignment") or {}).get("topicPartitions"))
        elif entry.api == "ConsumerGroupDescribe":
            for group in answer.get("groups") or ():
                for member in group.get("members") or ():
                    for name in ("assignment", "targetAssignment"):
                        self._assigned((member.get(name) or {}).get("topicPartitions"))
        elif entry.api == "DeleteTopics":
            for topic in _without_error(answer.get("responses")):
                if topic.get("topicId"):
                    self.ids[topic["name"]] = topic["topicId"]

    def _assigned(self, topics: Any) -> None:
        for topic in topics or ():
            for partition in topic.get("partitions") or ():
                self._partition({"name": topic.get("topicName"), "topicId": topic.get("topicId")}, partition)

    def _partition(self, topic: dict[str, Any], partition: int) -> None:
        name, topic_id = topic.get("name"), topic.get("topicId")
        if name:
            self.partitions[name] = max(self.partitions.get(name, 0), partition + 1)
        if topic_id and topic_id != ZERO_UUID:
            self.partitions_of_id[topic_id] = max(self.partitions_of_id.get(topic_id, 0), partition + 1)
            if name:
                self.ids[name] = topic_id
