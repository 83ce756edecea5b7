"""Heartbeats, and what else the background looks after while a member is in a group.

Source: AbstractCoordinator.HeartbeatThread.
"""

from __future__ import annotations

from coordinator_udf.members.classic import requests
from coordinator_udf.members.classic.answers import HeartbeatAnswer
from coordinator_udf.members.classic.context import Context
from coordinator_udf.members.classic.coordinator_requests import CoordinatorRequests
from coordinator_udf.members.classic.discovery import CoordinatorDiscovery
from coordinator_udf.members.classic.flow import Flow
from coordinator_udf.members.classic.leave import Leaving
from coordinator_udf.members.classic.membership import Generation, ResyncTold
from coordinator_udf.members.classic.request_future import RequestFuture
from coordinator_udf.members.classic.states import STEADY
from coordinator_udf.members.exceptions import ClientException, exception_for, kafka_exception
from coordinator_udf.members.timers import FOREVER_MS
from coordinator_udf.protocol.errors import Errors

_GENERATION_ERRORS = frozenset({Errors.ILLEGAL_GENERATION, Errors.UNKNOWN_MEMBER_ID, Errors.FENCED_INSTANCE_ID})


class HeartbeatLoop:
    """Kafka's heartbeat thread, a pass at a time: enabled by a good JoinGroup answer, idle while there is no group.

    Attributes:
        failure: what ended it; the application's next poll throws it.
    """

    def __init__(
        self,
        context: Context,
        discovery: CoordinatorDiscovery,
        sender: CoordinatorRequests,
        leaving: Leaving,
    ) -> None:
        self._context = context
        self._discovery = discovery
        self._sender = sender
        self._leaving = leaving
        self._enabled = False
        self._closed = False
        #: While the coordinator is unknown: when to look next.
        self._look_at_ms: int | None = None
        self.failure: ClientException | None = None

    @property
    def is_enabled(self) -> bool:
        """Whether it does anything."""
        return self._enabled and not self._closed

    def enable(self) -> None:
        """Begins, with all timers anew."""
        self._enabled = True
        self._context.heartbeat.reset_all()

    def close(self) -> None:
        """Ends for good."""
        self._closed = True

    def deadline_ms(self) -> int:
        """Returns when the next pass has something to do."""
        if not self._enabled or self._closed or self.failure is not None or self._context.membership.has_not_joined:
            return FOREVER_MS
        if self._discovery.coordinator is None:
            return self._context.clock.now_ms if self._look_at_ms is None else self._look_at_ms
        return self._context.heartbeat.deadline_ms

    def has_work(self) -> bool:
        """Tells whether a pass would do anything but poll the network."""
        if not self._enabled or self._closed:
            return False
        if self._discovery.coordinator is None or self._look_at_ms is not None or self.failure is not None:
            return True
        context = self._context
        return context.membership.has_not_joined or context.heartbeat.deadline_ms <= context.clock.now_ms

    def step(self) -> Flow[bool]:
        """Does one pass. Returns whether another one may have something to do at once."""
        if not self.is_enabled:
            return False
        try:
            return (yield from self._pass())
        except ClientException as error:
            self.failure = error
            self.close()
            return False

    def _pass(self) -> Flow[bool]:
        timers = self._context.heartbeat
        if self._context.membership.has_not_joined or self.failure is not None:
            self._enabled = False
            return False
        if self._context.client.depth == 0 and self._context.client.has_work():
            yield from self._context.client.poll_no_wakeup()
        if self._discovery.coordinator is None:
            yield from self._look_up_coordinator()
            return False
        self._look_at_ms = None
        if timers.is_session_over():
            self._discovery.mark_unknown()
        elif timers.is_poll_interval_over():
            yield from self._leaving.poll_interval_over()
        elif timers.is_heartbeat_due():
            timers.sent()
            beat = yield from self._send()
            yield from beat.listen(self._succeeded, self._failed)
        else:
            return False
        return True

    def _look_up_coordinator(self) -> Flow[None]:
        """Looks each retry.backoff.ms: clears a lookup that is still there, else looks up."""
        now_ms = self._context.clock.now_ms
        first_look = self._look_at_ms is None
        if not first_look and self._look_at_ms is not None and now_ms < self._look_at_ms:
            return
        self._look_at_ms = now_ms + self._context.config.retry_backoff_ms
        if first_look:
            return
        self._context.client.progress += 1
        if self._discovery.is_looking:
            self._discovery.clear_lookup()
        else:
            yield from self._discovery.look_up()

    def _succeeded(self, _: None) -> Flow[None]:
        self._context.heartbeat.received()
        yield from ()

    def _failed(self, error: ClientException) -> Flow[None]:
        if error.class_name == "RebalanceInProgressException":
            # A member goes on to say that it is alive while the group rebalances.
            self._context.heartbeat.received()
        elif error.class_name == "FencedInstanceIdException":
            self.failure = error
        else:
            self._context.heartbeat.failed()
        yield from ()

    def _send(self) -> Flow[RequestFuture[None]]:
        config = self._context.config
        sent = self._context.membership.generation

        def handle(answer: HeartbeatAnswer, result: RequestFuture[None]) -> Flow[None]:
            if answer.error_code == Errors.NONE and answer.resync_epoch and self._context.config.client_extensions:
                self._told_of_resync(ResyncTold(answer.resync_epoch, answer.give_up_first), sent)
            yield from self._answered(answer.error_code, sent, result)

        request = requests.heartbeat(config.group_id, sent.member_id, config.group_instance_id, sent.generation_id)
        return (yield from self._sender.send(request, HeartbeatAnswer, handle))

    def _told_of_resync(self, told: ResyncTold, sent: Generation) -> None:
        """Leaves it to the application's next poll to ask for the assignment."""
        membership = self._context.membership
        is_steady = membership.generation == sent and membership.state in STEADY
        if is_steady and told.epoch >= membership.resync_epoch:
            membership.resync_announced(told)

    def _answered(self, error: int, sent: Generation, result: RequestFuture[None]) -> Flow[None]:
        membership = self._context.membership
        if error == Errors.NONE:
            yield from result.complete(None)
        elif error in (Errors.COORDINATOR_NOT_AVAILABLE, Errors.NOT_COORDINATOR):
            self._discovery.mark_unknown()
            yield from result.fail_with(error)
        elif error == Errors.REBALANCE_IN_PROGRESS:
            if membership.state in STEADY:
                membership.request_rejoin("group is already rebalancing")
                yield from result.fail_with(error)
            else:
                yield from result.complete(None)
        elif error in _GENERATION_ERRORS:
            if membership.generation == sent:
                membership.generation_lost("HEARTBEAT", error, keep_member_id=error == Errors.ILLEGAL_GENERATION)
                yield from result.fail_with(error)
            else:
                yield from result.complete(None)
        elif error == Errors.GROUP_AUTHORIZATION_FAILED:
            yield from result.fail_with(error)
        else:
            known = exception_for(error)
            yield from result.fail(kafka_exception(f"Unexpected error in heartbeat response: {known.message}"))
