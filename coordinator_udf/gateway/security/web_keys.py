"""The keys that tokens are signed with: a JSON Web Key Set (RFC 7517) of a file or an identity provider's address."""

from __future__ import annotations

import logging
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

import msgspec
from jwt import PyJWK, PyJWTError

from coordinator_udf.gateway.file_stamps import file_stamp
from coordinator_udf.gateway.settings import GatewaySettingsError

_log = logging.getLogger(__name__)

#: What a key of a kind can sign with. Nothing symmetric: who knows the provider's public keys must not be able to sign.
_ALGORITHMS: Final = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("EdDSA",),
}

#: The largest key set in bytes (a key of 4,096 bits takes about one KiB of JSON), and how long an identity provider may
#: take to send it, in seconds: half of what clients give a connection (socket.connection.setup.timeout.ms, 10 s), for a
#: token with a new key waits for it.
_BYTES_MAX: Final = 1 << 20
_TIMEOUT_S: Final = 5.0
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")

#: How long nothing is asked again after an unknown key id or a failure, in seconds: whoever sends tokens could make the
#: gateway ask all the time otherwise. As late as that a token is good that was signed with a key of today; half asks
#: the provider twice as often while such tokens come.
_PAUSE_S: Final = 10.0

#: (key id, algorithm) -> key.
Keys = Mapping[tuple[str | None, str], PyJWK]


class WebKeys:
    """The keys of now. Those of a file are read again when it is written to, those of an address every `refresh_ms`.

    Args:
        location: ``https://``, ``http://`` of this machine, ``file://``, or a path relative to `directory`.
        truststore: a PEM file, whose certificates of the address are believed; None for those of the system.
        now_s: a clock in seconds that never goes back.

    Raises:
        GatewaySettingsError: there are no such keys.
    """

    def __init__(
        self,
        location: str,
        directory: Path,
        *,
        refresh_ms: int,
        truststore: str | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._location = location
        self._refresh_s = refresh_ms / 1_000
        self._now_s = now_s
        self._path = _path(location, directory)
        if self._path is None:
            _check_address(location)
            self._opener = _opener(None if truststore is None else directory / truststore)
        self._is_missing = threading.Event()
        self._stamp, self._keys = file_stamp(self._path), self._read()
        self._asked_s = now_s()

    def find(self, key_id: str | None, algorithm: str) -> PyJWK | None:
        """Returns the key for a token's header; where that names none, the only one for the algorithm, if there is one.

        One that isn't there is asked for soon, as a provider's keys change.
        """
        keys = self._keys
        if key_id is None:
            fitting = [key for (_, name), key in keys.items() if name == algorithm]
            return fitting[0] if len(fitting) == 1 else None
        found = keys.get((key_id, algorithm))
        if found is None:
            self._is_missing.set()
        return found

    def look_again(self) -> None:
        """Reads the keys again if it is time to.

        Raises:
            GatewaySettingsError: they can't be read; those of before stay.
        """
        now_s = self._now_s()
        if self._path is not None:
            if (stamp := file_stamp(self._path)) != self._stamp:
                self._keys, self._stamp = self._read(), stamp
            return
        wait_s = min(self._refresh_s, _PAUSE_S) if self._is_missing.is_set() else self._refresh_s
        if now_s - self._asked_s < wait_s:
            return
        self._asked_s = now_s
        self._is_missing.clear()
        try:
            self._keys = self._read()
        except GatewaySettingsError:
            # Asked again after the pause and not only after the whole interval.
            self._is_missing.set()
            raise

    def _read(self) -> Keys:
        try:
            data = self._bytes()
            document = msgspec.json.decode(data, type=dict[str, Any])
        except (OSError, HTTPException, ValueError, msgspec.MsgspecError, RecursionError) as error:
            raise _wrong(self._location, f"can't be read: {error}") from error
        entries = document.get("keys")
        found = _usable(entries if isinstance(entries, list) else [])
        if not found:
            raise _wrong(self._location, "has no key that tokens can be checked with, expected RSA, EC or Ed25519")
        _log.info("%d keys of %s", len({key_id for key_id, _ in found}), self._location)
        return found

    def _bytes(self) -> bytes:
        if self._path is not None:
            return self._path.read_bytes()
        data = b""
        until_s = time.monotonic() + _TIMEOUT_S
        with self._opener.open(self._location, timeout=_TIMEOUT_S) as answer:
            while part := answer.read1(_BYTES_MAX):
                data += part
                if len(data) > _BYTES_MAX:
                    raise ValueError(f"it has more than {_BYTES_MAX} bytes")
                if time.monotonic() > until_s:
                    raise TimeoutError(f"it is not all there after {_TIMEOUT_S:g} s")
        return data


def _usable(entries: list[Any]) -> dict[tuple[str | None, str], PyJWK]:
    found: dict[tuple[str | None, str], PyJWK] = {}
    for entry in entries:
        if not isinstance(entry, Mapping) or entry.get("use", "sig") != "sig":
            continue
        kind = entry.get("kty")
        fits = _ALGORITHMS.get(str(kind if kind == "RSA" else entry.get("crv")), ())
        for algorithm in fits:
            if entry.get("alg", algorithm) != algorithm:
                continue
            try:
                key = PyJWK(dict(entry), algorithm)
                found[key.key_id, algorithm] = key
            except (PyJWTError, ValueError, TypeError, KeyError) as error:
                _log.warning("a key for %s can't be used: %s", algorithm, type(error).__name__)
    return found


def _path(location: str, directory: Path) -> Path | None:
    parts = urllib.parse.urlsplit(location)
    if parts.scheme == "file":
        return Path(urllib.request.url2pathname(parts.path))
    return None if "://" in location else directory / location


def _check_address(location: str) -> None:
    parts = urllib.parse.urlsplit(location)
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOCAL)
    if not is_safe or not parts.hostname:
        # Who can change what comes by http could give the gateway keys of their own.
        raise _wrong(location, "can't be trusted, expected https://, file://, a path, or http:// of this machine")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it could lead from https to http."""

    def redirect_request(self, *_: Any) -> None:
        """Says that there is nothing to follow; the answer is an error then."""


def _opener(truststore: Path | None) -> urllib.request.OpenerDirector:
    try:
        context = ssl.create_default_context(cafile=truststore)
    except (OSError, ssl.SSLError) as error:
        raise GatewaySettingsError(
            f"sasl.oauthbearer.jwks.truststore.location {truststore} can't be used: {error}"
        ) from error
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect)


def _wrong(location: str, what: str) -> GatewaySettingsError:
    return GatewaySettingsError(f"sasl.oauthbearer.jwks.endpoint.url {location} {what}")
