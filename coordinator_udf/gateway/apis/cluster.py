"""ApiVersions, Metadata, FindCoordinator, DescribeCluster: a cluster of one broker, which is this gateway."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from coordinator_udf.gateway.topics import TopicCatalog
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.requests import ZERO_UUID, Topic, is_topic_name
from coordinator_udf.protocol.wire.schema import KEYS_BY_NAME
from coordinator_udf.protocol.wire.shaping import answer

#: What Kafka says where authorized operations were not asked for.
_NO_AUTHORIZED_OPERATIONS: Final = -(2**31)

#: Kafka's FindCoordinatorRequest.CoordinatorType and DescribeClusterRequest's endpoint types, by their numbers.
_KEY_TYPE_GROUP: Final = 0
_ENDPOINT_BROKER: Final = 1
_ENDPOINT_CONTROLLER: Final = 2

_API_VERSIONS: Final = KEYS_BY_NAME["ApiVersions"]
#: From this version on ApiVersions says what client asks.
_SOFTWARE_VERSION: Final = 3
#: Source: ApiVersionsRequest.
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

#: From this version on Metadata can be asked for by the ids of topics.
_TOPIC_ID_VERSION: Final = 12

#: Nothing here is ever led anew.
LEADER_EPOCH: Final = 0


@dataclass(frozen=True, slots=True)
class Node:
    """The broker that clients see: its id, the address they connect to, and its cluster."""

    node_id: int
    host: str
    port: int
    cluster_id: str


def api_versions(
    version: int,
    error: Errors,
    ranges: Mapping[int, tuple[int, int]],
    features: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns what is served.

    A client that asks in a version that isn't gets UNSUPPORTED_VERSION in v0, with the versions in which it can ask
    (KIP-511).

    Args:
        ranges: API key -> first and last version.
        features: the fields about features.
    """
    if error is Errors.INVALID_REQUEST:
        return answer("ApiVersions", version, errorCode=int(error), apiKeys=[])
    if error is Errors.UNSUPPORTED_VERSION:
        ranges = {_API_VERSIONS: ranges[_API_VERSIONS]}
    served = [{"apiKey": key, "minVersion": first, "maxVersion": last} for key, (first, last) in sorted(ranges.items())]
    return answer("ApiVersions", version, errorCode=int(error), apiKeys=served, **(features or {}))


def software_error(version: int, request: Mapping[str, Any]) -> Errors:
    """Returns the error of an ApiVersions that tells no name or version of a client's software.

    Requests of old versions needn't tell them.
    """
    told = ("clientSoftwareName", "clientSoftwareVersion") if version >= _SOFTWARE_VERSION else ()
    is_told = all(_SOFTWARE.fullmatch(request[field]) for field in told)
    return Errors.NONE if is_told else Errors.INVALID_REQUEST


def metadata(
    version: int, request: Mapping[str, Any], node: Node, catalog: TopicCatalog, nodes: Sequence[Node] = ()
) -> dict[str, Any]:
    """Returns the brokers, and the topics asked for; every topic where none is named (in v0: where the list is empty).

    Each topic is told of once. Where ids are asked for, names are not looked at. Source: KafkaApis.

    Args:
        node: this gateway, which leads every partition.
        nodes: all gateways; by default this one.
    """
    asked = request["topics"]
    error = Errors.NONE
    if asked is None or (version == 0 and not asked):
        topics = [_topic(topic, node) for topic in catalog.topics]
    else:
        error = _metadata_error(version, asked)
        topics = _asked_topics(asked, node, catalog) if error is Errors.NONE else _refused_topics(asked, error)
    return answer(
        "Metadata",
        version,
        brokers=[{"nodeId": one.node_id, "host": one.host, "port": one.port} for one in nodes or (node,)],
        clusterId=node.cluster_id,
        controllerId=node.node_id,
        errorCode=int(error),
        topics=topics,
        clusterAuthorizedOperations=_NO_AUTHORIZED_OPERATIONS,
    )


def _metadata_error(version: int, asked: Iterable[Mapping[str, Any]]) -> Errors:
    """Returns why topics can't be asked for like that: before v12 by id or without a name; from v12 on by neither."""
    ids = any(_asked_id(entry) != ZERO_UUID for entry in asked)
    is_nameless = any(entry["name"] is None for entry in asked)
    if version < _TOPIC_ID_VERSION:
        return Errors.INVALID_REQUEST if ids or is_nameless else Errors.NONE
    # Kafka's broker throws here.
    return Errors.UNKNOWN_SERVER_ERROR if is_nameless and not ids else Errors.NONE


def _asked_id(entry: Mapping[str, Any]) -> str:
    topic_id: str = entry.get("topicId", ZERO_UUID)
    return topic_id


def _refused_topics(asked: Iterable[Mapping[str, Any]], error: Errors) -> list[dict[str, Any]]:
    return [_no_topic(entry["name"] or "", _asked_id(entry), error) for entry in asked]


def _asked_topics(asked: Iterable[Mapping[str, Any]], node: Node, catalog: TopicCatalog) -> list[dict[str, Any]]:
    if ids := [topic_id for entry in asked if (topic_id := _asked_id(entry)) != ZERO_UUID]:
        by_id = {topic_id: catalog.with_id(topic_id) for topic_id in ids}
        return [
            _topic(topic, node) if topic else _no_topic(None, topic_id, Errors.UNKNOWN_TOPIC_ID)
            for topic_id, topic in by_id.items()
        ]
    by_name = {entry["name"]: catalog.named(entry["name"]) for entry in asked}
    return [
        _topic(topic, node) if topic else _no_topic(name, ZERO_UUID, unknown_topic(name))
        for name, topic in by_name.items()
    ]


def unknown_topic(name: str) -> Errors:
    """Returns the error of a name that no topic has."""
    return Errors.UNKNOWN_TOPIC_OR_PARTITION if is_topic_name(name) else Errors.INVALID_TOPIC_EXCEPTION


def _no_topic(name: str | None, topic_id: str, error: Errors) -> dict[str, Any]:
    return {
        "errorCode": int(error),
        "name": name,
        "topicId": topic_id,
        "isInternal": False,
        "partitions": [],
        "topicAuthorizedOperations": _NO_AUTHORIZED_OPERATIONS,
    }


def _topic(topic: Topic, node: Node) -> dict[str, Any]:
    return {
        "errorCode": 0,
        "name": topic.name,
        "topicId": topic.id,
        "isInternal": False,
        "partitions": [
            {
                "errorCode": 0,
                "partitionIndex": index,
                "leaderId": node.node_id,
                "leaderEpoch": LEADER_EPOCH,
                "replicaNodes": [node.node_id],
                "isrNodes": [node.node_id],
                "offlineReplicas": [],
            }
            for index in range(topic.partitions)
        ],
        "topicAuthorizedOperations": _NO_AUTHORIZED_OPERATIONS,
    }


def find_coordinator(version: int, request: Mapping[str, Any], node_for: Callable[[str], Node]) -> dict[str, Any]:
    """Returns the node for each group; neither transactions nor share groups are coordinated here."""
    is_group = request.get("keyType", _KEY_TYPE_GROUP) == _KEY_TYPE_GROUP
    keys = request["coordinatorKeys"] if version >= 4 else [request["key"]]
    found = [_coordinator(key, node_for(key)) if is_group else _no_coordinator(key, request["keyType"]) for key in keys]
    if version >= 4:
        return answer("FindCoordinator", version, coordinators=found)
    if is_group:
        found[0]["errorMessage"] = "NONE"
    return answer("FindCoordinator", version, **found[0])


def _coordinator(key: str, node: Node) -> dict[str, Any]:
    return {
        "key": key,
        "errorCode": 0,
        "errorMessage": "",
        "nodeId": node.node_id,
        "host": node.host,
        "port": node.port,
    }


def _no_coordinator(key: str, key_type: int) -> dict[str, Any]:
    return {
        "key": key,
        "errorCode": int(Errors.INVALID_REQUEST),
        "errorMessage": f"keyType is {key_type}, expected 0: only consumer groups are coordinated here",
        "nodeId": -1,
        "host": "",
        "port": -1,
    }


def describe_cluster(
    version: int, request: Mapping[str, Any], node: Node, nodes: Sequence[Node] = ()
) -> dict[str, Any]:
    """Returns the cluster of this gateway, or of all. There is no separate controller to ask for."""
    if (endpoint := request.get("endpointType", _ENDPOINT_BROKER)) != _ENDPOINT_BROKER:
        is_known = endpoint == _ENDPOINT_CONTROLLER
        error = Errors.MISMATCHED_ENDPOINT_TYPE if is_known else Errors.UNSUPPORTED_ENDPOINT_TYPE
        return answer(
            "DescribeCluster",
            version,
            errorCode=int(error),
            errorMessage=f"endpointType is {endpoint}, expected 1: this is a broker",
        )
    return answer(
        "DescribeCluster",
        version,
        errorCode=0,
        errorMessage=None,
        endpointType=_ENDPOINT_BROKER,
        clusterId=node.cluster_id,
        controllerId=node.node_id,
        brokers=[
            {"brokerId": one.node_id, "host": one.host, "port": one.port, "isFenced": False} for one in nodes or (node,)
        ],
        clusterAuthorizedOperations=_NO_AUTHORIZED_OPERATIONS,
    )
