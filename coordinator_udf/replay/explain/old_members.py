"""Members of a consumer group of whose subscription the log has nothing: they were there long before it began.

Clients name their subscription when they join and where it changes; in between they only say that they are there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from coordinator_udf.groups.model.consumer import ConsumerMember
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.replay.explain.adopt_classic import Place
from coordinator_udf.replay.explain.told import GroupTold, Partitions, Told, assigned_in, partitions_of

#: How long who is subscribed has to give up partitions if nothing tells: max.poll.interval.ms by default.
REBALANCE_TIMEOUT_MS = 300_000


class _Known(NamedTuple):
    """What the log tells of a member.

    Attributes:
        first: the first that it asks from the place on with an epoch.
        has: the partitions that it has at the place.
        is_certain: whether it can't have fewer.
    """

    first: Told
    has: Partitions
    is_certain: bool


def without_subscription(
    told: GroupTold, at: Place, unknown: Sequence[str], others: Collection[ConsumerMember], topics: Mapping[str, Topic]
) -> Iterator[tuple[str, ConsumerMember]]:
    """Yields members of whose subscription the log has nothing, by their ids.

    Each is subscribed as a description of the group says; else to the topics whose partitions it has, or where it has
    none, to those that members are told of shortly before and after. Nobody is yielded who names no epoch.

    Args:
        unknown: their ids.
        others: members of whom more is known.
        topics: by name, those that there are.
    """
    if not unknown:
        return
    names = {topic.id: name for name, topic in topics.items()}
    near = told.since(2 * at.first - at.until, at.until)
    of_group = {topic_id for item in near for topic_id in assigned_in(item, topics) or ()}
    taken = {(topic_id, n) for member in others for topic_id, own in member.assigned.items() for n in own}
    found = [known for member_id in unknown if (known := _known(told, at, member_id, topics)) is not None]
    # What one may have is what nobody has for certain.
    for first, has, _ in sorted(found, key=lambda known: not known.is_certain):
        free = {topic_id: tuple(n for n in own if (topic_id, n) not in taken) for topic_id, own in has.items()}
        held = {topic_id: own for topic_id, own in free.items() if own}
        taken.update((topic_id, n) for topic_id, own in held.items() for n in own)
        described, assignor = told.described_member(first.member_id, at.first)
        subscribed = [names[topic_id] for topic_id in held or of_group if topic_id in names]
        epoch = first.epoch or 0
        member = ConsumerMember(
            first.member_id,
            epoch,
            epoch,
            instance_id=described.get("instanceId") or told.instances.get(first.member_id),
            rack_id=described.get("rackId"),
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            client_id=first.step.row["client_id"] or "",
            client_host=first.step.row["client_host"] or "",
            subscribed_topic_names=tuple(sorted(described.get("subscribedTopicNames", subscribed))),
            subscribed_topic_regex=described.get("subscribedTopicRegex") or "",
            server_assignor=assignor,
            assigned={topic_id: dict.fromkeys(own, epoch) for topic_id, own in held.items()},
        )
        yield member.member_id, member


def _known(told: GroupTold, at: Place, member_id: str, topics: Mapping[str, Topic]) -> _Known | None:
    later = [item for item in told.since(at.first, at.until) if item.member_id == member_id]
    first = next((item for item in later if (item.epoch or 0) > 0), None)
    if first is None:
        return None
    before = (item for item in told.before(at.first) if item.member_id == member_id and item.error == Errors.NONE)
    last = next((own for item in before if (own := assigned_in(item, topics)) is not None), None)
    return _Known(first, last, True) if last is not None else _Known(first, *_held_by(later, topics))


def _held_by(later: Sequence[Told], topics: Mapping[str, Topic]) -> tuple[Partitions, bool]:
    """Returns the partitions that a member has, and whether it can't have fewer.

    That is so of what it says itself first; what it is told first may be more than it has had before.

    Args:
        later: what it asks and is told from then on.
    """
    for item in later:
        if item.api == "OffsetCommit":
            return _committed(item, topics), True
        if item.api == "ConsumerGroupHeartbeat" and item.request.get("topicPartitions") is not None:
            return partitions_of(item.request), True
        own = assigned_in(item, topics) if item.error == Errors.NONE else None
        if own is not None:
            return own, False
    return {}, False


def _committed(item: Told, topics: Mapping[str, Topic]) -> Partitions:
    """Returns the partitions of a commit: members commit what they have."""
    found: Partitions = {}
    for topic in item.request.get("topics") or ():
        known = topics.get(topic.get("name") or "")
        topic_id = topic.get("topicId") or (known.id if known is not None else "")
        if topic_id:
            found[topic_id] = tuple(sorted(p["partitionIndex"] for p in topic["partitions"]))
    return found
