"""The requests that a coordinator understands, as Kafka's JSON has them (org.apache.kafka.common.message).

One struct serves every version: a field that a version can't carry has Kafka's default. What an API asks for in each of
its versions has none: a request without it can't be read, and isn't one for nothing. Bytes are base64 in JSON.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

import msgspec

#: The versions of each API that are served, both ends included.
VERSIONS: dict[str, tuple[int, int]] = {
    "JoinGroup": (0, 9),
    "SyncGroup": (0, 5),
    "Heartbeat": (0, 4),
    "LeaveGroup": (0, 5),
    "OffsetCommit": (2, 10),
    "OffsetFetch": (1, 10),
    "OffsetDelete": (0, 0),
    "TxnOffsetCommit": (0, 5),
    "DescribeGroups": (0, 6),
    "ListGroups": (0, 5),
    "DeleteGroups": (0, 2),
    "ConsumerGroupHeartbeat": (0, 1),
    "ConsumerGroupDescribe": (0, 1),
    "ConsumerGroupPrepareAssignment": (0, 0),
    "ConsumerGroupInstallAssignment": (0, 0),
}

#: The APIs that Kafka hasn't got; they are served with group.consumer.client.assignors.enable only.
CLIENT_ASSIGNMENT_APIS = frozenset({"ConsumerGroupPrepareAssignment", "ConsumerGroupInstallAssignment"})

#: APIs of which one request may ask several shards, with the body's field that lists the groups (None: all groups).
SPANNING: dict[str, str | None] = {
    "ListGroups": None,
    "DescribeGroups": "groups",
    "DeleteGroups": "groupsNames",
    "OffsetFetch": "groups",
    "ConsumerGroupDescribe": "groupIds",
}

#: From which version on an OffsetFetch is answered with an error at the top level, and from which it asks for several
#: groups, each with an error of its own.
OFFSET_FETCH_TOP_LEVEL_ERROR_VERSION: Final = 2
OFFSET_FETCH_BATCH_VERSION: Final = 8

#: Numbers as the wire has them: one that doesn't fit is no request.
Int8 = Annotated[int, msgspec.Meta(ge=-(2**7), le=2**7 - 1)]
Int16 = Annotated[int, msgspec.Meta(ge=-(2**15), le=2**15 - 1)]
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

#: Log time up to the end of the year 9999.
Time = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799_999)]

#: A uuid in Kafka's url-safe base64.
Uuid = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{22}$")]

#: A topic's number of partitions. All of them are gone through whenever somebody is assigned some, so there is an end;
#: the largest topics that are known have a tenth of it.
PartitionCount = Annotated[int, msgspec.Meta(ge=1, le=100_000)]

ZERO_UUID = "AAAAAAAAAAAAAAAAAAAAAA"

_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_topic_name(name: str) -> bool:
    """Returns whether a topic can be called so. Source: org.apache.kafka.common.internals.Topic."""
    return _TOPIC_NAME.fullmatch(name) is not None and name not in (".", "..")


class _Body(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Kafka's JSON field names, immutable."""


class Protocol(_Body, frozen=True, array_like=False):
    """One way of assigning that a member supports, with the member's metadata for it."""

    name: str
    metadata: bytes = b""


class JoinGroup(_Body, frozen=True):
    group_id: str
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Int32 = -1
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str = ""
    protocols: tuple[Protocol, ...] = ()
    reason: str | None = None
    #: An extension: whether the member understands what leaders can say of an assignment (docs/client-extensions.md).
    client_extensions: bool = False


class MemberAssignment(_Body, frozen=True):
    member_id: str
    assignment: bytes = b""


class SyncGroup(_Body, frozen=True):
    group_id: str
    generation_id: Int32 = -1
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[MemberAssignment, ...] = ()
    #: Extensions. The leader's: why it can't assign anything, and whether the assignments replace those of the
    #: generation (`ResyncMode`). A member's: that it owns no partition any more.
    sync_error_code: Int16 = 0
    sync_error_reason: str | None = None
    resync: Int8 = 0
    owns_nothing: bool = False


class Heartbeat(_Body, frozen=True):
    group_id: str
    generation_id: Int32 = -1
    member_id: str = ""
    group_instance_id: str | None = None


class MemberIdentity(_Body, frozen=True):
    member_id: str = ""
    group_instance_id: str | None = None
    reason: str | None = None


class LeaveGroup(_Body, frozen=True):
    group_id: str
    member_id: str = ""
    members: tuple[MemberIdentity, ...] = ()


class CommitPartition(_Body, frozen=True):
    partition_index: Int32
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = -1
    committed_metadata: str | None = ""


class CommitTopic(_Body, frozen=True):
    partitions: tuple[CommitPartition, ...]
    name: str = ""
    topic_id: Uuid = ZERO_UUID


class CachedTopic(_Body, frozen=True):
    """A topic as it is in the metadata cache of the broker that takes a request; without partitions: it isn't there."""

    name: str
    partitions: Int32 = 0
    id: Uuid = ZERO_UUID


class OffsetCommit(_Body, frozen=True):
    group_id: str
    topics: tuple[CommitTopic, ...]
    generation_id_or_member_epoch: Int32 = -1
    member_id: str = ""
    group_instance_id: str | None = None
    retention_time_ms: Int64 = -1
    #: An extension of replayed logs, here and below: of which topics the broker may have heard otherwise than the
    #: coordinator; of all others both know the same.
    metadata_cache: tuple[CachedTopic, ...] = ()


class TxnOffsetCommit(_Body, frozen=True):
    group_id: str
    topics: tuple[CommitTopic, ...]
    transactional_id: str = ""
    producer_id: Int64 = -1
    producer_epoch: Int32 = -1
    generation_id: Int32 = -1
    member_id: str = ""
    group_instance_id: str | None = None
    metadata_cache: tuple[CachedTopic, ...] = ()


class FetchTopic(_Body, frozen=True):
    partition_indexes: tuple[Int32, ...]
    name: str = ""
    topic_id: Uuid = ZERO_UUID


class FetchGroup(_Body, frozen=True):
    group_id: str
    member_id: str | None = None
    member_epoch: Int32 = -1
    topics: tuple[FetchTopic, ...] | None = None


class OffsetFetch(_Body, frozen=True):
    group_id: str = ""
    topics: tuple[FetchTopic, ...] | None = None
    #: None before it could ask for several.
    groups: tuple[FetchGroup, ...] | None = None
    require_stable: bool = False
    metadata_cache: tuple[CachedTopic, ...] = ()


class DeletePartition(_Body, frozen=True):
    partition_index: Int32


class DeleteTopic(_Body, frozen=True):
    name: str
    partitions: tuple[DeletePartition, ...]


class OffsetDelete(_Body, frozen=True):
    group_id: str
    topics: tuple[DeleteTopic, ...]
    metadata_cache: tuple[CachedTopic, ...] = ()


class DescribeGroups(_Body, frozen=True):
    groups: tuple[str, ...]
    include_authorized_operations: bool = False


class ListGroups(_Body, frozen=True):
    states_filter: tuple[str, ...] = ()
    types_filter: tuple[str, ...] = ()


class DeleteGroups(_Body, frozen=True):
    groups_names: tuple[str, ...]


class OwnedPartitions(_Body, frozen=True):
    topic_id: Uuid
    partitions: tuple[Int32, ...] = ()


class ClientAssignor(_Body, frozen=True):
    """An assignor that a member can run (KIP-848's client-side mode; not Kafka's)."""

    name: str
    minimum_version: Int16 = 0
    maximum_version: Int16 = 0
    reason: Int8 = 0
    metadata_version: Int16 = -1
    metadata: bytes = b""


class ConsumerGroupHeartbeat(_Body, frozen=True):
    group_id: str
    member_id: str = ""
    member_epoch: Int32 = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    topic_partitions: tuple[OwnedPartitions, ...] | None = None
    #: Not Kafka's.
    client_assignors: tuple[ClientAssignor, ...] | None = None


class ConsumerGroupPrepareAssignment(_Body, frozen=True):
    group_id: str
    member_id: str = ""
    member_epoch: Int32 = 0


class MemberPartitions(_Body, frozen=True):
    member_id: str
    partitions: tuple[OwnedPartitions, ...] = ()
    metadata_version: Int16 = -1
    metadata: bytes = b""


class ConsumerGroupInstallAssignment(_Body, frozen=True):
    group_id: str
    member_id: str = ""
    member_epoch: Int32 = 0
    group_epoch: Int32 = 0
    error: Int8 = 0
    members: tuple[MemberPartitions, ...] = ()


class ConsumerGroupDescribe(_Body, frozen=True):
    group_ids: tuple[str, ...]
    include_authorized_operations: bool = False


class GroupConfig(_Body, frozen=True):
    """Settings of one group under Kafka's names, all that it has for itself."""

    group: str
    configs: dict[str, str | int]


class Topic(_Body, frozen=True, omit_defaults=True):
    """A topic that exists: its name, its number of partitions, its id in Kafka's url-safe base64.

    ``racks`` has for each partition the racks of its replicas; none where nobody says.
    """

    name: str
    partitions: PartitionCount
    id: Uuid = ZERO_UUID
    racks: tuple[tuple[str, ...], ...] = ()


class TopicMetadata(_Body, frozen=True):
    """The complete new list of topics. One that is missing was deleted; one with another id is another topic."""

    topics: tuple[Topic, ...]


class Downtime(_Body, frozen=True):
    """A stretch of log time in which nobody could append, in milliseconds since the epoch.

    ``grace_ms`` is how much longer than a session it may take members to come back, as they tried in vain for so long.
    ``heard_within_ms`` is in how long members that stayed connected are heard from, None where they had to go away.
    """

    from_ms: Time
    until_ms: Time
    grace_ms: Time = 0
    heard_within_ms: Time | None = None


class Delay(_Body, frozen=True):
    """Something of a group comes later: at ``until_ms``, in milliseconds since the epoch."""

    group_id: str
    until_ms: Time


class KeptTimer(_Body, frozen=True):
    """A member's timer fires at ``until_ms`` (since the epoch), though it was put off or disarmed."""

    group_id: str
    member_id: str
    kind: Literal["session", "join", "sync"]
    until_ms: Time


class EndTxn(_Body, frozen=True):
    producer_id: Int64
    producer_epoch: Int32
    committed: bool


class Describe(_Body, frozen=True):
    groups: tuple[str, ...] | None = None


BODIES: dict[str, type[_Body]] = {
    "JoinGroup": JoinGroup,
    "SyncGroup": SyncGroup,
    "Heartbeat": Heartbeat,
    "LeaveGroup": LeaveGroup,
    "OffsetCommit": OffsetCommit,
    "TxnOffsetCommit": TxnOffsetCommit,
    "OffsetFetch": OffsetFetch,
    "OffsetDelete": OffsetDelete,
    "DescribeGroups": DescribeGroups,
    "ListGroups": ListGroups,
    "DeleteGroups": DeleteGroups,
    "ConsumerGroupHeartbeat": ConsumerGroupHeartbeat,
    "ConsumerGroupDescribe": ConsumerGroupDescribe,
    "ConsumerGroupPrepareAssignment": ConsumerGroupPrepareAssignment,
    "ConsumerGroupInstallAssignment": ConsumerGroupInstallAssignment,
    "GroupConfig": GroupConfig,
    "TopicMetadata": TopicMetadata,
    "Downtime": Downtime,
    "DelayTimers": Delay,
    "DelayRegexes": Delay,
    "KeepTimer": KeptTimer,
    "EndTxn": EndTxn,
    "Describe": Describe,
}
