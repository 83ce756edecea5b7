"""The gateway's ports, one for each broker of the cluster; they stay open when a broker goes, as groups live there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from coordinator_udf.gateway.server.connection import FREE_FRAME_BYTES
from coordinator_udf.gateway.server.listener import bound_socket, serve
from coordinator_udf.gateway.settings import GatewaySettings
from coordinator_udf.gateway.upstream.cluster_state import Broker
from coordinator_udf.gateway.upstream.settings import UpstreamSettings

_log = logging.getLogger(__name__)


class BrokerPorts:
    """Opens a port for each broker that it hears of. All of it runs in the gateway's loop.

    Args:
        accept: serves a client that came to the port of the broker with this id.
    """

    def __init__(
        self,
        gateway: GatewaySettings,
        upstream: UpstreamSettings,
        accept: Callable[[int, asyncio.StreamReader, asyncio.StreamWriter], None],
    ) -> None:
        self._gateway = gateway
        self._upstream = upstream
        self._accept = accept
        self._servers: dict[int, asyncio.Server] = {}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._opening = asyncio.Lock()

    async def advertise(self, brokers: Sequence[Broker]) -> list[tuple[str, int]]:
        """Takes over where brokers are; returns the addresses at which clients reach them, in the same order.

        Raises:
            OSError: a port can't be listened on.
            GatewaySettingsError: a broker's id leads to no port.
        """
        for broker in brokers:
            self._brokers[broker.node_id] = (broker.host, broker.port)
        if any(broker.node_id not in self._servers for broker in brokers):
            async with self._opening:
                for broker in brokers:
                    if broker.node_id not in self._servers:
                        self._servers[broker.node_id] = await self._open(broker.node_id)
        return [self.address(broker.node_id) for broker in brokers]

    def address(self, node_id: int) -> tuple[str, int]:
        """Returns where clients reach a broker whose port is open."""
        settings = self._gateway
        port = int(self._servers[node_id].sockets[0].getsockname()[1])
        if settings.advertised_port is not None and settings.port:
            # As far from the advertised port as it is from the one listened on.
            port += settings.advertised_port - settings.port
        return settings.advertised_host or settings.host, port

    def target(self, node_id: int) -> tuple[str, int]:
        """Returns where a broker is."""
        return self._brokers[node_id]

    def close(self) -> None:
        """Stops listening."""
        for server in self._servers.values():
            server.close()

    async def _open(self, node_id: int) -> asyncio.Server:
        port = self._upstream.broker_port(node_id)

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._accept(node_id, reader, writer)

        listener = bound_socket(self._gateway.host, port)
        server = await serve(listener, accept, limit=FREE_FRAME_BYTES)
        _log.info("broker %d is reached at %s:%d", node_id, self._gateway.host, server.sockets[0].getsockname()[1])
        return server
