"""DescribeConfigs and ListConfigResources: topics and the one broker have no settings, groups the coordinator's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from coordinator_udf.gateway.apis.cluster import Node
from coordinator_udf.gateway.settings import GroupConfig
from coordinator_udf.gateway.topics import TopicCatalog
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.wire.shaping import answer

#: Kafka's ConfigResource.Type.
_TOPIC: Final = 2
_BROKER: Final = 4
_GROUP: Final = 32

#: Kafka's ConfigEntry.ConfigSource and ConfigEntry.ConfigType, by their numbers on the wire.
_STATIC_BROKER: Final = 4
_DEFAULT: Final = 5
_INT: Final = 3


@dataclass(frozen=True, slots=True)
class Configurable:
    """What can be asked for its settings."""

    node: Node
    catalog: TopicCatalog
    of_groups: Sequence[GroupConfig] = ()


def describe_configs(version: int, request: Mapping[str, Any], there: Configurable) -> dict[str, Any]:
    """The settings of each topic, broker and group that is asked for; an error for whatever else is.

    A group needn't exist: it would have these. Source: Kafka's ConfigHelper.
    """
    results = []
    for resource in request["resources"]:
        kind, name = resource["resourceType"], resource["resourceName"]
        error, message = _missing(kind, name, there)
        configs: list[dict[str, Any]] = []
        if kind == _GROUP and error is Errors.NONE:
            wanted = resource["configurationKeys"]
            told = [config for config in there.of_groups if wanted is None or config.name in wanted]
            configs = [_told(config, synonyms=request["includeSynonyms"]) for config in told]
        results.append(
            {
                "errorCode": int(error),
                "errorMessage": message,
                "resourceType": kind,
                "resourceName": name,
                "configs": configs,
            }
        )
    return answer("DescribeConfigs", version, results=results)


def list_config_resources(version: int, request: Mapping[str, Any], there: Configurable) -> dict[str, Any]:
    """The topics and the broker; no group has settings of its own, and nobody subscribes to client metrics.

    Source: KafkaApis.handleListConfigResources.
    """
    listed = [(_TOPIC, topic.name) for topic in there.catalog.topics] + [(_BROKER, str(there.node.node_id))]
    wanted = request.get("resourceTypes") or (() if version == 0 else (_TOPIC, _BROKER))
    resources = [{"resourceName": name, "resourceType": kind} for kind, name in listed if kind in wanted]
    return answer("ListConfigResources", version, configResources=resources)


def _missing(kind: int, name: str, there: Configurable) -> tuple[Errors, str | None]:
    if kind == _TOPIC:
        if there.catalog.named(name) is None:
            return Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}"
        return Errors.NONE, None
    if kind == _BROKER:
        node_id = there.node.node_id
        if name in ("", str(node_id)):
            return Errors.NONE, None
        return Errors.INVALID_REQUEST, f"the broker is {name!r}, expected {node_id}, the only one"
    if kind == _GROUP:
        if name:
            return Errors.NONE, None
        return Errors.INVALID_REQUEST, "the group's name is empty, expected text"
    expected = f"{_TOPIC} (topic), {_BROKER} (broker) or {_GROUP} (group)"
    return Errors.INVALID_REQUEST, f"the resource's type is {kind}, expected {expected}"


def _told(config: GroupConfig, *, synonyms: bool) -> dict[str, Any]:
    source = _DEFAULT if config.value == config.default else _STATIC_BROKER
    value = str(config.value)
    coordinators = {"name": f"group.{config.name}", "value": value, "source": source}
    return {
        "name": config.name,
        "value": value,
        "readOnly": False,
        "configSource": source,
        "isSensitive": False,
        "synonyms": [coordinators] if synonyms else [],
        "configType": _INT,
        "documentation": None,
    }
