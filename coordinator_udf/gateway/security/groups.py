"""ACLs on groups: which requests need which right, and the errors of who hasn't got it. Source: KafkaApis."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, Final

from coordinator_udf.gateway.security.acls import CLUSTER
from coordinator_udf.gateway.security.restriction import Asker, Body, Restriction, refused, without
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.requests import CLIENT_ASSIGNMENT_APIS, OFFSET_FETCH_BATCH_VERSION

_GROUP: Final = "GROUP"
_TOPIC: Final = "TOPIC"
_NOT_THE_GROUP: Final = Errors.GROUP_AUTHORIZATION_FAILED
_NOT_THE_TOPIC: Final = Errors.TOPIC_AUTHORIZATION_FAILED


def _member(api: str) -> Callable[[int, Body, Asker], Restriction | None]:
    def rule(version: int, body: Body, asker: Asker) -> Restriction | None:
        if asker.may("READ", _GROUP, body["groupId"]):
            return None
        return refused(api, version, body, _NOT_THE_GROUP)

    return rule


def _consumer_group_heartbeat(version: int, body: Body, asker: Asker) -> Restriction | None:
    if not asker.may("READ", _GROUP, body["groupId"]):
        return refused("ConsumerGroupHeartbeat", version, body, _NOT_THE_GROUP)
    names = body.get("subscribedTopicNames") or ()
    # Which topics an expression matches is found where nobody knows of ACLs: it needs the right to see all.
    if body.get("subscribedTopicRegex"):
        names = (*names, "*")
    if all(asker.may("DESCRIBE", _TOPIC, name) for name in names):
        return None
    return refused("ConsumerGroupHeartbeat", version, body, _NOT_THE_TOPIC)


def _offset_commit(version: int, body: Body, asker: Asker) -> Restriction | None:
    if not asker.may("READ", _GROUP, body["groupId"]):
        return refused("OffsetCommit", version, body, _NOT_THE_GROUP)
    left, errors = _topics(body["topics"], "READ", asker)
    for topic in errors:
        topic["partitions"] = [
            {"partitionIndex": partition["partitionIndex"], "errorCode": int(_NOT_THE_TOPIC)}
            for partition in topic["partitions"]
        ]
    return without("OffsetCommit", version, body, asked="topics", told="topics", left=left, errors=errors)


def _offset_fetch(version: int, body: Body, asker: Asker) -> Restriction | None:
    if version < OFFSET_FETCH_BATCH_VERSION:
        if not asker.may("DESCRIBE", _GROUP, body["groupId"]):
            return refused("OffsetFetch", version, body, _NOT_THE_GROUP)
        asked, finish = _fetched(body, asker)
        return Restriction(asked, finish)
    left: list[Body] = []
    errors: list[dict[str, Any]] = []
    # A group may be named twice, and is answered as often, in that order.
    finishes: defaultdict[str, deque[Callable[[Body], Body]]] = defaultdict(deque)
    for group in body["groups"]:
        if asker.may("DESCRIBE", _GROUP, group["groupId"]):
            asked, finish = _fetched(group, asker)
            finishes[group["groupId"]].append(finish)
            left.append(asked)
        else:
            errors.append({"groupId": group["groupId"], "topics": [], "errorCode": int(_NOT_THE_GROUP)})
    if not left:
        return without("OffsetFetch", version, body, asked="groups", told="groups", left=[], errors=errors)

    def finish_all(said: Body) -> Body:
        groups = [finishes[group["groupId"]].popleft()(group) for group in said["groups"]]
        return {**said, "groups": [*groups, *errors]}

    return Restriction({**body, "groups": left}, finish_all)


def _fetched(group: Body, asker: Asker) -> tuple[Body, Callable[[Body], Body]]:
    """Returns what may be asked of a group, and the function that completes its answer.

    Who asks for all topics is told of those that it may see, who asks for some gets an error for the others.
    """
    if group["topics"] is None:
        return group, lambda said: {
            **said,
            "topics": [topic for topic in said["topics"] if _may_see(topic, asker)],
        }
    left, errors = _topics(group["topics"], "DESCRIBE", asker)
    for topic in errors:
        topic["partitions"] = [
            {
                "partitionIndex": index,
                "committedOffset": -1,
                "committedLeaderEpoch": -1,
                "metadata": "",
                "errorCode": int(_NOT_THE_TOPIC),
            }
            for index in topic.pop("partitionIndexes")
        ]
    if not errors:
        return group, lambda said: said
    return {**group, "topics": left}, lambda said: {**said, "topics": [*said["topics"], *errors]}


def _may_see(topic: Body, asker: Asker) -> bool:
    name = asker.topic_name(topic)
    return name is not None and asker.may("DESCRIBE", _TOPIC, name)


def _topics(topics: list[Body], operation: str, asker: Asker) -> tuple[list[Body], list[dict[str, Any]]]:
    """Splits topics into those that the asker may use so, or whose id is unknown, and copies of the others."""
    left: list[Body] = []
    errors: list[dict[str, Any]] = []
    for topic in topics:
        name = asker.topic_name(topic)
        if name is None or asker.may(operation, _TOPIC, name):
            left.append(topic)
        else:
            errors.append(dict(topic))
    return left, errors


def _offset_delete(version: int, body: Body, asker: Asker) -> Restriction | None:
    if not asker.may("DELETE", _GROUP, body["groupId"]):
        return refused("OffsetDelete", version, body, _NOT_THE_GROUP)
    left, errors = _topics(body["topics"], "READ", asker)
    for topic in errors:
        topic["partitions"] = [
            {"partitionIndex": partition["partitionIndex"], "errorCode": int(_NOT_THE_TOPIC)}
            for partition in topic["partitions"]
        ]
    return without("OffsetDelete", version, body, asked="topics", told="topics", left=left, errors=errors)


def _delete_groups(version: int, body: Body, asker: Asker) -> Restriction | None:
    left, others = asker.split("DELETE", _GROUP, body["groupsNames"])
    errors = [{"groupId": name, "errorCode": int(_NOT_THE_GROUP)} for name in others]
    return without("DeleteGroups", version, body, asked="groupsNames", told="results", left=left, errors=errors)


def _described(api: str, asked: str) -> Callable[[int, Body, Asker], Restriction | None]:
    def rule(version: int, body: Body, asker: Asker) -> Restriction | None:
        left, others = asker.split("DESCRIBE", _GROUP, body[asked])
        errors = [{"groupId": name, "errorCode": int(_NOT_THE_GROUP), "members": []} for name in others]
        restriction = without(api, version, body, asked=asked, told="groups", left=left, errors=errors)
        if api == "DescribeGroups" or (restriction is not None and restriction.body is None):
            return restriction
        before = restriction or Restriction(body, lambda said: said)

        def finish(said: Body) -> Body:
            finished = before.finish(said)
            return {**finished, "groups": [_seen(group, asker) for group in finished["groups"]]}

        return Restriction(before.body, finish)

    return rule


def _seen(group: Body, asker: Asker) -> Body:
    """Returns a described consumer group, or an error where its members have topics that one may not see."""
    topics = {
        topic["topicName"]
        for member in group["members"]
        for held in (member["assignment"], member["targetAssignment"])
        for topic in held["topicPartitions"]
    }
    if all(asker.may("DESCRIBE", _TOPIC, name) for name in topics):
        return group
    told = "The group has described topic(s) that the client is not authorized to describe."
    return {**group, "errorCode": int(_NOT_THE_TOPIC), "errorMessage": told, "members": []}


def _list_groups(_: int, body: Body, asker: Asker) -> Restriction | None:
    if asker.may("DESCRIBE", "CLUSTER", CLUSTER):
        return None

    def finish(said: Body) -> Body:
        seen = [group for group in said["groups"] if asker.may("DESCRIBE", _GROUP, group["groupId"])]
        return {**said, "groups": seen}

    return Restriction(body, finish)


GROUP_RULES: Final[dict[str, Callable[[int, Body, Asker], Restriction | None]]] = {
    **{api: _member(api) for api in ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", *CLIENT_ASSIGNMENT_APIS)},
    "ConsumerGroupHeartbeat": _consumer_group_heartbeat,
    "OffsetCommit": _offset_commit,
    "OffsetFetch": _offset_fetch,
    "OffsetDelete": _offset_delete,
    "DeleteGroups": _delete_groups,
    "DescribeGroups": _described("DescribeGroups", "groups"),
    "ConsumerGroupDescribe": _described("ConsumerGroupDescribe", "groupIds"),
    "ListGroups": _list_groups,
}
