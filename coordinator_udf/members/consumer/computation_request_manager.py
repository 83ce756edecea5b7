"""Computes the group's assignment when the coordinator tells the member to (KIP-848's client-side mode).

It asks for the group's state, runs the assignor and installs the result, one request at a time. Heartbeats go on
meanwhile, and nothing of it stands in the way of the member's own reconciliation.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Any, Final

from coordinator_udf.members.consumer.background_events import BackgroundEvents
from coordinator_udf.members.consumer.computation_states import ComputationEvent, ComputationState, next_state
from coordinator_udf.members.consumer.coordinator_request_manager import CoordinatorRequestManager
from coordinator_udf.members.consumer.group_state import JOIN_GROUP_EPOCH, GroupState
from coordinator_udf.members.consumer.local_assignors import LocalAssignors
from coordinator_udf.members.consumer.network_client import EMPTY, Body, PollResult, RequestBuilder, UnsentRequest
from coordinator_udf.members.consumer.request_state import RequestState
from coordinator_udf.members.consumer.states import LEAVING, NOT_IN_GROUP
from coordinator_udf.members.exceptions import ClientException, kafka_exception
from coordinator_udf.protocol.errors import Errors

PREPARE: Final = "ConsumerGroupPrepareAssignment"
INSTALL: Final = "ConsumerGroupInstallAssignment"

#: What the member says where its assignor raised.
ASSIGNOR_RAISED: Final = 1

#: States in which there is no group to compute for.
_NO_MEMBER: Final = NOT_IN_GROUP | LEAVING
#: Errors after which the member tries again at once, or after a pause.
_RETRIED: Final = frozenset(
    {Errors.NOT_COORDINATOR, Errors.COORDINATOR_NOT_AVAILABLE, Errors.COORDINATOR_LOAD_IN_PROGRESS}
)


class ComputationRequestManager:
    """Sends the requests of a member that was told to compute an assignment.

    Attributes:
        state: how far it is.
        metadata: what the assignor that computed the last assignment tells the member's.
    """

    def __init__(
        self,
        group: GroupState,
        *,
        assignors: LocalAssignors,
        coordinators: CoordinatorRequestManager,
        events: BackgroundEvents,
        state: RequestState,
    ) -> None:
        self._group = group
        self._assignors = assignors
        self._coordinators = coordinators
        self._events = events
        self._request = state
        self._install: dict[str, Any] = {}
        self._told_error: tuple[int, int] | None = None
        self.state = ComputationState.IDLE
        self.metadata: bytes | None = None

    def poll(self, now_ms: int) -> PollResult:
        """Returns the request for the group's state, or the one that installs what was computed, if it is due."""
        if self.state is ComputationState.IDLE and not self._install:
            return EMPTY
        is_member = self._group.member_epoch > JOIN_GROUP_EPOCH and self._group.state not in _NO_MEMBER
        if not is_member and self.state is not ComputationState.IDLE:
            self._install = {}
            self._request.reset()
            self._move(ComputationEvent.LEFT_GROUP)
        if self._coordinators.coordinator is None:
            return EMPTY
        if self._install:
            install, self._install = self._install, {}
            return PollResult((self._send(INSTALL, install),))
        if self.state is not ComputationState.TOLD:
            return EMPTY
        if not self._request.can_send(now_ms):
            return PollResult((), self._request.remaining_backoff_ms(now_ms))
        self._move(ComputationEvent.PREPARE_SENT)
        return PollResult((self._send(PREPARE, self._who()),))

    def on_heartbeat(self, body: Body) -> None:
        """Takes what the answer to a heartbeat says of computing, and of the last assignor's error."""
        assignment = body.get("assignment") or {}
        if assignment:
            self.metadata = b64decode(assignment["metadata"]) if assignment.get("metadata") else None
        told = bool(body.get("shouldComputeAssignment"))
        self._move(ComputationEvent.TOLD if told else ComputationEvent.NOT_TOLD)
        error = assignment.get("error", 0)
        if error and self._told_error != (error, body["memberEpoch"]):
            self._told_error = error, body["memberEpoch"]
            self._events.add_error(
                kafka_exception(f"The group's assignor failed with error {error}; the partitions stay as they were.")
            )

    def _move(self, event: ComputationEvent) -> None:
        self.state = next_state(self.state, event)

    def _who(self) -> dict[str, Any]:
        group = self._group
        return {"groupId": group.group_id, "memberId": group.member_id, "memberEpoch": group.member_epoch}

    def _send(self, api: str, body: dict[str, Any]) -> UnsentRequest:
        self._request.on_send()
        request = UnsentRequest(RequestBuilder(api, 0, 0, lambda _: body), self._coordinators.coordinator)
        request.answer.when_complete(lambda answer, error: self._on_answer(api, request.completed_ms, answer, error))
        return request

    # ---- answers

    def _on_answer(self, api: str, now_ms: int, body: Body | None, error: ClientException | None) -> None:
        expected = ComputationState.PREPARING if api == PREPARE else ComputationState.INSTALLING
        if self.state is not expected:
            # The member has left the group since.
            return
        if error is not None or body is None:
            self._request.on_failure(now_ms)
            if error is not None:
                self._coordinators.handle_disconnect(error)
            self._move(ComputationEvent.ATTEMPT_FAILED)
        elif body["errorCode"] != Errors.NONE:
            self._on_error(now_ms, body["errorCode"])
        elif api == PREPARE:
            self._request.on_success(now_ms)
            self._compute(body)
        else:
            self._request.on_success(now_ms)
            self._move(ComputationEvent.INSTALLED)

    def _on_error(self, now_ms: int, code: int) -> None:
        self._request.on_failure(now_ms)
        if code in _RETRIED:
            if code != Errors.COORDINATOR_LOAD_IN_PROGRESS:
                self._coordinators.mark_unknown()
                self._request.reset()
            self._move(ComputationEvent.ATTEMPT_FAILED)
        elif code == Errors.STALE_MEMBER_EPOCH:
            self._request.reset()
            self._move(ComputationEvent.EPOCH_IS_STALE)
        else:
            self._request.reset()
            self._move(ComputationEvent.REFUSED)

    def _compute(self, prepared: Body) -> None:
        install = {**self._who(), "groupEpoch": prepared["groupEpoch"], "error": 0, "members": []}
        try:
            install["members"] = self._assignors.compute(prepared)
        except Exception as raised:  # noqa: BLE001  whatever a user's class raises is told to all members
            install["error"] = ASSIGNOR_RAISED
            self._events.add_error(
                ClientException(raised.class_name, raised.message)
                if isinstance(raised, ClientException)
                else ClientException(type(raised).__name__, str(raised))
            )
        self._move(ComputationEvent.COMPUTED)
        self._install = install
