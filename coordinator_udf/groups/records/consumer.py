"""The records of consumer groups: their keys and values in Kafka's JSON field names, and what each does to a group.

A handler makes records of what it decides; writing them (`write`) is what changes the group, so that a group that is
loaded from its records is the group that wrote them. Source: GroupCoordinatorRecordHelpers; the methods of
GroupMetadataManager named replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import astuple, replace

from coordinator_udf.groups.model.client_assignment import (
    ClientAssignor,
    Computation,
    Departure,
    InstalledAssignment,
)
from coordinator_udf.groups.model.consumer import (
    LEFT,
    ClassicMetadata,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    ResolvedRegex,
)
from coordinator_udf.java_order.walks import Assigned, Target, assigned_in_kafka_order, target_in_kafka_order
from coordinator_udf.offsets_topic.sizes import Sizes, record_sizes

GROUP_EPOCH = "ConsumerGroupMetadata"
PARTITION_METADATA = "ConsumerGroupPartitionMetadata"
MEMBER = "ConsumerGroupMemberMetadata"
TARGET_EPOCH = "ConsumerGroupTargetAssignmentMetadata"
TARGET_MEMBER = "ConsumerGroupTargetAssignmentMember"
CURRENT_ASSIGNMENT = "ConsumerGroupCurrentMemberAssignment"
REGEX = "ConsumerGroupRegularExpression"

Value = dict[str, Any]

#: Of all of them.
_VALUE_VERSION = 0


class NewRecord(NamedTuple):
    """A record that is to be written. ``value`` None is a tombstone."""

    type: str
    key: dict[str, Any]
    value: Value | None

    @property
    def sizes(self) -> Sizes:
        """How large its key and its value are in Kafka's format."""
        # A conversion ends the classic group in the same write; the version of a tombstone doesn't matter.
        return record_sizes(self.type, self.key, self.value, _VALUE_VERSION)


def _key(type_: str, group_id: str, **more: str) -> dict[str, Any]:
    return {"type": type_, "groupId": group_id, **more}


def tombstone(type_: str, group_id: str, **more: str) -> NewRecord:
    """Returns the record that ends what a key says."""
    return NewRecord(type_, _key(type_, group_id, **more), None)


def group_epoch(group_id: str, epoch: int, metadata_hash: int, computation: Computation | None) -> NewRecord:
    """Returns the group's epoch and the hash of the topics that it is for.

    A hash of 0 is not written: it is the default.

    Args:
        computation: who computes an assignment, if a member does.
    """
    value: Value = {"epoch": epoch}
    if metadata_hash:
        value["metadataHash"] = metadata_hash
    if computation is not None:
        value["computation"] = [_computation_value(computation)]
    return NewRecord(GROUP_EPOCH, _key(GROUP_EPOCH, group_id), value)


def member_metadata(group_id: str, member: ConsumerMember) -> NewRecord:
    """Makes the record of who a member is and what it wants."""
    classic = member.classic
    value: Value = {
        "instanceId": member.instance_id,
        "rackId": member.rack_id,
        "clientId": member.client_id,
        "clientHost": member.client_host,
        "subscribedTopicNames": list(member.subscribed_topic_names),
        "subscribedTopicRegex": member.subscribed_topic_regex,
        "rebalanceTimeoutMs": member.rebalance_timeout_ms,
        "serverAssignor": member.server_assignor,
        "classicMemberMetadata": None
        if classic is None
        else {
            "sessionTimeoutMs": classic.session_timeout_ms,
            "supportedProtocols": [{"name": name, "metadata": data} for name, data in classic.protocols],
        },
    }
    if member.client_assignors:
        value["clientAssignors"] = [_named(each, _ASSIGNOR) for each in member.client_assignors]
    if member.joined_epoch:
        value["joinedEpoch"] = member.joined_epoch
    if member.subscribed_epoch:
        value["subscribedEpoch"] = member.subscribed_epoch
    return NewRecord(MEMBER, _key(MEMBER, group_id, memberId=member.member_id), value)


def target_member(
    group_id: str, member_id: str, target: Target, metadata: tuple[int, bytes] | None = None
) -> NewRecord:
    """Returns what a member shall have, in the order given.

    Args:
        metadata: the version and the bytes of what the assignor that computed it tells the member's.
    """
    topics = [{"topicId": topic_id, "partitions": list(partitions)} for topic_id, partitions in target.items()]
    value: Value = {"topicPartitions": topics}
    if metadata is not None:
        value["metadataVersion"] = metadata[0]
        if metadata[1]:
            value["metadata"] = metadata[1]
    return NewRecord(TARGET_MEMBER, _key(TARGET_MEMBER, group_id, memberId=member_id), value)


def target_epoch(
    group_id: str, epoch: int, timestamp_ms: int, installed: InstalledAssignment | None = None
) -> NewRecord:
    """Returns the group epoch for which the targets were computed, and when.

    A time of 0 is not written: it is the default.

    Args:
        installed: who computed them, if a member did.
    """
    value: Value = {"assignmentEpoch": epoch}
    if timestamp_ms:
        value["assignmentTimestamp"] = timestamp_ms
    if installed is not None:
        value["computed"] = [_named(installed, _INSTALLED)]
    return NewRecord(TARGET_EPOCH, _key(TARGET_EPOCH, group_id), value)


def current_assignment(group_id: str, member: ConsumerMember) -> NewRecord:
    """Returns what a member has, in the order in which the member has it."""
    value = {
        "memberEpoch": member.member_epoch,
        "previousMemberEpoch": member.previous_member_epoch,
        "state": int(member.state),
        "assignedPartitions": _with_epochs(member.assigned),
        "partitionsPendingRevocation": _with_epochs(member.pending_revocation),
    }
    return NewRecord(CURRENT_ASSIGNMENT, _key(CURRENT_ASSIGNMENT, group_id, memberId=member.member_id), value)


def member_in_kafka_order(member: ConsumerMember) -> ConsumerMember:
    """Returns a member of the group's state, with its partitions in the order in which Kafka walks them."""
    return replace(
        member,
        assigned=assigned_in_kafka_order(member.assigned),
        pending_revocation=assigned_in_kafka_order(member.pending_revocation),
    )


def _with_epochs(partitions: Assigned) -> list[Value]:
    return [
        {
            "topicId": topic_id,
            "partitions": list(epochs),
            "assignmentEpochs": list(epochs.values()),
        }
        for topic_id, epochs in partitions.items()
    ]


def resolved_regex(group_id: str, regex: str, resolved: ResolvedRegex) -> NewRecord:
    """Returns what a regular expression matches."""
    value = {"topics": list(resolved.topics), "version": resolved.version, "timestamp": resolved.timestamp}
    return NewRecord(REGEX, _key(REGEX, group_id, regularExpression=regex), value)


def member_tombstones(group_id: str, member_id: str) -> list[NewRecord]:
    """Returns the records that end a member."""
    return [tombstone(type_, group_id, memberId=member_id) for type_ in (CURRENT_ASSIGNMENT, TARGET_MEMBER, MEMBER)]


def group_tombstones(group: ConsumerGroup, renamed: Mapping[str, str] | None = None) -> list[NewRecord]:
    """Returns the records that end a group.

    Args:
        renamed: members that have another id in the records of the same write.
    """
    group_id = group.group_id
    names = [(renamed or {}).get(member.member_id, member.member_id) for member in group.in_order()]
    return [
        *(tombstone(CURRENT_ASSIGNMENT, group_id, memberId=name) for name in names),
        *(tombstone(TARGET_MEMBER, group_id, memberId=name) for name in names),
        tombstone(TARGET_EPOCH, group_id),
        *(tombstone(MEMBER, group_id, memberId=name) for name in names),
        *(tombstone(REGEX, group_id, regularExpression=regex) for regex in group.resolved_regexes),
        tombstone(PARTITION_METADATA, group_id),
        tombstone(GROUP_EPOCH, group_id),
    ]


def group_records(group: ConsumerGroup) -> list[NewRecord]:
    """Returns the records that make a group, of which none is in the log yet."""
    group_id, members = group.group_id, group.in_order()
    return [
        *(member_metadata(group_id, member) for member in members),
        group_epoch(group_id, group.group_epoch, group.metadata_hash, group.computation),
        *(
            target_member(group_id, member.member_id, target_in_kafka_order(group.target(member.member_id)))
            for member in members
        ),
        target_epoch(group_id, group.assignment_epoch, group.assignment_timestamp),
        *(current_assignment(group_id, member_in_kafka_order(member)) for member in members),
    ]


# -- what Kafka's records haven't got -----------------------------------------------------------------------------

#: By struct: its fields in the order in which it has them, and their names in the record.
_ASSIGNOR = ("name", "minimumVersion", "maximumVersion", "reason", "metadataVersion", "metadata")
_INSTALLED = ("assignor", "memberId", "tookMs", "error", "refusals")
_DEPARTURE = ("memberId", "groupEpoch", "replacedBy")
_COMPUTATION = (
    "assignor",
    "version",
    "memberId",
    "groupEpoch",
    "toldMs",
    "late",
    "failed",
    "error",
    "refusals",
    "departures",
)

_T = TypeVar("_T", bound=msgspec.Struct)


def _named(struct: msgspec.Struct, names: tuple[str, ...]) -> Value:
    return dict(zip(names, astuple(struct), strict=True))


def _struct(kind: type[_T], value: Mapping[str, Any], names: tuple[str, ...]) -> _T:
    return kind(*(value[name] for name in names))


def _computation_value(computation: Computation) -> Value:
    departures = [_named(each, _DEPARTURE) for each in computation.departures]
    value = _named(computation, _COMPUTATION)
    return {**value, "late": list(computation.late), "failed": list(computation.failed), "departures": departures}


# -- what records do ----------------------------------------------------------------------------------------------


def apply_record(group: ConsumerGroup, type_: str, key: Mapping[str, Any], value: Value | None) -> None:
    """Changes a group as a record says. A group's own end, the tombstone of its epoch, is the store's to see."""
    _APPLY[type_](group, key, value)


def _apply_epoch(group: ConsumerGroup, _: Mapping[str, Any], value: Value | None) -> None:
    if value is not None:
        group.group_epoch = value["epoch"]
        group.metadata_hash = value.get("metadataHash", 0)
        group.computation = _computation(value.get("computation", ()))


def _computation(values: Sequence[Value]) -> Computation | None:
    if not values:
        return None
    found = _struct(Computation, values[0], _COMPUTATION)
    departures = tuple(_struct(Departure, each, _DEPARTURE) for each in values[0]["departures"])
    return replace(found, late=tuple(found.late), failed=tuple(found.failed), departures=departures)


def _apply_partition_metadata(group: ConsumerGroup, _: Mapping[str, Any], value: Value | None) -> None:
    group.has_partition_metadata = value is not None


def _apply_member(group: ConsumerGroup, key: Mapping[str, Any], value: Value | None) -> None:
    member_id = key["memberId"]
    if value is None:
        if member_id in group.members:
            group.drop(member_id)
        return
    classic = value.get("classicMemberMetadata")
    group.put(
        replace(
            group.members.get(member_id) or ConsumerMember(member_id),
            instance_id=value["instanceId"],
            rack_id=value["rackId"],
            client_id=value["clientId"],
            client_host=value["clientHost"],
            subscribed_topic_names=tuple(sorted(set(value["subscribedTopicNames"]))),
            subscribed_topic_regex=value.get("subscribedTopicRegex") or "",
            rebalance_timeout_ms=value["rebalanceTimeoutMs"],
            server_assignor=value["serverAssignor"],
            classic=None
            if classic is None
            else ClassicMetadata(
                classic["sessionTimeoutMs"],
                tuple((protocol["name"], protocol["metadata"]) for protocol in classic["supportedProtocols"]),
            ),
            client_assignors=tuple(
                _struct(ClientAssignor, each, _ASSIGNOR) for each in value.get("clientAssignors") or ()
            ),
            joined_epoch=value.get("joinedEpoch", 0),
            subscribed_epoch=value.get("subscribedEpoch", 0),
        )
    )


def _apply_target_member(group: ConsumerGroup, key: Mapping[str, Any], value: Value | None) -> None:
    group.target_metadata.pop(key["memberId"], None)
    if value is None:
        group.targets.pop(key["memberId"], None)
        return
    if "metadataVersion" in value or "metadata" in value:
        group.target_metadata[key["memberId"]] = value.get("metadataVersion", -1), value.get("metadata", b"")
    group.targets[key["memberId"]] = {
        topic["topicId"]: tuple(topic["partitions"]) for topic in value["topicPartitions"]
    }


def _apply_target_epoch(group: ConsumerGroup, _: Mapping[str, Any], value: Value | None) -> None:
    group.assignment_epoch = -1 if value is None else value["assignmentEpoch"]
    group.assignment_timestamp = 0 if value is None else value.get("assignmentTimestamp", 0)
    computed = () if value is None else value.get("computed", ())
    group.installed = _struct(InstalledAssignment, computed[0], _INSTALLED) if computed else None


def _apply_current_assignment(group: ConsumerGroup, key: Mapping[str, Any], value: Value | None) -> None:
    member = group.members.get(key["memberId"])
    if value is None:
        if member is not None:
            group.put(
                replace(member, member_epoch=LEFT, previous_member_epoch=LEFT, assigned={}, pending_revocation={})
            )
        return
    epoch = value["memberEpoch"]
    known = value["state"] in MemberState._value2member_map_
    group.put(
        replace(
            member or ConsumerMember(key["memberId"]),
            member_epoch=epoch,
            previous_member_epoch=value["previousMemberEpoch"],
            state=MemberState(value["state"]) if known else MemberState.UNKNOWN,
            assigned=_assigned(value["assignedPartitions"], epoch),
            pending_revocation=_assigned(value["partitionsPendingRevocation"], epoch),
        )
    )


def _assigned(topics: Iterable[Value], epoch: int) -> Assigned:
    """Returns partitions with their epochs.

    Records of versions before those say none, and the member's counts for all.
    """
    assigned: Assigned = {}
    for topic in topics:
        partitions = topic["partitions"]
        epochs = topic.get("assignmentEpochs") or ()
        if len(epochs) != len(partitions):
            epochs = [max(epoch, 0)] * len(partitions)
        assigned[topic["topicId"]] = dict(zip(partitions, epochs, strict=True))
    return assigned


def _apply_regex(group: ConsumerGroup, key: Mapping[str, Any], value: Value | None) -> None:
    resolved = None
    if value is not None:
        resolved = ResolvedRegex(tuple(sorted(value["topics"])), value["version"], value["timestamp"])
    group.resolve(key["regularExpression"], resolved)


_APPLY: dict[str, Callable[[ConsumerGroup, Mapping[str, Any], Value | None], None]] = {
    GROUP_EPOCH: _apply_epoch,
    PARTITION_METADATA: _apply_partition_metadata,
    MEMBER: _apply_member,
    TARGET_EPOCH: _apply_target_epoch,
    TARGET_MEMBER: _apply_target_member,
    CURRENT_ASSIGNMENT: _apply_current_assignment,
    REGEX: _apply_regex,
}


#: Every type of record that a consumer group writes.
CONSUMER_RECORDS = frozenset(_APPLY)
