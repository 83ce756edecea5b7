"""What is committed, when, and what becomes of it (CommitRequestManager)."""

from __future__ import annotations

from collections.abc import Callable

from coordinator_udf.members.backoff import ExponentialBackoff
from coordinator_udf.members.consumer.coordinator_request_manager import CoordinatorRequestManager
from coordinator_udf.members.consumer.futures import CompletableFuture
from coordinator_udf.members.consumer.network_client import EMPTY, PollResult, UnsentRequest
from coordinator_udf.members.consumer.offset_commit_request import MemberInfo, OffsetCommitRequest, Offsets
from coordinator_udf.members.exceptions import ClientException, timeout_exception
from coordinator_udf.members.metadata import ConsumerMetadata
from coordinator_udf.members.subscription_state import SubscriptionState
from coordinator_udf.members.timers import FOREVER_MS, Clock, Timer


class AutoCommit:
    """When offsets are committed by themselves: an interval after the last time, and not twice at once."""

    def __init__(self, clock: Clock, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._timer = Timer(clock, interval_ms)
        self.in_flight = False

    def is_due(self) -> bool:
        """Tells whether the interval was over at the last update, and no commit of this kind is on its way."""
        return self._timer.is_expired() and not self.in_flight

    @property
    def deadline_ms(self) -> int:
        """When the interval is over."""
        return self._timer.deadline_ms

    def update(self) -> None:
        """Looks at the clock."""
        self._timer.update()

    def reset(self, wait_ms: int | None = None) -> None:
        """Starts the interval anew, or a shorter wait."""
        self._timer.reset(self._interval_ms if wait_ms is None else wait_ms)


class CommitRequestManager:
    """Keeps the commits that wait to be sent, in their order."""

    def __init__(
        self,
        clock: Clock,
        *,
        member: MemberInfo,
        subscriptions: SubscriptionState,
        metadata: ConsumerMetadata,
        coordinators: CoordinatorRequestManager,
        backoff: Callable[[], ExponentialBackoff],
        retry_backoff_ms: int,
        auto_commit: AutoCommit | None,
    ) -> None:
        self._clock = clock
        self._member = member
        self._subscriptions = subscriptions
        self._metadata = metadata
        self._coordinators = coordinators
        self._backoff = backoff
        self._retry_backoff_ms = retry_backoff_ms
        self._auto_commit = auto_commit
        self._unsent: list[OffsetCommitRequest] = []
        self._closing = False

    @property
    def auto_commit_enabled(self) -> bool:
        """Whether offsets are committed by themselves."""
        return self._auto_commit is not None

    def auto_commit_deadline_ms(self) -> int | None:
        """Returns when the next commit by itself is due; None where there is none, or the last one isn't done."""
        if self._auto_commit is None or (
            self._auto_commit.in_flight and self._auto_commit.deadline_ms <= self._clock.now_ms
        ):
            return None
        return self._auto_commit.deadline_ms

    def on_member_epoch(self, epoch: int | None, member_id: str) -> None:
        """Takes the member's id and epoch, which every commit holds."""
        self._member.member_id, self._member.member_epoch = member_id, epoch

    def signal_close(self) -> None:
        """Waits for no backoff any more, nor for a coordinator."""
        self._closing = True

    # ---- what is sent

    def poll(self, now_ms: int) -> PollResult:
        """Returns the commits that may be sent now."""
        if self._coordinators.coordinator is None:
            self._fail_without_coordinator()
            return EMPTY
        if self._closing:
            return PollResult(tuple(self._drain_all()))
        if not self._unsent:
            return EMPTY
        requests = self._drain_sendable(now_ms)
        waits = [request.remaining_backoff_ms(now_ms) for request in self._unsent]
        return PollResult(tuple(requests), min(waits, default=FOREVER_MS))

    def on_poll_done(self) -> None:
        """Lets the auto-commit timer see the time of this round (maximumTimeToWait)."""
        if self._auto_commit is not None:
            self._auto_commit.update()

    def _fail_without_coordinator(self) -> None:
        error = self._coordinators.fatal_error
        if error is not None:
            for request in list(self._unsent):
                request.committed.complete_exceptionally(error)
            self._unsent.clear()
        if self._closing and self._unsent:
            message = "Failed to commit offsets: Coordinator unknown and consumer is closing"
            for unsent in self._drain_all():
                unsent.fail(unsent.completed_ms, ClientException("CommitFailedException", message))

    def _drain_all(self) -> list[UnsentRequest]:
        requests = [request.to_unsent() for request in self._unsent]
        self._unsent.clear()
        return requests

    def _drain_sendable(self, now_ms: int) -> list[UnsentRequest]:
        waiting = [request for request in self._unsent if not request.can_send(now_ms)]
        for request in list(self._unsent):
            request.expire(self._remove)
        sent = []
        for request in self._unsent:
            if request.can_send(now_ms):
                request.on_send()
                sent.append(request.to_unsent())
        self._unsent = waiting
        return sent

    def _remove(self, request: OffsetCommitRequest) -> None:
        if request in self._unsent:
            self._unsent.remove(request)

    # ---- what the application asks for

    def commit_async(self, offsets: Offsets) -> CompletableFuture[Offsets]:
        """Commits once. What may be tried again fails with RetriableCommitFailedException."""
        if not offsets:
            return CompletableFuture.completed({})
        request = self._request(offsets, FOREVER_MS)
        self._unsent.append(request)
        result: CompletableFuture[Offsets] = CompletableFuture()

        def done(_: None, error: ClientException | None) -> None:
            if error is None:
                result.complete(offsets)
            elif error.retriable:
                result.complete_exceptionally(
                    ClientException("RetriableCommitFailedException", error.message, retriable=True, cause=error)
                )
            else:
                result.complete_exceptionally(error)

        request.committed.when_complete(done)
        return result

    def commit_sync(self, offsets: Offsets, deadline_ms: int) -> CompletableFuture[Offsets]:
        """Commits, and again after errors that may be tried again, until the deadline."""
        if not offsets:
            return CompletableFuture.completed({})
        result: CompletableFuture[Offsets] = CompletableFuture()
        self._commit_sync_attempt(self._request(offsets, deadline_ms), result)
        return result

    def _commit_sync_attempt(self, request: OffsetCommitRequest, result: CompletableFuture[Offsets]) -> None:
        self._unsent.append(request)

        def done(_: None, error: ClientException | None) -> None:
            if error is None:
                result.complete(request.offsets)
            elif not error.retriable:
                result.complete_exceptionally(_commit_sync_exception(error))
            elif request.is_expired():
                result.complete_exceptionally(_as_timeout(error))
            else:
                request.reset_future()
                self._commit_sync_attempt(request, result)

        request.committed.when_complete(done)

    # ---- what is committed by itself

    def update_timer_and_maybe_commit(self) -> None:
        """Commits all positions if the interval is over; the interval starts anew, whether or not there were any."""
        if self._auto_commit is None:
            return
        self._auto_commit.update()
        if not self._auto_commit.is_due():
            return
        result = self._request_auto_commit(self._request(self._subscriptions.positions(), FOREVER_MS))
        self.reset_auto_commit_timer()
        result.when_complete(self._after_auto_commit)

    def reset_auto_commit_timer(self, wait_ms: int | None = None) -> None:
        """Starts the interval anew, or a shorter wait."""
        if self._auto_commit is not None:
            self._auto_commit.reset(wait_ms)

    def maybe_commit_before_rebalance(self, deadline_ms: int) -> CompletableFuture[None]:
        """Commits all positions if they are committed by themselves, and again until the deadline."""
        if self._auto_commit is None:
            return CompletableFuture.completed(None)
        result: CompletableFuture[None] = CompletableFuture()
        self._before_rebalance_attempt(self._request(self._subscriptions.positions(), deadline_ms), result)
        return result

    def _before_rebalance_attempt(self, request: OffsetCommitRequest, result: CompletableFuture[None]) -> None:
        def done(_: None, error: ClientException | None) -> None:
            if error is None:
                result.complete(None)
            elif not (error.retriable or self._is_stale_and_has_epoch(error)):
                result.complete_exceptionally(error)
            elif request.is_expired():
                result.complete_exceptionally(_as_timeout(error))
            elif error.class_name == "UnknownTopicOrPartitionException":
                result.complete_exceptionally(error)
            else:
                request.offsets = self._subscriptions.positions()
                request.reset_future()
                self._before_rebalance_attempt(request, result)

        self._request_auto_commit(request).when_complete(done)

    def _request_auto_commit(self, request: OffsetCommitRequest) -> CompletableFuture[None]:
        if not request.offsets:
            return CompletableFuture.completed(None)
        assert self._auto_commit is not None
        auto_commit = self._auto_commit
        auto_commit.in_flight = True
        self._unsent.append(request)

        def done(_: None, error: ClientException | None) -> None:
            auto_commit.in_flight = False

        request.committed.when_complete(done)
        return request.committed

    def _after_auto_commit(self, _: None, error: ClientException | None) -> None:
        if error is not None and error.class_name == "RetriableCommitFailedException":
            self.reset_auto_commit_timer(self._retry_backoff_ms)

    def _is_stale_and_has_epoch(self, error: ClientException) -> bool:
        return error.class_name == "StaleMemberEpochException" and self._member.member_epoch is not None

    def _request(self, offsets: Offsets, deadline_ms: int) -> OffsetCommitRequest:
        return OffsetCommitRequest(
            offsets,
            deadline_ms,
            clock=self._clock,
            backoff=self._backoff(),
            member=self._member,
            metadata=self._metadata,
            coordinators=self._coordinators,
        )


def _as_timeout(error: ClientException) -> ClientException:
    if error.class_name == "TimeoutException":
        return error
    return timeout_exception(f"the last attempt failed with {error.class_name}", error)


def _commit_sync_exception(error: ClientException) -> ClientException:
    if error.class_name == "StaleMemberEpochException":
        return ClientException("CommitFailedException", "OffsetCommit failed with stale member epoch.")
    return error
