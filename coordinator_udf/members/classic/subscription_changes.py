"""What makes a member rejoin by itself: another subscription, or (a leader) other topic metadata (ConsumerCoordinator).

All of it is noticed in the application's poll only.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator_udf.members.classic.context import Context
from coordinator_udf.members.classic.flow import Flow
from coordinator_udf.members.exceptions import timeout_exception
from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.members.subscription_state import SubscriptionType
from coordinator_udf.members.timers import FOREVER_MS

#: The racks of each partition's replicas; None is a broker that names none. Empty for a member without a rack.
Racks = tuple[frozenset[str | None], ...]


@dataclass(frozen=True, slots=True)
class MetadataSnapshot:
    """The partitions of the topics that a member, or a leader's group, is subscribed to, as one answer had them."""

    version: int
    racks_by_topic: dict[str, Racks]

    def matches(self, other: MetadataSnapshot) -> bool:
        """Tells whether there is no reason to assign anew."""
        return self.version == other.version or self.racks_by_topic == other.racks_by_topic


class SubscriptionChanges:
    """Compares what the member joined with to what is now."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._snapshot = self._take_snapshot()
        self._assigned_from: MetadataSnapshot | None = None
        self._joined_with: frozenset[str] | None = None

    def joining(self) -> frozenset[str]:
        """Takes note of the subscription that JoinGroup carries, and returns it."""
        self._joined_with = self._context.subscriptions.topics
        return self._joined_with

    def assigned(self) -> None:
        """Takes note, as the leader, of the metadata that it has assigned from."""
        self._assigned_from = self._snapshot

    def assigned_by_other(self) -> None:
        """Leaves it to the leader to watch the metadata."""
        self._assigned_from = None

    def take_assigned_topics(self, partitions: set[TopicPartition]) -> None:
        """Adds topics that the leader has assigned to a pattern's subscription (maybeUpdateJoinedSubscription)."""
        subscriptions = self._context.subscriptions
        joined = self._joined_with or frozenset()
        added = {partition.topic for partition in partitions} - joined
        if subscriptions.type is SubscriptionType.AUTO_PATTERN and added:
            if subscriptions.subscribe_from_pattern(subscriptions.topics | added):
                self._context.metadata.request_update_for_new_topics()
            self._joined_with = joined | added

    def match_pattern(self) -> None:
        """Subscribes to the known topics that the pattern matches."""
        subscriptions = self._context.subscriptions
        matching = [topic for topic in self._context.metadata.topics if subscriptions.matches_pattern(topic)]
        if subscriptions.subscribe_from_pattern(matching):
            self._context.metadata.request_update_for_new_topics()

    def look_at_metadata(self) -> None:
        """Takes a snapshot of newer metadata, if there is some."""
        if self._context.metadata.update_version > self._snapshot.version:
            if self._context.subscriptions.type is SubscriptionType.AUTO_PATTERN:
                self.match_pattern()
            self._snapshot = self._take_snapshot()

    def watch_group(self, topics: frozenset[str]) -> Flow[None]:
        """Has the leader watch all topics of its group, and waits until their metadata is fresh."""
        if self._context.subscriptions.group_subscribe(topics):
            self._context.metadata.request_update_for_new_topics()
        if not (yield from self._context.client.ensure_fresh_metadata(self._context.timer(FOREVER_MS))):
            raise timeout_exception("the metadata of the group's topics did not come")
        self.look_at_metadata()

    def has_metadata_changed(self) -> bool:
        """Tells whether the member, as the leader, has assigned from metadata that is out of date."""
        return self._assigned_from is not None and not self._assigned_from.matches(self._snapshot)

    def has_subscription_changed(self) -> bool:
        """Tells whether the member has joined with another subscription than it has now."""
        return self._joined_with is not None and self._joined_with != self._context.subscriptions.topics

    def ask_for_rejoin(self, *, is_resyncing: bool) -> bool:
        """Asks for a rejoin if metadata or subscription have changed. Returns whether they have.

        Args:
            is_resyncing: whether the leader is about to replace its assignment; newer metadata is for the next one.
        """
        membership = self._context.membership
        if self.has_metadata_changed() and not is_resyncing:
            membership.request_rejoin_if_necessary("cached metadata has changed")
            return True
        if self.has_subscription_changed():
            membership.request_rejoin_if_necessary("subscription has changed")
            return True
        return False

    def _take_snapshot(self) -> MetadataSnapshot:
        metadata = self._context.metadata
        rack = self._context.config.client_rack
        racks_by_topic: dict[str, Racks] = {}
        for name in self._context.subscriptions.metadata_topics():
            topic = metadata.topics.get(name)
            count = topic.partitions if topic is not None else 0
            racks = topic.racks if topic is not None else ()
            racks_by_topic[name] = tuple(
                frozenset(racks[number] if number < len(racks) else (None,)) if rack else frozenset()
                for number in range(count)
            )
        return MetadataSnapshot(metadata.update_version, racks_by_topic)
