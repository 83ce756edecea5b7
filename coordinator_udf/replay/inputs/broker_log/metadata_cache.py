"""What brokers had heard of topics that were just made, grown or deleted, by what they answered.

Whether a topic is there for a commit, a fetch or a deletion of offsets a broker answers by its own metadata cache,
before it asks the groups' coordinator, which hears of topics after all other parts (BrokerMetadataPublisher): 140 ms
after them on a busy machine. So beside a change of topics such an answer says nothing of what the coordinator knew; it
tells what was in the cache.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.requests import ZERO_UUID, Topic
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.inputs.broker_log.topics import TopicHistory

#: How long before and after a change is answered a broker may have heard of it. With half and with double the logs that
#: have such answers are explained as with this; the longest that was seen was 140 ms, on a machine whose disk was busy.
_BESIDE_US: Final = 1_000_000
_BY_PARTITION: Final = frozenset({"OffsetCommit", "TxnOffsetCommit", "OffsetDelete"})
_FETCH: Final = "OffsetFetch"
#: After each name of a topic.
_LAST_NAME: Final = "\U0010ffff"


class _Version(NamedTuple):
    """A topic from a moment on (us); None where it isn't there."""

    since_us: int
    topic: Topic | None


class _Told(NamedTuple):
    """What an answer says of a partition of a topic, which has either a name or an id."""

    name: str
    topic_id: str
    partition: int
    error: int


class MetadataCaches:
    """The metadata caches of brokers, beside each change of topics."""

    def __init__(self, history: TopicHistory) -> None:
        """Takes the topics' history."""
        self._versions = _versions(history)
        self._changes = sorted(
            (version.since_us, name) for name, versions in self._versions.items() for version in versions[1:]
        )

    def beside(self, entry: Entry) -> list[dict[str, Any]]:
        """Returns what a request's broker had in its cache of topics that changed about then, as far as it answers so.

        Returns:
            What a request says of it (protocol.requests.CachedTopic).
        """
        if not self._changes or entry.api not in {*_BY_PARTITION, _FETCH}:
            return []
        from_us, until_us = entry.arrived_us - _BESIDE_US, entry.answered_us + _BESIDE_US
        first = bisect_left(self._changes, (from_us, ""))
        last = bisect_right(self._changes, (until_us, _LAST_NAME))
        names = sorted({name for _, name in self._changes[first:last]})
        told = list(_told(entry)) if names else []
        found = ((name, _seen(_between(self._versions[name], from_us, until_us), told, entry, name)) for name in names)
        return [_cached(name, version.topic) for name, version in found if version is not None]


def _between(versions: Sequence[_Version], from_us: int, until_us: int) -> list[_Version]:
    """Returns the versions that there were in a time."""
    first = bisect_right(versions, from_us, key=_since_us) - 1
    return list(versions[max(first, 0) : bisect_right(versions, until_us, key=_since_us)])


def _since_us(version: _Version) -> int:
    return version.since_us


def _seen(versions: Sequence[_Version], told: Sequence[_Told], entry: Entry, name: str) -> _Version | None:
    """Returns the version of a topic that explains what was told of it; of several the one nearest to the request."""
    ids = {version.topic.id for version in versions if version.topic is not None}
    own = [each for each in told if each.name == name or each.topic_id in ids]
    usual = bisect_right(versions, entry.handled_us, key=_since_us) - 1
    nearest = sorted(range(len(versions)), key=lambda place: abs(place - usual))
    explains = (versions[place] for place in nearest if all(_agrees(each, versions[place].topic) for each in own))
    return next(explains, None) if own else None


def _versions(history: TopicHistory) -> dict[str, list[_Version]]:
    """Returns by name the versions of each topic that ever changed, the first from the beginning of time."""
    now = {topic.name: topic for topic in history.at_start}
    found: defaultdict[str, list[_Version]] = defaultdict(list)
    for change in history.changes:
        after = {topic.name: topic for topic in change.topics}
        for name in now.keys() | after.keys():
            if now.get(name) != after.get(name):
                found[name] = found[name] or [_Version(0, now.get(name))]
                found[name].append(_Version(change.ts_us, after.get(name)))
        now = after
    return found


def _told(entry: Entry) -> Iterator[_Told]:
    """Yields what an answer says of partitions by the broker's metadata cache."""
    answer = entry.response or {}
    if entry.api in _BY_PARTITION:
        for topic in answer.get("topics") or ():
            yield from _told_of(topic)
    elif entry.api == _FETCH:
        # By name they are fetched whether there is such a topic or not, and of a topic whatever partitions it has.
        for group in answer.get("groups") or ():
            for topic in group.get("topics") or ():
                if topic.get("topicId", ZERO_UUID) != ZERO_UUID:
                    yield from (told._replace(name="", partition=0) for told in _told_of(topic))


def _told_of(topic: dict[str, Any]) -> Iterator[_Told]:
    name = topic.get("name") or ""
    topic_id = "" if name else topic.get("topicId") or ZERO_UUID
    for partition in topic.get("partitions") or ():
        yield _Told(name, topic_id, partition["partitionIndex"], partition.get("errorCode", 0))


def _agrees(told: _Told, topic: Topic | None) -> bool:
    """Returns whether a broker that knows a topic as it is says so."""
    if told.topic_id and (topic is None or topic.id != told.topic_id):
        return told.error == Errors.UNKNOWN_TOPIC_ID
    exists = topic is not None and told.partition < topic.partitions
    return told.error != Errors.UNKNOWN_TOPIC_ID and exists == (told.error != Errors.UNKNOWN_TOPIC_OR_PARTITION)


def _cached(name: str, topic: Topic | None) -> dict[str, Any]:
    return {"name": name} if topic is None else {"name": name, "partitions": topic.partitions, "id": topic.id}
