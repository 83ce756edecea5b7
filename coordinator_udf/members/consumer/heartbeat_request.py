"""What a ConsumerGroupHeartbeat holds: of what changes seldom only what the coordinator wasn't told yet.

Source: ConsumerHeartbeatRequestManager.HeartbeatState and ConsumerGroupHeartbeatRequest.Builder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coordinator_udf.members.consumer.assignment_manager import AssignmentManager, LocalAssignment
from coordinator_udf.members.consumer.group_state import GroupState
from coordinator_udf.members.consumer.local_assignors import LocalAssignors
from coordinator_udf.members.consumer.network_client import RequestBuilder
from coordinator_udf.members.consumer.states import MemberState
from coordinator_udf.members.exceptions import ClientException
from coordinator_udf.members.subscription_state import SubscriptionState

REGEX_NOT_SUPPORTED = (
    "The cluster does not support regular expressions resolution on ConsumerGroupHeartbeat API version 0. It must be "
    "upgraded to use ConsumerGroupHeartbeat API version >= 1 to allow to subscribe to a SubscriptionPattern."
)

_SINCE_VERSION_1 = frozenset({"subscribedTopicRegex", "clientAssignors"})

#: Says that a field is as it was.
_UNCHANGED_TIMEOUT = -1


@dataclass(slots=True)
class SentFields:
    """What the coordinator was told last."""

    rebalance_timeout_ms: int = _UNCHANGED_TIMEOUT
    topics: frozenset[str] | None = None
    regex: str | None = None
    server_assignor: str | None = None
    assignment: LocalAssignment | None = None
    is_told_of_assignors: bool = False


class HeartbeatRequest:
    """Builds heartbeats and remembers what they said."""

    def __init__(
        self,
        group: GroupState,
        *,
        subscriptions: SubscriptionState,
        assignments: AssignmentManager,
        rebalance_timeout_ms: int,
        server_assignor: str | None,
        rack_id: str | None,
        local_assignors: LocalAssignors,
    ) -> None:
        self._group = group
        self._subscriptions = subscriptions
        self._assignments = assignments
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._server_assignor = server_assignor
        self._rack_id = rack_id
        self._local_assignors = local_assignors
        self._assignors_told: list[dict[str, Any]] = []
        self._assignors_told_for: tuple[object, ...] | None = None
        self._sent = SentFields()

    def reset(self) -> None:
        """Forgets what was said, so that the next heartbeat says all of it again."""
        self._sent = SentFields()

    def builder(self) -> RequestBuilder:
        """Returns the next heartbeat, and takes it for sent."""
        joining = self._group.state is MemberState.JOINING
        data: dict[str, Any] = {
            "groupId": self._group.group_id,
            "memberId": self._group.member_id,
            "memberEpoch": self._group.member_epoch,
            "instanceId": self._group.group_instance_id,
            "rackId": self._rack_id if joining else None,
            "rebalanceTimeoutMs": self._timeout(joining),
            "subscribedTopicNames": self._topics(joining),
            "subscribedTopicRegex": self._regex(joining),
            "serverAssignor": self._assignor(joining),
            "topicPartitions": self._topic_partitions(joining),
        }
        assignors = self._client_assignors(joining)
        if assignors is not None:
            data["clientAssignors"] = assignors

        def build(version: int) -> dict[str, Any]:
            if version > 0:
                return data
            if data["subscribedTopicRegex"] is not None:
                raise ClientException("UnsupportedVersionException", REGEX_NOT_SUPPORTED)
            return {name: value for name, value in data.items() if name not in _SINCE_VERSION_1}

        return RequestBuilder("ConsumerGroupHeartbeat", 0, 1, build)

    def _timeout(self, joining: bool) -> int:
        if not joining and self._sent.rebalance_timeout_ms == self._rebalance_timeout_ms:
            return _UNCHANGED_TIMEOUT
        self._sent.rebalance_timeout_ms = self._rebalance_timeout_ms
        return self._rebalance_timeout_ms

    def _topics(self, joining: bool) -> list[str] | None:
        topics = self._subscriptions.topics
        if not joining and self._sent.topics == topics:
            return None
        self._sent.topics = topics
        return sorted(topics)

    def _regex(self, joining: bool) -> str | None:
        """Returns the pattern if there is one to tell, "" if the one that was told is gone."""
        regex = self._subscriptions.regex
        if not (joining and regex is not None) and regex == self._sent.regex:
            return None
        self._sent.regex = regex
        return "" if regex is None else regex

    def _assignor(self, joining: bool) -> str | None:
        if not joining and self._sent.server_assignor == self._server_assignor:
            return None
        self._sent.server_assignor = self._server_assignor
        return self._server_assignor

    def _client_assignors(self, joining: bool) -> list[dict[str, Any]] | None:
        """Returns what there is to tell of the member's own assignors; None for nothing.

        Their metadata is that of the join or of the last subscription or reason: one that changed with each heartbeat
        would have the group assigned anew each time.
        """
        if not self._local_assignors:
            return None
        topics = self._subscriptions.topics
        now = topics, self._subscriptions.regex, self._local_assignors.reasons()
        if joining or now != self._assignors_told_for:
            self._assignors_told_for = now
            self._assignors_told = self._local_assignors.told(topics)
        elif self._sent.is_told_of_assignors:
            return None
        self._sent.is_told_of_assignors = True
        return self._assignors_told

    def _topic_partitions(self, joining: bool) -> list[dict[str, Any]] | None:
        current = self._assignments.current
        if not joining and self._sent.assignment == current:
            return None
        self._sent.assignment = current
        return [
            {"topicId": topic_id, "partitions": sorted(numbers)}
            for topic_id, numbers in sorted(current.partitions.items())
        ]
