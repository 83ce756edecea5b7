"""The body of a ConsumerGroupHeartbeat that says nothing new: all that may stay away does."""

from __future__ import annotations

from typing import Any, Final

_UNCHANGED: Final[dict[str, Any]] = {
    "instanceId": None,
    "rackId": None,
    "rebalanceTimeoutMs": -1,
    "subscribedTopicNames": None,
    "serverAssignor": None,
    "topicPartitions": None,
}
#: The version from which on a member may subscribe to a pattern.
_REGEX_VERSION: Final = 1


def unchanged_heartbeat(group_id: str, member_id: str, member_epoch: int, version: int) -> dict[str, Any]:
    """Returns the body in Kafka's JSON, with the fields that the version has."""
    who = {"groupId": group_id, "memberId": member_id, "memberEpoch": member_epoch}
    regex = {"subscribedTopicRegex": None} if version >= _REGEX_VERSION else {}
    return {**who, **_UNCHANGED, **regex}
