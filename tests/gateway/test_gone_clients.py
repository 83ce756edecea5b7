"""Clients that go away while requests are under way: the gateway lets go of them and says nothing of its sockets."""

from __future__ import annotations

import socket
import struct

import pytest

from coordinator_udf.protocol.wire import request_bytes
from tests.gateway.alone import Alone
from tests.gateway.wire import HEARTBEAT, Wire
from tests.waiting import wait

CLIENTS = 20
UNDER_WAY = 16


def reset(wire: Wire) -> None:
    """Ends a connection as the kernel does for a process that is killed while something comes for it."""
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.close()


@pytest.mark.parametrize("alone", [{"max_in_flight_per_connection": UNDER_WAY}], indirect=True)
def test_nothing_is_sent_to_clients_that_were_killed(alone: Alone, caplog: pytest.LogCaptureFixture) -> None:
    # In one piece, and more than may be under way: the gateway has them to do before it would read of the client's end.
    asked = b"".join(request_bytes("Heartbeat", 4, number, "killed", HEARTBEAT) for number in range(3 * UNDER_WAY))
    wires = [alone.wire() for _ in range(CLIENTS)]
    for wire in wires:
        wire.raw(asked)
    rows = alone.wait_for_requests(CLIENTS * UNDER_WAY)
    for wire in wires:
        reset(wire)
    # Each by itself, and many of others between two of one client.
    for number in sorted(range(len(rows)), key=lambda number: number % UNDER_WAY):
        alone.answer(rows[number])
    wait(lambda: alone.gateway.status().connections == 0, "the gateway sees that they are gone")
    assert alone.gateway.unanswered() == 0
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []
    with alone.wire() as wire:
        wire.send("Heartbeat", 4, HEARTBEAT, client_id="alive")
        wait(lambda: any(row["client_id"] == "alive" for row in alone.requests()), "it is in the log")
        alone.answer(*(row for row in alone.requests() if row["client_id"] == "alive"))
        assert wire.receive()["errorCode"] == 0
