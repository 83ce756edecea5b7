"""Gives members of a new version a share: of the partitions, or of what is consumed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from coordinator_udf.members.client_assignors.loads import Loads, newest_loads, read_report, spread, write_report
from coordinator_udf.members.client_assignors.partitions import (
    PartitionAssignor,
    Subscriptions,
    TopicRacks,
    member_order,
)
from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.protocol.errors import BadRequest


class CanaryAssignor(PartitionAssignor):
    """Members say their version when they join; those of the canary's get a share, the others the rest."""

    def __init__(
        self, version: str, canary_version: str, share: float, loads: Callable[[], Loads] | None = None
    ) -> None:
        """Makes the assignor of one member; version differs from member to member, the rest must not.

        Args:
            version: this member's.
            canary_version: the version that gets the share.
            share: from 0 to 1: of the partitions, or, with ``loads``, of the sum of loads.
            loads: returns what the application consumes of its partitions, as bytes a second.

        Raises:
            BadRequest: the share is none.
        """
        if not 0 <= share <= 1:
            raise BadRequest("share", share, "a number from 0 to 1")
        self._version = version
        self._canary_version = canary_version
        self._share = share
        self._loads = loads

    @property
    def name(self) -> str:
        """The name in the group's lists."""
        return "canary"

    def subscription_user_data(self, topics: AbstractSet[str]) -> bytes | None:
        """Returns the version, and the loads of partitions of these topics."""
        loads = {} if self._loads is None else self._loads()
        return write_report({p: load for p, load in loads.items() if p.topic in topics}, self._version)

    def assign_partitions(self, topics: TopicRacks, subscriptions: Subscriptions) -> dict[str, list[TopicPartition]]:
        """Returns each member's partitions."""
        members = sorted(subscriptions, key=lambda member: member_order(member, subscriptions[member]))
        canaries = [m for m in members if read_report(subscriptions[m]).version == self._canary_version]
        others = [member for member in members if member not in canaries]
        everything = [TopicPartition(topic, number) for topic in sorted(topics) for number in range(len(topics[topic]))]
        known = newest_loads(subscriptions) if self._loads is not None else {}
        # A partition whose load nobody knows counts as an average one, an idle one as nearly nothing.
        average = sum(known.values()) // len(known) if known else 1
        loads = {partition: max(1, known.get(partition, average)) for partition in everything}
        near = _topics(subscriptions, canaries)
        far = _topics(subscriptions, others)
        only_canaries = [p for p in everything if p.topic in near and p.topic not in far]
        either = [p for p in everything if p.topic in near and p.topic in far]
        target = self._share * sum(loads.values()) - sum(loads[partition] for partition in only_canaries)
        chosen = [*only_canaries, *choose_share(either, loads, target)]
        rest = [partition for partition in everything if partition not in set(chosen)]
        assigned = spread(chosen, loads, {member: subscriptions[member].topics for member in canaries})
        assigned |= spread(rest, loads, {member: subscriptions[member].topics for member in others})
        return assigned


def _topics(subscriptions: Subscriptions, members: Sequence[str]) -> set[str]:
    return {topic for member in members for topic in subscriptions[member].topics}


def choose_share(partitions: Sequence[TopicPartition], loads: Loads, target: float) -> list[TopicPartition]:
    """Returns partitions whose loads sum up to nearly the target.

    The sum misses the target by half the load of the lightest partition not chosen at most, or all are chosen
    (or, where the target isn't above 0, none): the heaviest are taken as long as they fit, then the lightest one left
    if that brings it nearer.
    """
    chosen: list[TopicPartition] = []
    left = target
    for partition in sorted(partitions, key=lambda partition: (-loads[partition], partition)):
        if loads[partition] <= left:
            chosen.append(partition)
            left -= loads[partition]
    rest = [partition for partition in partitions if partition not in chosen]
    lightest = min(rest, key=lambda partition: (loads[partition], partition), default=None)
    if lightest is not None and loads[lightest] - left < left:
        chosen.append(lightest)
    return chosen
