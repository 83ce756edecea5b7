"""Where the keys of tokens come from, and what of it is no key."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from io import BufferedIOBase
from pathlib import Path

import msgspec
import pytest

from coordinator_udf.gateway.security import web_keys
from coordinator_udf.gateway.security.web_keys import WebKeys
from coordinator_udf.gateway.settings import GatewaySettingsError
from tests.gateway.security.locked import Locked
from tests.gateway.security.tokens import Provider


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Provider:
    return Provider(tmp_path_factory.mktemp("provider") / "keys.json")


def drip(to: BufferedIOBase) -> None:
    """Writes a byte now and then until nobody takes them."""
    with suppress(OSError):
        while True:
            to.write(b" ")
            time.sleep(0.05)


@pytest.fixture
def address(provider: Provider) -> Iterator[str]:
    """Where the provider's keys are had by HTTP."""

    class Keys(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = provider.path.read_bytes() if self.path == "/keys" else b"[" * 2_000_000
            self.send_response(200 if self.path != "/elsewhere" else 302)
            self.send_header("Location", "/keys")
            self.end_headers()
            if self.path == "/drip":
                drip(self.wfile)
            else:
                self.wfile.write(found)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Keys)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_keys_of_an_address_are_asked_for_again_when_one_is_unknown(
    tmp_path: Path, provider: Provider, address: str
) -> None:
    clock = [0.0]
    keys = WebKeys(f"{address}/keys", tmp_path, refresh_ms=60_000, now_s=lambda: clock[0])
    before = provider.name
    provider.publish("two")
    try:
        keys.look_again()
        assert keys.find("two-rsa", "RS256") is None
        # However many strangers name keys that aren't there: not at once.
        keys.look_again()
        assert keys.find("two-rsa", "RS256") is None
        clock[0] += 10
        keys.look_again()
        assert keys.find("two-rsa", "RS256") is not None
        assert keys.find(f"{before}-rsa", "RS256") is None
    finally:
        provider.publish(before)
    clock[0] += 60
    keys.look_again()
    assert keys.find(f"{before}-ec", "ES256") is not None
    assert keys.find(None, "ES256") is not None


def test_keys_that_cannot_be_had_are_no_keys(tmp_path: Path, address: str) -> None:
    for location in ("http://example.com/keys", "https://", "s3://a/b", f"{address}/huge", f"{address}/elsewhere"):
        with pytest.raises(GatewaySettingsError, match="jwks"):
            WebKeys(location, tmp_path, refresh_ms=1)
    (tmp_path / "keys.json").write_text('{"keys": [{"kty": "oct", "k": "c2VjcmV0"}, 7]}')
    with pytest.raises(GatewaySettingsError, match="has no key"):
        WebKeys("keys.json", tmp_path, refresh_ms=1)
    with pytest.raises(GatewaySettingsError, match="can't be read"):
        WebKeys("nothing.json", tmp_path, refresh_ms=1)


def test_a_provider_that_drips_is_not_waited_for(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_keys, "_TIMEOUT_S", 0.5)
    with pytest.raises(GatewaySettingsError, match="not all there"):
        WebKeys(f"{address}/drip", tmp_path, refresh_ms=1)


def test_a_key_whose_id_is_no_text_is_left_out(tmp_path: Path, provider: Provider) -> None:
    published = msgspec.json.decode(provider.path.read_bytes())["keys"]
    odd = [published[0] | {"kid": ["x"]}, published[0] | {"kid": {"x": 1}}, *published]
    (tmp_path / "keys.json").write_bytes(msgspec.json.encode({"keys": odd}))
    keys = WebKeys("keys.json", tmp_path, refresh_ms=1)
    assert keys.find(f"{provider.name}-rsa", "RS256") is not None


def test_what_can_be_read_is_taken_over_where_something_else_cannot(tmp_path: Path, provider: Provider) -> None:
    locked = Locked(tmp_path)
    (tmp_path / "keys.json").write_bytes(provider.path.read_bytes())
    more = provider.settings.replace(provider.path.as_uri(), "keys.json") + locked.rules("bob READ GROUP g")
    security = locked.security("SASL_PLAINTEXT", more, ("PLAIN", "OAUTHBEARER"))
    (tmp_path / "keys.json").unlink()
    (tmp_path / "users.json").unlink()
    locked.file.write_text(locked.file.read_text().replace("User:bob", "User:alice"))
    with pytest.raises(GatewaySettingsError, match=r"users\.json.*; .*keys\.json"):
        security.look_again()
    acls = security.acls()
    assert acls is not None
    assert acls.allows("User:alice", "h", "READ", "GROUP", "g")
    assert not acls.allows("User:bob", "h", "READ", "GROUP", "g")
