"""What is said about the cluster behind a gateway, and how its brokers are connected to."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass

from coordinator_udf.gateway.settings import GatewaySettingsError, parse_address
from coordinator_udf.gateway.upstream.login import Credentials, log_in

#: The client id of what a gateway asks of the cluster on its own behalf.
CLIENT_ID = "muster-gateway"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSettings:
    """The cluster behind a gateway.

    Attributes:
        bootstrap: addresses of some of its brokers.
        first_broker_port: the gateway's port for the broker with id 0; the one with id 7 has the port seven further.
            None: any free ports, which nobody finds again after a restart.
        refresh_ms: how often it is looked which topics and brokers there are: as late as that a new topic is seen. Half
            asks a broker for all topics twice as often.
        connect_timeout_ms: how long a connection to a broker may take, until it can be used; as Java's
            socket.connection.setup.timeout.ms.
        start_timeout_ms: how long a gateway that starts looks for a broker where none is there: as long as for one of a
            log that is a topic.
        tls: how brokers are spoken to; None without TLS.
        credentials: what the gateway is known by in the cluster.
    """

    bootstrap: tuple[tuple[str, int], ...]
    first_broker_port: int | None
    refresh_ms: int = 2_000
    connect_timeout_ms: int = 10_000
    start_timeout_ms: int = 30_000
    tls: ssl.SSLContext | None = None
    credentials: Credentials | None = None

    def broker_port(self, node_id: int) -> int:
        """Returns the gateway's port for a broker; 0 for any.

        Raises:
            GatewaySettingsError: there is no such port.
        """
        if self.first_broker_port is None:
            return 0
        port = self.first_broker_port + node_id
        if not 0 < port <= 65_535:
            raise GatewaySettingsError(
                f"the broker with id {node_id} would have the port {port}, expected 1 to 65535: "
                f"the port of id 0 is {self.first_broker_port}; choose another --broker-ports"
            )
        return port


def parse_bootstrap(text: str) -> tuple[tuple[str, int], ...]:
    """Returns the addresses of ``HOST:PORT,HOST:PORT,...``.

    Raises:
        GatewaySettingsError: one of them isn't an address.
    """
    return tuple(parse_address(part.strip()) for part in text.split(","))


class BrokerAway(ConnectionError):
    """Nobody answers at a broker's address now; somebody may later."""


async def open_streams(
    settings: UpstreamSettings, host: str, port: int, limit: int = 64 * 1024
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connects to a broker of the cluster, and authenticates where that is asked for.

    Args:
        limit: how many bytes are read ahead.

    Raises:
        BrokerAway: nobody answers there.
        ConnectionError: the gateway is not let in.
    """
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(settings.connect_timeout_ms / 1000):
            reader, writer = await asyncio.open_connection(host, port, limit=limit, ssl=settings.tls)
            if settings.credentials is not None:
                await log_in(reader, writer, CLIENT_ID, settings.credentials)
            return reader, writer
    except (OSError, TimeoutError, asyncio.CancelledError) as error:
        if writer is not None:
            writer.close()
        if isinstance(error, asyncio.CancelledError):
            raise
        text = str(error) or "no answer"
        kind = BrokerAway if isinstance(error, (ConnectionRefusedError, TimeoutError)) else ConnectionError
        raise kind(f"the broker at {host}:{port} can't be reached: {text}") from error
