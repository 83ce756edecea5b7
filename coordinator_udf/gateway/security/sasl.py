"""SASL from the server's side: a mechanism's tokens in, challenges out, and in the end who it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from scramp import ScramException, ScramMechanism

from coordinator_udf.gateway.security.users import UserFile


class Refused(Exception):
    """An authentication failed. The reason is for the log and is never told to the client."""


#: The largest message of PLAIN and SCRAM. To prepare a text (RFC 4013) takes time that grows with its square: a frame
#: full of combining characters would keep all others waiting for minutes.
_BYTES_MAX: Final = 2_048


def refuse_larger(token: bytes, bytes_max: int) -> None:
    """Refuses messages that no client needs, before any work is done for them.

    Raises:
        Refused: it is larger.
    """
    if len(token) > bytes_max:
        raise Refused(f"a message of {len(token)} bytes, expected {bytes_max} at most")


class Exchange(Protocol):
    """One authentication.

    Attributes:
        user: who it is, once it is over; None before.
        expires_s: until when what was shown is good, in seconds since 1970; None for ever.
    """

    user: str | None
    expires_s: float | None

    def answer(self, token: bytes) -> bytes:
        """Returns the answer to a client's token. It may take milliseconds of work.

        Raises:
            Refused: it isn't who it says.
        """


class PlainExchange:
    """PLAIN (RFC 4616), as Kafka's PlainSaslServer."""

    def __init__(self, users: UserFile) -> None:
        self._users = users
        self.user: str | None = None
        self.expires_s: float | None = None

    def answer(self, token: bytes) -> bytes:
        """See `Exchange.answer`."""
        refuse_larger(token, _BYTES_MAX)
        try:
            authorization, user, password = token.decode().split("\0")
        except (UnicodeDecodeError, ValueError):
            raise Refused("a PLAIN token that isn't three texts") from None
        if not user or not password or authorization not in ("", user):
            raise Refused("a PLAIN token without user or password, or on behalf of another")
        if not self._users.is_password(user, password):
            raise Refused(f"wrong user or password for {user!r}")
        self.user = user
        return b""


class ScramExchange:
    """SCRAM (RFC 5802) by scramp."""

    def __init__(self, mechanism: str, users: UserFile) -> None:
        def auth_info(user: str) -> tuple[bytes, bytes, bytes, int]:
            self._claimed = user
            found = users.verifier(mechanism, user)
            return found.salt, found.stored_key, found.server_key, found.iterations

        self._claimed = ""
        self._server = ScramMechanism(mechanism).make_server(auth_info)
        self._is_first = True
        self.user: str | None = None
        self.expires_s: float | None = None

    def answer(self, token: bytes) -> bytes:
        """See `Exchange.answer`."""
        refuse_larger(token, _BYTES_MAX)
        try:
            text = token.decode()
            if self._is_first:
                self._is_first = False
                self._server.set_client_first(text)
                return str(self._server.get_server_first()).encode()
            self._server.set_client_final(text)
            said = str(self._server.get_server_final()).encode()
        except (ScramException, ValueError, LookupError, TypeError) as error:
            raise Refused(f"SCRAM of {self._claimed!r}: {error}") from None
        self.user = self._claimed
        return said


#: Begins an authentication.
Begin = Callable[[], Exchange]

USER_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

#: Whose users are in no file here.
OAUTHBEARER: Final = "OAUTHBEARER"

MECHANISMS: Final = (*USER_MECHANISMS, OAUTHBEARER)


def user_mechanisms(names: tuple[str, ...], users: UserFile) -> Mapping[str, Begin]:
    """Returns the functions that begin an authentication, by these mechanisms of `USER_MECHANISMS`."""
    begins: dict[str, Begin] = {}
    for name in names:
        if name == "PLAIN":
            begins[name] = lambda: PlainExchange(users)
        else:
            begins[name] = _scram(name, users)
    return begins


def _scram(name: str, users: UserFile) -> Begin:
    return lambda: ScramExchange(name, users)
