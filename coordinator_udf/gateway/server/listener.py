"""The socket that a gateway listens on; it can be bound long before anybody listens, to notice that it is taken."""

from __future__ import annotations

import socket
from typing import Final

#: How many clients may wait to be accepted.
BACKLOG: Final = 1_024


def bound_socket(host: str, port: int) -> socket.socket:
    """A TCP socket that is bound to an address and not listened on yet: clients are refused, and nobody else gets it.

    Raises:
        OSError: the address is taken, or isn't one of this machine.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound
