"""The socket that a gateway listens on; it can be bound long before anybody listens, to notice that it is taken."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

#: How many clients may wait to be accepted; Linux allows net.core.somaxconn (4,096 by default). Of those that come at
#: once all but so many are refused, and come again after their backoff (reconnect.backoff.ms, 50 ms).
_BACKLOG: Final = 1_024
#: How many of them are accepted in a turn of the loop. Each begins with a TLS handshake, which takes the loop a
#: millisecond and, until it is over or has made room for others, 256 KiB.
_ACCEPTED_AT_ONCE: Final = 8


def bound_socket(host: str, port: int) -> socket.socket:
    """Returns a TCP socket that is bound and not listened on yet: clients are refused, and nobody else gets it.

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


async def serve(
    listener: socket.socket, accept: Callable[[asyncio.StreamReader, asyncio.StreamWriter], None], *, limit: int
) -> asyncio.Server:
    """Listens on a bound socket, so that many who come at once don't keep the others from being served.

    Args:
        accept: is given each connection.
        limit: how much is read of a connection before somebody takes it, in bytes.
    """
    server = await asyncio.start_server(accept, sock=listener, limit=limit, backlog=_ACCEPTED_AT_ONCE)
    # For asyncio both are one number.
    listener.listen(_BACKLOG)
    return server
