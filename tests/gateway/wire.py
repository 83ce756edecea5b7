"""A client of bytes: what a test wants to send, whether a library would send it or not."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from coordinator_udf.protocol.wire import request_bytes, split_response


class Wire:
    """One connection. Answers come in the order of the requests."""

    def __init__(self, port: int, timeout_s: float = 120) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self._sent: list[tuple[str, int, int]] = []
        self._count = 0

    def send(self, api: str, version: int, body: Mapping[str, Any], client_id: str | None = "wire") -> None:
        self._count += 1
        self._sent.append((api, version, self._count))
        self.socket.sendall(request_bytes(api, version, self._count, client_id, body))

    def receive(self) -> dict[str, Any]:
        """The next answer. Raises EOFError where the other side closed."""
        api, version, correlation_id = self._sent.pop(0)
        (size,) = struct.unpack(">i", self.read(4))
        got, body = split_response(api, version, self.read(size))
        assert got == correlation_id
        return body

    def ask(self, api: str, version: int, body: Mapping[str, Any]) -> dict[str, Any]:
        self.send(api, version, body)
        return self.receive()

    def raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            more = self.socket.recv(size - len(found))
            if not more:
                raise EOFError(f"closed after {len(found)} of {size} bytes")
            found += more
        return found

    def is_closed(self) -> bool:
        """Waits for the other side to close; False if it says something instead."""
        try:
            return not self.socket.recv(1)
        except ConnectionResetError:
            return True

    def has_nothing(self) -> bool:
        """Whether the other side has neither said anything that is to be read, nor closed."""
        return select.select([self.socket], [], [], 0)[0] == []

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


HEARTBEAT = {"groupId": "g", "generationId": 1, "memberId": "m", "groupInstanceId": None}


def join(group: str = "g", member_id: str = "", rebalance_ms: int = 5_000) -> dict[str, Any]:
    """The body of a JoinGroup v5."""
    return {
        "groupId": group,
        "sessionTimeoutMs": 10_000,
        "rebalanceTimeoutMs": rebalance_ms,
        "memberId": member_id,
        "groupInstanceId": None,
        "protocolType": "consumer",
        "protocols": [{"name": "range", "metadata": ""}],
    }
