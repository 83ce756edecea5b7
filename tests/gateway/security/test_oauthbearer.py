"""Who comes with a token: real clients with good ones, and nobody with any other."""

from __future__ import annotations

import hashlib
import hmac
import logging
import subprocess
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import msgspec
import pytest
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.asymmetric import rsa

from coordinator_udf.gateway.settings import GatewaySettingsError
from tests.gateway.clients.built import java_command
from tests.gateway.in_process import Front, topics
from tests.gateway.security.locked import PASSWORDS, Locked
from tests.gateway.security.tokens import AUDIENCE, ISSUER, Provider, authenticate, message, payload
from tests.gateway.wire import HEARTBEAT, Wire
from tests.waiting import PATIENCE_S, wait

REFUSED, ILLEGAL_STATE, UNKNOWN_MEMBER = 58, 34, 25


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Provider:
    return Provider(tmp_path_factory.mktemp("provider") / "keys.json")


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[Front]:
    directory = tmp_path_factory.mktemp("locked")
    security = Locked(directory).security("SASL_PLAINTEXT", provider.settings, ("OAUTHBEARER", "PLAIN"))
    with Front(directory / "log.db", topics(t1=2), security=security) as front:
        yield front


def handshake(wire: Wire, mechanism: str = "OAUTHBEARER") -> dict[str, Any]:
    return wire.ask("SaslHandshake", 1, {"mechanism": mechanism})


def test_librdkafka_gets_in_with_a_token(tmp_path: Path, provider: Provider) -> None:
    locked = Locked(tmp_path)
    security = locked.security("SASL_SSL", provider.settings, ("OAUTHBEARER",))
    with Front(tmp_path / "log.db", topics(t1=2), security=security) as front:
        settings: dict[str, Any] = {
            "bootstrap.servers": front.address.replace("127.0.0.1", "localhost"),
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(locked.ca),
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (provider.token(algorithm="ES256"), time.time() + 3_600),
        }
        admin = AdminClient(settings)
        admin.poll(0)
        assert set(admin.list_topics(timeout=120).topics) == {"t1"}


# It reads its schemas as Python 3.11 no longer likes.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kafka_python_gets_in_with_a_token(front: Front, provider: Provider) -> None:
    from kafka import KafkaAdminClient
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return provider.token()

    admin = KafkaAdminClient(
        bootstrap_servers=front.address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Tokens(),
    )
    try:
        assert set(admin.list_topics()) == {"t1"}
    finally:
        admin.close()


@pytest.mark.slow
def test_kafkas_own_tools_get_in_with_a_token(front: Front, provider: Provider, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(provider.token())
    package = "org.apache.kafka.common.security.oauthbearer"
    (tmp_path / "client.properties").write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={package}.OAuthBearerLoginModule required;\n"
        f"sasl.login.callback.handler.class={package}.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}\n"
    )
    command = [
        *java_command(),
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={token.as_uri()}",
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={token}",
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", front.address, "--list", "--command-config", str(tmp_path / "client.properties")),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.split() == ["t1"], done.stderr


def signed(header: dict[str, Any], key: bytes) -> str:
    """A token that its header says was signed by a shared secret."""
    parts = [urlsafe_b64encode(msgspec.json.encode(part)).rstrip(b"=") for part in (header, payload())]
    signature = hmac.digest(key, b".".join(parts), hashlib.sha256)
    return b".".join([*parts, urlsafe_b64encode(signature).rstrip(b"=")]).decode()


def cut(token: str) -> str:
    head, body, _ = token.split(".")
    return f"{head}.{body}."


def altered(token: str) -> str:
    head, _, signature = token.split(".")
    body = urlsafe_b64encode(msgspec.json.encode(payload("admin"))).rstrip(b"=").decode()
    return f"{head}.{body}.{signature}"


def header_of(data: bytes, token: str) -> str:
    return ".".join([urlsafe_b64encode(data).rstrip(b"=").decode(), *token.split(".")[1:]])


BAD: dict[str, Callable[[Provider], str]] = {
    "not signed": lambda _: jwt.encode(payload(), "", "none"),
    "not signed, of a key": lambda p: jwt.encode(payload(), "", "none", {"kid": f"{p.name}-rsa"}),
    "NONE": lambda p: header_of(b'{"alg":"NONE","kid":"%s-rsa"}' % p.name.encode(), p.token()),
    "the public key as the secret": lambda p: signed({"alg": "HS256", "kid": f"{p.name}-rsa"}, p.public_pem()),
    "a published secret": lambda p: signed({"alg": "HS256", "kid": f"{p.name}-oct"}, b"secret"),
    "its own key": lambda _: jwt.encode(
        payload(), rsa.generate_private_key(public_exponent=65_537, key_size=2_048), "RS256", {"kid": "one-rsa"}
    ),
    "an unknown key": lambda p: jwt.encode(payload(), p.rsa, "RS256", {"kid": "nobody's"}),
    "another kind of key": lambda p: jwt.encode(payload(), p.rsa, "RS256", {"kid": f"{p.name}-ec"}),
    "without the signature": lambda p: cut(p.token()),
    "altered": lambda p: altered(p.token()),
    "expired": lambda p: p.token(lifetime_s=-31),
    "for ever": lambda p: p.token(exp=None),
    "without its time": lambda p: p.token(iat=None),
    "of tomorrow": lambda p: p.token(iat=time.time() + 86_400),
    "not yet": lambda p: p.token(nbf=time.time() + 86_400),
    "of another issuer": lambda p: p.token(iss=ISSUER + "/"),
    "of no issuer": lambda p: p.token(iss=None),
    "for another": lambda p: p.token(aud="kafka2"),
    "for nobody": lambda p: p.token(aud=None),
    "of nobody": lambda p: p.token(sub=None),
    "of two lines": lambda p: p.token("alice\nroot"),
    "nested": lambda p: header_of(b"[" * 20_000, p.token()),
    "no header": lambda p: header_of(b"7", p.token()),
    "a huge number": lambda p: header_of(b'{"alg":' + b"9" * 10_000 + b"}", p.token()),
    "critical": lambda p: jwt.encode(payload(), p.rsa, "RS256", {"kid": f"{p.name}-rsa", "crit": ["x"], "x": 1}),
    "large": lambda _: "a" * 30_000,
    "dots": lambda _: "." * 30_000,
    "words": lambda _: "alice",
}


@pytest.mark.parametrize("kind", BAD)
def test_no_other_token_does_and_none_is_logged(
    front: Front, provider: Provider, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "coordinator_udf")
    token = BAD[kind](provider)
    with Wire(front.gateway.port) as wire:
        assert handshake(wire)["errorCode"] == 0
        said = wire.ask("SaslAuthenticate", 2, message(token))
        # RFC 7628: told by JSON first, and by the mechanism's error after the client's last byte.
        assert said["errorCode"] == 0
        assert b64decode(said["authBytes"]) == b'{"status":"invalid_token"}'
        assert said["sessionLifetimeMs"] == 0
        said = wire.ask("SaslAuthenticate", 2, authenticate(b"\x01"))
        assert said["errorCode"] == REFUSED
        assert said["errorMessage"].endswith("invalid credentials with SASL mechanism OAUTHBEARER")
        assert wire.is_closed()
    assert "authentication of 127.0.0.1" in caplog.text
    assert "Traceback" not in caplog.text
    assert token[-40:] not in caplog.text or len(token) < 40


def test_after_a_bad_token_a_good_one_is_too_late(front: Front, provider: Provider) -> None:
    with Wire(front.gateway.port) as wire:
        handshake(wire)
        wire.ask("SaslAuthenticate", 2, message("x"))
        assert wire.ask("SaslAuthenticate", 2, message(provider.token()))["errorCode"] == REFUSED
        assert wire.is_closed()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"y,,\x01auth=Bearer %s\x01\x01",
        b"n,,\x01auth=Basic %s\x01\x01",
        b"n,,\x01auth=Bearer %s\x01",
        b"n,a=admin,\x01auth=Bearer %s\x01\x01",
        b"n,,\x01auth=Bearer %s\x01auth=Bearer x x\x01\x01",
        b"\xff" * 100,
        b"n,a=" + b"=2C" * 10_000,
        b"n,,\x01auth=Bearer " + b"a" * 500_000 + b"\x01\x01",
    ],
)
def test_other_messages_are_refused_at_once(front: Front, provider: Provider, data: bytes) -> None:
    with Wire(front.gateway.port) as wire:
        handshake(wire)
        data = data.replace(b"%s", provider.token().encode())
        assert wire.ask("SaslAuthenticate", 2, authenticate(data))["errorCode"] == REFUSED
        assert wire.is_closed()


@pytest.mark.parametrize("algorithm", ["RS256", "RS512", "PS256", "ES256"])
def test_a_good_token_says_who_one_is_and_for_how_long(front: Front, provider: Provider, algorithm: str) -> None:
    with Wire(front.gateway.port) as wire:
        handshake(wire)
        token = provider.token(algorithm=algorithm, aud=["x", AUDIENCE])
        said = wire.ask("SaslAuthenticate", 1, message(token, "alice", traceId="7"))
        assert said["errorCode"] == 0
        assert 0 < said["sessionLifetimeMs"] <= 3_600_000
        assert wire.ask("Heartbeat", 4, HEARTBEAT)["errorCode"] == UNKNOWN_MEMBER


def test_a_token_may_be_good_for_ages(front: Front, provider: Provider) -> None:
    with Wire(front.gateway.port) as wire:
        handshake(wire)
        said = wire.ask("SaslAuthenticate", 2, message(provider.token(exp=10**30)))
        assert (said["errorCode"], said["sessionLifetimeMs"]) == (0, 2**53)
        assert wire.ask("Heartbeat", 4, HEARTBEAT)["errorCode"] == UNKNOWN_MEMBER


def test_who_authenticates_again_in_time_stays(front: Front, provider: Provider) -> None:
    with Wire(front.gateway.port) as wire:
        handshake(wire)
        assert wire.ask("SaslAuthenticate", 2, message(provider.token(lifetime_s=0.5)))["errorCode"] == 0
        # One behind the other, without waiting for what was asked before.
        wire.send("SaslHandshake", 1, {"mechanism": "OAUTHBEARER"})
        wire.send("SaslAuthenticate", 2, message(provider.token()))
        wire.send("Heartbeat", 4, HEARTBEAT)
        assert wire.receive()["errorCode"] == 0
        assert wire.receive()["sessionLifetimeMs"] > 500
        assert wire.receive()["errorCode"] == UNKNOWN_MEMBER
        time.sleep(0.6)
        assert wire.ask("Heartbeat", 4, HEARTBEAT)["errorCode"] == UNKNOWN_MEMBER
        # Not twice within a second, as in Kafka; and a token out of turn changes nothing.
        assert wire.ask("SaslAuthenticate", 2, message(provider.token()))["errorCode"] == ILLEGAL_STATE
        assert wire.ask("Heartbeat", 4, HEARTBEAT)["errorCode"] == UNKNOWN_MEMBER


def test_who_authenticates_again_sends_no_larger_frames_than_before(front: Front, provider: Provider) -> None:
    with Wire(front.gateway.port) as wire:
        handshake(wire)
        wire.ask("SaslAuthenticate", 2, message(provider.token()))
        handshake(wire)
        wire.send("SaslAuthenticate", 2, authenticate(b"a" * 600_000))
        assert wire.is_closed()


def test_a_session_ends_with_its_token(front: Front, provider: Provider) -> None:
    before = front.gateway.status().authentications
    with Wire(front.gateway.port) as wire:
        handshake(wire)
        wire.ask("SaslAuthenticate", 2, message(provider.token(lifetime_s=0.2)))
        time.sleep(0.3)
        wire.send("Heartbeat", 4, HEARTBEAT)
        assert wire.is_closed()
    after = front.gateway.status().authentications
    for name in ("successful_authentication", "expired_connections_killed"):
        assert after[name] == before.get(name, 0) + 1


def test_nobody_becomes_another_by_authenticating_again(front: Front, provider: Provider) -> None:
    with Wire(front.gateway.port) as wire:
        handshake(wire)
        wire.ask("SaslAuthenticate", 2, message(provider.token()))
        assert handshake(wire)["errorCode"] == 0
        said = wire.ask("SaslAuthenticate", 2, message(provider.token("admin")))
        assert (said["errorCode"], said["errorMessage"]) == (
            REFUSED,
            "Cannot change principals during re-authentication",
        )
        assert wire.is_closed()
    for again in ("PLAIN", "SCRAM-SHA-512"):
        with Wire(front.gateway.port) as wire:
            handshake(wire)
            wire.ask("SaslAuthenticate", 2, message(provider.token()))
            wire.send("SaslHandshake", 1, {"mechanism": again})
            assert again != "PLAIN" or wire.is_closed()
            assert again == "PLAIN" or wire.receive()["errorCode"] == 33
    with Wire(front.gateway.port) as wire:
        handshake(wire)
        wire.ask("SaslAuthenticate", 2, message(provider.token()))
        assert handshake(wire)["errorCode"] == 0
        wire.send("Heartbeat", 4, HEARTBEAT)
        assert wire.is_closed()


def test_who_has_a_password_need_not_authenticate_again(front: Front) -> None:
    with Wire(front.gateway.port) as wire:
        handshake(wire, "PLAIN")
        assert wire.ask("SaslAuthenticate", 2, authenticate(b"\0alice\0" + PASSWORDS["alice"].encode())) == {
            "errorCode": 0,
            "errorMessage": None,
            "authBytes": "",
            "sessionLifetimeMs": 0,
        }
        assert handshake(wire, "PLAIN") == {"errorCode": ILLEGAL_STATE, "mechanisms": []}
        assert wire.ask("Heartbeat", 4, HEARTBEAT)["errorCode"] == UNKNOWN_MEMBER


def test_librdkafka_authenticates_again_when_it_is_asked_to(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "coordinator_udf.gateway.security")
    security = Locked(tmp_path).security("SASL_PLAINTEXT", "connections.max.reauth.ms = 2500")
    with Front(tmp_path / "log.db", topics(t1=2), security=security) as front:
        admin = AdminClient(
            {
                "bootstrap.servers": front.address,
                "security.protocol": "sasl_plaintext",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "alice",
                "sasl.password": PASSWORDS["alice"],
            }
        )

        def authenticates_again() -> bool:
            assert set(admin.list_topics(timeout=PATIENCE_S).topics) == {"t1"}
            return "authenticated again" in caplog.text

        wait(authenticates_again, "it authenticates again")


@pytest.mark.parametrize("name", ["jwks.endpoint.url", "expected.issuer", "expected.audience"])
def test_tokens_of_anybody_for_anybody_are_not_believed(tmp_path: Path, provider: Provider, name: str) -> None:
    said = "".join(line for line in provider.settings.splitlines(keepends=True) if name not in line)
    with pytest.raises(GatewaySettingsError, match=name):
        Locked(tmp_path).security("SASL_PLAINTEXT", said, ("OAUTHBEARER",))
