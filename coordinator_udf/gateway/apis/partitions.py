"""ListOffsets, Fetch, OffsetForLeaderEpoch: partitions that exist and hold nothing, so that a consumer stays content.

A partition begins at 0 and ends wherever its reader stands: a consumer that comes back with a committed offset finds
itself at the end of the partition, and not out of its range.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from coordinator_udf.gateway.apis.cluster import LEADER_EPOCH
from coordinator_udf.gateway.topics import TopicCatalog
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.protocol.wire.shaping import answer

#: Timestamps that ask for a place: LATEST, EARLIEST, EARLIEST_LOCAL.
_PLACES: Final = frozenset((-1, -2, -4))
_UNKNOWN: Final = -1
_END_OF_EPOCH: Final = 2**63 - 1


def list_offsets(version: int, request: Mapping[str, Any], catalog: TopicCatalog) -> dict[str, Any]:
    """Offset 0 for the beginning and the end; no record has any timestamp."""
    topics = []
    for entry in request["topics"]:
        topic = catalog.named(entry["name"])
        partitions = [_place(topic, partition) for partition in entry["partitions"]]
        topics.append({"name": entry["name"], "partitions": partitions})
    return answer("ListOffsets", version, topics=topics)


def _place(topic: Topic | None, partition: Mapping[str, Any]) -> dict[str, Any]:
    index = partition["partitionIndex"]
    found = {"partitionIndex": index, "timestamp": _UNKNOWN, "offset": _UNKNOWN, "leaderEpoch": _UNKNOWN}
    if not _exists(topic, index):
        return {**found, "errorCode": int(Errors.UNKNOWN_TOPIC_OR_PARTITION)}
    if partition["timestamp"] in _PLACES:
        found |= {"offset": 0, "leaderEpoch": LEADER_EPOCH}
    return {**found, "errorCode": 0}


def fetch(version: int, request: Mapping[str, Any], catalog: TopicCatalog) -> dict[str, Any]:
    """No records.

    No fetch session is ever opened (a broker may decline, KIP-227): each answer lists every partition asked for.
    """
    if _has_session(request):
        return answer("Fetch", version, errorCode=int(Errors.FETCH_SESSION_ID_NOT_FOUND), sessionId=0)
    responses = []
    for entry in request["topics"]:
        topic, missing = _fetched_topic(entry, catalog)
        partitions = [_nothing(topic, partition, missing) for partition in entry["partitions"]]
        responses.append({"topic": entry.get("topic"), "topicId": entry.get("topicId"), "partitions": partitions})
    return answer("Fetch", version, errorCode=0, sessionId=0, responses=responses)


def fetch_wait_ms(request: Mapping[str, Any], catalog: TopicCatalog) -> int:
    """How long to wait for records: the client's maximum; not at all where something is wrong or nothing is asked."""
    if _has_session(request) or not request["topics"] or request["minBytes"] <= 0:
        return 0
    for entry in request["topics"]:
        topic, _ = _fetched_topic(entry, catalog)
        if not all(_exists(topic, partition["partition"]) for partition in entry["partitions"]):
            return 0
    return max(int(request["maxWaitMs"]), 0)


def _has_session(request: Mapping[str, Any]) -> bool:
    return bool(request.get("sessionId", 0))


def _fetched_topic(entry: Mapping[str, Any], catalog: TopicCatalog) -> tuple[Topic | None, Errors]:
    """The topic, by id from v13 on, and the error if it isn't there."""
    if "topicId" not in entry:
        return catalog.named(entry["topic"]), Errors.UNKNOWN_TOPIC_OR_PARTITION
    topic = catalog.with_id(entry["topicId"])
    return topic, Errors.UNKNOWN_TOPIC_ID if topic is None else Errors.UNKNOWN_TOPIC_OR_PARTITION


def _nothing(topic: Topic | None, partition: Mapping[str, Any], missing: Errors) -> dict[str, Any]:
    index, offset = partition["partition"], partition["fetchOffset"]
    there = _exists(topic, index)
    end = max(offset, 0) if there else -1
    return {
        "partitionIndex": index,
        "errorCode": 0 if there else int(missing),
        "highWatermark": end,
        "lastStableOffset": end,
        "logStartOffset": 0 if there else -1,
        "abortedTransactions": [],
        "preferredReadReplica": -1,
        "records": "",
    }


def offset_for_leader_epoch(version: int, request: Mapping[str, Any], catalog: TopicCatalog) -> dict[str, Any]:
    """Every epoch is still going on, so no reader's position was ever cut off."""
    topics = []
    for entry in request["topics"]:
        topic = catalog.named(entry["topic"])
        partitions = []
        for partition in entry["partitions"]:
            index, epoch = partition["partition"], partition["leaderEpoch"]
            there = _exists(topic, index)
            partitions.append(
                {
                    "errorCode": 0 if there else int(Errors.UNKNOWN_TOPIC_OR_PARTITION),
                    "partition": index,
                    "leaderEpoch": epoch if there else _UNKNOWN,
                    "endOffset": _END_OF_EPOCH if there and epoch >= 0 else _UNKNOWN,
                }
            )
        topics.append({"topic": entry["topic"], "partitions": partitions})
    return answer("OffsetForLeaderEpoch", version, topics=topics)


def _exists(topic: Topic | None, partition: int) -> bool:
    return topic is not None and 0 <= partition < topic.partitions
