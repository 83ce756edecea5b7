"""What a member makes of the answer to a commit (ConsumerCoordinator.OffsetCommitResponseHandler)."""

from __future__ import annotations

from coordinator_udf.members.classic.answers import OffsetCommitAnswer
from coordinator_udf.members.classic.context import Context
from coordinator_udf.members.classic.discovery import CoordinatorDiscovery
from coordinator_udf.members.classic.flow import Flow
from coordinator_udf.members.classic.membership import Generation
from coordinator_udf.members.classic.request_future import RequestFuture
from coordinator_udf.members.classic.states import MemberState
from coordinator_udf.members.exceptions import ClientException, exception_for, kafka_exception
from coordinator_udf.protocol.errors import Errors

#: Errors that are told as they are.
_AS_THEY_ARE = frozenset(
    {
        Errors.GROUP_AUTHORIZATION_FAILED,
        Errors.OFFSET_METADATA_TOO_LARGE,
        Errors.INVALID_COMMIT_OFFSET_SIZE,
        Errors.COORDINATOR_LOAD_IN_PROGRESS,
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
_COORDINATOR_ERRORS = frozenset({Errors.COORDINATOR_NOT_AVAILABLE, Errors.NOT_COORDINATOR, Errors.REQUEST_TIMED_OUT})


class CommitAnswers:
    """Takes answers to commits. The first partition with an error decides, but for topics not authorized."""

    def __init__(self, context: Context, discovery: CoordinatorDiscovery) -> None:
        self._membership = context.membership
        self._discovery = discovery

    def handle(self, answer: OffsetCommitAnswer, sent: Generation, result: RequestFuture[None]) -> Flow[None]:
        """Gives a commit its result."""
        unauthorized: set[str] = set()
        for topic in answer.topics:
            for partition in topic.partitions:
                if partition.error_code == Errors.TOPIC_AUTHORIZATION_FAILED:
                    unauthorized.add(topic.name)
                elif partition.error_code != Errors.NONE:
                    yield from result.fail(self._failure(partition.error_code, sent))
                    return
        if unauthorized:
            names = ", ".join(sorted(unauthorized))
            message = f"Not authorized to access topics: [{names}]"
            yield from result.fail(ClientException("TopicAuthorizationException", message))
        else:
            yield from result.complete(None)

    def _failure(self, error: int, sent: Generation) -> ClientException:
        """Returns why a commit failed, after doing what the error asks for."""
        if error in _AS_THEY_ARE:
            return exception_for(error)
        if error in _COORDINATOR_ERRORS:
            self._discovery.mark_unknown()
            return exception_for(error)
        if error == Errors.FENCED_INSTANCE_ID:
            return exception_for(error) if self._membership.generation == sent else self._stale_or_failed()
        if error == Errors.REBALANCE_IN_PROGRESS:
            self._membership.request_rejoin("offset commit failed since group is already rebalancing")
            return ClientException(
                "RebalanceInProgressException",
                "Offset commit cannot be completed since the consumer group is executing a rebalance at the moment. "
                "You can try completing the rebalance by calling poll() and then retry commit again",
            )
        if error in (Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION):
            return self._generation_lost(error, sent)
        return kafka_exception(f"Unexpected error in commit: {exception_for(error).message}")

    def _generation_lost(self, error: int, sent: Generation) -> ClientException:
        if self._membership.generation != sent and self._membership.state is MemberState.PREPARING_REBALANCE:
            return self._stale_or_failed()
        keep_member_id = error == Errors.ILLEGAL_GENERATION
        self._membership.generation_lost("OFFSET_COMMIT", error, keep_member_id=keep_member_id)
        return _commit_failed()

    def _stale_or_failed(self) -> ClientException:
        if self._membership.state is MemberState.PREPARING_REBALANCE:
            return ClientException(
                "RebalanceInProgressException",
                "Offset commit cannot be completed since the consumer member's generation is already stale, meaning "
                "it has already participated another rebalance and got a new generation. You can try completing the "
                "rebalance by calling poll() and then retry commit again",
            )
        return _commit_failed()


def _commit_failed() -> ClientException:
    return ClientException(
        "CommitFailedException",
        "Offset commit cannot be completed since the consumer is not part of an active group for auto partition "
        "assignment; it is likely that the consumer was kicked out of the group.",
    )
