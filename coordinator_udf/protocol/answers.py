"""The shape of answers: which field an API's answer carries from and to which version, in Kafka's order.

A field is ``name: since``, or ``name: (since, until)``, or with the fields below it ``name: (since, until, fields)``.
Source: Kafka 4.3.1's message definitions (JoinGroupResponse.json and its neighbours).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

LAST = 99

Fields = dict[str, Any]

#: The fields of one version in order, each with the shape below it or None.
Shape = tuple[tuple[str, Any], ...]

_FETCHED: Fields = {
    "partitionIndex": 0,
    "committedOffset": 0,
    "committedLeaderEpoch": 5,
    "metadata": 0,
    "errorCode": 0,
}
_COMMITTED: Fields = {"partitionIndex": 0, "errorCode": 0}

RESPONSES: dict[str, Fields] = {
    "JoinGroup": {
        "throttleTimeMs": 2,
        "errorCode": 0,
        "generationId": 0,
        "protocolType": 7,
        "protocolName": 0,
        "leader": 0,
        "skipAssignment": 9,
        "memberId": 0,
        "members": (0, LAST, {"memberId": 0, "groupInstanceId": 5, "metadata": 0}),
    },
    "SyncGroup": {"throttleTimeMs": 1, "errorCode": 0, "protocolType": 5, "protocolName": 5, "assignment": 0},
    "Heartbeat": {"throttleTimeMs": 1, "errorCode": 0},
    "LeaveGroup": {
        "throttleTimeMs": 1,
        "errorCode": 0,
        "members": (3, LAST, {"memberId": 3, "groupInstanceId": 3, "errorCode": 3}),
    },
    "OffsetCommit": {
        "throttleTimeMs": 3,
        "topics": (0, LAST, {"name": (0, 9), "topicId": 10, "partitions": (0, LAST, _COMMITTED)}),
    },
    "OffsetFetch": {
        "throttleTimeMs": 3,
        "topics": (0, 7, {"name": 0, "partitions": (0, LAST, _FETCHED)}),
        "errorCode": (2, 7),
        "groups": (
            8,
            LAST,
            {
                "groupId": 8,
                "topics": (8, LAST, {"name": (8, 9), "topicId": 10, "partitions": (8, LAST, _FETCHED)}),
                "errorCode": 8,
            },
        ),
    },
    "OffsetDelete": {
        "errorCode": 0,
        "throttleTimeMs": 0,
        "topics": (0, LAST, {"name": 0, "partitions": (0, LAST, _COMMITTED)}),
    },
    "TxnOffsetCommit": {
        "throttleTimeMs": 0,
        "topics": (0, LAST, {"name": 0, "partitions": (0, LAST, _COMMITTED)}),
    },
    "DescribeGroups": {
        "throttleTimeMs": 1,
        "groups": (
            0,
            LAST,
            {
                "errorCode": 0,
                "errorMessage": 6,
                "groupId": 0,
                "groupState": 0,
                "protocolType": 0,
                "protocolData": 0,
                "members": (
                    0,
                    LAST,
                    {
                        "memberId": 0,
                        "groupInstanceId": 4,
                        "clientId": 0,
                        "clientHost": 0,
                        "memberMetadata": 0,
                        "memberAssignment": 0,
                    },
                ),
                "authorizedOperations": 3,
            },
        ),
    },
    "ListGroups": {
        "throttleTimeMs": 1,
        "errorCode": 0,
        "groups": (0, LAST, {"groupId": 0, "protocolType": 0, "groupState": 4, "groupType": 5}),
    },
    "ConsumerGroupHeartbeat": {
        "throttleTimeMs": 0,
        "errorCode": 0,
        "errorMessage": 0,
        "memberId": 0,
        "memberEpoch": 0,
        "heartbeatIntervalMs": 0,
        "assignment": 0,
    },
    "ConsumerGroupDescribe": {
        "throttleTimeMs": 0,
        "groups": (
            0,
            LAST,
            {
                "errorCode": 0,
                "errorMessage": 0,
                "groupId": 0,
                "groupState": 0,
                "groupEpoch": 0,
                "assignmentEpoch": 0,
                "assignorName": 0,
                "members": (
                    0,
                    LAST,
                    {
                        "memberId": 0,
                        "instanceId": 0,
                        "rackId": 0,
                        "memberEpoch": 0,
                        "clientId": 0,
                        "clientHost": 0,
                        "subscribedTopicNames": 0,
                        "subscribedTopicRegex": 0,
                        "assignment": 0,
                        "targetAssignment": 0,
                        "memberType": 1,
                    },
                ),
                "authorizedOperations": 0,
            },
        ),
    },
    "DeleteGroups": {"throttleTimeMs": 0, "results": (0, LAST, {"groupId": 0, "errorCode": 0})},
}


@lru_cache(maxsize=256)
def shape(api: str, api_version: int) -> Shape:
    """The fields of one version's answer.

    Raises:
        KeyError: the API is not one of `RESPONSES`.
    """
    return _shape(RESPONSES[api], api_version)


def _shape(fields: Fields, version: int) -> Shape:
    kept = []
    for name, rule in fields.items():
        since, until, below = (rule, LAST, None) if isinstance(rule, int) else (*rule, None)[:3]
        if since <= version <= until:
            kept.append((name, _shape(below, version) if below else None))
    return tuple(kept)
