"""When heartbeats are sent and what their answers mean.

Source: AbstractHeartbeatRequestManager, ConsumerHeartbeatRequestManager.
"""

from __future__ import annotations

from coordinator_udf.members.consumer.background_events import BackgroundEvents
from coordinator_udf.members.consumer.computation_request_manager import ComputationRequestManager
from coordinator_udf.members.consumer.coordinator_request_manager import CoordinatorRequestManager
from coordinator_udf.members.consumer.heartbeat_request import REGEX_NOT_SUPPORTED, HeartbeatRequest
from coordinator_udf.members.consumer.membership_manager import MembershipManager
from coordinator_udf.members.consumer.network_client import EMPTY, Body, PollResult, UnsentRequest
from coordinator_udf.members.consumer.request_state import HeartbeatRequestState
from coordinator_udf.members.consumer.states import MemberState
from coordinator_udf.members.exceptions import ClientException, exception_for
from coordinator_udf.members.inputs import Membership
from coordinator_udf.members.timers import Clock, Timer
from coordinator_udf.protocol.errors import Errors

PROTOCOL_NOT_SUPPORTED = (
    "The cluster does not support the new CONSUMER group protocol. Set group.protocol=classic on the consumer configs "
    "to revert to the CLASSIC protocol until the cluster is upgraded."
)


class HeartbeatRequestManager:
    """Sends a member's heartbeats, also the first, the acknowledging and the last.

    Attributes:
        poll_timer: runs out when the application hasn't polled for max.poll.interval.ms.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        max_poll_interval_ms: int,
        state: HeartbeatRequestState,
        request: HeartbeatRequest,
        membership: MembershipManager,
        coordinators: CoordinatorRequestManager,
        events: BackgroundEvents,
        computation: ComputationRequestManager,
        is_static: bool,
    ) -> None:
        self._max_poll_interval_ms = max_poll_interval_ms
        self._state = state
        self._request = request
        self._membership = membership
        self._coordinators = coordinators
        self._events = events
        self._computation = computation
        self._is_static = is_static
        self.poll_timer = Timer(clock, max_poll_interval_ms)

    # ---- sending

    def poll(self, now_ms: int) -> PollResult:
        """Returns the heartbeat that is due, if one is.

        Raises:
            ClientException: the poll timer expired in a state that can't leave (IllegalStateException).
        """
        if self._coordinators.coordinator is None or self._membership.should_skip_heartbeat():
            self._membership.on_heartbeat_skipped()
            error = self._coordinators.take_fatal_error()
            if error is not None:
                self._events.add_error(error)
            return EMPTY
        self.poll_timer.update()
        if self.poll_timer.is_expired() and not self._membership.is_leaving_group():
            self._membership.transition_to_sending_leave_group(poll_timer_expired=True)
            leave = self._make(ignore_answer=True)
            self._state.reset()
            self._request.reset()
            return PollResult((leave,), self._state.interval_ms)
        now = self._leaves_now() or (self._membership.should_heartbeat_now() and not self._state.in_flight)
        if not self._state.can_send(now_ms) and not now:
            return PollResult((), self._state.time_to_next_ms(now_ms))
        return PollResult((self._make(ignore_answer=False),), self._state.interval_ms)

    def goes_round(self) -> bool:
        """Tells whether Java's loop goes round without waiting: a heartbeat is due before the last one is answered."""
        skips = self._coordinators.coordinator is None or self._membership.should_skip_heartbeat()
        return not skips and self._state.is_overdue()

    def poll_on_close(self) -> PollResult:
        """Returns the heartbeat that leaves, if it wasn't sent before the member was closed."""
        if not self._membership.is_leaving_group():
            return EMPTY
        return PollResult((self._make(ignore_answer=True),), self._state.interval_ms)

    def on_poll_done(self) -> None:
        """Lets the poll timer see the time of this round (maximumTimeToWait)."""
        self.poll_timer.update()

    def reset_poll_timer(self) -> None:
        """Notes that the application polls."""
        self.poll_timer.update()
        if self.poll_timer.is_expired():
            self._membership.maybe_rejoin_stale_member()
        self.poll_timer.reset(self._max_poll_interval_ms)

    def _leaves_now(self) -> bool:
        if not self._is_static and self._membership.leave_operation is Membership.REMAIN_IN_GROUP:
            return False
        return self._membership.state is MemberState.LEAVING

    def _make(self, *, ignore_answer: bool) -> UnsentRequest:
        request = UnsentRequest(self._request.builder(), self._coordinators.coordinator)
        if not ignore_answer:
            request.answer.when_complete(lambda body, error: self._on_answer(request.completed_ms, body, error))
        self._state.on_send()
        self._membership.on_heartbeat_generated()
        self._state.reset_timer()
        return request

    # ---- answers

    def _on_answer(self, now_ms: int, body: Body | None, error: ClientException | None) -> None:
        if error is not None:
            self._on_failure(now_ms, error)
        elif body is not None:
            self._on_response(now_ms, body)

    def _on_failure(self, now_ms: int, error: ClientException) -> None:
        self._state.on_failure(now_ms)
        self._request.reset()
        if error.retriable:
            self._coordinators.handle_disconnect(error)
        elif error.class_name == "UnsupportedVersionException":
            regex = error.message == REGEX_NOT_SUPPORTED
            message = REGEX_NOT_SUPPORTED if regex else PROTOCOL_NOT_SUPPORTED
            self._fail(ClientException("UnsupportedVersionException", message, cause=error))
        else:
            self._fail(error)
        self._membership.on_heartbeat_failure()

    def _on_response(self, now_ms: int, body: Body) -> None:
        if body["errorCode"] == Errors.NONE:
            self._state.update_interval(body["heartbeatIntervalMs"])
            self._state.on_success(now_ms)
            self._membership.on_heartbeat_success(body)
            self._computation.on_heartbeat(body)
            return
        self._request.reset()
        self._state.on_failure(now_ms)
        self._on_error(body["errorCode"], body.get("errorMessage"))
        self._membership.on_heartbeat_failure()

    def _on_error(self, code: int, message: str | None) -> None:
        match code:
            case Errors.NOT_COORDINATOR | Errors.COORDINATOR_NOT_AVAILABLE:
                self._coordinators.mark_unknown()
                # No backoff: the next heartbeat goes to the new coordinator as soon as it is known.
                self._state.reset()
            case Errors.COORDINATOR_LOAD_IN_PROGRESS:
                pass
            case Errors.TOPIC_AUTHORIZATION_FAILED:
                # The member stays as it is: it goes on once it is allowed to.
                self._events.add_error(exception_for(code))
            case Errors.FENCED_MEMBER_EPOCH | Errors.UNKNOWN_MEMBER_ID:
                self._membership.transition_to_fenced()
                self._state.reset()
            case Errors.GROUP_ID_NOT_FOUND if self._membership.state is MemberState.UNSUBSCRIBED:
                self._membership.on_heartbeat_skipped()
            case Errors.UNSUPPORTED_VERSION:
                self._fail(exception_for(code, PROTOCOL_NOT_SUPPORTED))
            case _:
                self._fail(exception_for(code, message))

    def _fail(self, error: ClientException) -> None:
        self._events.add_error(error)
        self._membership.transition_to_fatal()
