"""One OffsetCommit and its attempts (CommitRequestManager.OffsetCommitRequestState)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from coordinator_udf.members.backoff import ExponentialBackoff
from coordinator_udf.members.consumer.coordinator_request_manager import CoordinatorRequestManager
from coordinator_udf.members.consumer.futures import CompletableFuture
from coordinator_udf.members.consumer.network_client import Body, RequestBuilder, UnsentRequest
from coordinator_udf.members.consumer.request_state import RequestState
from coordinator_udf.members.exceptions import (
    ClientException,
    error_class,
    exception_for,
    kafka_exception,
    timeout_exception,
)
from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.members.metadata import ConsumerMetadata
from coordinator_udf.members.timers import Clock, Timer
from coordinator_udf.protocol.errors import Errors

Offsets = Mapping[TopicPartition, int]

_OLDEST_VERSION = 2
_LATEST_VERSION_WITH_NAMES = 9
_LATEST_VERSION = 10

_COORDINATOR_IS_ELSEWHERE = frozenset(
    {Errors.COORDINATOR_NOT_AVAILABLE, Errors.NOT_COORDINATOR, Errors.REQUEST_TIMED_OUT}
)
_HANDED_ON = frozenset(
    {
        Errors.OFFSET_METADATA_TOO_LARGE,
        Errors.INVALID_COMMIT_OFFSET_SIZE,
        Errors.COORDINATOR_LOAD_IN_PROGRESS,
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.UNKNOWN_TOPIC_ID,
        Errors.STALE_MEMBER_EPOCH,
        Errors.GROUP_AUTHORIZATION_FAILED,
    }
)


@dataclass(slots=True)
class MemberInfo:
    """What a commit tells of its member; no epoch where it isn't in the group."""

    group_id: str
    group_instance_id: str | None
    member_id: str = ""
    member_epoch: int | None = None


class OffsetCommitRequest(RequestState):
    """A commit of some offsets, tried until its deadline.

    Attributes:
        offsets: what to commit; a retry may take newer ones.
        committed: done when the attempt under way is.
    """

    def __init__(
        self,
        offsets: Offsets,
        deadline_ms: int,
        *,
        clock: Clock,
        backoff: ExponentialBackoff,
        member: MemberInfo,
        metadata: ConsumerMetadata,
        coordinators: CoordinatorRequestManager,
    ) -> None:
        super().__init__(backoff)
        self.offsets = offsets
        self.committed: CompletableFuture[None] = CompletableFuture()
        self._timer = Timer(clock, max(0, deadline_ms - clock.now_ms))
        self._member = member
        self._metadata = metadata
        self._coordinators = coordinators

    def is_expired(self) -> bool:
        """Tells whether the deadline is over."""
        self._timer.update()
        return self._timer.is_expired()

    def reset_future(self) -> None:
        """Makes room for the result of another attempt."""
        self.committed = CompletableFuture()

    def expire(self, remove: Callable[[OffsetCommitRequest], None]) -> None:
        """Gives up a request that was tried before and whose deadline is over."""
        if self.attempts > 0 and self.is_expired():
            remove(self)
            error = timeout_exception("OffsetCommit request could not complete before timeout expired.")
            self.committed.complete_exceptionally(error)

    def to_unsent(self) -> UnsentRequest:
        """Returns the request, with the member's epoch of now, and with topic ids if all are known."""
        ids = {topic: self._metadata.topic_ids.get(topic) for topic in {each.topic for each in self.offsets}}
        latest = _LATEST_VERSION_WITH_NAMES if None in ids.values() else _LATEST_VERSION
        epoch = self._member.member_epoch
        data = {
            "groupId": self._member.group_id,
            "generationIdOrMemberEpoch": -1 if epoch is None else epoch,
            "memberId": self._member.member_id,
            "groupInstanceId": self._member.group_instance_id,
        }
        offsets = self.offsets

        def build(version: int) -> dict[str, Any]:
            return _body(version, data, offsets, ids)

        builder = RequestBuilder("OffsetCommit", _OLDEST_VERSION, latest, build)
        request = UnsentRequest(builder, self._coordinators.coordinator)
        request.answer.when_complete(lambda body, error: self._on_answer(request.completed_ms, body, error))
        return request

    # ---- the answer

    def _on_answer(self, now_ms: int, body: Body | None, error: ClientException | None) -> None:
        if body is not None:
            self._on_response(now_ms, body)
            return
        assert error is not None
        self.on_failure(now_ms)
        self._coordinators.handle_disconnect(error)
        self.committed.complete_exceptionally(error)

    def _on_response(self, now_ms: int, body: Body) -> None:
        unauthorized: set[str] = set()
        failed = False
        for topic in body["topics"]:
            for partition in topic["partitions"]:
                code = partition["errorCode"]
                if code == Errors.NONE:
                    continue
                if not failed:
                    self.on_failure(now_ms)
                    failed = True
                if code == Errors.TOPIC_AUTHORIZATION_FAILED:
                    unauthorized.add(self._topic_name(topic))
                    continue
                if code in _COORDINATOR_IS_ELSEWHERE:
                    self._coordinators.mark_unknown()
                self.committed.complete_exceptionally(_failure(code))
                return
        if unauthorized:
            names = ", ".join(sorted(unauthorized))
            message = f"Not authorized to access topics: [{names}]"
            self.committed.complete_exceptionally(ClientException("TopicAuthorizationException", message))
        else:
            self.committed.complete(None)

    def _topic_name(self, topic: Mapping[str, Any]) -> str:
        name = self._metadata.topic_names.get(topic.get("topicId", ""))
        return str(topic.get("name", "")) if name is None else name


def _failure(code: int) -> ClientException:
    """Returns the exception of a partition's error (OffsetCommitRequestState.onResponse)."""
    if code == Errors.UNKNOWN_MEMBER_ID:
        return ClientException("CommitFailedException", "OffsetCommit failed with unknown member ID.")
    if code in _HANDED_ON or code in _COORDINATOR_IS_ELSEWHERE:
        return exception_for(code)
    return kafka_exception(f"Unexpected error in commit: {error_class(code).name}")


def _body(
    version: int, data: Mapping[str, Any], offsets: Offsets, topic_ids: Mapping[str, str | None]
) -> dict[str, Any]:
    """Returns the request's body: topics by id from version 10 on, by name before.

    Raises:
        ClientException: the member is static and the version doesn't know of it (UnsupportedVersionException).
    """
    if version < 7 and data["groupInstanceId"] is not None:
        message = f"The broker offset commit api version {version} does not support usage of config group.instance.id."
        raise ClientException("UnsupportedVersionException", message)
    topics: dict[str, list[dict[str, Any]]] = {}
    for partition, offset in offsets.items():
        topics.setdefault(partition.topic, []).append(
            {
                "partitionIndex": partition.partition,
                "committedOffset": offset,
                **({"committedLeaderEpoch": -1} if version >= 6 else {}),
                "committedMetadata": "",
            }
        )
    by_id = version >= _LATEST_VERSION
    body = dict(data)
    if version < 7:
        del body["groupInstanceId"]
    if version < 5:
        body["retentionTimeMs"] = -1
    body["topics"] = [
        {**({"topicId": topic_ids[topic]} if by_id else {"name": topic}), "partitions": partitions}
        for topic, partitions in topics.items()
    ]
    return body
