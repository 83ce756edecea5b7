"""How a gateway says to a broker who it is: SASL from the client's side."""

from __future__ import annotations

import asyncio
import struct
from base64 import b64decode, b64encode
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from scramp import ScramClient, ScramException

from coordinator_udf.protocol.wire import MalformedFrame, request_bytes, split_response

_LENGTH: Final = struct.Struct(">i")
#: The most bytes of an answer to a login; a broker that announces more is none. SCRAM's messages (RFC 5802) take some
#: hundred.
_FRAME_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Credentials:
    """The gateway's own name and password in the cluster, with the SASL mechanism that they are for."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    username: str
    password: str = field(repr=False)


async def log_in(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str, credentials: Credentials
) -> None:
    """Authenticates a new connection.

    Raises:
        ConnectionError: the broker doesn't let it in, or isn't one.
    """
    asker = _Asker(reader, writer, client_id)
    try:
        said = await asker.ask("SaslHandshake", {"mechanism": credentials.mechanism})
        if said["errorCode"]:
            offered = ", ".join(said["mechanisms"])
            raise ConnectionError(f"the broker offers {offered}, and not {credentials.mechanism}")
        tokens = _plain(credentials) if credentials.mechanism == "PLAIN" else _scram(credentials)
        await asker.authenticate(tokens)
    except (MalformedFrame, asyncio.IncompleteReadError, ScramException, UnicodeDecodeError) as error:
        raise ConnectionError(f"the broker can't be authenticated at: {error}") from error


class _Asker:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str) -> None:
        self._reader = reader
        self._writer = writer
        self._client_id = client_id

    async def ask(self, api: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self._writer.write(request_bytes(api, 1, 0, self._client_id, body))
        await self._writer.drain()
        (size,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
        if not 0 < size <= _FRAME_MAX:
            raise MalformedFrame(f"a frame claims to have {size} bytes")
        return split_response(api, 1, await self._reader.readexactly(size))[1]

    async def authenticate(self, tokens: Tokens) -> None:
        token: bytes | None = next(tokens)
        while token is not None:
            said = await self.ask("SaslAuthenticate", {"authBytes": b64encode(token).decode()})
            if said["errorCode"]:
                raise ConnectionError(f"the broker doesn't let us in: {said['errorMessage']}")
            token = _next(tokens, b64decode(said["authBytes"]))


#: The tokens of one authentication; each is given what the broker said to the one before.
Tokens = Generator[bytes, bytes, None]


def _next(tokens: Tokens, reply: bytes) -> bytes | None:
    try:
        return tokens.send(reply)
    except StopIteration:
        return None


def _plain(credentials: Credentials) -> Tokens:
    yield f"\0{credentials.username}\0{credentials.password}".encode()


def _scram(credentials: Credentials) -> Tokens:
    client = ScramClient([credentials.mechanism], credentials.username, credentials.password)
    client.set_server_first((yield client.get_client_first().encode()).decode())
    # The broker shows that it knows the password, too.
    client.set_server_final((yield client.get_client_final().encode()).decode())
