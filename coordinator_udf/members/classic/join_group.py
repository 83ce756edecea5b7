"""JoinGroup and its answer, and the SyncGroup that follows (AbstractCoordinator's JoinGroupResponseHandler).

SyncGroup is sent while the answer to JoinGroup is handled; the leader runs its assignor there.
"""

from __future__ import annotations

import base64
from collections.abc import Callable

from coordinator_udf.members.classic import requests
from coordinator_udf.members.classic.answers import JoinGroupAnswer
from coordinator_udf.members.classic.context import Context
from coordinator_udf.members.classic.coordinator_requests import CoordinatorRequests
from coordinator_udf.members.classic.discovery import CoordinatorDiscovery
from coordinator_udf.members.classic.flow import Flow
from coordinator_udf.members.classic.leader import Leader
from coordinator_udf.members.classic.membership import Generation
from coordinator_udf.members.classic.request_future import RequestFuture
from coordinator_udf.members.classic.states import IllegalTransition
from coordinator_udf.members.classic.subscription_metadata import SubscriptionMetadata
from coordinator_udf.members.classic.sync_group import COORDINATOR_ERRORS, SyncGroup
from coordinator_udf.members.exceptions import ClientException, exception_for, kafka_exception
from coordinator_udf.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from coordinator_udf.protocol.errors import Errors

#: The broker may hold a JoinGroup for the rebalance timeout; this is for small delays on top
#: (AbstractCoordinator.JOIN_GROUP_TIMEOUT_LAPSE).
_JOIN_GROUP_LAPSE_MS = 5_000
#: Errors of JoinGroup that are told as they are.
_JOIN_ERRORS = frozenset(
    {
        Errors.COORDINATOR_LOAD_IN_PROGRESS,
        Errors.FENCED_INSTANCE_ID,
        Errors.INCONSISTENT_GROUP_PROTOCOL,
        Errors.INVALID_SESSION_TIMEOUT,
        Errors.INVALID_GROUP_ID,
        Errors.GROUP_AUTHORIZATION_FAILED,
        Errors.GROUP_MAX_SIZE_REACHED,
        Errors.UNSUPPORTED_VERSION,
        Errors.REBALANCE_IN_PROGRESS,
    }
)


class JoinGroup:
    """Sends JoinGroup, and SyncGroup after it; the result is the assignment's bytes."""

    def __init__(
        self,
        context: Context,
        discovery: CoordinatorDiscovery,
        sender: CoordinatorRequests,
        *,
        metadata: SubscriptionMetadata,
        leader: Leader,
        sync: SyncGroup,
        enable_heartbeats: Callable[[], None],
    ) -> None:
        self._context = context
        self._discovery = discovery
        self._sender = sender
        self._metadata = metadata
        self._leader = leader
        self._sync = sync
        self._enable_heartbeats = enable_heartbeats

    def send(self) -> Flow[RequestFuture[bytes]]:
        """Sends JoinGroup with the member's subscription, as every assignor wants it."""
        config, membership = self._context.config, self._context.membership
        sent = membership.generation

        def handle(answer: JoinGroupAnswer, result: RequestFuture[bytes]) -> Flow[None]:
            yield from self._join_answered(answer, sent, result)

        if self._discovery.coordinator is None:
            return RequestFuture.failure(exception_for(Errors.COORDINATOR_NOT_AVAILABLE))
        request = requests.join_group(
            config.group_id,
            sent.member_id,
            config.group_instance_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocols=self._metadata.protocols(),
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            reason=membership.rejoin_reason,
            extensions=config.client_extensions,
        )
        timeout_ms = max(config.request_timeout_ms, config.max_poll_interval_ms + _JOIN_GROUP_LAPSE_MS)
        return (yield from self._sender.send(request, JoinGroupAnswer, handle, timeout_ms))

    def _join_answered(self, answer: JoinGroupAnswer, sent: Generation, result: RequestFuture[bytes]) -> Flow[None]:
        error = answer.error_code
        if error == Errors.NONE:
            yield from self._joined(answer, result)
            return
        if error == Errors.UNKNOWN_MEMBER_ID:
            if self._context.membership.generation == sent:
                self._context.membership.generation_lost("JOIN_GROUP", error, keep_member_id=False)
        elif error in COORDINATOR_ERRORS:
            self._discovery.mark_unknown()
        elif error == Errors.MEMBER_ID_REQUIRED:
            self._context.membership.member_id_given(answer.member_id)
        elif error not in _JOIN_ERRORS:
            known = exception_for(error)
            yield from result.fail(kafka_exception(f"Unexpected error in join group response: {known.message}"))
            return
        yield from result.fail_with(error)

    def _joined(self, answer: JoinGroupAnswer, result: RequestFuture[bytes]) -> Flow[None]:
        if answer.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
            yield from result.fail_with(Errors.INCONSISTENT_GROUP_PROTOCOL)
            return
        generation = Generation(answer.generation_id, answer.member_id, answer.protocol_name)
        try:
            self._context.membership.join_answered(generation)
        except IllegalTransition as late:
            unjoined = ClientException("UnjoinedGroupException", str(late), retriable=True)
            yield from result.fail(unjoined)
            return
        self._enable_heartbeats()
        assignments: list[dict[str, str]] = []
        if answer.member_id == answer.leader:
            try:
                assigned = yield from self._leader.assign(answer)
            except ClientException as error:
                yield from self._fail(error, result, is_told=answer.sync_errors)
                return
            assignments = [
                {"memberId": member, "assignment": base64.b64encode(data).decode()} for member, data in assigned.items()
            ]
        synced = yield from self._sync.send(assignments)
        yield from synced.chain(result)

    def _fail(self, error: ClientException, result: RequestFuture[bytes], *, is_told: bool) -> Flow[None]:
        """Fails the join for what the leader's assignor threw, after telling the group where that is understood."""
        if not is_told:
            yield from result.fail(error)
            return

        def fail(_: object) -> Flow[None]:
            yield from result.fail(error)

        told = yield from self._sync.send_failure(error)
        yield from told.listen(fail, fail)
