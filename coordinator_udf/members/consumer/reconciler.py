"""How a new assignment takes effect: commit, revoke, assign, acknowledge (AbstractMembershipManager.maybeReconcile).

Each step may end later: a commit with its answer, a callback with the application. Meanwhile heartbeats go on, and what
else happens may end the member's stay: then the reconciliation is given up at its next step.
"""

from __future__ import annotations

from collections.abc import Callable

from coordinator_udf.members.consumer.assignment_manager import AssignmentManager, ResolvedAssignment
from coordinator_udf.members.consumer.background_events import BackgroundEvents, CallbackMethod
from coordinator_udf.members.consumer.commit_request_manager import CommitRequestManager
from coordinator_udf.members.consumer.futures import CompletableFuture
from coordinator_udf.members.consumer.group_state import GroupState
from coordinator_udf.members.consumer.states import MemberEvent, MemberState
from coordinator_udf.members.exceptions import ClientException, kafka_exception
from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.members.subscription_state import SubscriptionState


class Reconciler:
    """Runs one reconciliation at a time."""

    def __init__(
        self,
        group: GroupState,
        *,
        assignments: AssignmentManager,
        subscriptions: SubscriptionState,
        commits: CommitRequestManager,
        events: BackgroundEvents,
        rebalance_deadline_ms: Callable[[], int],
        tell_assignors: Callable[[frozenset[TopicPartition]], None],
    ) -> None:
        """``tell_assignors`` gives the member's own assignors its assignment, before the application is told."""
        self._group = group
        self._assignments = assignments
        self._subscriptions = subscriptions
        self._commits = commits
        self._events = events
        self._rebalance_deadline_ms = rebalance_deadline_ms
        self._tell_assignors = tell_assignors
        self._in_progress = False
        self._rejoined_meanwhile = False

    def on_rejoin(self) -> None:
        """Has a reconciliation under way given up, for it belongs to an earlier stay in the group."""
        if self._in_progress:
            self._rejoined_meanwhile = True

    def maybe_reconcile(self, *, can_commit: bool) -> None:
        """Starts to reconcile if there is something to. Only a poll of the application may commit or revoke for it.

        Raises:
            ClientException: a partition to revoke isn't assigned any more (IllegalStateException).
        """
        if self._group.state is not MemberState.RECONCILING or self._assignments.is_reconciled or self._in_progress:
            return
        resolved = self._assignments.resolve()
        current = self._assignments.current
        if not current.is_none and resolved.local.partitions == current.partitions:
            self._assignments.current = resolved.local
            self._group.transition(MemberEvent.RECONCILED)
            return
        owned = self._subscriptions.assigned_partitions()
        added = resolved.partitions - owned
        revoked = frozenset(owned - resolved.partitions)
        if not can_commit and (self._commits.auto_commit_enabled or revoked):
            return
        self._in_progress, self._rejoined_meanwhile = True, False
        self._subscriptions.mark_pending_revocation(revoked)
        committed = self._commits.maybe_commit_before_rebalance(self._rebalance_deadline_ms())

        def after_commit(_: None, error: ClientException | None) -> None:
            # A commit that failed doesn't stop the reconciliation.
            if not self._maybe_abort():
                self._revoke_and_assign(resolved, revoked, added)

        committed.when_complete(after_commit)

    def revoke(self, partitions: frozenset[TopicPartition]) -> CompletableFuture[None]:
        """Has onPartitionsRevoked run for the partitions that are still assigned. Returns its end."""
        revoked = partitions & self._subscriptions.assigned_partitions()
        self._subscriptions.mark_pending_revocation(revoked)
        if self._group.state is MemberState.FATAL:
            failed: CompletableFuture[None] = CompletableFuture()
            failed.complete_exceptionally(kafka_exception("received a fatal error while waiting for a commit"))
            return failed
        return self._events.remove(CallbackMethod.ON_PARTITIONS_REVOKED, revoked)

    def _revoke_and_assign(
        self, resolved: ResolvedAssignment, revoked: frozenset[TopicPartition], added: frozenset[TopicPartition]
    ) -> None:
        def assign(_: None) -> CompletableFuture[None]:
            if self._maybe_abort():
                return CompletableFuture.completed(None)
            return self._assign(resolved.partitions, added)

        def done(_: None, error: ClientException | None) -> None:
            if error is not None:
                # The callback threw: the member stays RECONCILING and begins anew.
                self._end()
            elif self._in_progress and not self._maybe_abort():
                self._assignments.current = resolved.local
                self._commits.reset_auto_commit_timer()
                self._group.transition(MemberEvent.RECONCILED)
                self._end()

        revocation = self.revoke(revoked) if revoked else CompletableFuture.completed(None)
        revocation.then_compose(assign).when_complete(done)

    def _assign(
        self, partitions: frozenset[TopicPartition], added: frozenset[TopicPartition]
    ) -> CompletableFuture[None]:
        self._tell_assignors(partitions)
        assigned = self._events.assign(partitions, added)

        def after_callback(_: None, error: ClientException | None) -> None:
            if error is None:
                self._subscriptions.enable_after_callback(sorted(partitions))

        assigned.when_complete(after_callback)
        self._assignments.keep_names(partitions)
        return assigned

    def _maybe_abort(self) -> bool:
        """Gives up if the member has left RECONCILING, or has joined anew. Returns whether it did."""
        if self._group.state is MemberState.RECONCILING and not self._rejoined_meanwhile:
            return False
        self._end()
        return True

    def _end(self) -> None:
        self._in_progress = self._rejoined_meanwhile = False
