"""The other gateways before the same log: clients are told of them, so that they have where to go when one dies.

Any gateway can serve any group, so it does no harm where two of them think otherwise of who is there.
"""

from __future__ import annotations

import logging
import socket
import threading
import zlib
from collections.abc import Sequence
from typing import Final

from coordinator_udf.background import BackgroundThread
from coordinator_udf.gateway.apis.cluster import Node
from coordinator_udf.gateway.settings import GatewaySettingsError

_log = logging.getLogger(__name__)

#: The node id of the first gateway where the cluster behind it has ids of its own; Kafka's are far below.
FIRST_ID_BEFORE_CLUSTER: Final = 1_000_000_001
#: The node id of the first gateway elsewhere.
FIRST_ID: Final = 1

#: How often the other gateways are looked at, and how long each may take to accept a connection, in seconds. Clients
#: hear of one that died after _GONE_AFTER looks, 2 to 3 s; with half as long 1 to 1.5 s, but then one that is busy for
#: a second is taken for gone; with double 4 to 6 s, all of the shortest session.
_LOOK_S: Final = 1.0
_CONNECT_S: Final = 1.0
#: So many times in a row nobody answers where a gateway is said to be gone: once may be chance, and each more costs a
#: second of its clients' sessions.
_GONE_AFTER: Final = 2
#: How long a stop waits for the look that is under way, in seconds: it takes _CONNECT_S for each gateway that hangs.
_STOP_S: Final = 5.0


class Peers:
    """All gateways before a log, this one among them, as clients see them.

    Args:
        addresses: where clients reach them, the same list in the same order for all of them.
        own: where they reach this one.
        first_id: the node id of the first of them.

    Raises:
        GatewaySettingsError: this one is not among them.
    """

    def __init__(
        self, addresses: Sequence[tuple[str, int]], own: tuple[str, int], cluster_id: str, first_id: int
    ) -> None:
        self._nodes = tuple(
            Node(first_id + number, host, port, cluster_id) for number, (host, port) in enumerate(addresses)
        )
        found = [node for node in self._nodes if (node.host, node.port) == own]
        if len(found) != 1:
            listed = ", ".join(f"{host}:{port}" for host, port in addresses)
            raise GatewaySettingsError(
                f"--gateways is {listed}, expected {own[0]}:{own[1]} among them, once: that is what clients are told "
                "to connect to here"
            )
        self.own = found[0]
        self._failures = dict.fromkeys(self._nodes, 0)
        self._thread = BackgroundThread(self._watch, "peers")

    def live(self) -> tuple[Node, ...]:
        """Returns the gateways that answer, by id."""
        return tuple(node for node in self._nodes if self._failures[node] < _GONE_AFTER)

    def node_for(self, group_id: str) -> Node:
        """Returns the gateway for a group: when one goes, only its groups go elsewhere (rendezvous hashing)."""
        return max(self.live(), key=lambda node: zlib.crc32(f"{node.node_id} {group_id}".encode()))

    def start(self) -> None:
        """Looks who is there, and from then on each second."""
        for node in self._nodes:
            if not self._answers(node):
                self._failures[node] = _GONE_AFTER
        self._thread.start()

    def stop(self) -> None:
        """Stops looking."""
        self._thread.stop(_STOP_S)

    def _watch(self, stop: threading.Event) -> None:
        while not stop.wait(_LOOK_S):
            for node in self._nodes:
                before = self._failures[node]
                self._failures[node] = 0 if self._answers(node) else before + 1
                if (before < _GONE_AFTER) != (self._failures[node] < _GONE_AFTER):
                    _log.info(
                        "gateway %s:%d %s", node.host, node.port, "is gone" if before < _GONE_AFTER else "is there"
                    )

    def _answers(self, node: Node) -> bool:
        if node is self.own:
            return True
        try:
            with socket.create_connection((node.host, node.port), timeout=_CONNECT_S):
                return True
        except OSError:
            return False
