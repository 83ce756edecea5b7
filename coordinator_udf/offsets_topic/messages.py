"""The records of ``__consumer_offsets`` as data: every type that Kafka 4.3.1's group coordinator knows.

Facts of the message definitions ``*Key.json`` and ``*Value.json`` of Kafka's group-coordinator module. The first two
bytes of a key are the record type, the first two of a value are the value's version; `codec` reads and writes the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from coordinator_udf.protocol.requests import ZERO_UUID
from coordinator_udf.protocol.wire.extensions import FIRST_EXTENSION

FOREVER: Final = 32767

#: Tags from here on are none of Kafka's: its readers step over them.
FIRST_EXTENSION_TAG: Final = 10_000


@dataclass(frozen=True, slots=True)
class Array:
    """A list of primitives or of structs."""

    of: str | Struct


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct.

    Attributes:
        name: as in Kafka's JSON.
        type: a primitive's name (a key of `codec.PRIMITIVES`, or string, bytes), a struct or a list.
        since: the first version that has it.
        until: the last version that has it.
        nullable: whether null may be written.
        tag: its tag where it is a tagged field; it is then left out when it has its default.
        default: the default of a tagged number. That of a tagged list is the empty list, of a struct the struct of
            defaults, of a uuid zero. (Where a definition's default is a bare ``null``, Kafka's generator takes it for
            "none given", so null is not the default there and is written.)
    """

    name: str
    type: str | Array | Struct
    since: int = 0
    until: int = FOREVER
    nullable: bool = False
    tag: int | None = None
    default: int = 0

    @property
    def implied(self) -> Any:
        """The value, in Kafka's JSON, of a tagged field that isn't written."""
        if isinstance(self.type, Array):
            return []
        if isinstance(self.type, Struct):
            return {inner.name: inner.implied for inner in self.type.fields if inner.tag is None}
        return {"string": "", "bytes": "", "uuid": ZERO_UUID}.get(self.type, self.default)


@dataclass(frozen=True, slots=True)
class Struct:
    """Fields in the order of the wire."""

    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class RecordType:
    """A type of record: what its key and its value are made of.

    Attributes:
        id: the first two bytes of the key.
        name: Kafka's name of the type.
        key: the rest of the key; never flexible.
        value: the value without its version.
        newest: the newest version of the value; the oldest is 0.
        flexible: the first version of the value with compact lengths and tagged fields.
    """

    id: int
    name: str
    key: Struct
    value: Struct
    newest: int = 0
    flexible: int = 0


def _struct(*fields: Field) -> Struct:
    return Struct(fields)


_CLASSIC_GROUP_KEY = _struct(Field("group", "string"))
_COMMIT_KEY = _struct(Field("group", "string"), Field("topic", "string"), Field("partition", "int32"))
_GROUP_KEY = _struct(Field("groupId", "string"))
_MEMBER_KEY = _struct(Field("groupId", "string"), Field("memberId", "string"))

_LEGACY_COMMIT = _struct(Field("offset", "int64"), Field("metadata", "string"), Field("commitTimestamp", "int64"))

_COMMIT = _struct(
    Field("offset", "int64"),
    Field("leaderEpoch", "int32", since=3),
    Field("metadata", "string"),
    Field("commitTimestamp", "int64"),
    Field("expireTimestamp", "int64", since=1, until=1),
    Field("topicId", "uuid", since=4, tag=0),
)

CLASSIC_MEMBER = _struct(
    Field("memberId", "string"),
    Field("groupInstanceId", "string", since=3, nullable=True),
    Field("clientId", "string"),
    Field("clientHost", "string"),
    Field("rebalanceTimeout", "int32", since=1),
    Field("sessionTimeout", "int32"),
    Field("subscription", "bytes"),
    Field("assignment", "bytes"),
    Field("clientExtensions", "int8", since=4, tag=FIRST_EXTENSION_TAG),
)

CLASSIC_GROUP = _struct(
    Field("protocolType", "string"),
    Field("generation", "int32"),
    Field("protocol", "string", nullable=True),
    Field("leader", "string", nullable=True),
    Field("currentStateTimestamp", "int64", since=2),
    Field("members", Array(CLASSIC_MEMBER)),
    Field("resyncEpoch", "int32", since=4, tag=FIRST_EXTENSION_TAG),
    Field("resync", "int8", since=4, tag=FIRST_EXTENSION_TAG + 1),
)

_TARGET_METADATA = _struct(Field("assignmentEpoch", "int32"), Field("assignmentTimestamp", "int64", tag=0))

_TARGET_MEMBER_PARTITIONS = (
    Field(
        "topicPartitions",
        Array(_struct(Field("topicId", "uuid"), Field("partitions", Array("int32")))),
    ),
)
_TARGET_MEMBER = _struct(*_TARGET_MEMBER_PARTITIONS)

# -- KIP-848's client-side mode: what Kafka's values haven't got, in tagged fields that its readers step over ----------

_COMPUTATION = _struct(
    Field("assignor", "string"),
    Field("version", "int16"),
    Field("memberId", "string"),
    Field("groupEpoch", "int32"),
    Field("toldMs", "int64"),
    Field("late", Array("string")),
    Field("failed", Array("string")),
    Field("error", "int8"),
    Field("refusals", "int32"),
    Field(
        "departures",
        Array(_struct(Field("memberId", "string"), Field("groupEpoch", "int32"), Field("replacedBy", "string"))),
    ),
)

_COMPUTED = _struct(
    Field("assignor", "string"),
    Field("memberId", "string"),
    Field("tookMs", "int64"),
    Field("error", "int8"),
    Field("refusals", "int32"),
)

_CLIENT_ASSIGNOR = _struct(
    Field("name", "string"),
    Field("minimumVersion", "int16"),
    Field("maximumVersion", "int16"),
    Field("reason", "int8"),
    Field("metadataVersion", "int16"),
    Field("metadata", "bytes"),
)

_CONSUMER_TARGET_METADATA = _struct(
    Field("assignmentEpoch", "int32"),
    Field("assignmentTimestamp", "int64", tag=0),
    Field("computed", Array(_COMPUTED), tag=FIRST_EXTENSION),
)

_CONSUMER_TARGET_MEMBER = _struct(
    *_TARGET_MEMBER_PARTITIONS,
    Field("metadataVersion", "int16", tag=FIRST_EXTENSION, default=-1),
    Field("metadata", "bytes", tag=FIRST_EXTENSION + 1),
)

# -- Groups of the consumer protocol (KIP-848) ----------------------------------------------------------------------

_CONSUMER_GROUP = _struct(
    Field("epoch", "int32"),
    Field("metadataHash", "int64", tag=0),
    Field("computation", Array(_COMPUTATION), tag=FIRST_EXTENSION),
)

_CONSUMER_PARTITION_METADATA = _struct(
    Field(
        "topics",
        Array(
            _struct(
                Field("topicId", "uuid"),
                Field("topicName", "string"),
                Field("numPartitions", "int32"),
                Field(
                    "partitionMetadata",
                    Array(_struct(Field("partition", "int32"), Field("racks", Array("string")))),
                ),
            )
        ),
    )
)

_CONSUMER_MEMBER = _struct(
    Field("instanceId", "string", nullable=True),
    Field("rackId", "string", nullable=True),
    Field("clientId", "string"),
    Field("clientHost", "string"),
    Field("subscribedTopicNames", Array("string")),
    Field("subscribedTopicRegex", "string", nullable=True),
    Field("rebalanceTimeoutMs", "int32"),
    Field("serverAssignor", "string", nullable=True),
    Field(
        "classicMemberMetadata",
        _struct(
            Field("sessionTimeoutMs", "int32"),
            Field("supportedProtocols", Array(_struct(Field("name", "string"), Field("metadata", "bytes")))),
        ),
        nullable=True,
        tag=0,
    ),
    Field("clientAssignors", Array(_CLIENT_ASSIGNOR), tag=FIRST_EXTENSION),
    Field("joinedEpoch", "int32", tag=FIRST_EXTENSION + 1),
    Field("subscribedEpoch", "int32", tag=FIRST_EXTENSION + 2),
)

_CONSUMER_ASSIGNED = Array(
    _struct(
        Field("topicId", "uuid"),
        Field("partitions", Array("int32")),
        Field("assignmentEpochs", Array("int32"), nullable=True, tag=0),
    )
)

_CONSUMER_CURRENT = _struct(
    Field("memberEpoch", "int32"),
    Field("previousMemberEpoch", "int32"),
    Field("state", "int8"),
    Field("assignedPartitions", _CONSUMER_ASSIGNED),
    Field("partitionsPendingRevocation", _CONSUMER_ASSIGNED),
)

_REGULAR_EXPRESSION_KEY = _struct(Field("groupId", "string"), Field("regularExpression", "string"))
_REGULAR_EXPRESSION = _struct(Field("topics", Array("string")), Field("version", "int64"), Field("timestamp", "int64"))

# -- Share groups (KIP-932) -----------------------------------------------------------------------------------------

_SHARE_MEMBER = _struct(
    Field("rackId", "string", nullable=True),
    Field("clientId", "string"),
    Field("clientHost", "string"),
    Field("subscribedTopicNames", Array("string")),
)

_SHARE_GROUP = _struct(Field("epoch", "int32"), Field("metadataHash", "int64"))

_SHARE_CURRENT = _struct(
    Field("memberEpoch", "int32"),
    Field("previousMemberEpoch", "int32"),
    Field("state", "int8"),
    Field(
        "assignedPartitions",
        Array(_struct(Field("topicId", "uuid"), Field("partitions", Array("int32")))),
    ),
)

_SHARE_TOPIC_PARTITIONS = Array(
    _struct(Field("topicId", "uuid"), Field("topicName", "string"), Field("partitions", Array("int32")))
)

_SHARE_STATE_PARTITIONS = _struct(
    Field("initializingTopics", _SHARE_TOPIC_PARTITIONS),
    Field("initializedTopics", _SHARE_TOPIC_PARTITIONS),
    Field("deletingTopics", Array(_struct(Field("topicId", "uuid"), Field("topicName", "string")))),
)

# -- Streams groups (KIP-1071) --------------------------------------------------------------------------------------

_KEY_VALUES = Array(_struct(Field("key", "string"), Field("value", "string")))

_STREAMS_GROUP = _struct(
    Field("epoch", "int32"),
    Field("metadataHash", "int64"),
    Field("validatedTopologyEpoch", "int32", tag=0, default=-1),
    Field("lastAssignmentConfigs", _KEY_VALUES, nullable=True, tag=1),
)

_STREAMS_MEMBER = _struct(
    Field("instanceId", "string", nullable=True),
    Field("rackId", "string", nullable=True),
    Field("clientId", "string"),
    Field("clientHost", "string"),
    Field("rebalanceTimeoutMs", "int32"),
    Field("topologyEpoch", "int32"),
    Field("processId", "string"),
    Field("userEndpoint", _struct(Field("host", "string"), Field("port", "uint16")), nullable=True),
    Field("clientTags", _KEY_VALUES),
)

_STREAMS_TASKS = Array(_struct(Field("subtopologyId", "string"), Field("partitions", Array("int32"))))

_STREAMS_TASKS_WITH_EPOCHS = Array(
    _struct(
        Field("subtopologyId", "string"),
        Field("partitions", Array("int32")),
        Field("assignmentEpochs", Array("int32"), nullable=True, tag=0),
    )
)

_STREAMS_TARGET_MEMBER = _struct(
    Field("activeTasks", _STREAMS_TASKS),
    Field("standbyTasks", _STREAMS_TASKS),
    Field("warmupTasks", _STREAMS_TASKS),
)

_STREAMS_CURRENT = _struct(
    Field("memberEpoch", "int32"),
    Field("previousMemberEpoch", "int32"),
    Field("state", "int8"),
    Field("activeTasks", _STREAMS_TASKS_WITH_EPOCHS),
    Field("standbyTasks", _STREAMS_TASKS_WITH_EPOCHS),
    Field("warmupTasks", _STREAMS_TASKS_WITH_EPOCHS),
    Field("activeTasksPendingRevocation", _STREAMS_TASKS_WITH_EPOCHS),
    Field("standbyTasksPendingRevocation", _STREAMS_TASKS_WITH_EPOCHS),
    Field("warmupTasksPendingRevocation", _STREAMS_TASKS_WITH_EPOCHS),
)

_STREAMS_TOPICS = Array(
    _struct(
        Field("name", "string"),
        Field("partitions", "int32"),
        Field("replicationFactor", "int16"),
        Field("topicConfigs", _KEY_VALUES),
    )
)

_STREAMS_TOPOLOGY = _struct(
    Field("epoch", "int32"),
    Field(
        "subtopologies",
        Array(
            _struct(
                Field("subtopologyId", "string"),
                Field("sourceTopics", Array("string")),
                Field("sourceTopicRegex", Array("string")),
                Field("stateChangelogTopics", _STREAMS_TOPICS),
                Field("repartitionSinkTopics", Array("string")),
                Field("repartitionSourceTopics", _STREAMS_TOPICS),
                Field(
                    "copartitionGroups",
                    Array(
                        _struct(
                            Field("sourceTopics", Array("int16")),
                            Field("sourceTopicRegex", Array("int16")),
                            Field("repartitionSourceTopics", Array("int16")),
                        )
                    ),
                ),
            )
        ),
    ),
)

RECORD_TYPES: Final[tuple[RecordType, ...]] = (
    RecordType(0, "LegacyOffsetCommit", _COMMIT_KEY, _LEGACY_COMMIT, newest=0, flexible=FOREVER),
    RecordType(1, "OffsetCommit", _COMMIT_KEY, _COMMIT, newest=4, flexible=4),
    RecordType(2, "GroupMetadata", _CLASSIC_GROUP_KEY, CLASSIC_GROUP, newest=4, flexible=4),
    RecordType(3, "ConsumerGroupMetadata", _GROUP_KEY, _CONSUMER_GROUP),
    RecordType(4, "ConsumerGroupPartitionMetadata", _GROUP_KEY, _CONSUMER_PARTITION_METADATA),
    RecordType(5, "ConsumerGroupMemberMetadata", _MEMBER_KEY, _CONSUMER_MEMBER),
    RecordType(6, "ConsumerGroupTargetAssignmentMetadata", _GROUP_KEY, _CONSUMER_TARGET_METADATA),
    RecordType(7, "ConsumerGroupTargetAssignmentMember", _MEMBER_KEY, _CONSUMER_TARGET_MEMBER),
    RecordType(8, "ConsumerGroupCurrentMemberAssignment", _MEMBER_KEY, _CONSUMER_CURRENT),
    RecordType(10, "ShareGroupMemberMetadata", _MEMBER_KEY, _SHARE_MEMBER),
    RecordType(11, "ShareGroupMetadata", _GROUP_KEY, _SHARE_GROUP),
    RecordType(12, "ShareGroupTargetAssignmentMetadata", _GROUP_KEY, _TARGET_METADATA),
    RecordType(13, "ShareGroupTargetAssignmentMember", _MEMBER_KEY, _TARGET_MEMBER),
    RecordType(14, "ShareGroupCurrentMemberAssignment", _MEMBER_KEY, _SHARE_CURRENT),
    RecordType(15, "ShareGroupStatePartitionMetadata", _GROUP_KEY, _SHARE_STATE_PARTITIONS),
    RecordType(16, "ConsumerGroupRegularExpression", _REGULAR_EXPRESSION_KEY, _REGULAR_EXPRESSION),
    RecordType(17, "StreamsGroupMetadata", _GROUP_KEY, _STREAMS_GROUP),
    RecordType(19, "StreamsGroupMemberMetadata", _MEMBER_KEY, _STREAMS_MEMBER),
    RecordType(20, "StreamsGroupTargetAssignmentMetadata", _GROUP_KEY, _TARGET_METADATA),
    RecordType(21, "StreamsGroupTargetAssignmentMember", _MEMBER_KEY, _STREAMS_TARGET_MEMBER),
    RecordType(22, "StreamsGroupCurrentMemberAssignment", _MEMBER_KEY, _STREAMS_CURRENT),
    RecordType(23, "StreamsGroupTopology", _GROUP_KEY, _STREAMS_TOPOLOGY),
)
