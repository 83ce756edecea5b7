"""The assignment that is in effect and the one that is to be (the parts of AbstractMembershipManager on them).

The coordinator names topics by id. An id whose name the metadata doesn't tell yet waits for the next update.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.members.metadata import ConsumerMetadata
from coordinator_udf.members.subscription_state import SubscriptionState

#: Partitions by topic id.
TopicIdPartitions = Mapping[str, frozenset[int]]

_NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class LocalAssignment:
    """Partitions by topic id, and how many assignments there were before: an equal one later is another one."""

    local_epoch: int = _NO_EPOCH
    partitions: TopicIdPartitions = field(default_factory=dict)

    @property
    def is_none(self) -> bool:
        """Whether nothing was ever assigned, not even an empty assignment."""
        return self.local_epoch == _NO_EPOCH

    def followed_by(self, partitions: TopicIdPartitions) -> LocalAssignment | None:
        """Returns the assignment that comes after this one, or None where it is the same."""
        if not self.is_none and partitions == self.partitions:
            return None
        return LocalAssignment(self.local_epoch + 1, dict(partitions))


NO_ASSIGNMENT = LocalAssignment()


@dataclass(frozen=True, slots=True)
class ResolvedAssignment:
    """The part of a target assignment whose topics have names, by id and by name."""

    local: LocalAssignment
    partitions: frozenset[TopicPartition]


class AssignmentManager:
    """What a member has reconciled, and what it was told to.

    Attributes:
        current: the assignment in effect, as the coordinator is told of it.
        target: the last assignment received.
    """

    def __init__(self, subscriptions: SubscriptionState, metadata: ConsumerMetadata) -> None:
        self._subscriptions = subscriptions
        self._metadata = metadata
        self._topic_names: dict[str, str] = {}
        self.current = NO_ASSIGNMENT
        self.target = NO_ASSIGNMENT

    @property
    def is_reconciled(self) -> bool:
        """Whether the last assignment received is in effect."""
        return self.current == self.target

    def receive(self, partitions: TopicIdPartitions) -> None:
        """Takes an answer's assignment as the target, if it is another one."""
        following = self.target.followed_by(partitions)
        if following is not None:
            self.target = following
            self._subscriptions.assigned_topic_ids = frozenset(following.partitions)

    def drop_current(self) -> None:
        """Forgets what is in effect, as the coordinator is told of it."""
        self.current = NO_ASSIGNMENT

    def clear_target(self) -> None:
        """Forgets the target, and the names of topics."""
        self.target = NO_ASSIGNMENT
        self._topic_names.clear()

    def clear(self) -> None:
        """Forgets everything."""
        self.current = NO_ASSIGNMENT
        self.clear_target()

    def resolve(self) -> ResolvedAssignment:
        """Returns what of the target has names, and asks for metadata if that isn't all."""
        resolved: dict[str, frozenset[int]] = {}
        partitions: set[TopicPartition] = set()
        unresolved = False
        for topic_id, numbers in self.target.partitions.items():
            name = self._topic_name(topic_id)
            if name is None:
                unresolved = True
            elif numbers:
                resolved[topic_id] = numbers
                partitions.update(TopicPartition(name, number) for number in numbers)
        if unresolved:
            self._metadata.request_update(reset_equivalent_backoff=True)
        return ResolvedAssignment(LocalAssignment(self.target.local_epoch, resolved), frozenset(partitions))

    def keep_names(self, partitions: frozenset[TopicPartition]) -> None:
        """Forgets the names of topics that aren't among these."""
        kept = {partition.topic for partition in partitions}
        self._topic_names = {topic_id: name for topic_id, name in self._topic_names.items() if name in kept}

    def awaiting_reconciliation(self) -> dict[str, frozenset[int]]:
        """Returns what of the target isn't in effect, by topic id; a topic that only loses partitions with none."""
        if self.target.is_none or self.current.is_none:
            return dict(self.target.partitions)
        return {
            topic_id: numbers - self.current.partitions.get(topic_id, frozenset())
            for topic_id, numbers in self.target.partitions.items()
            if numbers != self.current.partitions.get(topic_id)
        }

    def _topic_name(self, topic_id: str) -> str | None:
        """Returns a topic's name from the metadata, or from an assignment before."""
        name = self._metadata.topic_names.get(topic_id)
        if name is None:
            return self._topic_names.get(topic_id)
        self._topic_names[topic_id] = name
        return name
