"""Where a member stands in its group: its state, its id and its epoch. Everything else looks here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from coordinator_udf.members.consumer.states import MemberEvent, MemberState, next_state
from coordinator_udf.members.inputs import TopicPartition

#: Told of the epoch, None where the member has none (onMemberEpochUpdated).
EpochListener = Callable[[int | None], None]

JOIN_GROUP_EPOCH = 0
LEAVE_GROUP_EPOCH = -1
LEAVE_GROUP_STATIC_MEMBER_EPOCH = -2


@dataclass
class GroupState:
    """A member's state and epoch, and who wants to hear of them."""

    group_id: str
    member_id: str
    on_transition: Callable[[MemberState], None]
    group_instance_id: str | None = None
    state: MemberState = MemberState.UNSUBSCRIBED
    member_epoch: int = JOIN_GROUP_EPOCH
    epoch_listeners: list[EpochListener] = field(default_factory=list)

    def transition(self, event: MemberEvent) -> None:
        """Goes to the state after an event, and tells it, also where it is the same.

        Raises:
            ClientException: the event can't happen in this state (IllegalStateException).
        """
        self.state = next_state(self.state, event)
        self.on_transition(self.state)

    def update_epoch(self, epoch: int) -> None:
        """Takes an epoch; a change is told, as None where it says that the member isn't in the group."""
        changed = epoch != self.member_epoch
        self.member_epoch = epoch
        if changed:
            self.notify_epoch(epoch if epoch > 0 else None)

    def notify_epoch(self, epoch: int | None) -> None:
        """Tells an epoch to all that listen."""
        for listener in self.epoch_listeners:
            listener(epoch)

    @property
    def is_static(self) -> bool:
        """Whether the member has an instance id of its own."""
        return self.group_instance_id is not None


@dataclass
class GroupSnapshot:
    """What the application's thread knows of the group: the last epoch in it, and what was assigned last."""

    generation: int = -1
    assignment: set[TopicPartition] = field(default_factory=set)

    def on_member_epoch(self, epoch: int | None) -> None:
        """Takes an epoch in the group; leaving it changes nothing here."""
        if epoch is not None:
            self.generation = epoch

    def on_assignment(self, partitions: set[TopicPartition]) -> None:
        """Takes the assigned partitions."""
        self.assignment = partitions

    def reset(self) -> None:
        """Forgets the epoch, for the application has unsubscribed."""
        self.generation = -1
