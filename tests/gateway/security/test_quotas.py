"""How much one principal may take of a gateway."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator_udf.gateway.security.quotas import Quotas
from coordinator_udf.gateway.security.settings import Quota
from tests.gateway.in_process import Front, topics
from tests.gateway.security.locked import Locked
from tests.gateway.security.test_acls import AuthenticatedWire
from tests.gateway.wire import HEARTBEAT
from tests.waiting import wait


def test_who_sends_too_much_waits_as_long_as_it_was_too_fast() -> None:
    clock = [0.0]
    quotas = Quotas([Quota("User:a", 10.0), Quota("User:*", 1.0)], lambda: clock[0])
    assert [quotas.throttle_ms("User:a") for _ in range(100)] == [0] * 100
    assert quotas.throttle_ms("User:a") == 101
    assert quotas.throttle_ms("User:a") == 201
    clock[0] += 0.2
    assert quotas.throttle_ms("User:a") == 101
    clock[0] += 1_000.0
    assert [quotas.throttle_ms("User:a") for _ in range(101)][-2:] == [0, 101]
    assert [quotas.throttle_ms("User:other") for _ in range(11)][-2:] == [0, 1_001]
    assert Quotas([Quota("User:a", 10.0)]).throttle_ms("User:b") == 0


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Front]:
    quotas = '[[quotas]]\nprincipal = "User:bob"\nrequests_per_second = 2\nconnections = 2\n'
    security = Locked(tmp_path).security("SASL_PLAINTEXT", quotas)
    with Front(tmp_path / "log.db", topics(t1=2), security=security) as front:
        yield front


def test_a_throttled_client_is_told_and_not_heard(front: Front) -> None:
    with AuthenticatedWire(front, "bob") as wire, AuthenticatedWire(front, "alice") as other:
        # All at once, so that it has to wait however slow the machine is.
        for _ in range(30):
            wire.send("Heartbeat", 4, HEARTBEAT)
        told = [wire.receive()["throttleTimeMs"] for _ in range(30)]
        assert told[0] == 0
        assert max(told) > 0
        assert other.ask("Heartbeat", 4, HEARTBEAT)["throttleTimeMs"] == 0


def test_a_connection_too_many_is_closed_and_counts_no_more(front: Front) -> None:
    with AuthenticatedWire(front, "bob") as one:
        with AuthenticatedWire(front, "bob") as two, AuthenticatedWire(front, "bob") as three:
            assert three.is_closed()
            assert two.ask("Heartbeat", 4, HEARTBEAT)["errorCode"] == 25
        with AuthenticatedWire(front, "alice") as other:
            assert other.ask("Heartbeat", 4, HEARTBEAT)["errorCode"] == 25
        wait(lambda: is_let_in(front, "bob"), "a closed connection counts no more")
        assert one.ask("Heartbeat", 4, HEARTBEAT)["errorCode"] == 25


def is_let_in(front: Front, user: str) -> bool:
    with AuthenticatedWire(front, user) as wire:
        wire.send("Heartbeat", 4, HEARTBEAT)
        try:
            assert wire.receive()["errorCode"] == 25
        except (EOFError, ConnectionResetError):
            return False
        return True
