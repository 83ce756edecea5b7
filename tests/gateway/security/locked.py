"""Certificates, users and a file of --security for tests."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from coordinator_udf.gateway.security.load import Security
from coordinator_udf.gateway.security.users import verifiers, write_users

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

PASSWORDS = {"alice": "wonder-land!", "bob": "the Builder", "admin": "root"}


class Locked:
    """A directory with a CA, the gateway's key, a client's key, and users."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ca = directory / "ca.pem"
        self.client = directory / "client.pem"
        self.file = directory / "security.toml"
        ca_key = ec.generate_private_key(ec.SECP256R1())
        ca = _certificate("a CA", ca_key, None, ca_key)
        self.ca.write_bytes(_pem(ca))
        for name, path in (("gateway", directory / "gateway.pem"), ("carol", self.client)):
            key = ec.generate_private_key(ec.SECP256R1())
            path.write_bytes(_key_pem(key) + _pem(_certificate(name, key, ca, ca_key)))
        write_users(directory / "users.json", {user: verifiers(password) for user, password in PASSWORDS.items()})

    def security(self, protocol: str = "SASL_SSL", more: str = "", mechanisms: Sequence[str] = MECHANISMS) -> Security:
        """Writes a file of --security and reads it."""
        lines = [f'security.protocol = "{protocol}"', "connection.failed.authentication.delay.ms = 50"]
        if protocol.endswith("SSL"):
            lines += ['ssl.keystore.location = "gateway.pem"', 'ssl.truststore.location = "ca.pem"']
        if protocol.startswith("SASL"):
            lines.append('sasl.users.location = "users.json"')
            lines.append(f"sasl.enabled.mechanisms = {list(mechanisms)}")
        self.file.write_text("\n".join([*lines, more]))
        return Security(self.file)

    def rules(self, *rules: str) -> str:
        """The text of ACLs: ``alice READ GROUP g``, ``alice READ TOPIC t* DENY``; a star at the end means a prefix."""
        text = 'super.users = ["User:admin"]\n'
        for rule in rules:
            user, operation, resource, name, *permission = rule.split()
            pattern = "PREFIXED" if name.endswith("*") and name != "*" else "LITERAL"
            text += (
                f'[[acls]]\nprincipal = "User:{user}"\noperation = "{operation}"\nresource = "{resource}"\n'
                f'name = "{name.rstrip("*") or "*"}"\npattern = "{pattern}"\n'
                f'permission = "{permission[0] if permission else "ALLOW"}"\n'
            )
        return text


def java_login(ca: Path | str, user: str) -> dict[str, str]:
    """Returns the settings with which Kafka's Java client comes in by TLS and SCRAM."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{module} required username="{user}" password="{PASSWORDS[user]}";',
    }


def _certificate(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: x509.Certificate | None, signer: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Muster"),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )
    now = dt.datetime.now(dt.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(signer, hashes.SHA256())
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
