"""SaslHandshake and SaslAuthenticate on one connection, the first time and again (KIP-368)."""

from __future__ import annotations

import asyncio
import logging
import time
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from coordinator_udf.gateway.security.sasl import Begin, Exchange, Refused
from coordinator_udf.gateway.server.interfaces import Closed, Passed, Write
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.wire import (
    MalformedFrame,
    RequestHeader,
    decode,
    read_request_header,
    request_message,
    response_bytes,
)
from coordinator_udf.protocol.wire.shaping import answer

_log = logging.getLogger(__name__)

HANDSHAKE: Final = "SaslHandshake"
AUTHENTICATE: Final = "SaslAuthenticate"

#: The API keys of the two, as a frame begins.
_CONCERNED: Final = frozenset((b"\x00\x11", b"\x00\x24"))

#: As in Kafka's KafkaChannel.
_AGAIN_AT_MOST_EVERY_S: Final = 1.0

_SESSION_MAX_MS: Final = 2**53

_ILLEGAL_STATE: Final = int(Errors.ILLEGAL_SASL_STATE)


class SaslAnswer(NamedTuple):
    """What a request is answered.

    Attributes:
        data: the answer's frame.
        why_closed: why the connection is closed once that is written; None where it stays.
    """

    data: bytes
    why_closed: str | None = None


class Identity(NamedTuple):
    """Who has authenticated.

    Attributes:
        mechanism: by which SASL mechanism; None without SASL.
        ends_s: when that ends by `time.monotonic`; None for never.
    """

    principal: str
    mechanism: str | None = None
    ends_s: float | None = None


@dataclass(frozen=True, slots=True)
class Authenticator:
    """What all authentications have in common.

    Attributes:
        mechanisms: SASL mechanism -> what begins an authentication.
        passwords: where passwords and tokens are checked.
        failure_delay_ms: how long a failure waits for its answer.
        frame_bytes_max: the largest frame of it.
        reauthenticate_ms: how long one is known at most; 0 for as long as what was shown is good.
        counts: what came of authentications, by the names of Kafka's metrics.
    """

    mechanisms: Mapping[str, Begin]
    passwords: ThreadPoolExecutor
    failure_delay_ms: int
    frame_bytes_max: int
    reauthenticate_ms: int
    counts: Counter[str] = field(default_factory=Counter)

    def session_ms(self, exchange: Exchange) -> int | None:
        """Returns for how long one is known from now on, None for ever; as Kafka's SaslServerAuthenticator."""
        limits = [self.reauthenticate_ms] if self.reauthenticate_ms else []
        if exchange.expires_s is not None:
            limits.append(int((exchange.expires_s - time.time()) * 1_000))
        # Issuers may say any number; the answer has 64 bits for it.
        return max(0, min(*limits, _SESSION_MAX_MS)) if limits else None


class SaslAuthentication:
    """One authentication.

    Attributes:
        known: who it is, once it is over; None before.

    Args:
        peer: whose connection it is, for the log.
        before: who has been known on it before; who authenticates again must be the same.
    """

    def __init__(self, authenticator: Authenticator, peer: str, before: Identity | None = None) -> None:
        self._with = authenticator
        self._peer = peer
        self._before = before
        self._kind = "authentication" if before is None else "reauthentication"
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self.known: Identity | None = None

    async def answer(self, header: RequestHeader, frame: bytes) -> SaslAnswer:
        """Answers a SaslHandshake or SaslAuthenticate.

        Raises:
            Closed: it isn't one that may come now.
        """
        if header.api == HANDSHAKE and header.api_version == 1 and self._exchange is None:
            return self._handshake(header, frame)
        if header.api == AUTHENTICATE and 0 <= header.api_version <= 2 and self._exchange is not None:
            return await self._authenticate(self._exchange, header, frame)
        raise Closed(f"api key {header.api_key} v{header.api_version} came before it was authenticated")

    def _handshake(self, header: RequestHeader, frame: bytes) -> SaslAnswer:
        name = _body(header, frame)["mechanism"]
        begin = self._with.mechanisms.get(name)
        error = Errors.NONE if begin is not None else Errors.UNSUPPORTED_SASL_MECHANISM
        said = _said(header, errorCode=int(error), mechanisms=list(self._with.mechanisms))
        if begin is None:
            return SaslAnswer(said, "it asked for a SASL mechanism that isn't enabled")
        if self._before is not None and self._before.mechanism != name:
            raise Closed("it asked for another SASL mechanism when it authenticated again")
        self._mechanism, self._exchange = name, begin()
        return SaslAnswer(said)

    async def _authenticate(self, exchange: Exchange, header: RequestHeader, frame: bytes) -> SaslAnswer:
        token = b64decode(_body(header, frame)["authBytes"])
        loop = asyncio.get_running_loop()
        try:
            said = await loop.run_in_executor(self._with.passwords, exchange.answer, token)
        except Refused as refused:
            _log.warning("authentication of %s failed: %s", self._peer, refused)
            during = "authentication" if self._before is None else "re-authentication"
            return await self._failed(
                header,
                f"Authentication failed during {during} due to invalid credentials with SASL mechanism "
                f"{self._mechanism}",
            )
        session_ms = None
        if exchange.user is not None:
            principal = f"User:{exchange.user}"
            if self._before is not None and self._before.principal != principal:
                return await self._failed(header, "Cannot change principals during re-authentication")
            session_ms = self._with.session_ms(exchange)
            ends_s = None if session_ms is None else time.monotonic() + session_ms / 1_000
            self.known = Identity(principal, self._mechanism, ends_s)
            self._with.counts[f"successful_{self._kind}"] += 1
        return SaslAnswer(
            _said(
                header,
                errorCode=0,
                errorMessage=None,
                authBytes=b64encode(said).decode(),
                sessionLifetimeMs=session_ms or 0,
            )
        )

    async def _failed(self, header: RequestHeader, told: str) -> SaslAnswer:
        self._with.counts[f"failed_{self._kind}"] += 1
        # Who tries passwords gets the answer late, whatever was wrong.
        await asyncio.sleep(self._with.failure_delay_ms / 1_000)
        failed = int(Errors.SASL_AUTHENTICATION_FAILED)
        return SaslAnswer(_said(header, errorCode=failed, errorMessage=told, authBytes=""), "authentication failed")


class SaslSession:
    """The time in which it is known who is at the other end of a connection; see `server.interfaces.Session`."""

    def __init__(self, known: Identity, authenticator: Authenticator, peer: str) -> None:
        self._known = known
        self._with = authenticator
        self._peer = peer
        self._authentication: SaslAuthentication | None = None
        self._began_s: float | None = None
        self._is_over = False
        self.principal = known.principal

    def concerns(self, frame: bytes) -> bool:
        """See `server.interfaces.Session.concerns`."""
        if self._known.mechanism is None:
            return False
        if frame[:2] in _CONCERNED:
            return True
        if self._authentication is not None or self._is_over:
            raise Closed("it sent other requests while it authenticated again")
        if self._known.ends_s is not None and time.monotonic() >= self._known.ends_s:
            self._with.counts["expired_connections_killed"] += 1
            raise Closed("its session has expired, and it didn't authenticate again")
        return False

    async def answer(self, frame: bytes) -> Passed:
        """See `server.interfaces.Session.answer`."""
        if len(frame) > self._with.frame_bytes_max:
            raise Closed(f"a SASL request has {len(frame)} bytes, expected {self._with.frame_bytes_max} at most")
        header = read_header(frame)
        if self._is_over:
            raise Closed("it authenticated again in vain")
        if self._authentication is None and (header.api != HANDSHAKE or not self._may_begin()):
            return Passed(_writes(_out_of_turn(header)))
        if self._authentication is None:
            self._authentication = SaslAuthentication(self._with, self._peer, self._known)
        said = await self._authentication.answer(header, frame)
        if self._authentication.known is not None:
            self._known, self._authentication = self._authentication.known, None
            _log.debug("%s of %s authenticated again", self._peer, self.principal)
        self._is_over = said.why_closed is not None
        return Passed(_writes(said))

    def _may_begin(self) -> bool:
        now_s = time.monotonic()
        if self._known.ends_s is None:
            return False
        if self._began_s is not None and now_s - self._began_s < _AGAIN_AT_MOST_EVERY_S:
            return False
        self._began_s = now_s
        return True


def read_header(frame: bytes) -> RequestHeader:
    """Reads a request's header.

    Raises:
        Closed: there is none.
    """
    try:
        return read_request_header(frame)
    except MalformedFrame as error:
        raise Closed(f"malformed request header: {error}") from None


def _out_of_turn(header: RequestHeader) -> SaslAnswer:
    """Returns Kafka's answer where nobody is to authenticate (KafkaApis)."""
    if header.api == HANDSHAKE and header.api_version == 1:
        return SaslAnswer(_said(header, errorCode=_ILLEGAL_STATE, mechanisms=[]))
    if header.api == AUTHENTICATE and 0 <= header.api_version <= 2:
        told = "SaslAuthenticate request received after successful authentication"
        return SaslAnswer(_said(header, errorCode=_ILLEGAL_STATE, errorMessage=told, authBytes=""))
    raise Closed(f"api key {header.api_key} v{header.api_version} is not served; see ApiVersions")


def _writes(said: SaslAnswer) -> Callable[[Write], Awaitable[None]]:
    async def write(send: Write) -> None:
        await send(said.data)
        if said.why_closed is not None:
            raise Closed(said.why_closed)

    return write


def _body(header: RequestHeader, frame: bytes) -> Mapping[str, Any]:
    try:
        return decode(request_message(header.api or "", header.api_version), frame, header.body_at)
    except MalformedFrame as error:
        raise Closed(f"malformed {header.api} v{header.api_version}: {error}") from None


def _said(header: RequestHeader, **values: Any) -> bytes:
    api, version = header.api or "", header.api_version
    return response_bytes(api, version, header.correlation_id, answer(api, version, **values))
