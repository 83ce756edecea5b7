"""Finds the names of topics that a log knows by their ids only, by the offsets that were committed and fetched.

Newer clients name a topic by its id, older ones by its name. Where both kinds work in one group, what one commits the
other fetches: a committed offset that comes back under another designation tells that both mean one topic.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.replay.inputs.broker_log.line import Entry

#: A topic in a request: its name or its id.
Designation = str
#: A group's partition of a topic, however the topic is designated.
Place = tuple[str, Designation, int]


def names_by_offsets(entries: Iterable[Entry], known_ids: Collection[str]) -> dict[str, str]:
    """Topic name -> id, for the ids that aren't known and of which one name is the most likely.

    Args:
        entries: the log in order.
        known_ids: ids whose names are known.
    """
    committed: dict[bool, dict[Place, int]] = {True: {}, False: {}}
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for entry in entries:
        if entry.api in {"OffsetCommit", "TxnOffsetCommit"}:
            for place, is_id, offset in _commits(entry):
                committed[is_id][place] = offset
        elif entry.api == "OffsetFetch":
            for place, is_id, offset in _fetched(entry):
                for (group, other, partition), known in committed[not is_id].items():
                    if (group, partition) == (place[0], place[2]) and known == offset:
                        topic_id, name = (place[1], other) if is_id else (other, place[1])
                        if topic_id not in known_ids:
                            votes[topic_id][name] += 1
    return _elected(votes)


def _elected(votes: dict[str, Counter[str]]) -> dict[str, str]:
    """Each id's most voted name, if no other has as many, and no other id has more votes for it."""
    best: dict[str, tuple[int, str]] = {}
    for topic_id, names in sorted(votes.items()):
        ranked = names.most_common(2)
        name, count = ranked[0]
        if len(ranked) > 1 and ranked[1][1] == count:
            continue
        if count > best.get(name, (0, ""))[0]:
            best[name] = (count, topic_id)
    return {name: topic_id for name, (_, topic_id) in best.items()}


def _commits(entry: Entry) -> Iterator[tuple[Place, bool, int]]:
    """The commits that were accepted: where, whether by id, and the offset."""
    group_id = entry.request.get("groupId")
    accepted = {
        (_designation(topic), partition["partitionIndex"])
        for topic in (entry.response or {}).get("topics") or ()
        for partition in topic.get("partitions") or ()
        if partition["errorCode"] == Errors.NONE
    }
    for topic in entry.request.get("topics") or ():
        designation = _designation(topic)
        for partition in topic.get("partitions") or ():
            index = partition["partitionIndex"]
            if isinstance(group_id, str) and designation and (designation, index) in accepted:
                yield (group_id, designation, index), "topicId" in topic, partition["committedOffset"]


def _fetched(entry: Entry) -> Iterator[tuple[Place, bool, int]]:
    """The committed offsets that were answered; 0 and none at all say nothing."""
    for group in (entry.response or {}).get("groups") or ():
        for topic in group.get("topics") or ():
            designation = _designation(topic)
            for partition in topic.get("partitions") or ():
                if designation and partition["committedOffset"] > 0:
                    place = (group["groupId"], designation, partition["partitionIndex"])
                    yield place, "topicId" in topic, partition["committedOffset"]


def _designation(topic: dict[str, Any]) -> Designation | None:
    return topic.get("topicId") or topic.get("name")
