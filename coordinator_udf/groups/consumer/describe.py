"""ConsumerGroupDescribe, and what the row Describe tells of a consumer group.

Source: GroupMetadataManager.consumerGroupDescribe, ConsumerGroup.asDescribedGroup.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict

from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model.consumer import ConsumerGroup, ConsumerMember
from coordinator_udf.groups.store import SEEN_MEMBER, GroupStore
from coordinator_udf.java_order.tables import int_order, uuid_order
from coordinator_udf.java_order.walks import Assigned
from coordinator_udf.protocol.errors import Errors

_NO_AUTHORIZED_OPERATIONS = -(2**31)
_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


def describe_consumer_groups(ctx: Context, store: GroupStore, group_ids: tuple[str, ...]) -> list[dict[str, Any]]:
    """Returns the answer's groups. Those without a name are answered before any other."""
    described = [undescribed("", Errors.INVALID_GROUP_ID) for group_id in group_ids if not group_id]
    for group_id in filter(None, group_ids):
        group = store.committed(ctx, group_id)
        if isinstance(group, ConsumerGroup):
            described.append(_describe(ctx, store, group))
        else:
            what = "not found" if group is None else "is not a consumer group"
            described.append(undescribed(group_id, Errors.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}."))
    return described


def undescribed(group_id: str, error: Errors, message: str | None = None) -> dict[str, Any]:
    """Returns a group of which nothing can be said."""
    return {
        "errorCode": int(error),
        "errorMessage": message,
        "groupId": group_id,
        "groupState": "",
        "groupEpoch": 0,
        "assignmentEpoch": 0,
        "assignorName": "",
        "members": [],
        "authorizedOperations": _NO_AUTHORIZED_OPERATIONS,
    }


def _describe(ctx: Context, store: GroupStore, group: ConsumerGroup) -> dict[str, Any]:
    names = {topic.id: topic.name for topic in ctx.topics.values()}
    twice = store.twice(ctx)
    return {
        "errorCode": 0,
        "errorMessage": None,
        "groupId": group.group_id,
        "groupState": group.state.value,
        "groupEpoch": group.group_epoch,
        "assignmentEpoch": group.assignment_epoch,
        "assignorName": group.protocol_name or next(iter(ctx.assignors)),
        "members": [
            _describe_member(group, member, names)
            for member in group.in_order()
            for _ in range(1 + ((SEEN_MEMBER, group.group_id, member.member_id) in twice))
        ],
        "authorizedOperations": _NO_AUTHORIZED_OPERATIONS,
        **_computed(group),
    }


def _computed(group: ConsumerGroup) -> dict[str, Any]:
    """Returns who computes the assignment and who has (KIP-848's client-side mode).

    Returns nothing where the coordinator computes it.
    """
    said: dict[str, Any] = {}
    now, before = group.computation, group.installed
    if before is not None:
        said |= {"computedBy": before.member_id, "computeTimeMs": before.took_ms, "assignmentRefusals": before.refusals}
    if now is not None:
        said |= {"computingMemberId": now.member_id, "computingSinceMs": now.told_ms}
        said["assignmentRefusals"] = now.refusals
    return said | ({"assignmentError": group.assignment_error} if group.assignment_error else {})


def _describe_member(group: ConsumerGroup, member: ConsumerMember, names: dict[str, str]) -> dict[str, Any]:
    held: dict[str, list[int]] = {}
    for partitions in (member.assigned, member.pending_revocation):
        for topic_id, epochs in partitions.items():
            held.setdefault(topic_id, []).extend(epochs)
    target = {topic_id: list(partitions) for topic_id, partitions in group.target(member.member_id).items()}
    return {
        "memberId": member.member_id,
        "instanceId": member.instance_id,
        "rackId": member.rack_id,
        "memberEpoch": member.member_epoch,
        "clientId": member.client_id,
        "clientHost": member.client_host,
        "subscribedTopicNames": list(member.subscribed_topic_names),
        "subscribedTopicRegex": member.subscribed_topic_regex,
        "assignment": {"topicPartitions": _topic_partitions(held, names)},
        "targetAssignment": {"topicPartitions": _topic_partitions(target, names)},
        "memberType": _CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    }


def _topic_partitions(partitions: dict[str, list[int]], names: dict[str, str]) -> list[dict[str, Any]]:
    """Returns partitions with their topics' names; topics that are gone are left out."""
    return [
        {"topicId": topic_id, "topicName": names[topic_id], "partitions": int_order(partitions[topic_id])}
        for topic_id in uuid_order(partitions)
        if topic_id in names
    ]


# -- the state inside ---------------------------------------------------------------------------------------------


def consumer_group_state(group: ConsumerGroup) -> dict[str, Any]:
    """Returns all that there is of a group, everything sorted."""
    return {
        "groupId": group.group_id,
        "type": "consumer",
        "state": group.state.value,
        "groupEpoch": group.group_epoch,
        "assignmentEpoch": group.assignment_epoch,
        "preferredServerAssignor": group.preferred_assignor(),
        "numClassicProtocolMembers": group.classic_member_count(),
        "members": [_member_state(group, group.members[member_id]) for member_id in sorted(group.members)],
        **_computed(group),
    }


def _member_state(group: ConsumerGroup, member: ConsumerMember) -> dict[str, Any]:
    target = group.target(member.member_id, member.instance_id)
    return {
        "memberId": member.member_id,
        "instanceId": member.instance_id,
        "rackId": member.rack_id,
        "clientId": member.client_id,
        "clientHost": member.client_host,
        "state": member.state.name,
        "memberEpoch": member.member_epoch,
        "previousMemberEpoch": member.previous_member_epoch,
        "rebalanceTimeoutMs": member.rebalance_timeout_ms,
        "serverAssignor": member.server_assignor,
        "subscribedTopicNames": list(member.subscribed_topic_names),
        "subscribedTopicRegex": member.subscribed_topic_regex,
        "useClassicProtocol": member.classic is not None,
        "assignedPartitions": _epochs(member.assigned),
        "partitionsPendingRevocation": _epochs(member.pending_revocation),
        "targetAssignment": {topic_id: sorted(target[topic_id]) for topic_id in sorted(target)},
        **({"clientAssignors": [asdict(each) for each in member.client_assignors]} if member.client_assignors else {}),
    }


def _epochs(partitions: Assigned) -> dict[str, dict[str, int]]:
    return {
        topic_id: {str(partition): epoch for partition, epoch in sorted(partitions[topic_id].items())}
        for topic_id in sorted(partitions)
    }
