"""ListOffsets, Fetch, OffsetForLeaderEpoch: partitions that exist and hold nothing, so that a consumer stays content.

A partition begins at 0 and ends at the highest offset that was committed, or wherever its reader stands, if that is
further: a consumer that comes back with a committed offset finds itself in the partition's range.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from coordinator_udf.gateway.apis.cluster import LEADER_EPOCH
from coordinator_udf.gateway.partition_ends import PartitionEnds
from coordinator_udf.gateway.topics import TopicCatalog
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.protocol.wire.shaping import answer

#: Timestamps that ask for a place: LATEST, EARLIEST, EARLIEST_LOCAL.
_LATEST: Final = -1
_PLACES: Final = frozenset((_LATEST, -2, -4))
_UNKNOWN: Final = -1

#: From which version on timestamps that mean something else than a time can be asked for: MAX_TIMESTAMP,
#: EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD. Source: KafkaApis and ReplicaManager.fetchOffset.
_FROM_VERSION: Final = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
_UNSUPPORTED: Final = 2**15

#: How a fetch session begins and ends; with all other epochs one goes on (FetchMetadata).
_SESSION_OUTSIDE: Final = frozenset((0, -1))
_READ_UNCOMMITTED: Final = 0
#: From this version on a Fetch names topics by their ids.
_TOPIC_ID_VERSION: Final = 13

#: kafka-go takes an answer without records for broken unless its reader stands at the end, and connects anew for ever.
#: It asks in this version, so in this one a partition ends where its reader stands.
_KAFKA_GOS_VERSION: Final = 10

#: How long before a client's maximum (fetch.max.wait.ms, 500 by default) a Fetch is answered, in milliseconds, so that
#: the answer is there when the client's own time is over; a quarter of a shorter maximum.
_EARLY_MS: Final = 100
_END_OF_EPOCH: Final = 2**63 - 1


def list_offsets(
    version: int, request: Mapping[str, Any], catalog: TopicCatalog, ends: PartitionEnds
) -> dict[str, Any]:
    """Answers 0 for the beginning and the highest committed offset for the end; no record has a timestamp."""
    asked = Counter(
        (entry["name"], place["partitionIndex"]) for entry in request["topics"] for place in entry["partitions"]
    )
    topics = []
    for name, places in _told_once(request["topics"], "name", "partitionIndex").items():
        topic = catalog.named(name)
        partitions = [
            _place(topic, place, ends, version, is_repeated=asked[name, index] > 1) for index, place in places.items()
        ]
        topics.append({"name": name, "partitions": partitions})
    return answer("ListOffsets", version, topics=topics)


def _told_once(
    asked: Iterable[Mapping[str, Any]], topic_field: str, partition_field: str
) -> dict[str, dict[int, Mapping[str, Any]]]:
    """Returns the partitions of each topic: Kafka tells of each once, and of no topic of which none is asked for."""
    topics: dict[str, dict[int, Mapping[str, Any]]] = {}
    for entry in asked:
        for place in entry["partitions"]:
            topics.setdefault(entry[topic_field], {})[place[partition_field]] = place
    return topics


def _place(
    topic: Topic | None, partition: Mapping[str, Any], ends: PartitionEnds, version: int, *, is_repeated: bool
) -> dict[str, Any]:
    index, timestamp = partition["partitionIndex"], partition["timestamp"]
    found = {"partitionIndex": index, "timestamp": _UNKNOWN, "offset": _UNKNOWN, "leaderEpoch": _UNKNOWN}
    error = Errors.NONE
    if is_repeated:
        error = Errors.INVALID_REQUEST
    elif topic is None or not _exists(topic, index):
        error = Errors.UNKNOWN_TOPIC_OR_PARTITION
    elif timestamp < 0 and version < _FROM_VERSION.get(timestamp, _UNSUPPORTED):
        error = Errors.UNSUPPORTED_VERSION
    elif timestamp in _PLACES:
        offset = ends.end(topic, index) if timestamp == _LATEST else 0
        found |= {"offset": offset, "leaderEpoch": LEADER_EPOCH}
    return {**found, "errorCode": int(error)}


def fetch(version: int, request: Mapping[str, Any], catalog: TopicCatalog, ends: PartitionEnds) -> dict[str, Any]:
    """Answers with no records.

    No fetch session is ever opened (a broker may decline, KIP-227): each answer lists every partition asked for.
    """
    if _has_session(request):
        return answer("Fetch", version, errorCode=int(Errors.FETCH_SESSION_ID_NOT_FOUND), sessionId=0)
    responses = []
    field = "topicId" if version >= _TOPIC_ID_VERSION else "topic"
    for name, places in _told_once(request["topics"], field, "partition").items():
        topic, missing = _fetched_topic({field: name}, catalog)
        partitions = [_nothing(version, topic, place, missing, ends) for place in places.values()]
        if request["isolationLevel"] == _READ_UNCOMMITTED:
            partitions = [_without_aborted(partition) for partition in partitions]
        responses.append({field: name, "partitions": partitions})
    return answer("Fetch", version, errorCode=0, sessionId=0, responses=responses)


def _without_aborted(partition: dict[str, Any]) -> dict[str, Any]:
    return partition if partition["errorCode"] else {**partition, "abortedTransactions": None}


def fetch_wait_ms(request: Mapping[str, Any], catalog: TopicCatalog) -> int:
    """Returns how long to wait for records: nearly as long as the client would; not at all where something is wrong."""
    if _has_session(request) or not request["topics"] or request["minBytes"] <= 0:
        return 0
    for entry in request["topics"]:
        topic, missing = _fetched_topic(entry, catalog)
        if any(_fetch_error(topic, partition, missing) is not Errors.NONE for partition in entry["partitions"]):
            return 0
    # Some clients (kafka-go) give up little later than that, and an answer takes its time on a busy machine.
    wait_ms = max(int(request["maxWaitMs"]), 0)
    return wait_ms - min(wait_ms // 4, _EARLY_MS)


def _has_session(request: Mapping[str, Any]) -> bool:
    return request.get("sessionEpoch", _UNKNOWN) not in _SESSION_OUTSIDE


def _fetched_topic(entry: Mapping[str, Any], catalog: TopicCatalog) -> tuple[Topic | None, Errors]:
    """Returns the topic, by id from v13 on, and the error if it isn't there."""
    if "topicId" not in entry:
        return catalog.named(entry["topic"]), Errors.UNKNOWN_TOPIC_OR_PARTITION
    topic = catalog.with_id(entry["topicId"])
    return topic, Errors.UNKNOWN_TOPIC_ID if topic is None else Errors.UNKNOWN_TOPIC_OR_PARTITION


def _fetch_error(topic: Topic | None, partition: Mapping[str, Any], missing: Errors) -> Errors:
    if not _exists(topic, partition["partition"]):
        return missing
    return Errors.OFFSET_OUT_OF_RANGE if partition["fetchOffset"] < 0 else Errors.NONE


def _nothing(
    version: int, topic: Topic | None, partition: Mapping[str, Any], missing: Errors, ends: PartitionEnds
) -> dict[str, Any]:
    index, offset = partition["partition"], partition["fetchOffset"]
    error = _fetch_error(topic, partition, missing)
    end = -1
    if topic is not None and error is Errors.NONE:
        end = max(offset, 0 if version == _KAFKA_GOS_VERSION else ends.end(topic, index))
    return {
        "partitionIndex": index,
        "errorCode": int(error),
        "highWatermark": end,
        "lastStableOffset": end,
        "logStartOffset": 0 if error is Errors.NONE else -1,
        "abortedTransactions": [],
        "preferredReadReplica": -1,
        "records": "",
    }


def offset_for_leader_epoch(version: int, request: Mapping[str, Any], catalog: TopicCatalog) -> dict[str, Any]:
    """Answers that every epoch still goes on, so that no reader's position was ever cut off."""
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
