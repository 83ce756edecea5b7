"""Who had what before, as the sticky assignors see it (AbstractStickyAssignor.allSubscriptionsEqual)."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from coordinator_udf.members.client_assignors.partitions import Subscriptions
from coordinator_udf.members.client_assignors.spec import MemberSubscription
from coordinator_udf.members.inputs import TopicPartition

NO_GENERATION = -1


class MemberData(NamedTuple):
    """What a member had, and in which generation, if it said so."""

    partitions: tuple[TopicPartition, ...]
    generation: int | None


class PreviousOwners:
    """The partitions that members had, of topics that there still are.

    Attributes:
        owned: by member, without those that a member of a newer generation claims.
        claimed_twice: partitions that two members of one generation claim.
        all_subscriptions_equal: whether all members subscribe to the same topics.
        max_generation: the newest generation that anybody was in.
    """

    def __init__(
        self,
        topics: AbstractSet[str],
        subscriptions: Subscriptions,
        member_data: Callable[[MemberSubscription], MemberData],
        max_generation: int,
    ) -> None:
        self._data = {member: member_data(subscription) for member, subscription in subscriptions.items()}
        self._subscriptions = subscriptions
        self._owner: dict[TopicPartition, str] = {}
        self.owned: dict[str, list[TopicPartition]] = {}
        self.claimed_twice: set[TopicPartition] = set()
        self.max_generation = max_generation
        for member, data in self._data.items():
            self._take(member, data, topics)
        self.all_subscriptions_equal = _all_equal(subscriptions)

    def of_older_generations(self) -> dict[TopicPartition, tuple[str, int]]:
        """Returns partitions that members of older generations had, with the newest of these (prevAssignment)."""
        previous: dict[TopicPartition, tuple[str, int]] = {}
        for member, (partitions, generation) in self._data.items():
            known = NO_GENERATION if generation is None else generation
            if known >= self.max_generation:
                continue
            for partition in partitions:
                if partition not in previous or known > previous[partition][1]:
                    previous[partition] = (member, known)
        return previous

    def _take(self, member: str, data: MemberData, topics: AbstractSet[str]) -> None:
        generation = NO_GENERATION if data.generation is None else data.generation
        self.max_generation = max(self.max_generation, generation)
        owned = self.owned.setdefault(member, [])
        for partition in data.partitions:
            if partition.topic not in topics:
                continue
            other = self._owner.get(partition)
            # Kafka compares with the generation in the other one's subscription, not in its user data.
            other_generation = None if other is None else max(self._subscriptions[other].generation_id, NO_GENERATION)
            if other is None or other_generation is None:
                owned.append(partition)
                self._owner[partition] = member
            elif generation >= other_generation:
                if generation == other_generation:
                    self.claimed_twice.add(partition)
                else:
                    owned.append(partition)
                if partition in self.owned[other]:
                    self.owned[other].remove(partition)
                self._owner[partition] = member


def _all_equal(subscriptions: Subscriptions) -> bool:
    """Compares with the first member that subscribes to anything; those before it don't count."""
    subscribed: set[str] = set()
    for subscription in subscriptions.values():
        if not subscribed:
            subscribed.update(subscription.topics)
        elif len(subscription.topics) != len(subscribed) or not subscribed.issuperset(subscription.topics):
            return False
    return True
