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
    """Returns topic name -> id, for the ids that aren't known and of which one name is the most likely.

    Args:
        entries: the log in order.
        known_ids: ids whose names are known.
    """
    #: Whether by id -> a group's partition -> designation -> what was committed last.
    committed: dict[bool, defaultdict[tuple[str, int], dict[Designation, int]]]
    committed = {True: defaultdict(dict), False: defaultdict(dict)}
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for entry in entries:
        if entry.api in {"OffsetCommit", "TxnOffsetCommit"}:
            for (group, designation, partition), is_id, offset in _commits(entry):
                committed[is_id][group, partition][designation] = offset
        elif entry.api == "OffsetFetch":
            for (group, designation, partition), is_id, offset in _fetched(entry):
                for other, known in committed[not is_id].get((group, partition), {}).items():
                    topic_id, name = (designation, other) if is_id else (other, designation)
                    if known == offset and topic_id not in known_ids:
                        votes[topic_id][name] += 1
    return _elected(votes)


def _elected(votes: dict[str, Counter[str]]) -> dict[str, str]:
    """Returns each id's most voted name, if no other has as many, and no other id has more votes for it."""
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
    """Yields the commits that were accepted: where, whether by id, and the offset."""
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
    """Yields the committed offsets that were answered; 0 and none at all say nothing."""
    for group in (entry.response or {}).get("groups") or ():
        for topic in group.get("topics") or ():
            designation = _designation(topic)
            for partition in topic.get("partitions") or ():
                if designation and partition["committedOffset"] > 0:
                    place = (group["groupId"], designation, partition["partitionIndex"])
                    yield place, "topicId" in topic, partition["committedOffset"]


def _designation(topic: dict[str, Any]) -> Designation | None:
    return topic.get("topicId") or topic.get("name")
