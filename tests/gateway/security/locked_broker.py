"""A real broker with a listener of TLS and SASL beside its plain one, and who it lets in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.gateway.security.locked import Locked
from tests.members.kafka_broker import KafkaBroker

#: The password of the user muster.
SECRET = "behind the door"

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"

#: How the brokers of the log are spoken to, and of a gateway's security file how those of the cluster behind it are.
_KAFKA_CONFIG = """
security.protocol = "SASL_SSL"
ssl.truststore.location = "ca.pem"
sasl.mechanism = "PLAIN"
sasl.username = "muster"
sasl.password.location = "kafka.password"
"""
UPSTREAM = "".join(f"upstream.{line}\n" for line in _KAFKA_CONFIG.strip().splitlines())


def write_kafka_config(locked: Locked) -> Path:
    """Writes the file of --kafka-config beside the certificates."""
    (locked.directory / "kafka.password").write_text(f"{SECRET}\n")
    file = locked.directory / "kafka.toml"
    file.write_text(_KAFKA_CONFIG)
    return file


def locked_with_kafka_config(directory: Path) -> Locked:
    """Makes certificates and users, and the file of --kafka-config beside them."""
    made = Locked(directory)
    write_kafka_config(made)
    return made


def locked_broker(directory: Path, locked: Locked, topics: Mapping[str, int]) -> KafkaBroker:
    """The broker; its port for TLS and SASL is `port_of_more`, at localhost."""
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},SASL_SSL://127.0.0.1:{more}",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:{port},SASL_SSL://localhost:{more}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": locked.directory / "gateway.pem",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{_PLAIN} required user_muster="{SECRET}";',
    }
    return KafkaBroker(directory, topics, settings)
