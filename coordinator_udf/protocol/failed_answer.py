"""The answer that says of a whole request that it failed, in the place where the API's clients look for errors.

Source: getErrorResponse of Kafka's request classes, GroupCoordinatorService.handleOperationException.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.requests import (
    CLIENT_ASSIGNMENT_APIS,
    OFFSET_FETCH_BATCH_VERSION,
    OFFSET_FETCH_TOP_LEVEL_ERROR_VERSION,
    Int32,
    Uuid,
)
from coordinator_udf.protocol.wire.shaping import answer

_NULLABLE_PROTOCOL_VERSION: Final = 7
_TOPIC_ID_VERSION: Final = 10

#: APIs whose every version has an error at the top level: what was asked needn't be known.
_ERROR_ON_TOP: Final = frozenset(
    {
        "JoinGroup",
        "SyncGroup",
        "Heartbeat",
        "LeaveGroup",
        "OffsetDelete",
        "ListGroups",
        "ConsumerGroupHeartbeat",
        *CLIENT_ASSIGNMENT_APIS,
    }
)


class _Body(msgspec.Struct, frozen=True, rename="camel"):
    """Of a request only what its failure repeats: whatever else is wrong with it doesn't matter."""


class _Partition(_Body, frozen=True):
    partition_index: Int32


class _CommitTopic(_Body, frozen=True):
    partitions: tuple[_Partition, ...]
    name: str | None = None
    topic_id: Uuid | None = None


class _Commit(_Body, frozen=True):
    topics: tuple[_CommitTopic, ...]


class _FetchTopic(_Body, frozen=True):
    name: str
    partition_indexes: tuple[Int32, ...]


class _Fetch(_Body, frozen=True):
    topics: tuple[_FetchTopic, ...]


class _FetchGroup(_Body, frozen=True):
    group_id: str


class _FetchGroups(_Body, frozen=True):
    groups: tuple[_FetchGroup, ...]


class _DescribeGroups(_Body, frozen=True):
    groups: tuple[str, ...]


class _ConsumerGroupDescribe(_Body, frozen=True):
    group_ids: tuple[str, ...]


class _DeleteGroups(_Body, frozen=True):
    groups_names: tuple[str, ...]


#: A request in Kafka's JSON: as text, or decoded.
RequestBody = str | Mapping[str, Any] | None


def failed_answer(api: str, api_version: int, request: RequestBody, error: Errors) -> dict[str, Any] | None:
    """Makes the body of an answer in which all that was asked failed with one error.

    Args:
        api: an API of protocol.requests.VERSIONS.
        api_version: one of its versions.
        request: what was asked; it may be anything.
        error: what went wrong, not NONE.

    Returns:
        The fields of that version; None where it has no error but beside what was asked and the request can't be
        read. Kafka then has no answer either and closes the connection.
    """
    if api in _ERROR_ON_TOP or (
        api == "OffsetFetch" and OFFSET_FETCH_TOP_LEVEL_ERROR_VERSION <= api_version < OFFSET_FETCH_BATCH_VERSION
    ):
        # Before v7 of JoinGroup there is always a protocol name in the answer.
        name = None if api_version >= _NULLABLE_PROTOCOL_VERSION else ""
        return answer(api, api_version, errorCode=int(error), protocolName=name)
    try:
        return _beside_what_was_asked(api, api_version, request, int(error))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _beside_what_was_asked(api: str, version: int, request: RequestBody, code: int) -> dict[str, Any] | None:
    if api in {"OffsetCommit", "TxnOffsetCommit"}:
        topics = _read(request, _Commit).topics
        by_id = api == "OffsetCommit" and version >= _TOPIC_ID_VERSION
        if any((topic.topic_id if by_id else topic.name) is None for topic in topics):
            return None
        return answer(api, version, topics=[_failed_commit(topic, code) for topic in topics])
    if api == "OffsetFetch":
        if version >= OFFSET_FETCH_BATCH_VERSION:
            asked = _read(request, _FetchGroups).groups
            return answer(api, version, groups=_failed_groups((group.group_id for group in asked), code))
        return answer(api, version, topics=[_failed_fetch(topic, code) for topic in _read(request, _Fetch).topics])
    if api == "DescribeGroups":
        return answer(api, version, groups=_failed_groups(_read(request, _DescribeGroups).groups, code))
    if api == "ConsumerGroupDescribe":
        return answer(api, version, groups=_failed_groups(_read(request, _ConsumerGroupDescribe).group_ids, code))
    # DeleteGroups: Kafka's results are a set.
    named = dict.fromkeys(_read(request, _DeleteGroups).groups_names)
    return answer(api, version, results=_failed_groups(named, code))


_AnyBody = TypeVar("_AnyBody", bound=_Body)


def _read(request: RequestBody, kind: type[_AnyBody]) -> _AnyBody:
    if isinstance(request, str):
        return msgspec.json.decode(request, type=kind)
    return msgspec.convert(request, kind)


def _failed_commit(topic: _CommitTopic, code: int) -> dict[str, Any]:
    partitions = [{"partitionIndex": partition.partition_index, "errorCode": code} for partition in topic.partitions]
    return {"name": topic.name, "topicId": topic.topic_id, "partitions": partitions}


def _failed_fetch(topic: _FetchTopic, code: int) -> dict[str, Any]:
    partitions = [
        {"partitionIndex": index, "committedOffset": -1, "committedLeaderEpoch": -1, "metadata": "", "errorCode": code}
        for index in topic.partition_indexes
    ]
    return {"name": topic.name, "partitions": partitions}


def _failed_groups(groups: Iterable[str], code: int) -> list[dict[str, Any]]:
    return [{"groupId": group, "errorCode": code} for group in groups]
