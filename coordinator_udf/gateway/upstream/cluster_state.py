"""What there is in a cluster, as one of its brokers says it: brokers, topics, and which APIs they serve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from coordinator_udf.members.driver.connection import BrokerConnection
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.requests import Topic

#: Versions that brokers since 3.0 know; Metadata tells topic ids from v10 on.
_METADATA: Final = 12
_API_VERSIONS: Final = 3

_UNKNOWN: Final = frozenset((Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.UNKNOWN_TOPIC_ID))

_EVERYTHING: Final = {
    "topics": None,
    "allowAutoTopicCreation": False,
    "includeTopicAuthorizedOperations": False,
}


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker: its id, where it is connected to, and its rack."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class ServedApis:
    """What brokers say that they serve.

    Attributes:
        ranges: API key -> its first and its last version.
        features: the tagged fields about features, as ApiVersions has them.
    """

    ranges: Mapping[int, tuple[int, int]]
    features: Mapping[str, Any] = field(default_factory=dict)

    def common(self, other: ServedApis) -> ServedApis:
        """Returns the versions that both serve, with the features that the first names."""
        both = {
            key: (max(first, other.ranges[key][0]), min(last, other.ranges[key][1]))
            for key, (first, last) in self.ranges.items()
            if key in other.ranges
        }
        return ServedApis({key: bounds for key, bounds in both.items() if bounds[0] <= bounds[1]}, self.features)


@dataclass(frozen=True, slots=True)
class ClusterState:
    """A cluster at one moment; brokers by id, topics by name."""

    cluster_id: str | None
    brokers: tuple[Broker, ...]
    topics: tuple[Topic, ...]


async def read_state(connection: BrokerConnection, racks: dict[int, str | None]) -> ClusterState:
    """Asks a broker for the brokers and topics of its cluster.

    Args:
        racks: broker id -> its rack, as known before. Brokers that are down aren't told of, and their racks count
            still; those told of are put in.

    Raises:
        ConnectionError: it gives no answer.
    """
    said = await connection.request("Metadata", _METADATA, _EVERYTHING)
    brokers = tuple(
        Broker(entry["nodeId"], entry["host"], entry["port"], entry["rack"])
        for entry in sorted(said["brokers"], key=lambda entry: entry["nodeId"])
    )
    racks.update((broker.node_id, broker.rack) for broker in brokers)
    # A topic that can't be described now (no leader, say) is left as it was by whoever compares.
    topics = [_topic(entry, racks) for entry in said["topics"] if entry["errorCode"] == 0]
    return ClusterState(said["clusterId"], brokers, tuple(sorted(topics, key=lambda topic: topic.name)))


def _topic(entry: Mapping[str, Any], racks: Mapping[int, str | None]) -> Topic:
    partitions = sorted(entry["partitions"], key=lambda partition: partition["partitionIndex"])
    # Kafka's coordinator leaves out replicas whose broker names no rack (KRaftCoordinatorMetadataImage).
    placed = tuple(
        tuple(rack for node in partition["replicaNodes"] if (rack := racks.get(node))) for partition in partitions
    )
    return Topic(
        name=entry["name"], partitions=len(partitions), id=entry["topicId"], racks=placed if any(placed) else ()
    )


async def missing_topics(connection: BrokerConnection, topics: list[Topic]) -> set[str]:
    """Returns the names of those topics that a broker, asked for each by its id, doesn't know.

    A topic may be missing from the list of all for other reasons: who may not describe it isn't told of it there.

    Raises:
        ConnectionError: it gives no answer.
    """
    if not topics:
        return set()
    asked = [{"topicId": topic.id, "name": None} for topic in topics]
    said = await connection.request("Metadata", _METADATA, {**_EVERYTHING, "topics": asked})
    unknown = {entry["topicId"] for entry in said["topics"] if entry["errorCode"] in _UNKNOWN}
    return {topic.name for topic in topics if topic.id in unknown}


async def read_served(connection: BrokerConnection) -> ServedApis:
    """Asks a broker which versions of which APIs it serves.

    Raises:
        ConnectionError: it gives no answer.
    """
    client = {"clientSoftwareName": "muster", "clientSoftwareVersion": "0.1"}
    said = await connection.request("ApiVersions", _API_VERSIONS, client)
    ranges = {entry["apiKey"]: (entry["minVersion"], entry["maxVersion"]) for entry in said["apiKeys"]}
    names = ("supportedFeatures", "finalizedFeaturesEpoch", "finalizedFeatures")
    return ServedApis(ranges, {name: said[name] for name in names if name in said})
