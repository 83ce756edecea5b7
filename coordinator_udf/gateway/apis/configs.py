"""DescribeConfigs and ListConfigResources: topics and the one broker have no settings, groups the coordinator's.

Groups may have some of their own instead (apis.alter_configs).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from coordinator_udf.gateway.apis.cluster import Node, unknown_topic
from coordinator_udf.gateway.settings import GroupSetting
from coordinator_udf.gateway.topics import TopicCatalog
from coordinator_udf.log.file import GroupConfigs
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.wire.shaping import answer

#: Kafka's ConfigResource.Type.
TOPIC: Final = 2
BROKER: Final = 4
GROUP: Final = 32
CLIENT_METRICS: Final = 16
BROKER_LOGGER: Final = 8

#: What ListConfigResources may be asked for.
_LISTED: Final = frozenset((TOPIC, BROKER, GROUP, CLIENT_METRICS, BROKER_LOGGER))

#: Kafka's ConfigEntry.ConfigSource and ConfigEntry.ConfigType, by their numbers on the wire.
_OF_GROUP: Final = 8
_STATIC_BROKER: Final = 4
_DEFAULT: Final = 5
_INT: Final = 3


@dataclass(frozen=True, slots=True)
class Configurable:
    """What can be asked for its settings.

    Attributes:
        of_groups: what groups have from the coordinator.
        own: what groups have for themselves.
    """

    node: Node
    catalog: TopicCatalog
    of_groups: Sequence[GroupSetting] = ()
    own: GroupConfigs = field(default_factory=dict)


def describe_configs(version: int, request: Mapping[str, Any], there: Configurable) -> dict[str, Any]:
    """Returns the settings of each topic, broker and group that is asked for; an error for whatever else is.

    A group needn't exist: it would have these. Source: Kafka's ConfigHelper.
    """
    results = []
    for resource in request["resources"]:
        kind, name = resource["resourceType"], resource["resourceName"]
        error, message = missing(kind, name, there)
        configs: list[dict[str, Any]] = []
        if kind == GROUP and error is Errors.NONE:
            wanted = resource["configurationKeys"]
            told = [config for config in there.of_groups if not wanted or config.name in wanted]
            own = there.own.get(name, {})
            configs = [_told(config, own.get(config.name), synonyms=request["includeSynonyms"]) for config in told]
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
    """Returns the topics, the broker and groups with settings of their own; nobody subscribes to client metrics.

    Source: KafkaApis.handleListConfigResources.
    """
    listed = [(TOPIC, topic.name) for topic in there.catalog.topics] + [(BROKER, str(there.node.node_id))]
    listed += [(GROUP, group_id) for group_id in there.own]
    if not _LISTED.issuperset(request.get("resourceTypes", ())):
        return answer("ListConfigResources", version, errorCode=int(Errors.UNSUPPORTED_VERSION), configResources=[])
    wanted = request.get("resourceTypes") or (() if version == 0 else (TOPIC, BROKER, GROUP))
    resources = [{"resourceName": name, "resourceType": kind} for kind, name in listed if kind in wanted]
    return answer("ListConfigResources", version, configResources=resources)


def missing(kind: int, name: str, there: Configurable) -> tuple[Errors, str | None]:
    """Returns the error where there is no such topic, broker or group, and what it says; NONE where there is."""
    if kind == TOPIC:
        if there.catalog.named(name) is None:
            return unknown_topic(name), f"there is no topic {name!r}"
        return Errors.NONE, None
    if kind == BROKER:
        node_id = there.node.node_id
        if name in ("", str(node_id)):
            return Errors.NONE, None
        return Errors.INVALID_REQUEST, f"the broker is {name!r}, expected {node_id}, the only one"
    if kind == GROUP:
        if name:
            return Errors.NONE, None
        return Errors.INVALID_REQUEST, "Group name must not be empty"
    expected = f"{TOPIC} (topic), {BROKER} (broker) or {GROUP} (group)"
    return Errors.INVALID_REQUEST, f"the resource's type is {kind}, expected {expected}"


def _told(config: GroupSetting, own: str | None, *, synonyms: bool) -> dict[str, Any]:
    """Returns what is told of a setting of a group: its own value, or the coordinator's."""
    coordinators_source = _DEFAULT if config.value == config.default else _STATIC_BROKER
    known = [{"name": f"group.{config.name}", "value": str(config.value), "source": coordinators_source}]
    if own is not None:
        known.insert(0, {"name": config.name, "value": own, "source": _OF_GROUP})
    return {
        "name": config.name,
        "value": known[0]["value"],
        "readOnly": False,
        "configSource": known[0]["source"],
        "isSensitive": False,
        "synonyms": known if synonyms else [],
        "configType": _INT,
        "documentation": None,
    }
