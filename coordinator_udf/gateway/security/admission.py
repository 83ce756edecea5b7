"""The first moments of a connection: TLS, then SASL, in little memory and little time, one step at a time."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cryptography import x509

from coordinator_udf.gateway.security.sasl_authentication import (
    Authenticator,
    Identity,
    SaslAuthentication,
    SaslSession,
    read_header,
)
from coordinator_udf.gateway.security.settings import SecuritySettings
from coordinator_udf.gateway.server.interfaces import Closed, Stranger

ANONYMOUS: Final = "User:ANONYMOUS"

_LENGTH: Final = struct.Struct(">i")

#: Frames that may come before an authentication is over: ApiVersions twice, a handshake, and its tokens.
_FRAMES_MAX: Final = 12


@dataclass(slots=True)
class SecureAdmission:
    """Lets connections in.

    Attributes:
        tls: what clients are met with from now on; None without TLS.
        authenticator: of SASL; without it there are no mechanisms.
    """

    settings: SecuritySettings
    tls: ssl.SSLContext | None
    authenticator: Authenticator
    strangers: Strangers

    async def admit(self, stranger: Stranger) -> SaslSession:
        """See `Admission.admit`."""
        loop = asyncio.get_running_loop()
        limit = asyncio.timeout(self.settings.strangers_timeout_ms / 1000)
        # What is under way ends at once then, and lets go of its memory: a handshake holds 256 KiB.
        host = stranger.peer.rpartition(":")[0]
        place = self.strangers.enter(host, lambda: limit.reschedule(loop.time()))
        try:
            async with limit:
                known = Identity(ANONYMOUS)
                if self.tls is not None:
                    known = await _shake_hands(stranger, self.tls, self.settings.strangers_timeout_ms / 1000)
                if self.settings.has_sasl:
                    known = await self._authenticate(stranger)
        except TimeoutError:
            raise Closed("it did not authenticate in time, or was the oldest of too many") from None
        except ssl.SSLError as error:
            raise Closed(f"TLS failed: {error.reason or error}", quietly=True) from None
        finally:
            self.strangers.leave(host, place)
        return SaslSession(known, self.authenticator, stranger.peer)

    async def _authenticate(self, stranger: Stranger) -> Identity:
        authentication = SaslAuthentication(self.authenticator, stranger.peer)
        for _ in range(_FRAMES_MAX):
            frame = await self._frame(stranger)
            header = read_header(frame)
            if header.api == "ApiVersions":
                await stranger.write(await stranger.answer(frame))
                continue
            said = await authentication.answer(header, frame)
            await stranger.write(said.data)
            if said.why_closed is not None:
                raise Closed(said.why_closed)
            if authentication.known is not None:
                return authentication.known
        raise Closed("it did not authenticate within so many requests")

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


async def _shake_hands(stranger: Stranger, tls: ssl.SSLContext, timeout_s: float) -> Identity:
    await stranger.writer.start_tls(tls, ssl_handshake_timeout=timeout_s)
    certificate = stranger.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    if certificate is None:
        return Identity(ANONYMOUS)
    # As Java's X500Principal names it: the whole subject, the most special first.
    return Identity(f"User:{x509.load_der_x509_certificate(certificate).subject.rfc4514_string()}")
