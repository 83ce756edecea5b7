"""The shape of a message, read from the metadata of kio's dataclasses, and of those that are made like them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from coordinator_udf.protocol.wire.extensions import FIRST_EXTENSION, definitions, load_entity

#: Kafka's names of the APIs by their keys, those whose messages are read or written here.
API_KEYS: dict[int, str] = {
    0: "Produce",
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    8: "OffsetCommit",
    9: "OffsetFetch",
    10: "FindCoordinator",
    11: "JoinGroup",
    12: "Heartbeat",
    13: "LeaveGroup",
    14: "SyncGroup",
    15: "DescribeGroups",
    16: "ListGroups",
    17: "SaslHandshake",
    18: "ApiVersions",
    19: "CreateTopics",
    20: "DeleteTopics",
    22: "InitProducerId",
    23: "OffsetForLeaderEpoch",
    24: "AddPartitionsToTxn",
    26: "EndTxn",
    28: "TxnOffsetCommit",
    29: "DescribeAcls",
    32: "DescribeConfigs",
    33: "AlterConfigs",
    36: "SaslAuthenticate",
    37: "CreatePartitions",
    42: "DeleteGroups",
    43: "ElectLeaders",
    44: "IncrementalAlterConfigs",
    45: "AlterPartitionReassignments",
    46: "ListPartitionReassignments",
    47: "OffsetDelete",
    48: "DescribeClientQuotas",
    50: "DescribeUserScramCredentials",
    55: "DescribeQuorum",
    57: "UpdateFeatures",
    60: "DescribeCluster",
    66: "ListTransactions",
    68: "ConsumerGroupHeartbeat",
    69: "ConsumerGroupDescribe",
    74: "ListConfigResources",
    **{
        key: definition["name"].removesuffix("Request")
        for (key, type_), definition in sorted(definitions().items())
        if key >= FIRST_EXTENSION and type_ == "request"
    },
}

KEYS_BY_NAME = {name: key for key, name in API_KEYS.items()}

#: What a field holds where kio gives no default: the zero value of Kafka's type.
_ZERO: dict[str, Any] = {
    "string": "",
    "bytes": b"",
    "records": b"",
    "bool": False,
    "float64": 0.0,
    "uuid": None,
}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message.

    Attributes:
        name: the field's name in Kafka's JSON.
        attribute: its name in kio's dataclass.
        kind: Kafka's type as kio names it (``int32``, ``string``, ``timedelta_i32``, ...); ``struct`` for a nested one.
        struct: the nested message where kind is ``struct``.
        is_array: there are any number of them.
        nullable: null is a value (for an array: of the array).
        tag: the number of a tagged field; None for one that is always there.
        default: what kio's dataclass gives if it is left out; ``dataclasses.MISSING`` where it must be given.
    """

    name: str
    attribute: str
    kind: str
    struct: Message | None
    is_array: bool
    nullable: bool
    tag: int | None
    default: Any

    @property
    def is_extension(self) -> bool:
        """Whether Kafka hasn't got the field (protocol.wire.extensions)."""
        return self.tag is not None and self.tag >= FIRST_EXTENSION

    @property
    def implied(self) -> Any:
        """The value of a tagged field that isn't on the wire, as kio has it."""
        if self.default is not dataclasses.MISSING:
            return self.default
        return () if self.is_array else _ZERO.get(self.kind, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """The shape of one message, or of one nested in it, in one version."""

    name: str
    entity: type[Any]
    flexible: bool
    fields: tuple[Field, ...] = dataclasses.field(repr=False)


@cache
def request_message(api: str, version: int) -> Message:
    """Returns the shape of an API's request.

    Raises:
        KeyError: there is no such API here.
        kio.index.KioIndexError: the API has no such version.
    """
    return _message(load_entity("request", KEYS_BY_NAME[api], version))


@cache
def response_message(api: str, version: int) -> Message:
    """Returns the shape of an API's response; it raises as `request_message` does."""
    return _message(load_entity("response", KEYS_BY_NAME[api], version))


@cache
def kafkas(message: Message) -> Message:
    """Returns a message's shape without the fields that Kafka hasn't got: who reads by it steps over them."""
    if not any(field.is_extension or field.struct is not None for field in message.fields):
        return message
    fields = tuple(
        field if field.struct is None else dataclasses.replace(field, struct=kafkas(field.struct))
        for field in message.fields
        if not field.is_extension
    )
    return message if fields == message.fields else dataclasses.replace(message, fields=fields)


def _message(entity: type[Any]) -> Message:
    return Message(
        name=f"{entity.__name__} v{entity.__version__}",
        entity=entity,
        flexible=entity.__flexible__,
        fields=tuple(_field(field) for field in dataclasses.fields(entity)),
    )


def _field(field: dataclasses.Field[Any]) -> Field:
    declared: Any = field.type
    nullable = False
    if get_origin(declared) is UnionType:
        nullable = True
        (declared,) = (part for part in get_args(declared) if part is not NoneType)
    is_array = get_origin(declared) is tuple
    if is_array:
        declared = get_args(declared)[0]
    kind = field.metadata.get("kafka_type", "struct")
    return Field(
        name=_json_name(field.name, kind),
        attribute=field.name,
        kind=kind,
        struct=_message(declared) if kind == "struct" else None,
        is_array=is_array,
        nullable=nullable,
        tag=field.metadata.get("tag"),
        default=field.default,
    )


def _json_name(attribute: str, kind: str) -> str:
    first, *rest = attribute.split("_")
    # kio drops the unit from the fields that it turns into Python's times.
    unit = "Ms" if kind.startswith(("timedelta", "datetime")) else ""
    return first + "".join(part.title() for part in rest) + unit
