"""Which broker is the group's coordinator (CoordinatorRequestManager)."""

from __future__ import annotations

from typing import Any

from coordinator_udf.members.backoff import ExponentialBackoff
from coordinator_udf.members.consumer.network_client import (
    EMPTY,
    Body,
    PollResult,
    RequestBuilder,
    UnsentRequest,
)
from coordinator_udf.members.consumer.request_state import RequestState
from coordinator_udf.members.exceptions import ClientException, exception_for, illegal_state
from coordinator_udf.members.timers import FOREVER_MS
from coordinator_udf.protocol.errors import Errors

_GROUP_KEY_TYPE = 0
#: From this version on a request may ask for several groups.
_BATCHED_VERSION = 4


class CoordinatorRequestManager:
    """Looks for the coordinator whenever it isn't known.

    Attributes:
        coordinator: the connection that only the coordinator's requests use, or None.
        fatal_error: the last answer's error that another attempt won't mend.
    """

    def __init__(self, group_id: str, backoff: ExponentialBackoff) -> None:
        self._group_id = group_id
        self._state = RequestState(backoff)
        self._closing = False
        self.coordinator: str | None = None
        self.fatal_error: ClientException | None = None

    def signal_close(self) -> None:
        """Looks for nobody any more."""
        self._closing = True

    def poll(self, now_ms: int) -> PollResult:
        """Returns a FindCoordinator where one is due."""
        if self._closing or self.coordinator is not None:
            return EMPTY
        if not self._state.can_send(now_ms):
            return PollResult((), FOREVER_MS if self.goes_round() else self._state.remaining_backoff_ms(now_ms))
        self._state.on_send()
        request = UnsentRequest(RequestBuilder("FindCoordinator", 0, 6, self._body), None)
        request.answer.when_complete(lambda body, error: self._on_answer(request.completed_ms, body, error))
        return PollResult((request,))

    def goes_round(self) -> bool:
        """Tells whether Java's loop goes round without waiting, and nothing comes of it: a lookup has no answer yet."""
        return not self._closing and self.coordinator is None and self._state.in_flight

    def mark_unknown(self) -> None:
        """Forgets the coordinator, for it has said that it is none, or can't be reached."""
        self.coordinator = None

    def handle_disconnect(self, error: ClientException) -> None:
        """Forgets the coordinator if its connection was lost."""
        if error.class_name == "DisconnectException":
            self.mark_unknown()

    def take_fatal_error(self) -> ClientException | None:
        """Returns the fatal error, once."""
        error, self.fatal_error = self.fatal_error, None
        return error

    def _body(self, version: int) -> dict[str, Any]:
        if version >= _BATCHED_VERSION:
            return {"keyType": _GROUP_KEY_TYPE, "coordinatorKeys": [self._group_id]}
        return {"key": self._group_id, **({"keyType": _GROUP_KEY_TYPE} if version > 0 else {})}

    def _on_answer(self, now_ms: int, body: Body | None, error: ClientException | None) -> None:
        self.fatal_error = None
        found = None if body is None else self._find(body)
        if error is None and found is None:
            error = illegal_state(f"Response did not contain expected coordinator for groupId: {self._group_id}")
        elif found is not None and found["errorCode"] != Errors.NONE:
            error = exception_for(found["errorCode"], found.get("errorMessage"))
        if error is not None:
            self._on_failure(now_ms, error)
        elif found is not None:
            self.coordinator = f"coordinator-{found['nodeId']}"
            self._state.on_success(now_ms)

    def _find(self, body: Body) -> Body | None:
        """Returns the answer's part on this group; before version 4 it is the answer itself, as Kafka has it."""
        coordinators = body.get("coordinators")
        if not coordinators:
            return {"errorCode": body.get("errorCode", 0), "nodeId": body.get("nodeId", 0)}
        return next((found for found in coordinators if found["key"] == self._group_id), None)

    def _on_failure(self, now_ms: int, error: ClientException) -> None:
        self._state.on_failure(now_ms)
        self.mark_unknown()
        if not error.retriable:
            self.fatal_error = error
