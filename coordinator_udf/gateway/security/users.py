"""The file of users: for each and each SCRAM mechanism a salt and what can be checked with it, never a password."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from scramp import ScramMechanism

from coordinator_udf.gateway.file_stamps import file_stamp
from coordinator_udf.gateway.settings import GatewaySettingsError

#: The SCRAM mechanisms, the strongest first; each user has a verifier for each.
SCRAM: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256")

#: As in Kafka; RFC 7677 asks for 4,096 at least.
_ITERATIONS: Final = 8_192

#: Of users and of who isn't there alike: a length would tell. RFC 5802 names no length; a salt has to be another one
#: for each user, for which half would do as well.
_SALT_BYTES: Final = 32

#: What of PLAIN's message is left with a name beside it.
_PASSWORD_BYTES_MAX: Final = 1_024

#: What a name can't have: SCRAM and PLAIN separate their fields by these.
_FORBIDDEN: Final = frozenset(",=\x00\n\r")


class Verifier(NamedTuple):
    """What a password is checked with: what scramp calls an auth info."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


Users = Mapping[str, Mapping[str, Verifier]]

#: The entry of no user, since no user's name has that: by its salt those of unknown users are made, so that all
#: gateways, and each after its next start, answer strangers alike. What changes would tell who isn't there.
_NOBODY: Final = "\x00"


class UserFile:
    """The users in a file of JSON, read again whenever it is written to.

    Raises:
        GatewaySettingsError: the file is none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # For a file that was made before such an entry.
        self._secret = secrets.token_bytes(32)
        self._stamp = file_stamp(path)
        self._users: Users = read_users(path)

    def look_again(self) -> None:
        """Reads the file if it was written to or replaced.

        Raises:
            GatewaySettingsError: it can't be read; the users stay as they were.
        """
        if (stamp := file_stamp(self.path)) != self._stamp:
            self._users = read_users(self.path)
            self._stamp = stamp

    def verifier(self, mechanism: str, user: str) -> Verifier:
        """Returns a user's verifier; for an unknown user one that no password passes."""
        found = self._users.get(user, {}).get(mechanism) if user != _NOBODY else None
        if found is not None:
            return found
        # Who isn't there has a salt, too, always the same, so that asking tells nothing.
        nobody = self._users.get(_NOBODY, {}).get(mechanism)
        secret = self._secret if nobody is None else nobody.salt
        made = hmac.digest(secret, f"{mechanism} {user}".encode(), "sha512")
        size = hashlib.new(_hash(mechanism)).digest_size
        return Verifier(made[:_SALT_BYTES], os.urandom(size), os.urandom(size), _ITERATIONS)

    def is_password(self, user: str, password: str) -> bool:
        """Returns whether it is the user's password; takes as long if there is no such user."""
        mechanism = SCRAM[0]
        expected = self.verifier(mechanism, user)
        try:
            _, stored_key, _, _ = ScramMechanism(mechanism).make_auth_info(
                password, iteration_count=expected.iterations, salt=expected.salt
            )
        except Exception:  # noqa: BLE001  SASLprep refuses some texts, by several errors; none of them is a password
            stored_key = b""
        return hmac.compare_digest(stored_key, expected.stored_key)


def read_users(path: Path) -> dict[str, dict[str, Verifier]]:
    """Reads a file of users.

    Raises:
        GatewaySettingsError: it can't be read, or is none.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, Verifier]])
    except (OSError, msgspec.DecodeError) as error:
        raise GatewaySettingsError(
            f"the file of users {path} can't be read: {error}; scripts/users makes it"
        ) from error


def verifiers(password: str) -> dict[str, Verifier]:
    """Makes the verifiers of a new password, with new salts.

    Raises:
        GatewaySettingsError: the password can't be one.
    """
    if len(password.encode()) > _PASSWORD_BYTES_MAX:
        raise GatewaySettingsError(f"this can't be a password: it has more than {_PASSWORD_BYTES_MAX:,} bytes")
    try:
        return {
            mechanism: Verifier(
                *ScramMechanism(mechanism).make_auth_info(
                    password, iteration_count=_ITERATIONS, salt=secrets.token_bytes(_SALT_BYTES)
                )
            )
            for mechanism in SCRAM
        }
    except Exception as error:
        raise GatewaySettingsError(f"this can't be a password: {error}") from error


def names(users: Users) -> list[str]:
    """Returns the users' names in order."""
    return sorted(user for user in users if user != _NOBODY)


def write_users(path: Path, users: Users) -> None:
    """Writes a file of users that only its owner may read, whole or not at all."""
    nobody = {mechanism: Verifier(secrets.token_bytes(32), b"", b"", _ITERATIONS) for mechanism in SCRAM}
    users = {_NOBODY: nobody, **users}
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(dict(sorted(users.items())))))
        file.flush()
        os.fsync(file.fileno())
    Path(name).replace(path)


def checked_name(user: str) -> str:
    """Returns a user's name.

    Raises:
        GatewaySettingsError: it has characters that a user can't have.
    """
    if not user or _FORBIDDEN & set(user):
        raise GatewaySettingsError(f"a user's name is {user!r}, expected a text without comma and equals sign")
    return user


def _hash(mechanism: str) -> str:
    return mechanism.removeprefix("SCRAM-").replace("-", "").lower()
