"""What one client may take, and that one client's fault is no other's."""

from __future__ import annotations

import asyncio
import resource
import struct
import time

import pytest

from coordinator_udf.gateway.options import GatewayOptions
from coordinator_udf.gateway.server.limits import ByteBudget
from coordinator_udf.gateway.settings import GatewaySettingsError
from coordinator_udf.protocol.wire import request_bytes
from tests.gateway.alone import METADATA, Alone
from tests.gateway.in_process import topics
from tests.gateway.wire import HEARTBEAT
from tests.waiting import wait


@pytest.mark.parametrize("alone", [{"max_in_flight_per_connection": 2}], indirect=True)
def test_a_connection_has_only_so_many_requests_under_way(alone: Alone) -> None:
    with alone.wire() as greedy, alone.wire() as other:
        for _ in range(5):
            greedy.send("Heartbeat", 4, HEARTBEAT)
        alone.wait_for_requests(2)
        other.send("Heartbeat", 4, HEARTBEAT)
        alone.wait_for_requests(3)
        time.sleep(0.2)
        assert len(alone.requests()) == 3
        for count in (5, 6):
            alone.answer(*alone.requests())
            alone.wait_for_requests(count)


@pytest.mark.parametrize("alone", [{"max_in_flight": 3}], indirect=True)
def test_all_connections_together_have_only_so_many_requests_under_way(alone: Alone) -> None:
    wires = [alone.wire() for _ in range(5)]
    for wire in wires:
        wire.send("Heartbeat", 4, HEARTBEAT)
    alone.wait_for_requests(3)
    time.sleep(0.2)
    assert len(alone.requests()) == 3
    alone.answer(*alone.requests())
    alone.answer(*alone.wait_for_requests(5))
    assert [wire.receive()["errorCode"] for wire in wires] == [0] * 5
    for wire in wires:
        wire.close()


@pytest.mark.parametrize("alone", [{"max_request_bytes": 20_000, "queued_bytes_max": 30_000}], indirect=True)
def test_large_requests_wait_for_memory(alone: Alone) -> None:
    big = {**HEARTBEAT, "memberId": "m" * 18_000}
    wires = [alone.wire() for _ in range(3)]
    for wire in wires:
        wire.send("Heartbeat", 4, big)
    (row,) = alone.wait_for_requests(1)
    time.sleep(0.2)
    assert len(alone.requests()) == 1
    alone.answer(row)
    _, row = alone.wait_for_requests(2)
    alone.answer(row)
    alone.answer(alone.wait_for_requests(3)[2])
    assert [wire.receive()["errorCode"] for wire in wires] == [0] * 3
    for wire in wires:
        wire.close()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack(">i", -1), "announces -1 bytes"),
        (struct.pack(">i", 0), "announces 0 bytes"),
        (struct.pack(">i", 2**30), "announces 1073741824 bytes"),
        (struct.pack(">i", 3) + b"abc", "malformed request header"),
        (struct.pack(">ihhih", 10, 22, 9, 1, -1), "api key 22 v9 is not served"),
        (struct.pack(">ihhih", 10, 11, 10, 1, -1), "api key 11 v10 is not served"),
        (struct.pack(">ihhihi", 14, 12, 0, 1, -1, -1), "malformed Heartbeat v0: groupId at byte 12 is null"),
    ],
)
def test_a_malformed_frame_closes_its_connection_and_no_other(
    alone: Alone, caplog: pytest.LogCaptureFixture, data: bytes, reason: str
) -> None:
    with alone.wire() as good, alone.wire() as bad:
        bad.raw(data)
        assert bad.is_closed()
        assert good.ask("Metadata", 9, METADATA)["brokers"][0]["port"] == alone.gateway.port
    wait(lambda: reason in caplog.text, f"the log says {reason}", lambda: caplog.text)


@pytest.mark.parametrize("alone", [{"idle_timeout_ms": 3_000, "frame_timeout_ms": 3_000}], indirect=True)
def test_the_idle_and_the_half_said_are_closed_but_not_who_waits_for_an_answer(alone: Alone) -> None:
    with alone.wire() as waiting:
        waiting.send("Heartbeat", 4, HEARTBEAT)
        (row,) = alone.wait_for_requests(1)
        # They come later, so that it has waited longer than either when they are closed.
        with alone.wire() as idle, alone.wire() as half:
            half.raw(struct.pack(">i", 100) + b"x")
            assert idle.is_closed()
            assert half.is_closed()
        alone.answer(row)
        assert waiting.receive()["errorCode"] == 0
    assert alone.gateway.status().closed["idle for too"] >= 1


@pytest.mark.parametrize("alone", [{"write_timeout_ms": 500}], indirect=True)
def test_who_reads_no_answers_holds_up_nobody_and_is_let_go(alone: Alone) -> None:
    alone.gateway.set_topics(topics(**{f"topic-with-quite-a-long-name-{i}": 20 for i in range(100)}))
    with alone.wire() as slow, alone.wire() as good:
        # In one piece: it may be let go before this process comes to send a second one.
        slow.raw(b"".join(request_bytes("Metadata", 9, number, "slow", METADATA) for number in range(200)))
        assert len(good.ask("Metadata", 9, METADATA)["topics"]) == 100
        wait(lambda: "it takes no" in alone.gateway.status().closed, "the slow reader is let go")


@pytest.mark.parametrize("alone", [{"max_connections": 3}], indirect=True)
def test_only_so_many_connections_are_taken(alone: Alone) -> None:
    kept = [alone.wire() for _ in range(3)]
    for wire in kept:
        wire.ask("Metadata", 9, METADATA)
    with alone.wire() as refused:
        assert refused.is_closed()
    kept.pop().close()
    wait(lambda: alone.gateway.status().connections == 2, "one is gone")
    with alone.wire() as taken:
        taken.ask("Metadata", 9, METADATA)
    for wire in kept:
        wire.close()


@pytest.mark.slow
# On a busy machine it takes long until all have connected and asked.
@pytest.mark.parametrize("alone", [{"request_timeout_ms": 600_000}], indirect=True)
def test_thousands_of_connections(alone: Alone) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8_192)), hard))
    count = min(3_000, (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200) // 2)
    assert count >= 400
    wires = [alone.wire() for _ in range(count)]
    for wire in wires:
        wire.send("Heartbeat", 4, HEARTBEAT)
    alone.answer(*alone.wait_for_requests(count))
    assert sum(wire.receive()["errorCode"] for wire in wires) == 0
    assert alone.gateway.status().connections == count
    for wire in wires:
        wire.close()
    wait(lambda: alone.gateway.status().connections == 0, "all are gone")


def test_who_gives_up_waiting_for_bytes_takes_none_with_it() -> None:
    """Before its task ends somebody else may give bytes back."""

    async def scenario() -> None:
        budget = ByteBudget(10)
        await budget.take(10)
        waits = asyncio.ensure_future(budget.take(5))
        after = asyncio.ensure_future(budget.take(4))
        await asyncio.sleep(0)
        waits.cancel()
        budget.give_back(10)
        await asyncio.wait({waits, after})
        assert (waits.cancelled(), after.exception(), budget.free) == (True, None, 6)
        budget.give_back(4)
        assert budget.free == 10

    asyncio.run(scenario())


@pytest.mark.parametrize(("listen", "advertise"), [("0.0.0.0:9092", None), ("[::]:9092", None), ("h:1", "0.0.0.0:2")])
def test_clients_arent_told_to_connect_to_all_addresses(listen: str, advertise: str | None) -> None:
    with pytest.raises(GatewaySettingsError, match="clients can't connect to"):
        GatewayOptions(listen, advertise=advertise).settings()
    assert GatewayOptions(listen, advertise="broker:2").settings().advertised_host == "broker"
