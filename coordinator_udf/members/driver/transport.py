"""What carries a member's requests: the interface, and the one over sockets to Kafka's brokers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from coordinator_udf.members.cluster_view import ClusterView, TopicView
from coordinator_udf.members.config import MemberConfig
from coordinator_udf.members.driver.connection import BrokerConnection
from coordinator_udf.members.exceptions import exception_for
from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.members.outputs import MetadataRequest, Request
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.wire.schema import KEYS_BY_NAME
from coordinator_udf.user_errors import UserError

#: Newest versions of what the driver itself asks; brokers since 3.0 know them.
_API_VERSIONS, _METADATA, _OFFSET_FETCH = 3, 12, 8
_ZERO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
#: What is told of partitions that were deleted meanwhile.
_NOT_THERE = {Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.UNKNOWN_TOPIC_ID}


class NoBroker(UserError):
    """No broker of a bootstrap list can be reached."""


class Transport(Protocol):
    """Carries requests to whoever answers them."""

    async def start(self) -> Mapping[str, int]:
        """Makes ready; returns the newest version that is served of each API.

        Raises:
            UserError: nobody is there.
        """

    async def send(self, request: Request) -> Mapping[str, Any]:
        """Sends a request and waits for its answer.

        Raises:
            ConnectionError: the answer will not come.
        """

    async def metadata(self, asked: MetadataRequest) -> ClusterView:
        """Asks what the cluster looks like.

        Raises:
            ConnectionError: nobody says it.
        """

    def hang_up(self, node: str) -> None:
        """Drops the connection to a node; what is in flight on it fails."""

    async def close(self) -> None:
        """Drops all connections."""


class BrokerTransport:
    """Connections to Kafka's brokers; the coordinator has one of its own, as in Kafka's clients."""

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        client_id: str,
        *,
        tls: ssl.SSLContext | None = None,
        connect_timeout_s: float = 10.0,
    ) -> None:
        self._bootstrap = list(bootstrap)
        self._client_id = client_id
        self._tls = tls
        self._connect_timeout_s = connect_timeout_s
        self._nodes: dict[int, tuple[str, int]] = {}
        self._connections: dict[str, BrokerConnection] = {}
        self._opening: dict[str, asyncio.Lock] = {}

    async def start(self) -> Mapping[str, int]:
        """Asks which versions the brokers serve. See `Transport.start`."""
        told: list[str] = []
        for host, port in self._bootstrap:
            try:
                connection = await self._open(host, port)
                body = {"clientSoftwareName": "muster", "clientSoftwareVersion": "1"}
                answer = await connection.request("ApiVersions", _API_VERSIONS, body)
                connection.close()
            except ConnectionError as error:
                told.append(str(error))
                continue
            names = {key: name for name, key in KEYS_BY_NAME.items()}
            return {names[api["apiKey"]]: api["maxVersion"] for api in answer["apiKeys"] if api["apiKey"] in names}
        raise NoBroker(f"no broker can be reached: {'; '.join(told)}")

    async def send(self, request: Request) -> Mapping[str, Any]:
        """See `Transport.send`."""
        connection = await self._connection(request.to)
        answer = await connection.request(request.api, request.api_version, request.body)
        if request.api == "FindCoordinator":
            for found in answer.get("coordinators", [answer]):
                if found["errorCode"] == 0:
                    self._nodes[found["nodeId"]] = found["host"], found["port"]
        return answer

    async def metadata(self, asked: MetadataRequest) -> ClusterView:
        """See `Transport.metadata`."""
        topics: list[dict[str, str | None]] | None = None
        if asked.topics is not None:
            topics = [{"topicId": _ZERO_ID, "name": name} for name in asked.topics]
            topics += [{"topicId": topic_id, "name": None} for topic_id in asked.topic_ids]
        body = {"topics": topics, "allowAutoTopicCreation": False, "includeTopicAuthorizedOperations": False}
        node = next((f"broker-{node}" for node in self._nodes), "broker-bootstrap")
        answer = await (await self._connection(node)).request("Metadata", _METADATA, body)
        self._nodes |= {broker["nodeId"]: (broker["host"], broker["port"]) for broker in answer["brokers"]}
        return _view(answer)

    def hang_up(self, node: str) -> None:
        """See `Transport.hang_up`."""
        connection = self._connections.pop(node, None)
        if connection is not None:
            connection.close()

    async def close(self) -> None:
        """See `Transport.close`."""
        for node in list(self._connections):
            self.hang_up(node)

    async def _connection(self, node: str) -> BrokerConnection:
        async with self._opening.setdefault(node, asyncio.Lock()):
            known = self._connections.get(node)
            if known is not None and known.is_open:
                return known
            number = node.rpartition("-")[2]
            address = self._nodes.get(int(number)) if number.isdigit() else None
            # A member that has seen no metadata yet names a broker that there may not be.
            errors: list[str] = []
            for host, port in [address] if address is not None else self._bootstrap:
                try:
                    connection = self._connections[node] = await self._open(host, port)
                except ConnectionError as error:
                    errors.append(str(error))
                else:
                    return connection
            raise ConnectionError("; ".join(errors))

    async def _open(self, host: str, port: int) -> BrokerConnection:
        return await BrokerConnection.open(host, port, self._client_id, self._tls, self._connect_timeout_s)


async def committed_offsets(
    transport: Transport, config: MemberConfig, coordinator: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Asks for the committed offsets of partitions; those that have none are left out.

    Raises:
        ConnectionError: the coordinator doesn't answer.
        ClientException: it answers with an error, of the group or of a partition that there is.
    """
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    wanted = [{"name": name, "partitionIndexes": numbers} for name, numbers in topics.items()]
    body = {"groups": [{"groupId": config.group_id, "topics": wanted}], "requireStable": False}
    request = Request(-1, coordinator, "OffsetFetch", _OFFSET_FETCH, config.request_timeout_ms, body)
    answer = await transport.send(request)
    for group in answer["groups"]:
        told = [partition["errorCode"] for topic in group["topics"] for partition in topic["partitions"]]
        for code in (group["errorCode"], *told):
            if code and code not in _NOT_THERE:
                raise exception_for(code)
    return {
        TopicPartition(topic["name"], partition["partitionIndex"]): partition["committedOffset"]
        for group in answer["groups"]
        for topic in group["topics"]
        for partition in topic["partitions"]
        if partition["errorCode"] == 0 and partition["committedOffset"] >= 0
    }


def _view(answer: Mapping[str, Any]) -> ClusterView:
    racks = {broker["nodeId"]: broker.get("rack") for broker in answer["brokers"]}
    topics = {}
    for topic in answer["topics"]:
        if topic["errorCode"] == 0:
            of_partitions = sorted(topic["partitions"], key=lambda partition: int(partition["partitionIndex"]))
            topics[topic["name"]] = TopicView(
                topic["name"],
                topic["topicId"],
                len(of_partitions),
                tuple(
                    tuple(sorted({racks[node] for node in partition["replicaNodes"] if racks.get(node)}))
                    for partition in of_partitions
                ),
                topic["isInternal"],
            )
    return ClusterView(tuple(sorted(racks)), topics)
