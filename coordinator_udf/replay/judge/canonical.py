"""The canonical form of answers, records and descriptions: what Kafka leaves to the order of a hash map is sorted.

Two coordinators agree where the canonical forms of what they say are equal. Nothing but order is changed, and arrays
that follow the request's own order are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

Rules = tuple[tuple[str, Callable[[Any], Any]], ...]

_encode = msgspec.json.Encoder(order="sorted").encode

#: The states in which a classic group's leader is decided. Before, Kafka's choice among the members shows nowhere else.
LEADER_STATES = frozenset({"Stable", "CompletingRebalance"})

_SUPPORTED_ASSIGNORS = "Supported assignors: "


def canonical_answer(api: str, body: Mapping[str, Any] | None, *, of_many_shards: bool = False) -> Any:
    """Returns the canonical form of an answer's body.

    Args:
        of_many_shards: whether several shards may have had a part in it; a broker puts those together in the order in
            which they answered, so that the order of groups says nothing either.
    """
    return _apply(_ANSWERS.get(api, ()) + (_OF_MANY.get(api, ()) if of_many_shards else ()), body)


def canonical_value(record_type: str, value: Mapping[str, Any] | None) -> Any:
    """Returns the canonical form of a record's value."""
    return _apply(_RECORDS.get(record_type, ()), value)


def canonical_group(group: Mapping[str, Any]) -> Any:
    """Returns the canonical form of one described group, without the leader where it isn't decided yet."""
    canonical = _apply(_DESCRIBED, group)
    if canonical.get("type") == "classic" and canonical.get("state") not in LEADER_STATES:
        canonical.pop("leader", None)
    return canonical


def sort_key(value: Any) -> bytes:
    """Returns a total order over JSON values: equal keys, equal values."""
    return _encode(value)


def _by(*names: str) -> Callable[[Any], Any]:
    """Sorts an array of objects by these fields, and equal ones by all the rest."""

    def sort(items: Any) -> Any:
        return sorted(items, key=lambda item: ([str(item.get(name)) for name in names], sort_key(item)))

    return sort


def _by_only(name: str) -> Callable[[Any], Any]:
    """Sorts an array of objects by one field; equal ones keep their order."""

    def sort(items: Any) -> Any:
        return sorted(items, key=lambda item: item[name])

    return sort


def _by_value(items: Any) -> Any:
    return sorted(items)


def _topic_partitions(topics: Sequence[dict[str, Any]]) -> Any:
    """Returns topics with their partitions, and each partition's epoch beside it where there are epochs."""
    for topic in topics:
        partitions = topic.get("partitions")
        if partitions is None:
            continue
        epochs = topic.get("assignmentEpochs")
        if epochs and len(epochs) == len(partitions):
            order = sorted(range(len(partitions)), key=partitions.__getitem__)
            topic["assignmentEpochs"] = [epochs[i] for i in order]
            topic["partitions"] = [partitions[i] for i in order]
        else:
            topic["partitions"] = sorted(partitions)
    return sorted(topics, key=lambda topic: (str(topic.get("topicId")), str(topic.get("topicName")), sort_key(topic)))


def _assignor_names(message: str) -> str:
    head, found, names = message.partition(_SUPPORTED_ASSIGNORS)
    return head + found + ", ".join(sorted(names.rstrip(".").split(", "))) + "." if found else message


_FETCHED: Rules = (("topics.*.partitions", _by("partitionIndex")), ("topics", _by("name", "topicId")))
_COMMITTED: Rules = (("topics.*.partitions", _by_only("partitionIndex")), ("topics", _by("name", "topicId")))

#: Path of an array in an answer (``*``: each of the items) and how it is brought into order; inner arrays come first.
_ANSWERS: dict[str, Rules] = {
    "JoinGroup": (("members", _by("memberId")),),
    "DescribeGroups": (("groups.*.members", _by("memberId")),),
    "ListGroups": (("groups", _by("groupId")),),
    "DeleteGroups": (("results", _by("groupId")),),
    "OffsetFetch": (*_FETCHED, *((f"groups.*.{path}", rule) for path, rule in _FETCHED)),
    "OffsetCommit": _COMMITTED,
    "OffsetDelete": _COMMITTED,
    "TxnOffsetCommit": _COMMITTED,
    "ConsumerGroupHeartbeat": (
        ("assignment.topicPartitions", _topic_partitions),
        ("errorMessage", _assignor_names),
    ),
    "ConsumerGroupDescribe": (
        ("groups.*.members.*.subscribedTopicNames", _by_value),
        ("groups.*.members.*.assignment.topicPartitions", _topic_partitions),
        ("groups.*.members.*.targetAssignment.topicPartitions", _topic_partitions),
        ("groups.*.members", _by("memberId")),
    ),
}

_OF_MANY: dict[str, Rules] = {
    "DescribeGroups": (("groups", _by("groupId")),),
    "OffsetFetch": (("groups", _by("groupId")),),
    "ConsumerGroupDescribe": (("groups", _by("groupId")),),
}

_RECORDS: dict[str, Rules] = {
    "GroupMetadata": (("members", _by("memberId")),),
    "ConsumerGroupMemberMetadata": (("subscribedTopicNames", _by_value),),
    "ConsumerGroupTargetAssignmentMember": (("topicPartitions", _topic_partitions),),
    "ConsumerGroupCurrentMemberAssignment": (
        ("assignedPartitions", _topic_partitions),
        ("partitionsPendingRevocation", _topic_partitions),
    ),
    "ConsumerGroupRegularExpression": (("topics", _by_value),),
}

_DESCRIBED: Rules = (
    ("pendingJoinMembers", _by_value),
    ("pendingSyncMembers", _by_value),
    ("members", _by("memberId")),
    ("offsets", _by("topic", "partition")),
)


def _apply(rules: Rules, value: Any) -> Any:
    if not rules or value is None:
        return value
    copy = msgspec.json.decode(msgspec.json.encode(value))
    for path, rule in rules:
        _walk(copy, path.split("."), rule)
    return copy


def _walk(node: Any, path: list[str], rule: Callable[[Any], Any]) -> None:
    name, rest = path[0], path[1:]
    if name == "*":
        for item in node:
            _walk(item, rest, rule)
    elif isinstance(node, dict) and node.get(name) is not None:
        if rest:
            _walk(node[name], rest, rule)
        else:
            node[name] = rule(node[name])
