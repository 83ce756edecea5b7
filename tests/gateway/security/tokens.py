"""An identity provider for tests: keys, the file in which they are published, and tokens of all kinds."""

from __future__ import annotations

import time
from base64 import b64encode
from pathlib import Path
from typing import Any

import jwt
import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

ISSUER = "https://login.example.com"
AUDIENCE = "kafka"


class Provider:
    """Signs by an RSA key and an elliptic curve's, whose public halves are in `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rsa = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
        self.ec = ec.generate_private_key(ec.SECP256R1())
        self.publish("one")

    def publish(self, name: str) -> None:
        """Writes the keys under ids that begin with `name`."""
        self.name = name
        keys = [
            jwt.algorithms.RSAAlgorithm.to_jwk(self.rsa.public_key(), as_dict=True) | {"kid": f"{name}-rsa"},
            jwt.algorithms.ECAlgorithm.to_jwk(self.ec.public_key(), as_dict=True) | {"kid": f"{name}-ec", "use": "sig"},
            # What must not be used, though somebody published it.
            {"kty": "oct", "k": "c2VjcmV0", "kid": f"{name}-oct"},
        ]
        self.path.write_bytes(msgspec.json.encode({"keys": keys}))

    @property
    def settings(self) -> str:
        return (
            f'sasl.oauthbearer.jwks.endpoint.url = "{self.path.as_uri()}"\n'
            f'sasl.oauthbearer.expected.issuer = "{ISSUER}"\n'
            f'sasl.oauthbearer.expected.audience = ["{AUDIENCE}", "other"]\n'
        )

    def token(self, user: str = "alice", lifetime_s: float = 3_600, algorithm: str = "RS256", **claims: Any) -> str:
        """A token; a claim that is None is left out."""
        key = self.ec if algorithm.startswith("ES") else self.rsa
        key_id = f"{self.name}-{'ec' if algorithm.startswith('ES') else 'rsa'}"
        return jwt.encode(payload(user, lifetime_s, **claims), key, algorithm, {"kid": key_id})

    def public_pem(self) -> bytes:
        return self.rsa.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )


def payload(user: str = "alice", lifetime_s: float = 3_600, **claims: Any) -> dict[str, Any]:
    now_s = time.time()
    said = {"sub": user, "iss": ISSUER, "aud": AUDIENCE, "iat": now_s, "exp": now_s + lifetime_s, **claims}
    return {name: value for name, value in said.items() if value is not None}


def message(token: str, on_behalf_of: str = "", **extensions: str) -> dict[str, str]:
    """The body of a SaslAuthenticate."""
    more = "".join(f"{key}={value}\x01" for key, value in extensions.items())
    claimed = f"a={on_behalf_of}" if on_behalf_of else ""
    return authenticate(f"n,{claimed},\x01auth=Bearer {token}\x01{more}\x01".encode())


def authenticate(token: bytes) -> dict[str, str]:
    return {"authBytes": b64encode(token).decode()}
