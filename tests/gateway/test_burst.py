"""A burst of ten times as many requests as are answered: clients of many libraries are well again after it."""

from __future__ import annotations

import asyncio
import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from coordinator_udf.gateway.settings import GatewaySettings
from scripts.benchmarks.open_loop import send
from tests.gateway import crowd
from tests.gateway.fleet import Fleet, Place
from tests.gateway.in_process import Front, topics
from tests.waiting import PATIENCE_S, wait

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

PLACES: set[Place] = {("t1", i) for i in range(6)}

CROWD = {
    "mixed": ("confluent", "java", "kafka-python"),
    "new": ("confluent", "java"),
    "others": ("franz-go", "aiokafka"),
    "node": ("kafkajs",),
}

#: A coordinator that answers so many rows in a micro-batch of so many seconds: 450 requests a second.
ROWS_MAX = 100
BATCH_S = 0.2

BURST_RATE = 4_500
BURST_S = 10

#: In this time all are well again on the busiest machine; how fast they are on a quiet one, scripts/bench gateway says.
WELL_S = 300


class _Stranger:
    """A member that the coordinator doesn't know."""

    def __init__(self, number: int) -> None:
        self._number = number

    def identity(self) -> dict[str, Any]:
        return {"groupId": f"b-{self._number}", "generationId": 1, "memberId": "m", "groupInstanceId": None}


def burst(address: str) -> None:
    """Sends heartbeats whatever becomes of them."""
    strangers: Any = [_Stranger(number) for number in range(100)]
    asyncio.run(send(address, strangers, BURST_RATE, BURST_S, connections=100))


def test_after_a_burst_all_clients_are_well_again(tmp_path: Path) -> None:
    settings = GatewaySettings(port=0, unanswered_rows_max=ROWS_MAX)
    with (
        Front(tmp_path / "log.db", topics(t1=6), gateway=settings, pause_s=BATCH_S) as front,
        Fleet(tmp_path, front.address, session_ms=45_000, heartbeat_ms=3_000) as fleet,
    ):
        groups = crowd.start(fleet, CROWD, PLACES)
        sender = multiprocessing.get_context("spawn").Process(target=burst, args=(front.address,))
        sender.start()
        sender.join(BURST_S + PATIENCE_S)
        assert sender.exitcode == 0
        took_s = crowd.wait_until_well(groups, WELL_S)
        print(f"well again {took_s:.1f} s after the burst; {front.gateway.status()}")
        # A slow sender's is still under way then; once it has gone nobody wants its requests.
        wait(lambda: front.gateway.status().shed > 0, "requests are dropped", lambda: str(front.gateway.status()))
        fleet.kill()
