"""SyncGroup and its answer (AbstractCoordinator's SyncGroupResponseHandler), after JoinGroup or in a stable group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coordinator_udf.members.classic import requests
from coordinator_udf.members.classic.answers import SyncGroupAnswer
from coordinator_udf.members.classic.context import Context
from coordinator_udf.members.classic.coordinator_requests import CoordinatorRequests
from coordinator_udf.members.classic.discovery import CoordinatorDiscovery
from coordinator_udf.members.classic.flow import Flow
from coordinator_udf.members.classic.membership import Generation
from coordinator_udf.members.classic.request_future import RequestFuture
from coordinator_udf.members.classic.states import IllegalTransition
from coordinator_udf.members.exceptions import ERROR_CLASSES, ClientException, exception_for, kafka_exception
from coordinator_udf.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from coordinator_udf.protocol.errors import Errors

COORDINATOR_ERRORS = frozenset({Errors.COORDINATOR_NOT_AVAILABLE, Errors.NOT_COORDINATOR})
_SYNC_ERRORS = frozenset({Errors.GROUP_AUTHORIZATION_FAILED, Errors.REBALANCE_IN_PROGRESS, Errors.FENCED_INSTANCE_ID})
#: What a member takes as said of itself and not of the leader's assignor.
_OF_THE_MEMBER = COORDINATOR_ERRORS | _SYNC_ERRORS | {Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION}


class SyncGroup:
    """Sends SyncGroup; the result is the assignment's bytes."""

    def __init__(self, context: Context, discovery: CoordinatorDiscovery, sender: CoordinatorRequests) -> None:
        self._context = context
        self._discovery = discovery
        self._sender = sender

    def send(
        self, assignments: list[dict[str, str]], extensions: Mapping[str, Any] | None = None
    ) -> Flow[RequestFuture[bytes]]:
        """Asks for the member's assignment, with those of all members if it leads.

        Args:
            extensions: fields that Kafka's request hasn't got.
        """
        config = self._context.config
        # While the leader waited for metadata, the generation may have gone.
        sent = self._context.membership.generation

        def handle(answer: SyncGroupAnswer, result: RequestFuture[bytes]) -> Flow[None]:
            yield from self._answered(answer, sent, result)

        request = requests.sync_group(
            config.group_id,
            sent.member_id,
            config.group_instance_id,
            sent.generation_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=sent.protocol_name,
            assignments=assignments,
            extensions=extensions or {},
        )
        return (yield from self._sender.send(request, SyncGroupAnswer, handle))

    def send_failure(self, error: ClientException) -> Flow[RequestFuture[bytes]]:
        """Tells the group why it, as the leader, has no assignment (an extension)."""
        reason = f"{error.class_name}: {error.message}" if error.message else error.class_name
        code = next((code for code, known in ERROR_CLASSES.items() if known.exception == error.class_name), -1)
        if code in _OF_THE_MEMBER:
            code = int(Errors.UNKNOWN_SERVER_ERROR)
        return (yield from self.send([], {"syncErrorCode": code, "syncErrorReason": reason}))

    def _answered(self, answer: SyncGroupAnswer, sent: Generation, result: RequestFuture[bytes]) -> Flow[None]:
        error = answer.error_code
        if error == Errors.NONE:
            yield from self._synced(answer, result)
            return
        if answer.sync_error_reason is not None:
            known = exception_for(error)
            message = f"the group's leader could compute no assignment: {answer.sync_error_reason}"
            yield from result.fail(ClientException(known.class_name, message, retriable=known.retriable))
            return
        if error in (Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION):
            if self._context.membership.generation == sent:
                keep_member_id = error == Errors.ILLEGAL_GENERATION
                self._context.membership.generation_lost("SYNC_GROUP", error, keep_member_id=keep_member_id)
        elif error in COORDINATOR_ERRORS:
            self._discovery.mark_unknown()
        elif error not in _SYNC_ERRORS:
            known = exception_for(error)
            yield from result.fail(kafka_exception(f"Unexpected error from SyncGroup: {known.message}"))
            return
        yield from result.fail_with(error)

    def _synced(self, answer: SyncGroupAnswer, result: RequestFuture[bytes]) -> Flow[None]:
        membership = self._context.membership
        generation = membership.generation
        if answer.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
            yield from result.fail_with(Errors.INCONSISTENT_GROUP_PROTOCOL)
            return
        is_expected = answer.protocol_name in (None, generation.protocol_name)
        try:
            if generation.is_reset:
                yield from result.fail_with(Errors.ILLEGAL_GENERATION)
                return
            if is_expected:
                membership.sync_answered(answer.resync_epoch)
        except IllegalTransition:
            # The generation went while the answer was on its way: join again at once.
            yield from result.fail_with(Errors.ILLEGAL_GENERATION)
            return
        if is_expected:
            yield from result.complete(answer.assignment)
        else:
            yield from result.fail_with(Errors.INCONSISTENT_GROUP_PROTOCOL)
