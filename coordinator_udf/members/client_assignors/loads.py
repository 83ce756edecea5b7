"""Loads of partitions as members report them to their leader, and how to spread them evenly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from coordinator_udf.members.client_assignors.spec import MemberSubscription
from coordinator_udf.members.exceptions import ClientException
from coordinator_udf.members.inputs import TopicPartition

#: A load, of whichever unit: offsets of lag, bytes a second. Never negative.
Loads = Mapping[TopicPartition, int]


class LoadReport(msgspec.Struct, frozen=True):
    """What a member adds to its subscription, as JSON.

    Attributes:
        loads: by topic and partition.
        version: the version of its application, if that matters.
    """

    loads: dict[str, dict[int, int]] = {}
    version: str | None = None


def write_report(loads: Loads, version: str | None = None) -> bytes:
    """Returns the report as user data.

    Raises:
        ClientException: a load is negative (IllegalArgumentException).
    """
    by_topic: dict[str, dict[int, int]] = {}
    for (topic, partition), load in sorted(loads.items()):
        if load < 0:
            raise ClientException(
                "IllegalArgumentException", f"the load of {topic}-{partition} is {load}, expected 0 or more"
            )
        by_topic.setdefault(topic, {})[partition] = load
    return msgspec.json.encode(LoadReport(by_topic, version))


def read_report(subscription: MemberSubscription) -> LoadReport:
    """Returns a member's report; an empty one if there is none, as of a member that has just joined.

    Raises:
        ClientException: the user data is something else (IllegalArgumentException); the message says what.
    """
    if not subscription.user_data:
        return LoadReport()
    try:
        return msgspec.json.decode(subscription.user_data, type=LoadReport)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ClientException("IllegalArgumentException", f"user data is no load report: {error}") from error


def newest_loads(subscriptions: Mapping[str, MemberSubscription]) -> dict[TopicPartition, int]:
    """Returns each partition's load as the member of the newest generation reports it, of two the higher one."""
    newest: dict[TopicPartition, tuple[int, int]] = {}
    for subscription in subscriptions.values():
        for topic, of_topic in read_report(subscription).loads.items():
            for number, load in of_topic.items():
                partition = TopicPartition(topic, number)
                newest[partition] = max(newest.get(partition, (-2, 0)), (subscription.generation_id, load))
    return {partition: load for partition, (_, load) in newest.items()}


def spread(
    partitions: Iterable[TopicPartition], loads: Loads, topics_of: Mapping[str, Sequence[str]]
) -> dict[str, list[TopicPartition]]:
    """Gives each partition to a member that subscribes to its topic: the heaviest first, to whom has least.

    Where all members may have all partitions, no member's load is above the best possible one by more than a third, and
    no two differ by more than one partition's load (Graham's rule of the longest processing time). Of equal loads the
    counts decide, then the members' order. A partition to whose topic nobody subscribes is given to nobody.
    """
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in topics_of}
    totals = dict.fromkeys(topics_of, 0)
    for partition in sorted(partitions, key=lambda partition: (-loads.get(partition, 0), partition)):
        members = [member for member, topics in topics_of.items() if partition.topic in topics]
        if members:
            member = min(members, key=lambda member: (totals[member], len(assigned[member])))
            assigned[member].append(partition)
            totals[member] += loads.get(partition, 0)
    return assigned
