"""Real clients, unmodified and in processes of their own, before an in-process coordinator."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator_udf.gateway.settings import GatewaySettings
from scripts.ports import free_port
from tests.conftest import ROOT
from tests.gateway.fleet import Fleet, Place
from tests.gateway.in_process import Front, topics
from tests.waiting import wait

KNOWN = topics(t1=4, t2=2)
PLACES: set[Place] = {("t1", i) for i in range(4)} | {("t2", i) for i in range(2)}
BOTH = ("t1", "t2")

#: Sessions short enough for a crash to be seen in seconds; what Kafka hasn't got is on, for nobody must notice.
KAFKA = {"group.min.session.timeout.ms": 1_000, "group.classic.client.extensions.enable": True}


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Front]:
    gateway = GatewaySettings(port=0, classic_extensions=True)
    with Front(tmp_path / "log.db", KNOWN, settings=KAFKA, gateway=gateway) as front:
        yield front
        assert front.coordinator.rejected == 0
        assert front.gateway.status().timed_out == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "clients"),
    [
        ("range", ("kafka-python", "confluent", "aiokafka")),
        ("roundrobin", ("aiokafka", "kafka-python", "confluent")),
        ("sticky", ("kafka-python", "kafka-python", "kafka-python")),
        ("sticky", ("aiokafka", "aiokafka", "aiokafka")),
        ("cooperative-sticky", ("confluent", "kafka-python", "confluent")),
    ],
)
def test_a_group_grows_from_one_to_three_and_shrinks_again(
    front: Front, tmp_path: Path, strategy: str, clients: tuple[str, str, str]
) -> None:
    with Fleet(tmp_path, front.address) as fleet:
        first = fleet.start(clients[0], group="g", topics=BOTH, strategy=strategy)
        fleet.wait_for_assignment([first], PLACES)
        others = [fleet.start(client, group="g", topics=BOTH, strategy=strategy) for client in clients[1:]]
        fleet.wait_for_assignment([first, *others], PLACES)
        for member in others:
            member.close()
        fleet.wait_for_assignment([first], PLACES)
        first.close()


@pytest.mark.slow
@pytest.mark.parametrize("assignor", ["range", "uniform"])
def test_members_of_the_consumer_protocol_come_crash_and_go(tmp_path: Path, assignor: str) -> None:
    fast = {
        "group.consumer.min.heartbeat.interval.ms": 500,
        "group.consumer.heartbeat.interval.ms": 500,
        "group.consumer.min.session.timeout.ms": 10_000,
        "group.consumer.session.timeout.ms": 10_000,
    }
    with Front(tmp_path / "log.db", KNOWN, settings=fast) as front, Fleet(tmp_path, front.address) as fleet:
        how: dict[str, Any] = {"group": "g", "topics": BOTH, "strategy": assignor, "protocol": "consumer"}
        first = fleet.start("confluent", **how)
        fleet.wait_for_assignment([first], PLACES)
        others = [fleet.start("confluent", **how) for _ in range(2)]
        fleet.wait_for_assignment([first, *others], PLACES)
        others[0].kill()
        fleet.wait_for_assignment([first, others[1]], PLACES)
        first.order("committed", do="commit", place=min(first.assignment), offset=3)
        assert first.order("found", do="find", place=min(first.assignment))["offset"] == 3
        others[1].close()
        fleet.wait_for_assignment([first], PLACES)
        first.close()
        assert front.coordinator.rejected == 0


@pytest.mark.slow
@pytest.mark.parametrize("client", ["kafka-python", "confluent", "aiokafka"])
def test_a_crashed_members_partitions_go_to_the_others(front: Front, tmp_path: Path, client: str) -> None:
    with Fleet(tmp_path, front.address, session_ms=10_000) as fleet:
        steady = fleet.start(client, group="g", topics=BOTH)
        fleet.wait_for_assignment([steady], PLACES)
        doomed = fleet.start(client, group="g", topics=BOTH)
        fleet.wait_for_assignment([steady, doomed], PLACES)
        doomed.kill()
        fleet.wait_for_assignment([steady], PLACES)
        steady.close()


@pytest.mark.slow
@pytest.mark.parametrize("client", ["kafka-python", "confluent", "aiokafka"])
def test_a_static_member_comes_back_without_a_rebalance(front: Front, tmp_path: Path, client: str) -> None:
    with Fleet(tmp_path, front.address, session_ms=45_000) as fleet:
        steady = fleet.start(client, group="g", topics=BOTH, instance="i1")
        fleet.wait_for_assignment([steady], PLACES)
        doomed = fleet.start(client, group="g", topics=BOTH, instance="i2")
        fleet.wait_for_assignment([steady, doomed], PLACES)
        owned, heard = doomed.assignment, len(steady.events)
        doomed.kill()
        back = fleet.start(client, group="g", topics=BOTH, instance="i2")
        wait(lambda: back.assignment == owned, "the instance has its partitions back", back.tail)
        time.sleep(2)
        assert steady.events[heard:] == []
        for member in (steady, back):
            member.close()


@pytest.mark.slow
@pytest.mark.parametrize("client", ["kafka-python", "confluent", "aiokafka"])
def test_offsets_outlive_the_consumer(front: Front, tmp_path: Path, client: str) -> None:
    with Fleet(tmp_path, front.address) as fleet:
        writer = fleet.start(client, group="g", topics=BOTH)
        fleet.wait_for_assignment([writer], PLACES)
        writer.order("committed", do="commit", place=("t1", 2), offset=42, metadata="héllo")
        writer.close()
        reader = fleet.start(client, group="g", topics=BOTH)
        fleet.wait_for_assignment([reader], PLACES)
        time.sleep(0.5)
        found = reader.order("found", do="find", place=("t1", 2))
        assert found["offset"] == 42
        time.sleep(1)
        # It stands at the end of the partition, and not out of its range.
        assert reader.order("found", do="find", place=("t1", 2))["position"] in (42, None)
        reader.close()


@pytest.mark.slow
@pytest.mark.parametrize("client", ["kafka-python", "confluent", "aiokafka"])
def test_a_group_lives_through_a_restart_of_the_coordinator(tmp_path: Path, client: str) -> None:
    path = tmp_path / "log.db"
    # Not one of those that the kernel gives to whoever connects, a client of this gateway that comes back, say.
    port = free_port()
    with Front(path, KNOWN, settings=KAFKA, gateway=GatewaySettings(port=port)) as before:
        fleet = Fleet(tmp_path, before.address, session_ms=45_000)
        member = fleet.start(client, group="g", topics=BOTH)
        fleet.wait_for_assignment([member], PLACES)
        member.order("committed", do="commit", place=("t2", 1), offset=7)
    try:
        with Front(path, KNOWN, settings=KAFKA, gateway=GatewaySettings(port=port)) as after:
            time.sleep(2)
            assert member.order("found", do="find", place=("t2", 1))["offset"] == 7
            member.order("committed", do="commit", place=("t2", 1), offset=9)
            late = fleet.start(client, group="g", topics=BOTH)
            fleet.wait_for_assignment([member, late], PLACES)
            for one in (member, late):
                one.close()
            assert after.coordinator.rejected == 0
    finally:
        fleet.kill()


@pytest.mark.slow
def test_the_fleet_of_the_demo_joins_and_leaves(front: Front) -> None:
    command = [
        sys.executable,
        str(ROOT / "scripts" / "demo" / "fleet.py"),
        "--address",
        front.address,
        "--topics",
        "t1,t2",
    ]
    done = subprocess.run([*command, "--seconds", "4"], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert sum(line.endswith(": left") for line in said) == 3, said
    before = said[: said.index("consumer-3: left")]
    shares = {line.partition(": ")[0]: line.partition(": ")[2].split(", ") for line in before}
    # Range gives the first members of each topic one partition more.
    assert sorted(len(share) for share in shares.values()) == [1, 2, 3]
