"""A request of every API in each of its versions, as Kafka's JSON has it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coordinator_udf.protocol.requests import VERSIONS
from coordinator_udf.protocol.wire import Message, request_message

TOPIC_ID = "AAECAwQFBgcICQoLDA0ODw"


def apis_and_versions() -> Iterator[tuple[str, int]]:
    """Everything that is served."""
    for api, (first, last) in VERSIONS.items():
        for version in range(first, last + 1):
            yield api, version


def sample_request(api: str, version: int, *, group: str = "g") -> dict[str, Any]:
    """A request that names a group, a member, a topic with two partitions: what its version has of them."""
    body: dict[str, Any] = _fit(request_message(api, version), _everything(api, version, group))
    return body


def _everything(api: str, version: int, group: str) -> dict[str, Any]:
    topic = {"topicId": TOPIC_ID} if version >= 10 else {"name": "t1"}
    commits = [
        {"partitionIndex": index, "committedOffset": 1, "committedLeaderEpoch": -1, "committedMetadata": ""}
        for index in (0, 3)
    ]
    member: dict[str, Any] = {"groupId": group, "memberId": "m", "generationId": 1, "groupInstanceId": None}
    return {
        "JoinGroup": {
            **member,
            "memberId": "",
            "sessionTimeoutMs": 10_000,
            "rebalanceTimeoutMs": 20_000,
            "protocolType": "consumer",
            "protocols": [{"name": "range", "metadata": ""}],
            "reason": None,
        },
        "SyncGroup": {**member, "protocolType": None, "protocolName": None, "assignments": []},
        "Heartbeat": member,
        "LeaveGroup": {**member, "members": [{"memberId": "m", "groupInstanceId": None, "reason": None}]},
        "OffsetCommit": {
            **member,
            "generationIdOrMemberEpoch": -1,
            "memberId": "",
            "retentionTimeMs": -1,
            "topics": [{**topic, "partitions": commits}],
        },
        "TxnOffsetCommit": {
            **member,
            "transactionalId": "x",
            "producerId": 1,
            "producerEpoch": 0,
            "topics": [{"name": "t1", "partitions": commits}],
        },
        "OffsetFetch": {
            "groupId": group,
            "topics": [{"name": "t1", "partitionIndexes": [0, 3]}],
            "groups": [
                {"groupId": group, "memberId": None, "memberEpoch": -1, "topics": [{**topic, "partitionIndexes": [0]}]}
            ],
            "requireStable": False,
        },
        "OffsetDelete": {"groupId": group, "topics": [{"name": "t1", "partitions": [{"partitionIndex": 0}]}]},
        "DescribeGroups": {"groups": [group, "h"], "includeAuthorizedOperations": False},
        "ListGroups": {"statesFilter": [], "typesFilter": []},
        "DeleteGroups": {"groupsNames": [group, "h"]},
        **_of_consumer_groups(group),
    }[api]


def _of_consumer_groups(group: str) -> dict[str, dict[str, Any]]:
    return {
        "ConsumerGroupHeartbeat": {
            "groupId": group,
            "memberId": "",
            "memberEpoch": 0,
            "instanceId": None,
            "rackId": None,
            "rebalanceTimeoutMs": 1_000,
            "subscribedTopicNames": None,
            "subscribedTopicRegex": None,
            "serverAssignor": None,
            "topicPartitions": None,
        },
        "ConsumerGroupDescribe": {"groupIds": [group, "h"], "includeAuthorizedOperations": False},
        "ConsumerGroupPrepareAssignment": {"groupId": group, "memberId": "m", "memberEpoch": 1},
        "ConsumerGroupInstallAssignment": {
            "groupId": group,
            "memberId": "m",
            "memberEpoch": 1,
            "groupEpoch": 2,
            "error": 0,
            "members": [
                {
                    "memberId": "m",
                    "partitions": [{"topicId": TOPIC_ID, "partitions": [0]}],
                    "metadataVersion": -1,
                    "metadata": "",
                }
            ],
        },
    }


def _fit(message: Message, body: dict[str, Any]) -> Any:
    found = {}
    for field in message.fields:
        if field.name in body and field.tag is None:
            value, struct = body[field.name], field.struct
            nested = struct is not None and value is not None
            found[field.name] = [_fit(struct, one) for one in value] if struct and nested else value
    return found
