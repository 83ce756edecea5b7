"""Finds the names of topics that a log knows by their ids only, by the partitions that their owners ask for by name.

A member of a consumer group is assigned partitions by their topics' ids. Some clients (librdkafka) fetch and commit
offsets by the topics' names: of partitions that they were assigned, and of no others. So a name is the name of an id of
which its owner had all these partitions; where several are left, what other owners ask for decides.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.inputs.broker_log.topic_subscriptions import pairs_left

#: Of a hundred requests that ask for a name so many have to be of owners of an id: one that is on its way while its
#: owner is assigned something else asks for what that had before. With 90 and with 98 the same names are found in a log
#: in which one is found only so.
_LEAST_PERCENT = 95


def names_by_owners(entries: Iterable[Entry], known: Mapping[str, str]) -> dict[str, str]:
    """Returns topic name -> id, for the names and ids that aren't known and of which one pair is left.

    Args:
        entries: the log in order.
        known: topic name -> id, as far as they are known.
    """
    left = _candidates(entries, known, set(known.values()))
    return pairs_left(left, lambda _, ids: next(iter(ids)) if len(ids) == 1 else None)


def _candidates(entries: Iterable[Entry], known: Collection[str], known_ids: Collection[str]) -> dict[str, set[str]]:
    """Returns the ids that each name may have."""
    owned: dict[tuple[str, str], dict[str, frozenset[int]]] = {}
    votes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    asked: Counter[str] = Counter()
    for entry in entries:
        if entry.api == "ConsumerGroupHeartbeat":
            place, answer = (str(entry.request.get("groupId")), entry.connection), entry.response or {}
            if answer.get("errorCode") or entry.request.get("memberEpoch", 0) < 0:
                owned.pop(place, None)
            elif answer.get("assignment") is not None:
                owned[place] = _partitions_by_id(answer["assignment"])
            continue
        for group_id, name, partitions in _asked_by_name(entry):
            own = owned.get((group_id, entry.connection))
            if own is not None and name not in known and partitions:
                asked[name] += 1
                votes[name].update(each for each in own if each not in known_ids and partitions <= own[each])
    return {
        name: {each for each, count in of_name.items() if count * 100 >= asked[name] * _LEAST_PERCENT}
        for name, of_name in votes.items()
    }


def _partitions_by_id(assignment: Mapping[str, Any]) -> dict[str, frozenset[int]]:
    topics = assignment.get("topicPartitions") or ()
    return {topic["topicId"]: frozenset(topic.get("partitions") or ()) for topic in topics}


def _asked_by_name(entry: Entry) -> Iterator[tuple[str, str, frozenset[int]]]:
    """Yields the group, the topic's name and the partitions of which offsets were told, or taken."""
    answer = entry.response or {}
    groups: list[dict[str, Any]] = []
    if entry.api == "OffsetFetch":
        groups = answer.get("groups") or []
    elif entry.api == "OffsetCommit":
        groups = [{"groupId": str(entry.request.get("groupId")), "topics": answer.get("topics")}]
    for group in groups:
        for topic in group.get("topics") or ():
            places = (place for place in topic.get("partitions") or () if place.get("errorCode", 0) == Errors.NONE)
            if topic.get("name"):
                yield group["groupId"], topic["name"], frozenset(place["partitionIndex"] for place in places)
