"""The first moments of a connection: TLS, then SASL, in little memory and little time, one step at a time."""

from __future__ import annotations

import asyncio
import logging
import ssl
import struct
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from cryptography import x509

from coordinator_udf.gateway.security.sasl import Begin, Exchange, Refused
from coordinator_udf.gateway.security.settings import SecuritySettings
from coordinator_udf.gateway.server.interfaces import Closed, Stranger
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.wire import (
    MalformedFrame,
    RequestHeader,
    decode,
    read_request_header,
    request_message,
    response_bytes,
    split_response,
)
from coordinator_udf.protocol.wire.shaping import answer

_log = logging.getLogger(__name__)

ANONYMOUS: Final = "User:ANONYMOUS"

#: What is told to be served before it is known who somebody is, beside all else: SaslHandshake, SaslAuthenticate.
#: Of the first v0 isn't served; librdkafka takes a broker that doesn't tell of it for one without SASL.
_SASL_RANGES: Final = (
    {"apiKey": 17, "minVersion": 0, "maxVersion": 1},
    {"apiKey": 36, "minVersion": 0, "maxVersion": 2},
)

_LENGTH: Final = struct.Struct(">i")
_HANDSHAKE: Final = "SaslHandshake"
_AUTHENTICATE: Final = "SaslAuthenticate"

#: Frames that may come before an authentication is over: ApiVersions twice, a handshake, and its tokens.
_FRAMES_MAX: Final = 12


@dataclass(frozen=True, slots=True)
class Entrance:
    """Lets connections in.

    Attributes:
        tls: what clients are met with; None without TLS.
        mechanisms: SASL mechanism -> what begins an authentication; none without SASL.
    """

    settings: SecuritySettings
    tls: ssl.SSLContext | None
    mechanisms: Mapping[str, Begin]
    strangers: Strangers
    passwords: ThreadPoolExecutor

    async def admit(self, stranger: Stranger) -> str:
        """Returns whose connection it is (``User:NAME``). See `Admission.admit`."""
        loop = asyncio.get_running_loop()
        limit = asyncio.timeout(self.settings.strangers_timeout_ms / 1000)
        # What is under way ends at once then, and lets go of its memory: a handshake holds 256 KiB.
        host = stranger.peer.rpartition(":")[0]
        place = self.strangers.enter(host, lambda: limit.reschedule(loop.time()))
        try:
            async with limit:
                principal = ANONYMOUS
                if self.tls is not None:
                    principal = await _shake_hands(stranger, self.tls, self.settings.strangers_timeout_ms / 1000)
                if self.settings.has_sasl:
                    principal = await self._authenticate(stranger)
        except TimeoutError:
            raise Closed("it did not authenticate in time, or was the oldest of too many") from None
        except ssl.SSLError as error:
            raise Closed(f"TLS failed: {error.reason or error}", quietly=True) from None
        finally:
            self.strangers.leave(host, place)
        return principal

    async def _authenticate(self, stranger: Stranger) -> str:
        exchange: Exchange | None = None
        for _ in range(_FRAMES_MAX):
            frame = await self._frame(stranger)
            header = _header(frame)
            if header.api == "ApiVersions":
                await stranger.write(_with_sasl(header, await stranger.answer(frame)))
            elif header.api == _HANDSHAKE and header.api_version == 1 and exchange is None:
                exchange = await self._begin(stranger, header, frame)
            elif header.api == _AUTHENTICATE and 0 <= header.api_version <= 2 and exchange is not None:
                await self._step(stranger, exchange, header, frame)
                if exchange.user is not None:
                    return f"User:{exchange.user}"
            else:
                raise Closed(f"api key {header.api_key} v{header.api_version} came before it was authenticated")
        raise Closed("it did not authenticate within so many requests")

    async def _begin(self, stranger: Stranger, header: RequestHeader, frame: bytes) -> Exchange:
        name = _body(header, frame)["mechanism"]
        begin = self.mechanisms.get(name)
        error = Errors.NONE if begin is not None else Errors.UNSUPPORTED_SASL_MECHANISM
        await _say(stranger, header, errorCode=int(error), mechanisms=list(self.mechanisms))
        if begin is None:
            raise Closed("it asked for a SASL mechanism that isn't enabled")
        return begin()

    async def _step(self, stranger: Stranger, exchange: Exchange, header: RequestHeader, frame: bytes) -> None:
        token = b64decode(_body(header, frame)["authBytes"])
        loop = asyncio.get_running_loop()
        try:
            said = await loop.run_in_executor(self.passwords, exchange.answer, token)
        except Refused as refused:
            _log.warning("authentication of %s failed: %s", stranger.peer, refused)
            # Who tries passwords gets the answer late, whatever was wrong.
            await asyncio.sleep(self.settings.failure_delay_ms / 1000)
            told = "Authentication failed during authentication due to invalid credentials"
            await _say(
                stranger, header, errorCode=int(Errors.SASL_AUTHENTICATION_FAILED), errorMessage=told, authBytes=""
            )
            raise Closed("authentication failed") from None
        await _say(stranger, header, errorCode=0, errorMessage=None, authBytes=b64encode(said).decode())

    async def _frame(self, stranger: Stranger) -> bytes:
        try:
            (size,) = _LENGTH.unpack(await stranger.reader.readexactly(_LENGTH.size))
            if not 0 < size <= self.settings.token_bytes_max:
                raise Closed(
                    f"a frame of somebody unknown announces {size} bytes, expected 1 to {self.settings.token_bytes_max}"
                )
            return await stranger.reader.readexactly(size)
        except asyncio.IncompleteReadError:
            raise Closed("it went before it was authenticated", quietly=True) from None


class Strangers:
    """Limits connections that have not authenticated yet: for one too many, the busiest address loses its oldest one.

    An honest client doesn't stay unauthenticated for long, so the oldest is the likeliest attacker's.

    Args:
        most: how many there may be.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        #: By address those of it, the oldest first.
        self._waiting: dict[str, OrderedDict[int, Callable[[], None]]] = {}
        self._size = 0
        self._count = 0
        self.evicted = 0

    def __len__(self) -> int:
        return self._size

    def enter(self, host: str, close: Callable[[], None]) -> int:
        """Takes a place; `close` is called if it has to be given up."""
        if self._size >= self._most:
            crowd = max(self._waiting, key=lambda other: len(self._waiting[other]))
            oldest = next(iter(self._waiting[crowd]))
            close_oldest = self._waiting[crowd][oldest]
            self.leave(crowd, oldest)
            self.evicted += 1
            close_oldest()
        self._count += 1
        self._size += 1
        self._waiting.setdefault(host, OrderedDict())[self._count] = close
        return self._count

    def leave(self, host: str, place: int) -> None:
        """Gives the place up, if it wasn't taken away."""
        mine = self._waiting.get(host)
        if mine is not None and mine.pop(place, None) is not None:
            self._size -= 1
            if not mine:
                del self._waiting[host]


def _with_sasl(header: RequestHeader, said: bytes) -> bytes:
    """Returns an answer to ApiVersions that tells of SASL, too."""
    last = 4
    version = header.api_version if 0 <= header.api_version <= last else 0
    correlation_id, body = split_response("ApiVersions", version, said[_LENGTH.size :])
    keys = sorted([*body["apiKeys"], *_SASL_RANGES], key=lambda entry: entry["apiKey"])
    told = answer("ApiVersions", version, **{**body, "apiKeys": keys})
    return response_bytes("ApiVersions", version, correlation_id, told)


async def _shake_hands(stranger: Stranger, tls: ssl.SSLContext, timeout_s: float) -> str:
    await stranger.writer.start_tls(tls, ssl_handshake_timeout=timeout_s)
    certificate = stranger.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    if certificate is None:
        return ANONYMOUS
    # As Java's X500Principal names it: the whole subject, the most special first.
    return f"User:{x509.load_der_x509_certificate(certificate).subject.rfc4514_string()}"


def _header(frame: bytes) -> RequestHeader:
    try:
        return read_request_header(frame)
    except MalformedFrame as error:
        raise Closed(f"malformed request header: {error}") from None


def _body(header: RequestHeader, frame: bytes) -> Mapping[str, Any]:
    try:
        return decode(request_message(header.api or "", header.api_version), frame, header.body_at)
    except MalformedFrame as error:
        raise Closed(f"malformed {header.api} v{header.api_version}: {error}") from None


def _say(stranger: Stranger, header: RequestHeader, **values: Any) -> Awaitable[None]:
    api, version = header.api or "", header.api_version
    return stranger.write(response_bytes(api, version, header.correlation_id, answer(api, version, **values)))
