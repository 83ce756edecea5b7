"""What requests and answers of a request log have to look like to be read: the fields that anything here looks at.

A log's line is JSON, and only what goes to the coordinator is read as a request of Kafka's by and by. Whatever else is
told by a request or an answer is looked at in many places; here it is made sure that they find what they look for.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from coordinator_udf.protocol.errors import BadRequest, Errors
from coordinator_udf.protocol.requests import Int32

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Shape(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A part of a body; bytes are base64 there."""


class _Failure(_Shape, frozen=True):
    """An answer, or a part of one, of which only its error is looked at."""

    error_code: Int32 = 0
    throttle_time_ms: Int32 = 0


class _Partition(_Shape, frozen=True):
    partition_index: Int32
    committed_offset: Int64
    error_code: Int32 = 0
    committed_leader_epoch: Int32 = -1
    metadata: str | None = None


class _AnsweredPartition(_Shape, frozen=True):
    partition_index: Int32
    error_code: Int32


class _FetchedPartition(_Shape, frozen=True):
    partition_index: Int32
    committed_offset: Int64
    error_code: Int32 = 0
    committed_leader_epoch: Int32 = -1
    metadata: str | None = None


class _CommitTopic(_Shape, frozen=True):
    name: str | None = None
    topic_id: str | None = None
    partitions: list[_Partition] | None = None


class _AnsweredTopic(_Shape, frozen=True):
    name: str | None = None
    topic_id: str | None = None
    partitions: list[_AnsweredPartition] | None = None


class _FetchedTopic(_Shape, frozen=True):
    name: str | None = None
    topic_id: str | None = None
    partitions: list[_FetchedPartition] | None = None


class _Protocol(_Shape, frozen=True):
    name: str
    metadata: str


class _Group(_Shape, frozen=True):
    """A request of a member, or an administrator, about groups. What is no group's id is refused later."""

    member_id: str | None = None
    group_instance_id: str | None = None
    generation_id: Int32 = -1
    generation_id_or_member_epoch: Int32 = -1
    member_epoch: Int32 = 0
    groups: list[Any] | None = None
    groups_names: list[Any] | None = None
    group_ids: list[Any] | None = None
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: str | None = None


class _Member(_Shape, frozen=True):
    """A request that only a member makes."""

    member_id: str
    group_instance_id: str | None = None
    generation_id: Int32 = -1
    generation_id_or_member_epoch: Int32 = -1


class _Join(_Shape, frozen=True):
    member_id: str
    protocols: list[_Protocol]
    group_instance_id: str | None = None
    protocol_type: str | None = None
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Int32 = -1


class _Leaver(_Shape, frozen=True):
    member_id: str | None = None


class _Leave(_Shape, frozen=True):
    member_id: str | None = None
    members: list[_Leaver] | None = None


class _Commit(_Shape, frozen=True):
    member_id: str = ""
    group_instance_id: str | None = None
    generation_id: Int32 = -1
    generation_id_or_member_epoch: Int32 = -1
    topics: list[_CommitTopic] | None = None


class _JoinedMember(_Shape, frozen=True):
    member_id: str
    group_instance_id: str | None = None
    metadata: bytes | None = None


class _Joined(_Shape, frozen=True):
    member_id: str
    generation_id: Int32
    error_code: Int32 = 0
    protocol_name: str | None = None
    leader: str | None = None
    members: list[_JoinedMember] | None = None


class _LeftMember(_Shape, frozen=True):
    error_code: Int32
    member_id: str | None = None


class _Left(_Shape, frozen=True):
    error_code: Int32 = 0
    members: list[_LeftMember] | None = None


class _Committed(_Shape, frozen=True):
    topics: list[_AnsweredTopic] | None = None


class _FetchedGroup(_Shape, frozen=True):
    group_id: str
    topics: list[_FetchedTopic] | None = None
    error_code: Int32 = 0


class _Fetched(_Shape, frozen=True):
    error_code: Int32 = 0
    topics: list[_FetchedTopic] | None = None
    groups: list[_FetchedGroup] | None = None


class _Assigned(_Shape, frozen=True):
    topic_id: str
    partitions: list[Int32] | None = None
    topic_name: str | None = None


class _Assignment(_Shape, frozen=True):
    topic_partitions: list[_Assigned] | None = None


class _Beaten(_Shape, frozen=True):
    error_code: Int32 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: _Assignment | None = None


class _ToldMember(_Shape, frozen=True):
    member_id: str
    client_id: str | None = None
    client_host: str | None = None
    group_instance_id: str | None = None
    member_metadata: bytes | None = None
    member_assignment: bytes | None = None


class _ToldGroup(_Shape, frozen=True):
    group_id: str
    error_code: Int32 = 0
    group_state: str | None = None
    protocol_data: str | None = None
    members: list[_ToldMember] | None = None


class _Told(_Shape, frozen=True):
    groups: list[_ToldGroup]
    error_code: Int32 = 0


class _DescribedMember(_Shape, frozen=True):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: Int32
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None
    assignment: _Assignment
    target_assignment: _Assignment


class _DescribedGroup(_Shape, frozen=True):
    group_id: str
    error_code: Int32
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: str
    members: list[_DescribedMember]


class _Described(_Shape, frozen=True):
    groups: list[_DescribedGroup]


class _DeletedGroup(_Shape, frozen=True):
    group_id: str
    error_code: Int32 = 0


class _Deleted(_Shape, frozen=True):
    results: list[_DeletedGroup] | None = None


class _Marked(_Shape, frozen=True):
    name: str | None = None


class _Marker(_Shape, frozen=True):
    producer_id: Int64
    producer_epoch: Int32
    transaction_result: bool
    topics: list[_Marked] | None = None


class _Markers(_Shape, frozen=True):
    markers: list[_Marker] | None = None


class _WantedTopic(_Shape, frozen=True):
    name: str
    num_partitions: Int32 = -1
    assignments: list[Any] | None = None


class _Wanted(_Shape, frozen=True):
    topics: list[_WantedTopic] | None = None


class _GrownTopic(_Shape, frozen=True):
    name: str
    count: Int32


class _Grown(_Shape, frozen=True):
    topics: list[_GrownTopic] | None = None


class _ChangedTopic(_Shape, frozen=True):
    error_code: Int32
    name: str | None = None
    topic_id: str | None = None
    num_partitions: Int32 | None = None


class _Created(_Shape, frozen=True):
    topics: list[_ChangedTopic] | None = None


class _Results(_Shape, frozen=True):
    results: list[_ChangedTopic] | None = None


class _Responses(_Shape, frozen=True):
    responses: list[_ChangedTopic] | None = None


#: Of each API whose lines tell anything, the request and the answer.
_SHAPES: Final[dict[str, tuple[Any, Any]]] = {
    "JoinGroup": (_Join, _Joined),
    "SyncGroup": (_Member, _Failure),
    "Heartbeat": (_Member, _Failure),
    "LeaveGroup": (_Leave, _Left),
    "OffsetCommit": (_Commit, _Committed),
    "TxnOffsetCommit": (_Commit, _Committed),
    "OffsetFetch": (_Group, _Fetched),
    "OffsetDelete": (_Group, _Committed),
    "DescribeGroups": (_Group, _Told),
    "ListGroups": (_Group, _Told),
    "DeleteGroups": (_Group, _Deleted),
    "ConsumerGroupHeartbeat": (_Group, _Beaten),
    "ConsumerGroupDescribe": (_Group, _Described),
    "CreateTopics": (_Wanted, _Created),
    "CreatePartitions": (_Grown, _Results),
    "DeleteTopics": (dict, _Responses),
    "WriteTxnMarkers": (_Markers, dict),
}


def check_shape(api: str, request: dict[str, Any], response: dict[str, Any] | None) -> None:
    """Makes sure that a request and its answer are as their readers expect them.

    Raises:
        BadRequest: a field that is looked at is missing or of another type, or topics grew that the request
            doesn't name.
    """
    shapes = _SHAPES.get(api)
    if shapes is None:
        return
    for what, body, shape in zip(("request", "response"), (request, response), shapes, strict=True):
        if body is None:
            continue
        try:
            msgspec.convert(body, shape)
        except msgspec.ValidationError as error:
            raise BadRequest(f"{what} of {api}", str(body)[:80], f"what Kafka's log has in it ({error})") from error
    if api == "CreatePartitions":
        _check_growth(request, response or {})


def _check_growth(request: dict[str, Any], response: dict[str, Any]) -> None:
    named = {topic["name"] for topic in request.get("topics") or ()}
    for topic in response.get("results") or ():
        if topic["errorCode"] == Errors.NONE and topic.get("name") and topic["name"] not in named:
            raise BadRequest("response.results.name", topic["name"], f"one of {sorted(named)}")
