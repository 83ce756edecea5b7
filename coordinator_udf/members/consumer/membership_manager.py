"""How a member joins its group, stays in it and leaves it (AbstractMembershipManager, ConsumerMembershipManager)."""

from __future__ import annotations

from collections.abc import Callable

from coordinator_udf.members.consumer.assignment_manager import AssignmentManager
from coordinator_udf.members.consumer.background_events import BackgroundEvents, CallbackMethod
from coordinator_udf.members.consumer.futures import CompletableFuture
from coordinator_udf.members.consumer.group_state import (
    JOIN_GROUP_EPOCH,
    LEAVE_GROUP_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    GroupState,
)
from coordinator_udf.members.consumer.network_client import Body, PollResult
from coordinator_udf.members.consumer.reconciler import Reconciler
from coordinator_udf.members.consumer.states import (
    HEARTBEAT_NOW,
    LEAVING,
    NOT_IN_GROUP,
    TAKES_ASSIGNMENT,
    WITHOUT_HEARTBEATS,
    MemberEvent,
    MemberState,
)
from coordinator_udf.members.exceptions import ClientException
from coordinator_udf.members.inputs import Membership, TopicPartition
from coordinator_udf.members.subscription_state import SubscriptionState


class MembershipManager:
    """Moves a member from state to state.

    Attributes:
        leave_operation: what close said about the membership.
    """

    def __init__(
        self,
        group: GroupState,
        *,
        subscriptions: SubscriptionState,
        assignments: AssignmentManager,
        reconciler: Reconciler,
        events: BackgroundEvents,
        on_assignment: Callable[[set[TopicPartition]], None],
    ) -> None:
        """``on_assignment`` is told of each change of the assigned partitions (onGroupAssignmentUpdated)."""
        self._group = group
        self._subscriptions = subscriptions
        self._assignments = assignments
        self._reconciler = reconciler
        self._events = events
        self._on_assignment = on_assignment
        self._subscription_updated = False
        self._poll_timer_expired = False
        self._leave_in_progress: CompletableFuture[None] | None = None
        self._stale_release: CompletableFuture[None] | None = None
        self.leave_operation = Membership.DEFAULT

    # ---- what others ask

    @property
    def state(self) -> MemberState:
        """The member's state."""
        return self._group.state

    def is_leaving_group(self) -> bool:
        """Tells whether the member is about to leave, and will say so."""
        if self.leave_operation is Membership.REMAIN_IN_GROUP and not self._group.is_static:
            return False
        return self.state in LEAVING

    def should_heartbeat_now(self) -> bool:
        """Tells whether the next heartbeat doesn't wait for the interval."""
        return self.state in HEARTBEAT_NOW

    def should_skip_heartbeat(self) -> bool:
        """Tells whether the member sends no heartbeats in its state."""
        return self.state in WITHOUT_HEARTBEATS

    def poll(self) -> PollResult:
        """Reconciles what needs neither a commit nor a revocation."""
        self._reconciler.maybe_reconcile(can_commit=False)
        return PollResult()

    # ---- answers

    def on_heartbeat_success(self, body: Body) -> None:
        """Takes an answer without error: an epoch, and perhaps an assignment."""
        epoch = body["memberEpoch"]
        state = self.state
        if state is MemberState.LEAVING:
            return
        if state is MemberState.UNSUBSCRIBED and epoch < 0 and self._complete_leave():
            return
        if state in NOT_IN_GROUP:
            return
        if epoch < 0:
            self._complete_leave()
            return
        self._group.update_epoch(epoch)
        assignment = body.get("assignment")
        if assignment is None or state not in TAKES_ASSIGNMENT:
            return
        self._assignments.receive(
            {each["topicId"]: frozenset(each["partitions"]) for each in assignment["topicPartitions"]}
        )
        if not self._assignments.is_reconciled:
            self._group.transition(MemberEvent.ASSIGNMENT_RECEIVED)
        elif state in (MemberState.RECONCILING, MemberState.JOINING):
            self._group.transition(MemberEvent.ASSIGNMENT_IN_EFFECT)

    def on_heartbeat_failure(self) -> None:
        """Takes a failed heartbeat: one that leaves isn't sent again."""
        if self.state is MemberState.UNSUBSCRIBED:
            self._complete_leave()

    def on_heartbeat_generated(self) -> None:
        """Goes on now that the heartbeat that the state waited for is made."""
        if self.state is MemberState.ACKNOWLEDGING:
            done = self._assignments.is_reconciled
            self._group.transition(MemberEvent.ACKNOWLEDGED if done else MemberEvent.ACKNOWLEDGED_IN_PART)
        elif self.state is MemberState.LEAVING:
            if self._poll_timer_expired:
                self._transition_to_stale()
            else:
                self._group.transition(MemberEvent.LEAVE_SENT)

    def on_heartbeat_skipped(self) -> None:
        """Gives up leaving with a heartbeat, for none can be sent."""
        if self.state is MemberState.LEAVING:
            self._group.transition(MemberEvent.LEFT_UNSENT)
            self._complete_leave()

    # ---- joining

    def on_subscription_updated(self) -> None:
        """Notes that the next poll is to join, where the member isn't in the group."""
        self._subscription_updated = True

    def on_consumer_poll(self) -> None:
        """Joins after a subscription."""
        if self._subscription_updated:
            self._subscription_updated = False
            if self.state is MemberState.UNSUBSCRIBED:
                self._transition_to_joining(MemberEvent.SUBSCRIBED)

    def maybe_rejoin_stale_member(self) -> None:
        """Joins again, as the application polls again, once the partitions are given up."""
        self._poll_timer_expired = False
        if self.state is MemberState.STALE and self._stale_release is not None:
            self._stale_release.when_complete(lambda _, error: self._transition_to_joining(MemberEvent.POLLED_AGAIN))

    def _transition_to_joining(self, event: MemberEvent) -> None:
        if self.state is MemberState.FATAL:
            return
        self._reconciler.on_rejoin()
        self._group.update_epoch(JOIN_GROUP_EPOCH)
        self._group.transition(event)
        self._assignments.clear_target()

    # ---- fenced, fatal, stale

    def transition_to_fenced(self) -> None:
        """Gives up the partitions without revoking them, and joins again under the same id."""
        if self.state is MemberState.PREPARE_LEAVING:
            self.transition_to_sending_leave_group(poll_timer_expired=False)
            self._group.transition(MemberEvent.LEFT_UNSENT)
            self._complete_leave()
            return
        if self.state is MemberState.LEAVING:
            self._group.transition(MemberEvent.LEFT_UNSENT)
            self._complete_leave()
            return
        if self.state is MemberState.UNSUBSCRIBED:
            return
        self._group.transition(MemberEvent.MEMBER_FENCED)
        self._group.update_epoch(JOIN_GROUP_EPOCH)

        def after_callback(_: None, error: ClientException | None) -> None:
            self._clear_assignment()
            if self.state is MemberState.FENCED:
                self._transition_to_joining(MemberEvent.LOST_ASSIGNMENT_RELEASED)

        self._lose_assignment().when_complete(after_callback)

    def transition_to_fatal(self) -> None:
        """Ends the membership for good."""
        before = self.state
        self._group.transition(MemberEvent.FATAL_ERROR)
        self._group.notify_epoch(None)
        if before is MemberState.UNSUBSCRIBED and self._complete_leave():
            return
        if before in LEAVING:
            self._complete_leave()
            return
        self._lose_assignment().when_complete(lambda _, error: self._clear_assignment())

    def _transition_to_stale(self) -> None:
        self._group.transition(MemberEvent.LEAVE_SENT_BY_POLL_TIMER)
        self._stale_release = self._lose_assignment().when_complete(lambda _, error: self._clear_assignment())

    def _lose_assignment(self) -> CompletableFuture[None]:
        lost = self._subscriptions.assigned_partitions()
        self._subscriptions.mark_pending_revocation(lost)
        return self._events.remove(CallbackMethod.ON_PARTITIONS_LOST, lost)

    # ---- leaving

    def leave_group_on_close(self, operation: Membership) -> CompletableFuture[None]:
        """Leaves as close asks for; the application's thread has run the callbacks. Returns the end of it."""
        self.leave_operation = operation
        return self._leave_group(run_callbacks=False)

    def leave_group(self) -> CompletableFuture[None]:
        """Gives up the partitions with their callback and leaves. Returns the end of it."""
        return self._leave_group(run_callbacks=True)

    def _leave_group(self, *, run_callbacks: bool) -> CompletableFuture[None]:
        if self.state in NOT_IN_GROUP:
            if self.state is MemberState.FENCED:
                self._clear_assignment()
                self._group.transition(MemberEvent.LEFT_UNSENT)
            self._subscriptions.unsubscribe()
            self._on_assignment(set())
            return CompletableFuture.completed(None)
        if self._leave_in_progress is not None and self.state in LEAVING:
            return self._leave_in_progress
        self._group.transition(MemberEvent.LEAVE_CALLED)
        left: CompletableFuture[None] = CompletableFuture()
        self._leave_in_progress = left

        def after_callback(_: None, error: ClientException | None) -> None:
            self._subscriptions.unsubscribe()
            self._clear_assignment()
            self.transition_to_sending_leave_group(poll_timer_expired=False)

        released = self._release_assignment() if run_callbacks else CompletableFuture.completed(None)
        released.when_complete(after_callback)
        return left

    def _release_assignment(self) -> CompletableFuture[None]:
        dropped = frozenset(self._subscriptions.assigned_partitions())
        if not dropped:
            return CompletableFuture.completed(None)
        if self._group.member_epoch > 0:
            return self._reconciler.revoke(dropped)
        return self._events.remove(CallbackMethod.ON_PARTITIONS_LOST, dropped)

    def transition_to_sending_leave_group(self, *, poll_timer_expired: bool) -> None:
        """Makes the heartbeat that leaves due."""
        if self.state in (MemberState.FATAL, MemberState.UNSUBSCRIBED):
            return
        if poll_timer_expired:
            self._poll_timer_expired = True
            self._group.transition(MemberEvent.POLL_TIMER_EXPIRED)
        self._group.update_epoch(self._leave_epoch())
        self._assignments.drop_current()
        self._group.transition(MemberEvent.READY_TO_LEAVE)

    def _leave_epoch(self) -> int:
        if self._group.is_static and self.leave_operation is not Membership.LEAVE_GROUP:
            return LEAVE_GROUP_STATIC_MEMBER_EPOCH
        return LEAVE_GROUP_EPOCH

    def _complete_leave(self) -> bool:
        """Tells who waits for it that the member has left. Returns whether anybody did."""
        left = self._leave_in_progress
        if left is None:
            return False
        # Forgotten only after those who wait have been told.
        left.complete(None)
        self._leave_in_progress = None
        return True

    # ---- the assignment in effect

    def apply_assignment(self, assigned: tuple[TopicPartition, ...], added: tuple[TopicPartition, ...]) -> None:
        """Puts an assignment into effect; the application has taken it from its queue.

        Raises:
            ClientException: there is no subscription any more (IllegalArgumentException).
        """
        self._subscriptions.assign_awaiting_callback(assigned, added)
        self._on_assignment(set(assigned))

    def _clear_assignment(self) -> None:
        if self._subscriptions.is_subscribed:
            self._subscriptions.assign_from_subscribed(())
            self._on_assignment(set())
        self._assignments.clear()
