"""Who gets in: unmodified clients with each mechanism, and nobody else."""

from __future__ import annotations

import logging
import socket
import ssl
from base64 import b64encode
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from coordinator_udf.gateway.security.admission import Strangers
from coordinator_udf.gateway.security.sasl import Refused, user_mechanisms
from coordinator_udf.gateway.security.users import UserFile, read_users, verifiers, write_users
from coordinator_udf.gateway.settings import GatewaySettingsError
from tests.gateway.in_process import Front, topics
from tests.gateway.security.locked import MECHANISMS, PASSWORDS, Locked
from tests.gateway.wire import HEARTBEAT, Wire
from tests.waiting import PATIENCE_S, wait


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Locked:
    return Locked(tmp_path_factory.mktemp("locked"))


def admin(front: Front, locked: Locked, **more: str) -> AdminClient:
    address = front.address.replace("127.0.0.1", "localhost")
    return AdminClient(
        {
            "bootstrap.servers": address,
            "log_level": 0,
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(locked.ca),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": PASSWORDS["alice"],
            **more,
        }
    )


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_who_knows_the_password_gets_in(tmp_path: Path, locked: Locked, protocol: str, mechanism: str) -> None:
    with Front(tmp_path / "log.db", topics(t1=2), security=locked.security(protocol)) as front:
        found = admin(front, locked, **{"security.protocol": protocol.lower(), "sasl.mechanism": mechanism})
        assert set(found.list_topics(timeout=120).topics) == {"t1"}


WRONG = [
    ("PLAIN", "alice", "wonder-land"),
    ("PLAIN", "nobody", "wonder-land!"),
    ("SCRAM-SHA-512", "alice", "x" * 9_999),
    ("SCRAM-SHA-256", "nobody", "wonder-land!"),
]


@pytest.mark.slow
@pytest.mark.parametrize("credentials", WRONG)
def test_nobody_else_does_and_no_password_is_logged(
    tmp_path: Path, locked: Locked, credentials: tuple[str, str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with Front(tmp_path / "log.db", topics(t1=2), security=locked.security()) as front:
        mine = dict(zip(("sasl.mechanism", "sasl.username", "sasl.password"), credentials, strict=True))
        # It goes on trying while it is there.
        client = admin(front, locked, **mine)
        wait(lambda: front.gateway.status().closed.get("authentication failed"), "it has tried")
        with pytest.raises(KafkaException):
            client.list_topics(timeout=0.1)
        closed = front.gateway.status().closed
    expected = {"authentication failed", "the client closed", "the network failed:", "it went before"}
    assert set(closed) <= expected, closed
    assert closed["authentication failed"]
    assert "authentication of 127.0.0.1" in caplog.text
    assert credentials[2] not in caplog.text


def test_a_certificate_of_the_ca_says_who_one_is(tmp_path: Path, locked: Locked) -> None:
    security = locked.security("SSL", 'ssl.client.auth = "required"')
    with Front(tmp_path / "log.db", topics(t1=2), security=security) as front:
        with_key = {
            "security.protocol": "ssl",
            "ssl.certificate.location": str(locked.client),
            "ssl.key.location": str(locked.client),
        }
        assert set(admin(front, locked, **with_key).list_topics(timeout=120).topics) == {"t1"}
        with pytest.raises(KafkaException):
            admin(front, locked, **{"security.protocol": "ssl"}).list_topics(timeout=1)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_tls_is_refused(tmp_path: Path, locked: Locked, version: ssl.TLSVersion) -> None:
    with Front(tmp_path / "log.db", topics(t1=2), security=locked.security()) as front:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(locked.ca)
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLS"):
            context.minimum_version = context.maximum_version = version
        with (
            socket.create_connection(("localhost", front.gateway.port)) as plain,
            pytest.raises((ssl.SSLError, OSError)),
        ):
            context.wrap_socket(plain, server_hostname="localhost")


def test_before_one_is_known_only_what_makes_one_known_is_served(tmp_path: Path, locked: Locked) -> None:
    with Front(tmp_path / "log.db", topics(t1=2), security=locked.security("SASL_PLAINTEXT")) as front:
        with Wire(front.gateway.port) as wire:
            keys = {entry["apiKey"] for entry in wire.ask("ApiVersions", 0, {})["apiKeys"]}
            assert {17, 36} <= keys
            wire.send("Heartbeat", 4, HEARTBEAT)
            assert wire.is_closed()
        with Wire(front.gateway.port) as wire:
            assert wire.ask("SaslHandshake", 1, {"mechanism": "GSSAPI"})["errorCode"] == 33
            assert wire.is_closed()
        with Wire(front.gateway.port) as wire:
            wire.send("SaslAuthenticate", 2, {"authBytes": b64encode(b"\0alice\0wonder-land!").decode()})
            assert wire.is_closed()
        with Wire(front.gateway.port) as wire:
            wire.raw((600_000).to_bytes(4))
            assert wire.is_closed()
        with Wire(front.gateway.port) as wire:
            assert wire.ask("SaslHandshake", 1, {"mechanism": "PLAIN"})["errorCode"] == 0
            said = wire.ask("SaslAuthenticate", 2, {"authBytes": b64encode(b"bob\0alice\0wonder-land!").decode()})
            assert said["errorCode"] == 58
            assert wire.is_closed()
        with Wire(front.gateway.port) as wire:
            wire.ask("SaslHandshake", 1, {"mechanism": "PLAIN"})
            said = wire.ask("SaslAuthenticate", 2, {"authBytes": b64encode(b"\0alice\0wonder-land!").decode()})
            assert said["errorCode"] == 0
            assert wire.ask("Heartbeat", 4, HEARTBEAT)["errorCode"] == 25


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
def test_connections_that_say_nothing_keep_nobody_out(tmp_path: Path, locked: Locked, protocol: str) -> None:
    security = locked.security(protocol, "strangers.max = 100")
    with Front(tmp_path / "log.db", topics(t1=2), security=security) as front:
        silent = [socket.create_connection(("127.0.0.1", front.gateway.port)) for _ in range(400)]
        try:
            found = admin(front, locked, **{"security.protocol": protocol.lower()}).list_topics(timeout=120)
            assert set(found.topics) == {"t1"}
            assert len(security.admission.strangers) <= 100
            assert security.admission.strangers.evicted >= 300
        finally:
            for connection in silent:
                connection.close()


def test_who_is_slow_is_closed(tmp_path: Path, locked: Locked) -> None:
    security = locked.security("SASL_SSL", "strangers.timeout.ms = 200")
    with Front(tmp_path / "log.db", topics(t1=2), security=security) as front:
        with socket.create_connection(("127.0.0.1", front.gateway.port)) as slow:
            # The beginning of a ClientHello.
            slow.sendall(bytes.fromhex("16030100"))
            slow.settimeout(PATIENCE_S)
            assert slow.recv(1) == b""
        wait(lambda: front.gateway.status().closed.get("it did not"), "it was closed for that")


def test_certificates_are_taken_over_while_the_gateway_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    security = Locked(tmp_path).security()
    keystore = tmp_path / "gateway.pem"
    assert f"the certificate of {keystore} ends at" in caplog.text
    with Front(tmp_path / "log.db", topics(t1=2), security=security) as front:
        address = ("127.0.0.1", front.gateway.port)
        before = ssl.get_server_certificate(address)
        renewed = Locked(tmp_path)
        front.gateway.look_at_users()
        assert ssl.get_server_certificate(address) != before
        assert set(admin(front, renewed).list_topics(timeout=120).topics) == {"t1"}
        now = ssl.get_server_certificate(address)
        keystore.write_text("half of a ")
        with pytest.raises(GatewaySettingsError, match=r"gateway\.pem"):
            front.gateway.look_at_users()
        assert ssl.get_server_certificate(address) == now


def test_a_user_is_added_while_the_gateway_runs(tmp_path: Path) -> None:
    Locked(tmp_path)
    users = UserFile(tmp_path / "users.json")
    assert not users.is_password("dave", "new")
    write_users(users.path, {**read_users(users.path), "dave": verifiers("new")})
    users.look_again()
    assert users.is_password("dave", "new")
    assert not users.is_password("dave", "newer")
    assert PASSWORDS["alice"] not in users.path.read_text()
    assert (users.path.stat().st_mode & 0o077) == 0


@pytest.mark.parametrize(
    ("mechanism", "token"),
    [
        # To prepare this text as a password would take minutes.
        ("PLAIN", b"\0alice\0a" + "\u0316\u0301".encode() * 120_000),
        ("PLAIN", b"\0" + b"a" * 500_000 + b"\0x"),
        ("SCRAM-SHA-512", b"n,,n=" + "\ufb01".encode() * 160_000 + b",r=abc"),
        ("SCRAM-SHA-512", b"n,,n=alice,r=" + b"a" * 500_000),
    ],
)
def test_a_huge_token_is_refused_without_work(tmp_path: Path, mechanism: str, token: bytes) -> None:
    Locked(tmp_path)
    exchange = user_mechanisms((mechanism,), UserFile(tmp_path / "users.json"))[mechanism]()
    with pytest.raises(Refused, match=f"a message of {len(token)} bytes, expected 2048"):
        exchange.answer(token)


def test_no_salt_tells_who_is_a_user(tmp_path: Path) -> None:
    Locked(tmp_path)
    path = tmp_path / "users.json"
    one, other = UserFile(path), UserFile(path)
    for user in ("alice", "nobody", "\x00"):
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            salts = {users.verifier(mechanism, user).salt for users in (one, other)}
            write_users(path, {**read_users(path), "erin": verifiers("new")})
            one.look_again()
            salts.add(one.verifier(mechanism, user).salt)
            assert len(salts) == 1, (user, mechanism)
            assert len(salts.pop()) == len(one.verifier(mechanism, "alice").salt)
    assert not one.is_password("\x00", "")


def test_of_too_many_strangers_the_oldest_of_the_largest_crowd_goes() -> None:
    gone: list[str] = []
    strangers = Strangers(3)

    def enter(host: str, name: str) -> int:
        return strangers.enter(host, lambda: gone.append(name))

    enter("attacker", "a1")
    honest = enter("honest", "h1")
    enter("attacker", "a2")
    enter("attacker", "a3")
    assert gone == ["a1"]
    enter("other", "o1")
    assert gone == ["a1", "a2"]
    strangers.leave("honest", honest)
    strangers.leave("honest", honest)
    assert len(strangers) == 2
    enter("attacker", "a4")
    assert gone == ["a1", "a2"]
