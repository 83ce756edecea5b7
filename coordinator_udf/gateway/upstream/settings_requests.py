"""Requests about settings: what they ask of groups is Muster's to answer, all else the cluster's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from coordinator_udf.gateway.apis.configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from coordinator_udf.gateway.versions import LOCAL
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.wire import RequestHeader, decode, request_message
from coordinator_udf.protocol.wire.schema import KEYS_BY_NAME

Body = Mapping[str, Any]

#: The list of an answer that has an entry a resource.
_TOLD: Final = {
    "DescribeConfigs": "results",
    "AlterConfigs": "responses",
    "IncrementalAlterConfigs": "responses",
    "ListConfigResources": "configResources",
}

#: The APIs by key.
SETTINGS_APIS: Final = {KEYS_BY_NAME[api]: api for api in _TOLD}

#: What a cluster is asked for where a client asks for the resources of all types.
_TYPES_OF_CLUSTERS: Final = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS)


class SettingsRequest(NamedTuple):
    """A request in two parts; of a part that asks for nothing there is None."""

    of_groups: Body | None
    of_cluster: Body | None


def may_be_of_groups(header: RequestHeader) -> bool:
    """Returns whether requests of this kind can ask for settings of groups."""
    api, version = SETTINGS_APIS.get(header.api_key), header.api_version
    # ListConfigResources v0 is of client metrics alone.
    if api is None or (api == "ListConfigResources" and version == 0):
        return False
    first, last = LOCAL[api]
    return first <= version <= last


def split(api: str, body: Body) -> SettingsRequest:
    """Splits a request about settings into what it asks of groups and all else."""
    if api == "ListConfigResources":
        asked = body["resourceTypes"] or [*_TYPES_OF_CLUSTERS, GROUP]
        field, groups, others = "resourceTypes", [GROUP] * (GROUP in asked), [kind for kind in asked if kind != GROUP]
    else:
        field = "resources"
        groups = [resource for resource in body[field] if resource["resourceType"] == GROUP]
        others = [resource for resource in body[field] if resource["resourceType"] != GROUP]
    return SettingsRequest(
        {**body, field: groups} if groups else None, {**body, field: others} if others or not groups else None
    )


def mixed(header: RequestHeader, frame: bytes) -> Body | None:
    """Returns the body of a request that asks both of groups and of others; None for any other request."""
    if not may_be_of_groups(header):
        return None
    body = _body(header, frame)
    return body if None not in split(SETTINGS_APIS[header.api_key], body) else None


def is_of_groups_alone(header: RequestHeader, frame: bytes) -> bool:
    """Returns whether a request asks of settings of groups and of nothing else: these groups are not the cluster's."""
    return may_be_of_groups(header) and split(SETTINGS_APIS[header.api_key], _body(header, frame)).of_cluster is None


def merged(api: str, asked: Body, of_groups: Body, of_cluster: Body) -> Body:
    """Puts the two parts' answers together, resources in the order in which they were asked for.

    Where the cluster refuses the whole request, its answer is the client's.
    """
    if of_cluster.get("errorCode", 0) != Errors.NONE:
        return of_cluster
    told = _TOLD[api]
    places = {_resource(entry): place for place, entry in reversed([*enumerate(asked.get("resources", ()))])}
    entries = [*of_cluster[told], *of_groups[told]]
    return {**of_cluster, told: sorted(entries, key=lambda entry: places.get(_resource(entry), len(places)))}


def _body(header: RequestHeader, frame: bytes) -> Body:
    return decode(request_message(SETTINGS_APIS[header.api_key], header.api_version), frame, header.body_at)


def _resource(entry: Body) -> tuple[int, str]:
    return entry["resourceType"], entry["resourceName"]
