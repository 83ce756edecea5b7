"""CreateTopics, CreatePartitions, DeleteTopics: what comes of them. Topics have no records here, but groups need them.

Clients may change the topics that clients created; those of the settings file are changed there.
Source of the errors and their order: ReplicationControlManager and org.apache.kafka.common.internals.Topic.
"""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from coordinator_udf.gateway.topics import TopicCatalog
from coordinator_udf.protocol.errors import ApiError, Errors
from coordinator_udf.protocol.requests import ZERO_UUID, Topic, is_topic_name
from coordinator_udf.protocol.wire.shaping import answer

Topics = tuple[Topic, ...]

#: The most partitions of a topic that a client may ask for: as Kafka's
#: ReplicationControlManager.MAX_PARTITIONS_PER_BATCH.
_PARTITIONS_MAX: Final = 10_000

#: How many partitions and replicas a topic has where the request leaves it to the broker.
_DEFAULT: Final = -1


def create_topics(
    version: int, request: Mapping[str, Any], node_id: int, catalog: TopicCatalog, created: Topics
) -> tuple[dict[str, Any], Topics]:
    """Returns the answer, and the created topics with the new ones."""
    asked = Counter(entry["name"] for entry in request["topics"])
    known = {topic.name: topic for topic in catalog.topics}
    new: list[Topic] = []
    results = []
    for entry in _one_of_each(request["topics"]):
        name = entry["name"]
        nothing_yet = {"numPartitions": -1, "replicationFactor": -1, "errorCode": 0, "errorMessage": None}
        result: dict[str, Any] = {"name": name, **nothing_yet}
        try:
            if asked[name] > 1:
                raise ApiError(Errors.INVALID_REQUEST, f"the topic {name} is in the request more than once")
            topic = _created(entry, node_id, known)
        except ApiError as refused:
            results.append(result | {"errorCode": int(refused.error), "errorMessage": refused.message})
            continue
        known[name] = topic
        new.append(topic)
        results.append(result | {"topicId": topic.id, "numPartitions": topic.partitions, "replicationFactor": 1})
    if request.get("validateOnly", False):
        new = []
    return answer("CreateTopics", version, topics=results), _sorted(*created, *new)


def _created(entry: Mapping[str, Any], node_id: int, known: Mapping[str, Topic]) -> Topic:
    name, count, replicas = entry["name"], entry["numPartitions"], entry["replicationFactor"]
    if name in known:
        raise ApiError(Errors.TOPIC_ALREADY_EXISTS, f"the topic {name} exists already")
    if not is_topic_name(name):
        expected = "1 to 249 letters, digits, dots, dashes and underscores"
        raise ApiError(Errors.INVALID_TOPIC_EXCEPTION, f"a topic's name is {name!r}, expected {expected}")
    colliding = next((other for other in known if other.replace(".", "_") == name.replace(".", "_")), None)
    if colliding is not None:
        raise ApiError(Errors.INVALID_TOPIC_EXCEPTION, f"the topic {name} collides with the topic {colliding}")
    if entry["assignments"]:
        if count != _DEFAULT or replicas != _DEFAULT:
            raise ApiError(
                Errors.INVALID_REQUEST, "a manual assignment goes without numPartitions and replicationFactor"
            )
        count = _assigned(entry["assignments"], node_id)
    elif replicas not in (_DEFAULT, 1):
        raise ApiError(Errors.INVALID_REPLICATION_FACTOR, f"replicationFactor is {replicas}, expected 1: one broker")
    if count != _DEFAULT and not 1 <= count <= _PARTITIONS_MAX:
        raise ApiError(Errors.INVALID_PARTITIONS, f"numPartitions is {count}, expected 1 to {_PARTITIONS_MAX}")
    if entry["configs"]:
        named = ", ".join(config["name"] for config in entry["configs"])
        raise ApiError(Errors.INVALID_CONFIG, f"no records are stored here, so a topic has no settings; given: {named}")
    topic_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return Topic(name=name, partitions=1 if count == _DEFAULT else count, id=topic_id)


def _assigned(assignments: list[Mapping[str, Any]], node_id: int) -> int:
    """Returns the number of partitions that a manual assignment names."""
    places = {assignment["partitionIndex"]: assignment["brokerIds"] for assignment in assignments}
    if sorted(places) != list(range(len(assignments))) or any(brokers != [node_id] for brokers in places.values()):
        expected = f"partitions 0 to {len(assignments) - 1}, each on broker {node_id}"
        raise ApiError(Errors.INVALID_REPLICA_ASSIGNMENT, f"the assignment is {places}, expected {expected}")
    return len(assignments)


def create_partitions(
    version: int, request: Mapping[str, Any], catalog: TopicCatalog, created: Topics
) -> tuple[dict[str, Any], Topics]:
    """Returns the answer, and the created topics with their new numbers of partitions."""
    asked = Counter(entry["name"] for entry in request["topics"])
    grown = {topic.name: topic for topic in created}
    results = []
    for entry in _one_of_each(request["topics"]):
        name, count = entry["name"], entry["count"]
        result: dict[str, Any] = {"name": name, "errorCode": 0, "errorMessage": None}
        try:
            if asked[name] > 1:
                raise ApiError(Errors.INVALID_REQUEST, f"the topic {name} is in the request more than once")
            topic = _of_clients(catalog.named(name), grown, Errors.UNKNOWN_TOPIC_OR_PARTITION)
            if not topic.partitions < count <= _PARTITIONS_MAX:
                more = f"{topic.partitions + 1} to {_PARTITIONS_MAX}"
                raise ApiError(Errors.INVALID_PARTITIONS, f"count of {name} is {count}, expected {more}")
            new = entry["assignments"]
            if new is not None and len(new) != count - topic.partitions:
                more = f"{count - topic.partitions} new partitions"
                raise ApiError(Errors.INVALID_REPLICA_ASSIGNMENT, f"{name} has {len(new)} assignments for {more}")
            grown[name] = msgspec.structs.replace(topic, partitions=count)
        except ApiError as refused:
            result |= {"errorCode": int(refused.error), "errorMessage": refused.message}
        results.append(result)
    body = answer("CreatePartitions", version, results=results)
    return body, created if request["validateOnly"] else _sorted(*grown.values())


def delete_topics(
    version: int, request: Mapping[str, Any], catalog: TopicCatalog, created: Topics
) -> tuple[dict[str, Any], Topics]:
    """Returns the answer, and the created topics that are left."""
    left = {topic.name: topic for topic in created}
    results = []
    asked = request["topics"] if version >= 6 else [{"name": name} for name in request["topicNames"]]
    named = Counter((entry["name"], entry.get("topicId", ZERO_UUID)) for entry in asked)
    for (name, topic_id), times in named.items():
        found = catalog.named(name) if name is not None else catalog.with_id(topic_id)
        missing = Errors.UNKNOWN_TOPIC_OR_PARTITION if name is not None else Errors.UNKNOWN_TOPIC_ID
        result: dict[str, Any] = {"name": name, "topicId": topic_id, "errorCode": 0, "errorMessage": None}
        try:
            if (name is None) == (topic_id == ZERO_UUID):
                raise ApiError(Errors.INVALID_REQUEST, "a topic is named either by its name or by its id")
            if times > 1:
                raise ApiError(Errors.INVALID_REQUEST, f"the topic {name or topic_id} is in the request more than once")
            topic = _of_clients(found, left, missing)
            del left[topic.name]
            result |= {"name": topic.name, "topicId": topic.id}
        except ApiError as refused:
            result |= {"errorCode": int(refused.error), "errorMessage": refused.message}
        results.append(result)
    return answer("DeleteTopics", version, responses=results), _sorted(*left.values())


def _one_of_each(entries: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns the entries, of those that name the same topic the first: the answer tells of each topic once."""
    first: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        first.setdefault(entry["name"], entry)
    return list(first.values())


def _of_clients(topic: Topic | None, created: Mapping[str, Topic], missing: Errors) -> Topic:
    """Returns a topic that a client may change."""
    if topic is None:
        raise ApiError(missing, "there is no such topic")
    if topic.name not in created:
        where = "is of the coordinator's settings file: change it there"
        raise ApiError(Errors.POLICY_VIOLATION, f"the topic {topic.name} {where}")
    return created[topic.name]


def _sorted(*topics: Topic) -> Topics:
    return tuple(sorted(topics, key=lambda topic: topic.name))
