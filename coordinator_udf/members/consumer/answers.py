"""What an answer must have for a member to go on with it. Else it is none of Kafka's, and the member stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from coordinator_udf.protocol.errors import BadRequest

_Int8 = Annotated[int, Meta(ge=-(2**7), le=2**7 - 1)]
_Int16 = Annotated[int, Meta(ge=-(2**15), le=2**15 - 1)]
_Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
#: A timeout; Kafka's client can't count down from less than 0.
_NotNegative = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class _Answer(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Kafka's JSON names; a field that the member doesn't look at may be anything."""


class _TopicPartitions(_Answer, frozen=True):
    topic_id: str
    partitions: list[_Int32]


class _Assignment(_Answer, frozen=True):
    topic_partitions: list[_TopicPartitions]
    error: _Int8 = 0
    metadata_version: _Int16 = -1
    metadata: bytes = b""


class _ConsumerGroupHeartbeat(_Answer, frozen=True):
    error_code: _Int16
    member_epoch: _Int32
    heartbeat_interval_ms: _NotNegative
    error_message: str | None = None
    assignment: _Assignment | None = None
    should_compute_assignment: bool = False


class _PreparedMember(_Answer, frozen=True):
    member_id: str
    subscribed_topic_ids: list[str]
    metadata: bytes
    partitions: list[_TopicPartitions]
    instance_id: str | None = None
    rack_id: str | None = None


class _Racks(_Answer, frozen=True):
    racks: list[str]


class _PreparedTopic(_Answer, frozen=True):
    topic_id: str
    topic_name: str
    num_partitions: _NotNegative
    racks: list[_Racks]


class _PrepareAssignment(_Answer, frozen=True):
    error_code: _Int16
    group_epoch: _Int32
    assignor_name: str
    members: list[_PreparedMember]
    topics: list[_PreparedTopic]


class _InstallAssignment(_Answer, frozen=True):
    error_code: _Int16


class _CommittedPartition(_Answer, frozen=True):
    partition_index: _Int32
    error_code: _Int16


class _CommittedTopic(_Answer, frozen=True):
    partitions: list[_CommittedPartition]
    topic_id: str = ""
    name: str = ""


class _OffsetCommit(_Answer, frozen=True):
    topics: list[_CommittedTopic]


class _Coordinator(_Answer, frozen=True):
    key: str
    node_id: _Int32
    error_code: _Int16
    error_message: str | None = None


class _FindCoordinator(_Answer, frozen=True):
    coordinators: list[_Coordinator] = []
    error_code: _Int16 = 0
    node_id: _Int32 = 0
    error_message: str | None = None


_ANSWERS: dict[str, type[_Answer]] = {
    "ConsumerGroupHeartbeat": _ConsumerGroupHeartbeat,
    "ConsumerGroupPrepareAssignment": _PrepareAssignment,
    "ConsumerGroupInstallAssignment": _InstallAssignment,
    "OffsetCommit": _OffsetCommit,
    "FindCoordinator": _FindCoordinator,
}


def check_answer(api: str, body: Mapping[str, Any]) -> None:
    """Checks that an answer's body has what the member reads of it.

    Raises:
        BadRequest: a field is missing, of another type or out of bounds; the message names it.
    """
    try:
        msgspec.convert(body, _ANSWERS[api])
    except msgspec.ValidationError as error:
        raise BadRequest(f"the answer to {api}", body, str(error)) from error
