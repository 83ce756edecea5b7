"""A connection to a broker: requests out, answers back by their correlation ids."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Mapping
from typing import Any

from coordinator_udf.protocol.wire import MalformedFrame, request_bytes, split_response

_LENGTH = struct.Struct(">i")
#: No answer about groups is larger; a broker that claims so is none. As much as a broker takes of a request
#: (socket.request.max.bytes, 100 MiB).
_MAX_FRAME_BYTES = 100 << 20


class BrokerConnection:
    """One connection. When it breaks, all that waits on it fails with ConnectionError."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str) -> None:
        self._reader = reader
        self._writer = writer
        self._client_id = client_id
        self._waiting: dict[int, tuple[str, int, asyncio.Future[dict[str, Any]]]] = {}
        self._count = 0
        self._task = asyncio.create_task(self._read())

    @classmethod
    async def open(
        cls, host: str, port: int, client_id: str, tls: ssl.SSLContext | None, timeout_s: float
    ) -> BrokerConnection:
        """Connects.

        Raises:
            ConnectionError: nobody answers there.
        """
        try:
            reader, writer = await asyncio.wait_for(asyncio.open_connection(host, port, ssl=tls), timeout_s)
        except (OSError, TimeoutError) as error:
            raise ConnectionError(f"{host}:{port} can't be reached: {str(error) or 'no answer'}") from error
        return cls(reader, writer, client_id)

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return not self._task.done()

    async def request(self, api: str, api_version: int, body: Mapping[str, Any]) -> dict[str, Any]:
        """Sends a request and waits for its answer.

        Args:
            body: in Kafka's JSON names.

        Raises:
            ConnectionError: the connection broke before the answer came.
            EncodeError: the body is no request of that version.
        """
        if not self.is_open:
            raise ConnectionError("the connection is closed")
        self._count += 1
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        data = request_bytes(api, api_version, self._count, self._client_id, body)
        self._waiting[self._count] = api, api_version, answer
        self._writer.write(data)
        return await answer

    def close(self) -> None:
        """Closes the connection; what waits fails."""
        self._task.cancel()
        self._writer.close()
        self._fail(ConnectionError("the connection was closed"))

    async def _read(self) -> None:
        try:
            while True:
                (size,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
                if not 0 <= size <= _MAX_FRAME_BYTES:
                    raise MalformedFrame(f"a frame claims to have {size} bytes")
                frame = await self._reader.readexactly(size)
                (correlation_id,) = _LENGTH.unpack_from(frame)
                waiting = self._waiting.pop(correlation_id, None)
                if waiting is None:
                    raise MalformedFrame(f"an answer to request {correlation_id}, which was not sent")
                api, api_version, answer = waiting
                if not answer.done():
                    answer.set_result(split_response(api, api_version, frame)[1])
        except (OSError, EOFError, MalformedFrame) as error:
            self._writer.close()
            self._fail(ConnectionError(f"the broker closed the connection: {error}"))

    def _fail(self, error: ConnectionError) -> None:
        waiting, self._waiting = self._waiting, {}
        for _, _, answer in waiting.values():
            if not answer.done():
                answer.set_exception(error)
