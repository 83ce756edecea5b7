"""Commits of offsets: asynchronous, synchronous and automatic (ConsumerCoordinator)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from coordinator_udf.members.classic import requests
from coordinator_udf.members.classic.answers import OffsetCommitAnswer
from coordinator_udf.members.classic.commit_answers import CommitAnswers
from coordinator_udf.members.classic.context import Context
from coordinator_udf.members.classic.coordinator_requests import CoordinatorRequests, coordinator_not_available
from coordinator_udf.members.classic.discovery import CoordinatorDiscovery
from coordinator_udf.members.classic.flow import Flow, sleep
from coordinator_udf.members.classic.membership import NO_GENERATION
from coordinator_udf.members.classic.request_future import RequestFuture
from coordinator_udf.members.exceptions import ClientException, illegal_argument
from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.members.timers import Timer

Offsets = Mapping[TopicPartition, int]
Callback = Callable[[ClientException | None], None]


class Commits:
    """A member's commits. The callbacks of asynchronous ones run inside of the application's later calls."""

    def __init__(self, context: Context, discovery: CoordinatorDiscovery, sender: CoordinatorRequests) -> None:
        self._context = context
        self._discovery = discovery
        self._sender = sender
        self._answers = CommitAnswers(context, discovery)
        self._completed: deque[tuple[Callback, ClientException | None]] = deque()
        self._in_flight = 0
        self._waiting_for_coordinator = 0
        self._is_fenced = False
        self._next_auto_commit = context.timer(context.config.auto_commit_interval_ms)

    # ---- the application's commits

    def run_callbacks(self) -> None:
        """Tells the application what came of its asynchronous commits.

        Raises:
            ClientException: one of them was fenced (FencedInstanceIdException), now and in every later call.
        """
        if self._is_fenced:
            raise ClientException(
                "FencedInstanceIdException",
                f"Get fenced exception for group.instance.id {self._context.config.group_instance_id}",
            )
        while self._completed:
            callback, error = self._completed.popleft()
            callback(error)

    def commit_async(self, offsets: Offsets, callback: Callback) -> Flow[RequestFuture[None] | None]:
        """Commits without waiting. Returns the commit, or None if the coordinator has to be found first."""
        self.run_callbacks()
        commit: RequestFuture[None] | None = None
        if not offsets or self._discovery.coordinator is not None or (yield from self._find_coordinator()):
            commit = yield from self._commit_async(offsets, callback)
        else:
            self._waiting_for_coordinator += 1

            def found(_: None) -> Flow[None]:
                self._waiting_for_coordinator -= 1
                yield from self._commit_async(offsets, callback)
                yield from self._context.client.poll_no_wakeup()

            def not_found(error: ClientException) -> Flow[None]:
                self._waiting_for_coordinator -= 1
                self._completed.append((callback, _retriable_commit_failed(error)))
                yield from ()

            lookup = yield from self._discovery.look_up()
            yield from lookup.listen(found, not_found)
        yield from self._context.client.poll_no_wakeup()
        return commit

    def commit_sync(self, offsets: Offsets, timer: Timer) -> Flow[bool]:
        """Commits and waits up to the timer's end. Returns whether it was done.

        Raises:
            ClientException: of an error that another attempt would meet again.
        """
        self.run_callbacks()
        if not offsets:
            return (yield from self._await_asynchronous(timer))
        attempts = 0
        while True:
            if self._discovery.coordinator is None and not (yield from self._discovery.ensure_ready(timer)):
                return False
            commit = yield from self._send(offsets)
            yield from self._context.client.poll_for(commit, timer)
            self.run_callbacks()
            if commit.is_done:
                if commit.exception is None:
                    return True
                if not commit.exception.retriable:
                    raise commit.exception
            yield from sleep(timer, self._context.clock, self._context.backoff.backoff_ms(attempts))
            attempts += 1
            if timer.is_expired():
                return False

    # ---- automatic commits

    def auto_commit_deadline_ms(self) -> int | None:
        """Returns when the next automatic commit is due, or None where there is none."""
        return self._next_auto_commit.deadline_ms if self._context.config.enable_auto_commit else None

    def takes_auto_commit(self, now_ms: int) -> bool:
        """Tells whether auto.commit.interval.ms is over, and counts it anew if it is.

        Args:
            now_ms: the time at which the poll began.
        """
        if not self._context.config.enable_auto_commit:
            return False
        self._next_auto_commit.update(now_ms)
        if not self._next_auto_commit.is_expired():
            return False
        self._next_auto_commit.reset(self._context.config.auto_commit_interval_ms)
        return True

    def auto_commit(self) -> Flow[RequestFuture[None] | None]:
        """Commits all positions without waiting."""
        return (yield from self.commit_async(self._context.subscriptions.positions(), self._auto_committed))

    def restart_auto_commit(self) -> None:
        """Counts auto.commit.interval.ms from now, for an assignment has come."""
        self._next_auto_commit.update()
        self._next_auto_commit.reset(self._context.config.auto_commit_interval_ms)

    def close(self, timer: Timer) -> Flow[None]:
        """Commits all positions if that is automatic, and sends what still waits for a coordinator."""
        if self._context.config.enable_auto_commit:
            # As with asynchronous automatic commits, the application isn't told of a failure; Kafka logs it.
            with suppress(ClientException):
                yield from self.commit_sync(self._context.subscriptions.positions(), timer)
        while self._waiting_for_coordinator and not timer.is_expired():
            yield from self._discovery.ensure_ready(timer)
            yield from self._context.client.poll(timer)
            self.run_callbacks()

    def _auto_committed(self, error: ClientException | None) -> None:
        if error is not None and error.class_name == "RetriableCommitFailedException":
            self._next_auto_commit.update()
            self._next_auto_commit.reset(self._context.config.retry_backoff_ms)

    # ---- one commit

    def _find_coordinator(self) -> Flow[bool]:
        return (yield from self._discovery.ensure_ready(self._context.timer(0)))

    def _commit_async(self, offsets: Offsets, callback: Callback) -> Flow[RequestFuture[None]]:
        commit = yield from self._send(offsets)
        self._in_flight += 1

        def succeeded(_: None) -> Flow[None]:
            self._in_flight -= 1
            self._completed.append((callback, None))
            yield from ()

        def failed(error: ClientException) -> Flow[None]:
            self._in_flight -= 1
            told = _retriable_commit_failed(error) if error.retriable else error
            self._completed.append((callback, told))
            self._is_fenced = self._is_fenced or told.class_name == "FencedInstanceIdException"
            yield from ()

        yield from commit.listen(succeeded, failed)
        return commit

    def _await_asynchronous(self, timer: Timer) -> Flow[bool]:
        attempts = 0
        while self._in_flight:
            yield from self._discovery.ensure_ready(timer)
            yield from self._context.client.poll(timer)
            self.run_callbacks()
            if not self._in_flight:
                break
            yield from sleep(timer, self._context.clock, self._context.backoff.backoff_ms(attempts))
            attempts += 1
            if timer.is_expired():
                return False
        return True

    def _send(self, offsets: Offsets) -> Flow[RequestFuture[None]]:
        if not offsets:
            return RequestFuture.success(None)
        if self._discovery.coordinator is None:
            return coordinator_not_available()
        negative = next((offset for offset in offsets.values() if offset < 0), None)
        if negative is not None:
            return RequestFuture.failure(illegal_argument(f"Invalid offset: {negative}"))
        config, membership = self._context.config, self._context.membership
        generation, instance_id = membership.generation_if_stable, config.group_instance_id
        if not self._context.subscriptions.is_subscribed:
            generation, instance_id = NO_GENERATION, None
        if generation is None:
            return RequestFuture.failure(_not_in_group(is_rebalancing=membership.is_rebalancing))
        sent = generation

        def handle(answer: OffsetCommitAnswer, result: RequestFuture[None]) -> Flow[None]:
            yield from self._answers.handle(answer, sent, result)

        request = requests.offset_commit(
            config.group_id, sent.member_id, instance_id, sent.generation_id, _topics(offsets)
        )
        return (yield from self._sender.send(request, OffsetCommitAnswer, handle))


def _topics(offsets: Offsets) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, []).append(
            {
                "partitionIndex": partition,
                "committedOffset": offset,
                "committedLeaderEpoch": -1,
                "committedMetadata": "",
            }
        )
    return [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]


def _retriable_commit_failed(cause: ClientException) -> ClientException:
    return ClientException(
        "RetriableCommitFailedException",
        "Offset commit failed with a retriable exception. You should retry committing the latest consumed offsets.",
        retriable=True,
        cause=cause,
    )


def _not_in_group(*, is_rebalancing: bool) -> ClientException:
    if is_rebalancing:
        return ClientException(
            "RebalanceInProgressException",
            "Offset commit cannot be completed since the consumer is undergoing a rebalance for auto partition "
            "assignment. You can try completing the rebalance by calling poll() and then retry the operation.",
        )
    return ClientException(
        "CommitFailedException",
        "Offset commit cannot be completed since the consumer is not part of an active group for auto partition "
        "assignment; it is likely that the consumer was kicked out of the group.",
    )
