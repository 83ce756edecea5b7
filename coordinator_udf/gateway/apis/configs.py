"""DescribeConfigs: topics and the one broker exist here and have no settings of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from coordinator_udf.gateway.apis.cluster import Node
from coordinator_udf.gateway.topics import TopicCatalog
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.wire.shaping import answer

#: Kafka's ConfigResource.Type.
_TOPIC: Final = 2
_BROKER: Final = 4


def describe_configs(version: int, request: Mapping[str, Any], node: Node, catalog: TopicCatalog) -> dict[str, Any]:
    """An empty list for each topic that there is and for this broker, an error for whatever else is asked for."""
    results = []
    for resource in request["resources"]:
        kind, name = resource["resourceType"], resource["resourceName"]
        error, message = _missing(kind, name, node, catalog)
        results.append(
            {
                "errorCode": int(error),
                "errorMessage": message,
                "resourceType": kind,
                "resourceName": name,
                "configs": [],
            }
        )
    return answer("DescribeConfigs", version, results=results)


def _missing(kind: int, name: str, node: Node, catalog: TopicCatalog) -> tuple[Errors, str | None]:
    if kind == _TOPIC:
        if catalog.named(name) is None:
            return Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}"
        return Errors.NONE, None
    if kind == _BROKER:
        if name in ("", str(node.node_id)):
            return Errors.NONE, None
        return Errors.INVALID_REQUEST, f"the broker is {name!r}, expected {node.node_id}, the only one"
    return Errors.INVALID_REQUEST, f"the resource's type is {kind}, expected {_TOPIC} (topic) or {_BROKER} (broker)"
