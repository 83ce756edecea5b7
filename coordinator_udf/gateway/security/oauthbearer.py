"""SASL OAUTHBEARER (RFC 7628, KIP-255, KIP-768): whoever brings a token that the identity provider signed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import jwt

from coordinator_udf.gateway.security.sasl import Refused, refuse_larger
from coordinator_udf.gateway.security.web_keys import WebKeys

#: The client's message, as in Kafka's OAuthBearerClientInitialResponse.
_MESSAGE: Final = re.compile(
    r"n,(?:a=(?P<user>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01"
    r"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01",
)
_AUTH: Final = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")

#: Tokens with many groups of a user have some 10 KiB; one of half a MiB takes a tenth of a second to refuse.
_BYTES_MAX: Final = 32_768

#: RFC 7628's answer to a token that isn't good. Nothing of why: a stranger asks.
_INVALID_TOKEN: Final = b'{"status":"invalid_token"}'


class Token(NamedTuple):
    """A token that is good.

    Attributes:
        user: whose it is.
        expires_s: when it ends, in seconds since 1970.
    """

    user: str
    expires_s: float


@dataclass(frozen=True, slots=True)
class TokenCheck:
    """Checks JSON Web Tokens, as Kafka's BrokerJwtValidator does, by the library PyJWT.

    Attributes:
        issuer: who must have issued them.
        audiences: one of these must they be for.
        skew_s: by how much clocks may differ.
        user_claim: the claim that names the user.
    """

    keys: WebKeys
    issuer: str
    audiences: tuple[str, ...]
    skew_s: int
    user_claim: str

    def __call__(self, text: str) -> Token:
        """Returns what a token says.

        Raises:
            Refused: it isn't good.
        """
        try:
            header = jwt.get_unverified_header(text)
            algorithm, key_id = header.get("alg"), header.get("kid")
            key = self.keys.find(key_id, algorithm) if isinstance(algorithm, str) else None
            if key is None:
                named = f"{str(key_id)[:100]!r} for {str(algorithm)[:100]!r}"
                raise Refused(f"a token that no key is known for: {named}")
            claims = jwt.decode(
                text,
                key,
                algorithms=[key.algorithm_name],
                issuer=self.issuer,
                audience=self.audiences,
                leeway=self.skew_s,
                options={"require": ["exp", "iat", "iss", "aud"], "enforce_minimum_key_length": True},
            )
            return Token(self._user(claims), float(claims["exp"]))
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise Refused(f"a token that isn't good: {type(error).__name__}: {str(error)[:200]}") from None

    def _user(self, claims: dict[str, Any]) -> str:
        user = claims.get(self.user_claim)
        if not isinstance(user, str) or not user.strip() or not user.isprintable():
            raise Refused(f"a token whose claim {self.user_claim} is no user's name")
        return user.strip()


class OAuthBearerExchange:
    """OAUTHBEARER, as Kafka's OAuthBearerSaslServer: a token that isn't good is told by JSON, and then by an error."""

    def __init__(self, check: TokenCheck) -> None:
        self._check = check
        self._why: str | None = None
        self.user: str | None = None
        self.expires_s: float | None = None

    def answer(self, token: bytes) -> bytes:
        """See `Exchange.answer`."""
        if self._why is not None:
            # The client has read the answer; RFC 7628 has it send one byte more, to end the exchange.
            raise Refused(self._why)
        refuse_larger(token, _BYTES_MAX)
        claimed, text = _read(token)
        try:
            good = self._check(text)
        except Refused as refused:
            self._why = str(refused)
            return _INVALID_TOKEN
        if claimed not in ("", good.user):
            raise Refused(f"a token of {good.user!r} on behalf of another")
        self.user, self.expires_s = good
        return b""


def _read(message: bytes) -> tuple[str, str]:
    """Returns on whose behalf a client's message asks ('' if it doesn't say), and its token."""
    try:
        found = _MESSAGE.fullmatch(message.decode())
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise Refused("an OAUTHBEARER message that is none")
    pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        raise Refused("an OAUTHBEARER message without a bearer token")
    claimed = (found["user"] or "").replace("=2C", ",").replace("=3D", "=")
    return claimed, auth["token"]
