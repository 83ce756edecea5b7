"""Puts together what a gateway needs for a cluster behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from coordinator_udf.gateway.config_requests import ConfigRequests
from coordinator_udf.gateway.group_configs import GroupConfigStore
from coordinator_udf.gateway.peers import Peers
from coordinator_udf.gateway.security.authorizer import Authorizer
from coordinator_udf.gateway.server.interfaces import Passage
from coordinator_udf.gateway.server.pending_requests import PendingRequests
from coordinator_udf.gateway.settings import GatewaySettings
from coordinator_udf.gateway.topic_store import TopicStore
from coordinator_udf.gateway.upstream.cluster_state import Broker, ClusterState
from coordinator_udf.gateway.upstream.dispatcher import UpstreamDispatcher
from coordinator_udf.gateway.upstream.link import UpstreamLink
from coordinator_udf.gateway.upstream.passage import UpstreamPassage
from coordinator_udf.gateway.upstream.ports import BrokerPorts
from coordinator_udf.gateway.upstream.watch import UpstreamCluster

#: Serves a client whose requests go on by a passage.
Accept = Callable[[asyncio.StreamReader, asyncio.StreamWriter, Passage], None]

#: How long a change of the cluster's brokers may take until the gateway's ports follow it, in seconds. Ports are opened
#: on this machine, so it ends only what hangs; the look at the cluster waits for it.
_ADVERTISE_S = 30.0


class ClusterBehind:
    """A cluster behind a gateway, while the gateway's loop runs."""

    def __init__(
        self,
        cluster: UpstreamCluster,
        settings: GatewaySettings,
        pending: PendingRequests,
        topics: TopicStore,
        accept: Accept,
        *,
        authorizer: Authorizer | None = None,
        peers: Peers | None = None,
        group_configs: GroupConfigStore | None = None,
    ) -> None:
        self._peers = peers
        self._authorizer = authorizer
        self._cluster = cluster
        self._topics = topics
        self._accept = accept
        self._of_groups = ConfigRequests(group_configs, settings.of_groups)
        self._ports = BrokerPorts(settings, cluster.settings, self._accept_at)
        self.dispatcher = UpstreamDispatcher(
            pending,
            cluster,
            self._ports,
            client_assignors=settings.client_assignors,
            peers=peers,
            authorizer=authorizer,
            of_groups=self._of_groups,
        )

    async def open(self) -> None:
        """Opens a port for each broker, and follows what changes in the cluster from here on.

        Raises:
            OSError: a port can't be listened on.
            GatewaySettingsError: a broker's id leads to no port.
        """
        loop = asyncio.get_running_loop()
        await self._ports.advertise(self._cluster.state.brokers)

        def take(state: ClusterState) -> None:
            self._topics.configure(state.topics)
            asyncio.run_coroutine_threadsafe(self._ports.advertise(state.brokers), loop).result(_ADVERTISE_S)

        self._cluster.start(take)

    def passage(self, node_id: int | None = None) -> UpstreamPassage:
        """Makes the way of one connection's requests to a broker; without an id to any."""
        targets = self._cluster.addresses if node_id is None else lambda: [self._ports.target(node_id)]
        return UpstreamPassage(
            UpstreamLink(self._cluster.settings, targets),
            self._ports.advertise,
            self._authorizer,
            self._gateways,
            of_groups=self._of_groups,
        )

    def _gateways(self) -> list[Broker]:
        nodes = () if self._peers is None else self._peers.live()
        return [Broker(node.node_id, node.host, node.port) for node in nodes]

    def close(self) -> None:
        """Stops listening at the brokers' ports, and looking what changes."""
        self._ports.close()
        self._cluster.stop()

    def _accept_at(self, node_id: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._accept(reader, writer, self.passage(node_id))
