"""What an application subscribed to, what is assigned of it, and how far it got (SubscriptionState)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from coordinator_udf.members.exceptions import ClientException, illegal_argument, illegal_state
from coordinator_udf.members.inputs import TopicPartition


class SubscriptionType(Enum):
    """How the application subscribed. Only unsubscribing makes room for another way."""

    NONE = "nothing"
    AUTO_TOPICS = "topics by name"
    AUTO_PATTERN = "a pattern that the member matches"
    AUTO_PATTERN_RE2J = "a pattern that the broker matches"


@dataclass(slots=True)
class PartitionState:
    """An assigned partition.

    Attributes:
        position: the next offset to consume, or None.
        leader: the node that the partition was to be consumed from when the metadata last told, or None.
        pending_revocation: about to be revoked, so nothing more is consumed of it.
        awaits_callback: onPartitionsAssigned hasn't returned yet.
    """

    position: int | None = None
    leader: str | None = None
    pending_revocation: bool = False
    awaits_callback: bool = False

    def is_fetchable(self) -> bool:
        """Tells whether the application may consume of it now."""
        return self.position is not None and not self.pending_revocation and not self.awaits_callback


class SubscriptionState:
    """A member's subscription and assignment."""

    def __init__(self) -> None:
        self.type = SubscriptionType.NONE
        self.pattern: re.Pattern[str] | None = None
        self.assigned_topic_ids: frozenset[str] = frozenset()
        self.group_subscription: frozenset[str] = frozenset()
        self._topics: frozenset[str] = frozenset()
        self._regex: str | None = None
        self._assignment: dict[TopicPartition, PartitionState] = {}
        self._in_order: tuple[TopicPartition, ...] | None = ()

    # ---- the subscription

    def subscribe(self, topics: Iterable[str]) -> bool:
        """Subscribes to topics by name. Returns whether they are others than before.

        Raises:
            ClientException: subscribed in another way (IllegalStateException).
        """
        self._set_type(SubscriptionType.AUTO_TOPICS)
        return self._change_subscription(frozenset(topics))

    def subscribe_pattern(self, pattern: str) -> None:
        """Subscribes to what a pattern matches, once `subscribe_from_pattern` has said what that is.

        Raises:
            ClientException: subscribed in another way (IllegalStateException), or no pattern (PatternSyntaxException).
        """
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise ClientException("PatternSyntaxException", f"{pattern!r}: {error}") from error
        self._set_type(SubscriptionType.AUTO_PATTERN)
        self.pattern = compiled

    def subscribe_regex(self, pattern: str) -> None:
        """Subscribes to what the broker finds that a pattern matches.

        Raises:
            ClientException: subscribed in another way (IllegalStateException).
        """
        self._set_type(SubscriptionType.AUTO_PATTERN_RE2J)
        self._regex = pattern

    def subscribe_from_pattern(self, topics: Iterable[str]) -> bool:
        """Takes the topics that the pattern matches now. Returns whether they are others than before."""
        if self.type is not SubscriptionType.AUTO_PATTERN:
            raise illegal_argument(f"Attempt to subscribe from pattern while subscribed to {self.type.value}")
        return self._change_subscription(frozenset(topics))

    def group_subscribe(self, topics: Iterable[str]) -> bool:
        """Takes the topics of all members of a leader's group. Returns whether some are not the member's own."""
        self.group_subscription = frozenset(topics)
        return not self.group_subscription <= self._topics

    def unsubscribe(self) -> None:
        """Forgets subscription and assignment."""
        self._topics = frozenset()
        self.group_subscription = frozenset()
        self._assignment, self._in_order = {}, ()
        self.assigned_topic_ids = frozenset()
        self.pattern = None
        self.type = SubscriptionType.NONE

    @property
    def topics(self) -> frozenset[str]:
        """The topics subscribed to by name or by the member's own matching."""
        return self._topics if self.is_subscribed else frozenset()

    @property
    def regex(self) -> str | None:
        """The pattern that the broker matches, or None."""
        return self._regex if self.type is SubscriptionType.AUTO_PATTERN_RE2J else None

    @property
    def is_subscribed(self) -> bool:
        """Whether there is a subscription of whichever kind (hasAutoAssignedPartitions)."""
        return self.type is not SubscriptionType.NONE

    def matches_pattern(self, topic: str) -> bool:
        """Tells whether the member's own pattern matches a topic."""
        return self.pattern is not None and self.pattern.fullmatch(topic) is not None

    def metadata_topics(self) -> frozenset[str]:
        """Returns the topics whose metadata the member, or (for a leader) its group, needs."""
        return self._topics | self.group_subscription

    def is_assigned_from_regex(self, topic_id: str | None) -> bool:
        """Tells whether a topic came with an assignment of a subscription that the broker matches."""
        return self.regex is not None and topic_id in self.assigned_topic_ids

    # ---- the assignment

    def assigned_partitions(self) -> set[TopicPartition]:
        """Returns the partitions assigned now."""
        return set(self._assignment)

    @property
    def in_order(self) -> tuple[TopicPartition, ...]:
        """The partitions assigned now, by topic and number."""
        if self._in_order is None:
            self._in_order = tuple(sorted(self._assignment))
        return self._in_order

    def is_assigned(self, partition: TopicPartition) -> bool:
        """Tells whether a partition is assigned now."""
        return partition in self._assignment

    def assign_from_subscribed(self, partitions: Iterable[TopicPartition]) -> None:
        """Makes these partitions the assignment; those that were in it stay as they are.

        Raises:
            ClientException: there is no subscription (IllegalArgumentException).
        """
        if not self.is_subscribed:
            raise illegal_argument("Attempt to dynamically assign partitions while manual assignment in use")
        before = self._assignment
        self._assignment = {partition: before.get(partition) or PartitionState() for partition in partitions}
        self._in_order = None

    def assign_awaiting_callback(self, partitions: Iterable[TopicPartition], added: Iterable[TopicPartition]) -> None:
        """Makes these partitions the assignment; the added ones aren't consumed before their callback has returned.

        Raises:
            ClientException: there is no subscription (IllegalArgumentException).
        """
        self.assign_from_subscribed(partitions)
        for partition in added:
            self._assigned(partition).awaits_callback = True

    def enable_after_callback(self, partitions: Iterable[TopicPartition]) -> None:
        """Lets partitions be consumed, for their callback has returned.

        Raises:
            ClientException: one of them is no longer assigned (IllegalStateException).
        """
        for partition in partitions:
            self._assigned(partition).awaits_callback = False

    def mark_pending_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """Lets nothing more be consumed of partitions.

        Raises:
            ClientException: one of them isn't assigned (IllegalStateException).
        """
        for partition in partitions:
            self._assigned(partition).pending_revocation = True

    def seek(self, partition: TopicPartition, offset: int, leader: str | None) -> None:
        """Sets the position of a partition, to be consumed from this node if the metadata tells one.

        Raises:
            ClientException: it isn't assigned (IllegalStateException).
        """
        state = self._assigned(partition)
        state.position, state.leader = offset, leader

    def consume(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Moves the positions of those partitions that are assigned, whoever leads them."""
        for partition, offset in offsets.items():
            state = self._assignment.get(partition)
            if state is not None:
                state.position = offset

    def positions(self) -> dict[TopicPartition, int]:
        """Returns the positions of the partitions that have one (allConsumed)."""
        return {
            partition: state.position for partition, state in self._assignment.items() if state.position is not None
        }

    def partition_states(self) -> dict[TopicPartition, PartitionState]:
        """Returns the assigned partitions with their states."""
        return self._assignment

    def is_fetchable(self, partition: TopicPartition) -> bool:
        """Tells whether the application may consume of a partition now."""
        if self.type is SubscriptionType.AUTO_TOPICS and partition.topic not in self._topics:
            return False
        state = self._assignment.get(partition)
        return state is not None and state.is_fetchable()

    def _assigned(self, partition: TopicPartition) -> PartitionState:
        state = self._assignment.get(partition)
        if state is None:
            raise illegal_state(f"No current assignment for partition {partition.topic}-{partition.partition}")
        return state

    def _set_type(self, wanted: SubscriptionType) -> None:
        if self.type not in (SubscriptionType.NONE, wanted):
            raise illegal_state("Subscription to topics, partitions and pattern are mutually exclusive")
        self.type = wanted

    def _change_subscription(self, topics: frozenset[str]) -> bool:
        changed = topics != self._topics
        self._topics = topics
        return changed
