"""ApiVersions, Metadata, FindCoordinator, DescribeCluster: a cluster of one broker, which is this gateway."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from coordinator_udf.gateway.topics import TopicCatalog
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.requests import ZERO_UUID, Topic
from coordinator_udf.protocol.wire.shaping import answer

#: What Kafka says where authorized operations were not asked for.
_NO_AUTHORIZED_OPERATIONS: Final = -(2**31)

_KEY_TYPE_GROUP: Final = 0
_ENDPOINT_BROKER: Final = 1
_MISMATCHED_ENDPOINT_TYPE: Final = 114

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
    """What is served. A client that asks in a version that isn't gets the same list in v0 with UNSUPPORTED_VERSION.

    Args:
        ranges: API key -> first and last version.
        features: the fields about features.
    """
    served = [{"apiKey": key, "minVersion": first, "maxVersion": last} for key, (first, last) in sorted(ranges.items())]
    return answer("ApiVersions", version, errorCode=int(error), apiKeys=served, **(features or {}))


def metadata(
    version: int, request: Mapping[str, Any], node: Node, catalog: TopicCatalog, nodes: Sequence[Node] = ()
) -> dict[str, Any]:
    """The brokers, and the topics asked for; every topic where none is named (in v0: where the list is empty).

    Args:
        node: this gateway, which leads every partition.
        nodes: all gateways; by default this one.
    """
    asked = request["topics"]
    if asked is None or (version == 0 and not asked):
        topics = [_topic(topic, node) for topic in catalog.topics]
    else:
        # Ids can be asked for, and a name be null, from v12 on.
        topics = [_asked_topic(entry, node, catalog, None if version >= 12 else "") for entry in asked]
    return answer(
        "Metadata",
        version,
        brokers=[{"nodeId": one.node_id, "host": one.host, "port": one.port} for one in nodes or (node,)],
        clusterId=node.cluster_id,
        controllerId=node.node_id,
        topics=topics,
        clusterAuthorizedOperations=_NO_AUTHORIZED_OPERATIONS,
    )


def _asked_topic(entry: Mapping[str, Any], node: Node, catalog: TopicCatalog, nameless: str | None) -> dict[str, Any]:
    name, topic_id = entry["name"], entry.get("topicId", ZERO_UUID)
    if topic_id != ZERO_UUID:
        topic = catalog.with_id(topic_id)
        return _topic(topic, node) if topic else _no_topic(nameless, topic_id, Errors.UNKNOWN_TOPIC_ID)
    topic = catalog.named(name)
    unknown = Errors.UNKNOWN_TOPIC_OR_PARTITION
    return _topic(topic, node) if topic else _no_topic(nameless if name is None else name, ZERO_UUID, unknown)


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
    """The node for each group; neither transactions nor share groups are coordinated here."""
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
    """The cluster of this gateway, or of all. There is no separate controller to ask for."""
    if request.get("endpointType", _ENDPOINT_BROKER) != _ENDPOINT_BROKER:
        return answer(
            "DescribeCluster",
            version,
            errorCode=_MISMATCHED_ENDPOINT_TYPE,
            errorMessage=f"endpointType is {request['endpointType']}, expected 1: this is a broker",
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
