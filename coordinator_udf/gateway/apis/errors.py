"""The answer that says of a whole request that it failed, in the place where the API's clients look for errors.

Source: getErrorResponse of Kafka's request classes, and GroupCoordinatorService.handleOperationException.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coordinator_udf.gateway.apis.shaping import answer
from coordinator_udf.protocol.errors import Errors


def error_answer(api: str, version: int, request: Mapping[str, Any], error: Errors) -> dict[str, Any]:
    """The body of a coordinated API's response in which everything failed with ``error``."""
    code = int(error)
    if api == "OffsetCommit":
        return answer(api, version, topics=[_failed_topic(topic, "partitions", code) for topic in request["topics"]])
    if api == "OffsetFetch":
        return _offset_fetch(version, request, code)
    if api in {"DescribeGroups", "ConsumerGroupDescribe"}:
        named = request["groups" if api == "DescribeGroups" else "groupIds"]
        return answer(api, version, groups=[{"groupId": group, "errorCode": code} for group in named])
    if api == "DeleteGroups":
        results = [{"groupId": group, "errorCode": code} for group in dict.fromkeys(request["groupsNames"])]
        return answer(api, version, results=results)
    if api == "JoinGroup":
        # Before v7 there is always a protocol name in the answer.
        name = None if version >= 7 else ""
        return answer(api, version, errorCode=code, protocolName=name, memberId=request["memberId"])
    return answer(api, version, errorCode=code)


def unanswered(api: str) -> Errors:
    """What a client is told when the coordinator gave no answer in time, or its request could not be stored.

    Kafka turns its REQUEST_TIMED_OUT into these, since clients know them as a reason to look for the coordinator again
    and to retry; an OffsetFetch is told NOT_COORDINATOR, as older clients give up on anything else.
    """
    return Errors.NOT_COORDINATOR if api == "OffsetFetch" else Errors.COORDINATOR_NOT_AVAILABLE


def _offset_fetch(version: int, request: Mapping[str, Any], code: int) -> dict[str, Any]:
    if version >= 8:
        groups = [{"groupId": group["groupId"], "errorCode": code} for group in request["groups"]]
        return answer("OffsetFetch", version, groups=groups)
    if version >= 2:
        return answer("OffsetFetch", version, errorCode=code)
    topics = [_failed_topic(topic, "partitionIndexes", code) for topic in request["topics"]]
    return answer("OffsetFetch", version, topics=topics)


def _failed_topic(topic: Mapping[str, Any], partitions: str, code: int) -> dict[str, Any]:
    return {
        "name": topic.get("name", ""),
        "topicId": topic.get("topicId"),
        "partitions": [
            {
                "partitionIndex": partition["partitionIndex"] if isinstance(partition, Mapping) else partition,
                "committedOffset": -1,
                "committedLeaderEpoch": -1,
                "metadata": "",
                "errorCode": code,
            }
            for partition in topic[partitions]
        ],
    }
