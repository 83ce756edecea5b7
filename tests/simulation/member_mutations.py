"""Takes checks out of members, to see what finds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

from coordinator_udf.members.backoff import ExponentialBackoff
from coordinator_udf.members.classic.commits import Commits
from coordinator_udf.members.classic.heartbeat_timers import HeartbeatTimers
from coordinator_udf.members.classic.heartbeats import HeartbeatLoop
from coordinator_udf.members.classic.join import Joining
from coordinator_udf.members.classic.leave import Leaving
from coordinator_udf.members.classic.membership import NO_GENERATION, Membership
from coordinator_udf.members.classic.rebalance import Rebalance
from coordinator_udf.members.classic.subscription_changes import SubscriptionChanges
from coordinator_udf.members.consumer.commit_request_manager import CommitRequestManager
from coordinator_udf.members.consumer.coordinator_request_manager import CoordinatorRequestManager
from coordinator_udf.members.consumer.futures import CompletableFuture
from coordinator_udf.members.consumer.group_state import LEAVE_GROUP_EPOCH
from coordinator_udf.members.consumer.heartbeat_request_manager import HeartbeatRequestManager
from coordinator_udf.members.consumer.membership_manager import MembershipManager
from coordinator_udf.members.consumer.network_client import PollResult
from coordinator_udf.members.consumer.reconciler import Reconciler
from coordinator_udf.members.consumer.request_state import HeartbeatRequestState
from coordinator_udf.members.exceptions import ClientException
from coordinator_udf.members.timers import Timer


def stay_when_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    def deaf(self: HeartbeatRequestManager, code: int, message: str | None) -> None:
        """Makes nothing of an error."""

    monkeypatch.setattr(HeartbeatRequestManager, "_on_error", deaf)


def never_send_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(self: HeartbeatTimers) -> bool:
        return False

    monkeypatch.setattr(HeartbeatTimers, "is_heartbeat_due", never)


def reconcile_while_reconciling(monkeypatch: pytest.MonkeyPatch) -> None:
    once = Reconciler.maybe_reconcile

    def anew(self: Reconciler, *, can_commit: bool) -> None:
        was_in_progress, self._in_progress = self._in_progress, False
        once(self, can_commit=can_commit)
        self._in_progress = self._in_progress or was_in_progress

    monkeypatch.setattr(Reconciler, "maybe_reconcile", anew)


def stay_when_a_classic_application_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeartbeatTimers, "is_poll_interval_over", lambda _: False)


def stay_when_a_consumer_application_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    poll = HeartbeatRequestManager.poll

    def patient(self: HeartbeatRequestManager, *arguments: Any) -> Any:
        self.poll_timer.reset(10**9)
        return poll(self, *arguments)

    monkeypatch.setattr(HeartbeatRequestManager, "poll", patient)


def never_join_again_for_another_subscription(monkeypatch: pytest.MonkeyPatch) -> None:
    joining = SubscriptionChanges.joining

    def once(self: SubscriptionChanges) -> frozenset[str]:
        return joining(self) if self._joined_with is None else self._joined_with

    monkeypatch.setattr(SubscriptionChanges, "joining", once)


def close_without_leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leaving, "_is_to_be_told", lambda *_: False)


def keep_the_generation_that_the_coordinator_knows_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Membership, "generation_lost", lambda *_, **__: None)


def go_on_with_what_an_earlier_stay_began(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reconciler, "_maybe_abort", lambda _: False)


def give_up_without_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def through(*_: Any) -> Generator[Any, Any, bool]:
        yield from ()
        return True

    monkeypatch.setattr(Rebalance, "_commit_before", through)


def reconcile_without_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    done: CompletableFuture[None] = CompletableFuture.completed(None)
    monkeypatch.setattr(CommitRequestManager, "maybe_commit_before_rebalance", lambda *_: done)


def commit_with_each_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Commits, "takes_auto_commit", lambda self, _: self._context.config.enable_auto_commit)


def commit_for_applications_that_do_so_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    once = Commits.close

    def close(self: Commits, timer: Timer) -> Any:
        yield from self.commit_sync(self._context.subscriptions.positions(), timer)
        yield from once(self, timer)

    monkeypatch.setattr(Commits, "close", close)


def try_again_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ExponentialBackoff, "backoff_ms", lambda *_: 0)


def tell_members_that_their_partitions_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    give_up = Rebalance._give_up
    monkeypatch.setattr(Rebalance, "_give_up", lambda self, _: give_up(self, NO_GENERATION))


def go_on_though_another_process_has_the_instance_id(monkeypatch: pytest.MonkeyPatch) -> None:
    def unmoved(self: HeartbeatLoop, _: Exception) -> Generator[Any, Any, None]:
        self._context.heartbeat.failed()
        yield from ()

    monkeypatch.setattr(HeartbeatLoop, "_failed", unmoved)


def try_again_whatever_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def again(self: Joining, _: Exception) -> bool:
        self._pending = None
        self._context.membership.request_rejoin("rebalance failed")
        return False

    monkeypatch.setattr(Joining, "_takes_failure", again)


def leave_as_a_static_member(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leaving, "_is_to_be_told", lambda self, _: bool(self._context.membership.generation.member_id))


def leave_for_good_as_a_static_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MembershipManager, "_leave_epoch", lambda _: LEAVE_GROUP_EPOCH)


def _stretch_classic_heartbeats(monkeypatch: pytest.MonkeyPatch, by: float) -> None:
    def reset(self: HeartbeatTimers) -> None:
        self._heartbeat.reset(int(by * self._config.heartbeat_interval_ms))

    monkeypatch.setattr(HeartbeatTimers, "_reset_heartbeat", reset)


def _stretch_consumer_heartbeats(monkeypatch: pytest.MonkeyPatch, by: float) -> None:
    update = HeartbeatRequestState.update_interval
    monkeypatch.setattr(HeartbeatRequestState, "update_interval", lambda self, told_ms: update(self, int(by * told_ms)))


def send_heartbeats_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    _stretch_consumer_heartbeats(monkeypatch, 20)


def tell_applications_that_close_that_their_partitions_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    give_up = Leaving.give_up_partitions

    def lose(self: Leaving) -> Generator[Any, Any, None]:
        told = self._context.callbacks
        monkeypatch.setattr(told, "revoked", told.lost)
        yield from give_up(self)

    monkeypatch.setattr(Leaving, "give_up_partitions", lose)


def ask_for_the_coordinator_on_and_on(monkeypatch: pytest.MonkeyPatch) -> None:
    poll = CoordinatorRequestManager.poll

    def asks(self: CoordinatorRequestManager, now_ms: int) -> PollResult:
        coordinator, self.coordinator = self.coordinator, None
        result = poll(self, now_ms)
        self.coordinator = coordinator
        return result

    monkeypatch.setattr(CoordinatorRequestManager, "poll", asks)


def tell_applications_what_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = CoordinatorRequestManager._on_failure

    def tells(self: CoordinatorRequestManager, now_ms: int, error: ClientException) -> None:
        failed(self, now_ms, error)
        self.fatal_error = error

    monkeypatch.setattr(CoordinatorRequestManager, "_on_failure", tells)


def send_heartbeats_twice_as_often(monkeypatch: pytest.MonkeyPatch) -> None:
    _stretch_classic_heartbeats(monkeypatch, 0.5)
    _stretch_consumer_heartbeats(monkeypatch, 0.5)


def send_classic_heartbeats_half_as_often(monkeypatch: pytest.MonkeyPatch) -> None:
    _stretch_classic_heartbeats(monkeypatch, 2)


def send_consumer_heartbeats_half_as_often(monkeypatch: pytest.MonkeyPatch) -> None:
    _stretch_consumer_heartbeats(monkeypatch, 2)


def commit_in_every_third_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    takes = Commits.takes_auto_commit
    due: Counter[Commits] = Counter()

    def seldom(self: Commits, now_ms: int) -> bool:
        is_due = takes(self, now_ms)
        due[self] += is_due
        return is_due and due[self] % 3 == 0

    monkeypatch.setattr(Commits, "takes_auto_commit", seldom)


def stop_heartbeats_without_a_word_when_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    step = HeartbeatLoop.step

    def quietly(self: HeartbeatLoop) -> Generator[Any, Any, bool]:
        goes_on = yield from step(self)
        if self.failure is not None:
            self.failure = None
            self.close()
        return goes_on

    monkeypatch.setattr(HeartbeatLoop, "step", quietly)


def call_back_to_give_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    give_up = Rebalance._give_up

    def always(self: Rebalance, generation: Any) -> Generator[Any, Any, Any]:
        if not generation.is_out:
            yield from self._context.callbacks.revoked(set())
        return (yield from give_up(self, generation))

    monkeypatch.setattr(Rebalance, "_give_up", always)
