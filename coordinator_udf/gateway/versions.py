"""The APIs and versions that the gateway serves, as ApiVersions tells clients. What isn't here isn't served."""

from __future__ import annotations

from typing import Final

from coordinator_udf.gateway.apis.sasl import SASL_APIS
from coordinator_udf.protocol.requests import CLIENT_ASSIGNMENT_APIS, VERSIONS

#: What the gateway answers on its own: it is the only broker of the cluster that its clients see.
LOCAL: Final[dict[str, tuple[int, int]]] = {
    "Produce": (3, 12),
    "ApiVersions": (0, 4),
    "Metadata": (0, 13),
    "FindCoordinator": (0, 6),
    "DescribeCluster": (0, 2),
    "ListOffsets": (1, 11),
    "Fetch": (4, 18),
    "OffsetForLeaderEpoch": (2, 4),
    "CreateTopics": (2, 7),
    "DeleteTopics": (1, 6),
    "CreatePartitions": (0, 3),
    "DescribeConfigs": (1, 4),
    "AlterConfigs": (0, 2),
    "IncrementalAlterConfigs": (0, 1),
    "ListConfigResources": (0, 1),
    **SASL_APIS,
}

#: What is told to be served and isn't. librdkafka takes a broker without Produce v0 for one of 2013, asks it for
#: Fetch v0 and never gets anything; so Kafka, too, tells of versions that it doesn't serve (KAFKA-18659).
_TOLD: Final = {"Produce": (0, 12)}

#: What the coordinator answers, through the log. Transactional commits are not among them: a client needs
#: InitProducerId and its neighbours for those, which belong to a transaction coordinator.
_COORDINATED: Final = (
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "OffsetCommit",
    "OffsetFetch",
    "OffsetDelete",
    "DescribeGroups",
    "ListGroups",
    "DeleteGroups",
    "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe",
)

COORDINATED: Final[dict[str, tuple[int, int]]] = {api: VERSIONS[api] for api in _COORDINATED}

_SERVED: Final = {**LOCAL, **COORDINATED}

#: What is served besides where members compute assignments. Clients take no notice of keys that they don't know.
_CLIENT_ASSIGNMENT: Final = {api: VERSIONS[api] for api in sorted(CLIENT_ASSIGNMENT_APIS)}

#: What ApiVersions says: API -> its first and its last version.
ADVERTISED: Final[dict[str, tuple[int, int]]] = {**_SERVED, **_TOLD}


def coordinated(*, client_assignors: bool = False) -> dict[str, tuple[int, int]]:
    """Returns what the coordinator answers, through the log.

    Args:
        client_assignors: whether members are asked to compute assignments.
    """
    return {**COORDINATED, **_CLIENT_ASSIGNMENT} if client_assignors else COORDINATED


def advertised(*, client_assignors: bool = False) -> dict[str, tuple[int, int]]:
    """Returns what ApiVersions says.

    Args:
        client_assignors: whether members are asked to compute assignments.
    """
    return {**ADVERTISED, **_CLIENT_ASSIGNMENT} if client_assignors else ADVERTISED


def is_served(api: str | None, version: int, *, client_assignors: bool = False) -> bool:
    """Returns whether a request of that API and version can be answered by more than UNSUPPORTED_VERSION."""
    versions = _SERVED.get(api or "")
    if versions is None and client_assignors:
        versions = _CLIENT_ASSIGNMENT.get(api or "")
    return versions is not None and versions[0] <= version <= versions[1]
