"""How the brokers of a request log are spoken to: a file under Kafka's names, for librdkafka and Kafka's Java client.

Secrets stand in files, never on a command line; in both clients' own logs they are hidden.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from coordinator_udf.user_errors import InputError

_PEM_KEY: Final = "PRIVATE KEY-----"


def _field(name: str, default: Any) -> Any:
    return msgspec.field(name=name, default=default)


class KafkaSecurity(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the file says; paths are absolute, and passwords read.

    Attributes:
        truststore: a PEM file: whose certificates of brokers are believed; None for what the system trusts.
        keystore: a PEM file with a private key (not encrypted) and its certificates, for mutual TLS.
        password: in the file the path of a file with nothing else in it; here the password.
    """

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = _field("security.protocol", "PLAINTEXT")
    truststore: str | None = _field("ssl.truststore.location", None)
    keystore: str | None = _field("ssl.keystore.location", None)
    check_host: bool = _field("ssl.check.hostname", True)
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = _field("sasl.mechanism", "SCRAM-SHA-512")
    username: str | None = _field("sasl.username", None)
    password: str | None = _field("sasl.password.location", None)

    def __repr__(self) -> str:
        return f"KafkaSecurity({self.protocol})"

    @property
    def has_tls(self) -> bool:
        """Whether brokers are spoken to by TLS."""
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        """Whether brokers are told who this is."""
        return self.protocol.startswith("SASL_")

    def of_librdkafka(self) -> dict[str, str]:
        """Returns the settings of librdkafka's clients."""
        settings: dict[str, str] = {"security.protocol": self.protocol}
        if self.has_tls:
            settings["ssl.endpoint.identification.algorithm"] = "https" if self.check_host else "none"
            if self.truststore is not None:
                settings["ssl.ca.location"] = self.truststore
            if self.keystore is not None:
                settings |= {"ssl.key.location": self.keystore, "ssl.certificate.location": self.keystore}
        if self.has_sasl:
            settings["sasl.mechanism"] = self.mechanism
            settings |= {"sasl.username": self.username or "", "sasl.password": self.password or ""}
        return settings

    def of_java(self) -> dict[str, str]:
        """Returns the settings of Kafka's Java clients.

        What is in files is told, so that executors need none of them.
        """
        settings: dict[str, str] = {"security.protocol": self.protocol}
        if self.has_tls:
            settings["ssl.endpoint.identification.algorithm"] = "https" if self.check_host else ""
            if self.truststore is not None:
                settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": _text(self.truststore)}
            if self.keystore is not None:
                key, certificates = _key_and_certificates(self.keystore)
                settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.key": key}
                settings["ssl.keystore.certificate.chain"] = certificates
        if self.has_sasl:
            module = "scram.ScramLoginModule" if self.mechanism.startswith("SCRAM") else "plain.PlainLoginModule"
            settings["sasl.mechanism"] = self.mechanism
            settings["sasl.jaas.config"] = (
                f"org.apache.kafka.common.security.{module} required "
                f"username={_quoted(self.username or '')} password={_quoted(self.password or '')};"
            )
        return settings


PLAINTEXT: Final = KafkaSecurity()


def read_kafka_security(path: Path | None) -> KafkaSecurity:
    """Reads the file of --kafka-config; without one brokers are spoken to in plain text.

    Raises:
        InputError: it can't be read, or something in it can't be; the message names it, and no secret.
    """
    if path is None:
        return PLAINTEXT
    try:
        document = tomllib.loads(path.read_text("utf-8-sig"))
        read = msgspec.convert(_flat(document), KafkaSecurity)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"the file of --kafka-config {path} can't be read: {error}") from error
    except msgspec.ValidationError as error:
        raise InputError(f"the file of --kafka-config {path}: {error}") from None
    if read.has_sasl and None in (read.username, read.password):
        raise InputError(
            f"the file of --kafka-config {path}: sasl.username and sasl.password.location are "
            f"{read.username!r} and {read.password!r}, expected both, as security.protocol is {read.protocol}"
        )
    if read.keystore is not None:
        _key_and_certificates(str(path.parent / read.keystore))
    return msgspec.structs.replace(
        read,
        truststore=_placed(path, read.truststore),
        keystore=_placed(path, read.keystore),
        password=None if read.password is None else _text(str(path.parent / read.password)).rstrip("\r\n"),
    )


def _placed(file: Path, named: str | None) -> str | None:
    if named is None:
        return None
    _text(str(file.parent / named))
    return str((file.parent / named).absolute())


def _text(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}, which the file of --kafka-config names, can't be read: {error}") from error


def _key_and_certificates(path: str) -> tuple[str, str]:
    """Returns the private key in a PEM file, and the certificates."""
    blocks: list[str] = []
    for line in _text(path).splitlines():
        if line.startswith("-----BEGIN"):
            blocks.append("")
        if blocks:
            blocks[-1] += line + "\n"
    keys = [block for block in blocks if _PEM_KEY in block]
    if len(keys) != 1 or len(blocks) < 2:
        raise InputError(f"ssl.keystore.location {path} has {len(keys)} private keys, expected one and certificates")
    return keys[0], "".join(block for block in blocks if _PEM_KEY not in block)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return flat
