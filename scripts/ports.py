"""Ports for servers that are told by number where to listen."""

from __future__ import annotations

import random
import socket
from typing import Final

#: Below those that Linux gives to whoever asks for any port (32768 on, net.ipv4.ip_local_port_range): between the look
#: and the server's start nobody else gets one of these by chance.
_PORTS: Final = range(20_000, 30_000)

#: Those that this process has had, for a server may take its time to listen.
_given: Final[set[int]] = set()


def free_port(count: int = 1) -> int:
    """Returns the first of so many ports in a row on which nobody listens; none is returned twice."""
    while True:
        first = random.SystemRandom().choice(_PORTS)
        ports = range(first, first + count)
        if _given.isdisjoint(ports) and all(map(_is_free, ports)):
            _given.update(ports)
            return first


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: what is left of a connection that has ended keeps nobody out.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
