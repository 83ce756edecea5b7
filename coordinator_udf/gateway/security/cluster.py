"""ACLs on topics, transactions and the cluster: the rights that requests need, and the errors. Source: KafkaApis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from coordinator_udf.gateway.security.acls import CLUSTER
from coordinator_udf.gateway.security.restriction import Asker, Body, Restriction, refused_on_top, without
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.requests import ZERO_UUID
from coordinator_udf.protocol.wire.shaping import answer

_TOPIC: Final = "TOPIC"
_NOT_THE_TOPIC: Final = int(Errors.TOPIC_AUTHORIZATION_FAILED)
_NOT_THE_TRANSACTION: Final = Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_OPERATION_NOT_ATTEMPTED: Final = 55
_NO_OPERATIONS: Final = -(2**31)

Rule = Callable[[int, Body, Asker], Restriction | None]


class _Partitioned(NamedTuple):
    """An API that names topics and of each some partitions.

    Attributes:
        asked: the list of topics in the request, the name in one of it, its list of partitions, an index in that.
        told: likewise in the answer.
        nothing: what the answer says of a partition beside its index and the error.
        refuses_all: whether nothing of a request may be done, whatever the asker may do with its topics.
    """

    operation: str
    asked: tuple[str, str, str, str]
    told: tuple[str, str, str, str]
    nothing: Mapping[str, Any] = {}
    refuses_all: Callable[[Body, Asker], bool] = lambda _body, _asker: False


def _is_refused_replica(body: Body, asker: Asker) -> bool:
    """Tells whether a Fetch is a follower's, of somebody who may not be one (KafkaApis.handleFetchRequest)."""
    state = body.get("replicaState") or {}
    replica_id = max(body.get("replicaId", -1), state.get("replicaId", -1))
    return replica_id >= 0 and not asker.may("CLUSTER_ACTION", "CLUSTER", CLUSTER)


#: Versions of Metadata before have topics made that aren't there (allow.auto.create.topics).
_FIRST_THAT_ASKS_TO_CREATE: Final = 4

_PARTITIONED: Final = {
    "Produce": _Partitioned(
        "WRITE",
        ("topicData", "name", "partitionData", "index"),
        ("responses", "name", "partitionResponses", "index"),
        {"baseOffset": -1, "logAppendTimeMs": -1, "logStartOffset": -1},
    ),
    "Fetch": _Partitioned(
        "READ",
        ("topics", "topic", "partitions", "partition"),
        ("responses", "topic", "partitions", "partitionIndex"),
        {"highWatermark": -1, "lastStableOffset": -1, "logStartOffset": -1, "preferredReadReplica": -1, "records": ""},
        _is_refused_replica,
    ),
    "ListOffsets": _Partitioned(
        "DESCRIBE",
        ("topics", "name", "partitions", "partitionIndex"),
        ("topics", "name", "partitions", "partitionIndex"),
        {"timestamp": -1, "offset": -1, "leaderEpoch": -1},
    ),
    "OffsetForLeaderEpoch": _Partitioned(
        "DESCRIBE",
        ("topics", "topic", "partitions", "partition"),
        ("topics", "topic", "partitions", "partition"),
        {"leaderEpoch": -1, "endOffset": -1},
    ),
}


def _partitioned(api: str, shape: _Partitioned) -> Rule:
    asked, name_asked, partitions_asked, index_asked = shape.asked
    told, name_told, partitions_told, index_told = shape.told

    def rule(version: int, body: Body, asker: Asker) -> Restriction | None:
        left: list[Body] = []
        errors: list[dict[str, Any]] = []
        is_refused = shape.refuses_all(body, asker)
        for topic in body[asked]:
            name = asker.topic_name(topic, name_asked)
            if not is_refused and (name is None or asker.may(shape.operation, _TOPIC, name)):
                left.append(topic)
                continue
            partitions = [
                {**shape.nothing, index_told: partition[index_asked], "errorCode": _NOT_THE_TOPIC}
                for partition in topic[partitions_asked]
            ]
            named = {name_told: topic.get(name_asked), "topicId": topic.get("topicId")}
            errors.append({**named, partitions_told: partitions})
        return without(api, version, body, asked=asked, told=told, left=left, errors=errors)

    return rule


def _produce(version: int, body: Body, asker: Asker) -> Restriction | None:
    transaction = body.get("transactionalId")
    if transaction is not None and not asker.may("WRITE", "TRANSACTIONAL_ID", transaction):
        return _of_producer("Produce", version, body)
    return _partitioned("Produce", _PARTITIONED["Produce"])(version, body, asker)


def _of_producer(api: str, version: int, body: Body) -> Restriction:
    shape = _PARTITIONED[api]
    topics = [
        {
            "name": topic["name"],
            "partitionResponses": [
                {**shape.nothing, "index": partition["index"], "errorCode": int(_NOT_THE_TRANSACTION)}
                for partition in topic["partitionData"]
            ],
        }
        for topic in body["topicData"]
    ]
    said = answer(api, version, responses=topics)
    return Restriction(None, lambda _: said)


def _would_be_made(topic: Body, asker: Asker) -> bool:
    """Tells whether a cluster may make a topic because somebody asks for it who may not have one made."""
    name = asker.topic_name(topic)
    return name is not None and asker.catalog.named(name) is None and not asker.may("CREATE", _TOPIC, name)


def _metadata(version: int, body: Body, asker: Asker) -> Restriction | None:
    if body["topics"] is None or (version == 0 and not body["topics"]):
        return Restriction(body, lambda said: {**said, "topics": [t for t in said["topics"] if _may_see(t, asker)]})
    left: list[Body] = []
    errors: list[dict[str, Any]] = []
    for topic in body["topics"]:
        name = asker.topic_name(topic)
        if name is None or asker.may("DESCRIBE", _TOPIC, name):
            left.append(topic)
        else:
            # Ids are not secret, so they are repeated; a name that was asked for has none.
            errors.append(_no_topic(topic.get("name"), topic.get("topicId", ZERO_UUID)))
    made = [] if asker.may("CREATE", "CLUSTER", CLUSTER) else [topic for topic in left if _would_be_made(topic, asker)]
    if made and version >= _FIRST_THAT_ASKS_TO_CREATE:
        # Not made, a topic is answered as if the cluster made none by itself.
        body = {**body, "allowAutoTopicCreation": False}
    elif made:
        errors += [_no_topic(topic.get("name"), ZERO_UUID) for topic in made]
        left = [topic for topic in left if topic not in made]
    if not errors and not made:
        return None
    shaped = answer("Metadata", version, topics=errors)["topics"]
    # Of no topic at all it still has to be told which brokers there are; in v0 an empty list asks for all topics.
    return Restriction(
        {**body, "topics": left}, lambda said: {**said, "topics": [*(said["topics"] if left else ()), *shaped]}
    )


def _may_see(topic: Body, asker: Asker) -> bool:
    return topic["name"] is None or asker.may("DESCRIBE", _TOPIC, topic["name"])


def _no_topic(name: str | None, topic_id: str) -> dict[str, Any]:
    return {
        "errorCode": _NOT_THE_TOPIC,
        "name": name,
        "topicId": topic_id,
        "isInternal": False,
        "partitions": [],
        "topicAuthorizedOperations": _NO_OPERATIONS,
    }


def _find_coordinator(version: int, body: Body, asker: Asker) -> Restriction | None:
    is_transaction = body.get("keyType", 0) == 1
    kind = "TRANSACTIONAL_ID" if is_transaction else "GROUP"
    error = int(_NOT_THE_TRANSACTION if is_transaction else Errors.GROUP_AUTHORIZATION_FAILED)
    nowhere = {"errorCode": error, "errorMessage": None, "nodeId": -1, "host": "", "port": -1}
    if version < 4:
        if asker.may("DESCRIBE", kind, body["key"]):
            return None
        said = answer("FindCoordinator", version, **nowhere)
        return Restriction(None, lambda _: said)
    left, others = asker.split("DESCRIBE", kind, body["coordinatorKeys"])
    errors = [{"key": key, **nowhere} for key in others]
    return without(
        "FindCoordinator", version, body, asked="coordinatorKeys", told="coordinators", left=left, errors=errors
    )


def _init_producer_id(version: int, body: Body, asker: Asker) -> Restriction | None:
    transaction = body["transactionalId"]
    if transaction is not None:
        if asker.may("WRITE", "TRANSACTIONAL_ID", transaction):
            return None
        return refused_on_top("InitProducerId", version, _NOT_THE_TRANSACTION)
    if asker.may("IDEMPOTENT_WRITE", "CLUSTER", CLUSTER) or asker.acls.allows_somewhere(
        asker.principal, asker.host, "WRITE", _TOPIC
    ):
        return None
    return refused_on_top("InitProducerId", version, Errors.CLUSTER_AUTHORIZATION_FAILED)


def _end_txn(version: int, body: Body, asker: Asker) -> Restriction | None:
    if asker.may("WRITE", "TRANSACTIONAL_ID", body["transactionalId"]):
        return None
    return refused_on_top("EndTxn", version, _NOT_THE_TRANSACTION)


def _add_partitions_to_txn(version: int, body: Body, asker: Asker) -> Restriction | None:
    topics = body["v3AndBelowTopics"]
    may_write = asker.may("WRITE", "TRANSACTIONAL_ID", body["v3AndBelowTransactionalId"])
    allowed = {topic["name"]: asker.may("WRITE", _TOPIC, topic["name"]) for topic in topics}
    if may_write and all(allowed.values()):
        return None

    def code(name: str) -> int:
        if not may_write:
            return int(_NOT_THE_TRANSACTION)
        return _OPERATION_NOT_ATTEMPTED if allowed[name] else _NOT_THE_TOPIC

    results = [
        {
            "name": topic["name"],
            "resultsByPartition": [
                {"partitionIndex": index, "partitionErrorCode": code(topic["name"])} for index in topic["partitions"]
            ],
        }
        for topic in topics
    ]
    said = answer("AddPartitionsToTxn", version, resultsByTopicV3AndBelow=results)
    return Restriction(None, lambda _: said)


def _create_topics(version: int, body: Body, asker: Asker) -> Restriction | None:
    if asker.may("CREATE", "CLUSTER", CLUSTER):
        return None
    return _changed("CreateTopics", "CREATE", "topics")(version, body, asker)


def _changed(api: str, operation: str, told: str) -> Rule:
    def rule(version: int, body: Body, asker: Asker) -> Restriction | None:
        left = [topic for topic in body["topics"] if asker.may(operation, _TOPIC, topic["name"])]
        errors = [
            {"name": topic["name"], "errorCode": _NOT_THE_TOPIC, "errorMessage": None, "numPartitions": -1,
             "replicationFactor": -1, "topicId": ZERO_UUID}
            for topic in body["topics"]
            if topic not in left
        ]  # fmt: skip
        return without(api, version, body, asked="topics", told=told, left=left, errors=errors)

    return rule


def _delete_topics(version: int, body: Body, asker: Asker) -> Restriction | None:
    field = "topics" if version >= 6 else "topicNames"
    left: list[Any] = []
    errors: list[dict[str, Any]] = []
    for topic in body[field]:
        name = asker.topic_name(topic) if version >= 6 else topic
        if name is None or asker.may("DELETE", _TOPIC, name):
            left.append(topic)
        else:
            asked = topic if version >= 6 else {"name": topic}
            errors.append({"topicId": ZERO_UUID, **asked, "errorCode": _NOT_THE_TOPIC, "errorMessage": None})
    return without("DeleteTopics", version, body, asked=field, told="responses", left=left, errors=errors)


def _configs(api: str, operation: str, told: str, nothing: Mapping[str, Any]) -> Rule:
    """Makes the rule of an API about the settings of topics, groups and brokers.

    Args:
        told: the list of the answer that has an entry a resource.
        nothing: what such an entry says beside the resource and the error.
    """

    def rule(version: int, body: Body, asker: Asker) -> Restriction | None:
        left: list[Body] = []
        errors: list[dict[str, Any]] = []
        for resource in body["resources"]:
            kind, code = _CONFIGURED.get(resource["resourceType"], ("CLUSTER", Errors.CLUSTER_AUTHORIZATION_FAILED))
            if asker.may(operation, kind, CLUSTER if kind == "CLUSTER" else resource["resourceName"]):
                left.append(resource)
            else:
                named = {name: resource[name] for name in ("resourceType", "resourceName")}
                errors.append({**nothing, **named, "errorCode": int(code), "errorMessage": None})
        return without(api, version, body, asked="resources", told=told, left=left, errors=errors)

    return rule


def _list_config_resources(version: int, _: Body, asker: Asker) -> Restriction | None:
    if asker.may("DESCRIBE_CONFIGS", "CLUSTER", CLUSTER):
        return None
    return refused_on_top("ListConfigResources", version, Errors.CLUSTER_AUTHORIZATION_FAILED)


#: By Kafka's ConfigResource.Type: whose settings they are, and the error where they are not to be seen.
_CONFIGURED: Final = {
    2: (_TOPIC, Errors.TOPIC_AUTHORIZATION_FAILED),
    32: ("GROUP", Errors.GROUP_AUTHORIZATION_FAILED),
}

CLUSTER_RULES: Final[dict[str, Rule]] = {
    **{api: _partitioned(api, shape) for api, shape in _PARTITIONED.items()},
    "Produce": _produce,
    "Metadata": _metadata,
    "FindCoordinator": _find_coordinator,
    "InitProducerId": _init_producer_id,
    "EndTxn": _end_txn,
    "AddPartitionsToTxn": _add_partitions_to_txn,
    "CreateTopics": _create_topics,
    "CreatePartitions": _changed("CreatePartitions", "ALTER", "results"),
    "DeleteTopics": _delete_topics,
    "DescribeConfigs": _configs("DescribeConfigs", "DESCRIBE_CONFIGS", "results", {"configs": []}),
    "AlterConfigs": _configs("AlterConfigs", "ALTER_CONFIGS", "responses", {}),
    "IncrementalAlterConfigs": _configs("IncrementalAlterConfigs", "ALTER_CONFIGS", "responses", {}),
    "ListConfigResources": _list_config_resources,
}
