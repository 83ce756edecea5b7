"""Finds the names of topics that a log knows by their ids only, by who subscribed by name and was assigned by id.

A member of a consumer group is assigned topics that it is subscribed to and no others. So an id is the id of a name
that everybody was subscribed to who was ever assigned it; where several are left, the numbers of partitions decide.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from coordinator_udf.replay.inputs.broker_log.line import Entry

#: Of a hundred assignments of an id so many have to be to subscribers of a name: a subscription changes while its
#: answer is on its way. Measured with 14 recorded logs (tests/conformance/test_broker_logs.py): with 90 and with 98
#: every answer is judged as with this.
_LEAST_PERCENT = 95


def names_by_subscriptions(
    entries: Iterable[Entry], known: Mapping[str, str], partitions: Mapping[str, int], seen: Mapping[str, int]
) -> dict[str, str]:
    """Returns topic name -> id, for the ids that aren't known and of which one name is left.

    Args:
        entries: the log in order.
        known: topic name -> id, as far as they are known.
        partitions: topic name -> number of partitions, of topics of which it is known.
        seen: topic id -> number of partitions that were seen, at least.
    """
    left = _candidates(entries, set(known.values()), set(known))
    found = pairs_left(left, lambda topic_id, names: _only(names, topic_id, partitions, seen))
    return {name: topic_id for topic_id, name in found.items()}


def some_names_by_subscriptions(
    entries: Iterable[Entry], known: Mapping[str, str], partitions: Mapping[str, int], seen: Mapping[str, int]
) -> dict[str, str]:
    """Returns topic name -> id, as `names_by_subscriptions`, but where several names are left for ids any that fit.

    Nothing in the log tells them apart then, and who is assigned what goes by the ids alone.
    """
    left = {
        topic_id: sorted(_that_fit(names, topic_id, partitions, seen) or names)
        for topic_id, names in sorted(_candidates(entries, set(known.values()), set(known)).items())
    }
    return one_each(left)


def one_each(left: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Returns name -> id, so that as many ids as can be have one of the names that are left for them."""
    found: dict[str, str] = {}
    for topic_id in left:
        _give(topic_id, left, found, set())
    return found


def _give(topic_id: str, left: Mapping[str, Sequence[str]], found: dict[str, str], tried: set[str]) -> bool:
    """Gives an id a name, if need be one whose id can have another; False if it can't have any."""
    for name in left[topic_id]:
        if name not in tried:
            tried.add(name)
            if name not in found or _give(found[name], left, found, tried):
                found[name] = topic_id
                return True
    return False


def pairs_left(candidates: Mapping[str, set[str]], only: Callable[[str, set[str]], str | None]) -> dict[str, str]:
    """Returns the pairs of a key and a candidate of its own, as those that are settled are no candidates of others.

    Args:
        only: the one candidate of a key's that is left; None if there are several, or none.
    """
    left, found = dict(candidates), dict[str, str]()
    while True:
        settled = {key: one for key, own in sorted(left.items()) if (one := only(key, own)) is not None}
        often = Counter(settled.values())
        new = {key: one for key, one in settled.items() if often[one] == 1}
        if not new:
            return found
        found |= new
        taken = set(new.values())
        left = {key: own - taken for key, own in left.items() if key not in new}


def _only(names: set[str], topic_id: str, partitions: Mapping[str, int], seen: Mapping[str, int]) -> str | None:
    """Returns the one name that an id can have; None if there are several."""
    if len(names) > 1:
        names = _that_fit(names, topic_id, partitions, seen)
    return next(iter(names)) if len(names) == 1 else None


def _that_fit(names: set[str], topic_id: str, partitions: Mapping[str, int], seen: Mapping[str, int]) -> set[str]:
    """Returns the names of topics with as many partitions as were seen of an id."""
    count = seen.get(topic_id, 0)
    return {name for name in names if partitions.get(name, count) == count}


def _candidates(entries: Iterable[Entry], known_ids: set[str], known_names: set[str]) -> dict[str, set[str]]:
    """Returns the names that each id may have."""
    subscribed: dict[tuple[str, str], frozenset[str]] = {}
    votes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    assigned: Counter[str] = Counter()
    for entry in entries:
        if entry.api != "ConsumerGroupHeartbeat":
            continue
        request, answer = entry.request, entry.response or {}
        member = str(request.get("groupId")), answer.get("memberId") or request.get("memberId") or ""
        if request.get("subscribedTopicRegex"):
            # What the expression matches isn't in the log.
            subscribed.pop(member, None)
        elif request.get("subscribedTopicNames") is not None and not answer.get("errorCode"):
            subscribed[member] = frozenset(request["subscribedTopicNames"])
        names = subscribed.get(member)
        for topic_id in assigned_topics(answer) if names else ():
            if topic_id not in known_ids:
                assigned[topic_id] += 1
                votes[topic_id].update(names or ())
    return {
        topic_id: {
            name
            for name, count in of_id.items()
            if name not in known_names and count * 100 >= assigned[topic_id] * _LEAST_PERCENT
        }
        for topic_id, of_id in votes.items()
    }


def assigned_topics(answer: Mapping[str, object]) -> Iterator[str]:
    """Yields the ids of the topics of which an answer assigns partitions."""
    assignment = answer.get("assignment")
    topics = assignment.get("topicPartitions") if isinstance(assignment, Mapping) else None
    for topic in topics or ():
        if topic.get("partitions"):
            yield topic["topicId"]
