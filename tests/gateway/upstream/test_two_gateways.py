"""Two gateways in processes of their own before one log and one real broker; one is killed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from deltalake import write_deltalake

from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.settings.coordinator import Settings
from scripts.ports import free_port
from tests.conftest import ROOT
from tests.gateway.alone import METADATA
from tests.gateway.fleet import Fleet
from tests.gateway.in_process import PARTITIONS, InProcessCoordinator
from tests.gateway.upstream.behind import FAST
from tests.gateway.wire import Wire
from tests.members.kafka_broker import KafkaBroker
from tests.nightly import only_at_night
from tests.waiting import wait

pytestmark = pytest.mark.slow

CLIENTS = ("confluent", "aiokafka", "kafka-python", "java")
PLACES = {("t1", number) for number in range(8)}
SESSION_MS = 20_000
#: A gateway's own port, and behind it one for each broker by its id, from 0 on.
GATEWAY_PORTS = 5


class GatewayProcess:
    """``jobs/gateway.py`` with the options given; its brokers have the ports behind its own."""

    def __init__(self, directory: Path, log: Path, port: int, options: Sequence[str]) -> None:
        self.port = port
        self.output = directory / f"gateway-{self.port}.log"
        command = [sys.executable, str(ROOT / "jobs" / "gateway.py"), "--listen", f"127.0.0.1:{self.port}"]
        command += ["--log", str(log), "--tables", str(directory / "tables"), *options]
        with self.output.open("wb") as output:
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            self.process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def wait_until_it_listens(self) -> None:
        wait(lambda: _listens(self.port), "the gateway listens", self.output.read_text)

    def tells_of(self, ports: Collection[int]) -> bool:
        """Whether clients learn from it of the gateways with these ports."""
        with Wire(self.port) as wire:
            return {*ports} <= {broker["port"] for broker in wire.ask("Metadata", 10, METADATA)["brokers"]}

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait(120)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def two_gateways(directory: Path, *options: str) -> Iterator[list[GatewayProcess]]:
    """Two gateways, and a coordinator that answers by a table as the stream does."""
    log = EmbeddedLog.create(directory / "log.db", PARTITIONS)
    uri = str(directory / "tables" / "group_responses")

    def store(table: pa.Table) -> None:
        if table.num_rows:
            write_deltalake(uri, table, mode="append")

    coordinator = InProcessCoordinator(log, Settings.from_kafka(FAST), store, 0.02)
    ports = [free_port(GATEWAY_PORTS), free_port(GATEWAY_PORTS)]
    known = ["--gateways", ",".join(f"127.0.0.1:{port}" for port in ports)]
    gateways = [GatewayProcess(directory, log.path, port, [*known, *options]) for port in ports]
    try:
        coordinator.start()
        for gateway in gateways:
            gateway.wait_until_it_listens()
        # Who asks one that hasn't seen the other yet learns of the other with new metadata, after some minutes.
        for gateway in gateways:
            wait(partial(gateway.tells_of, ports), "each gateway tells of both", gateway.output.read_text)
        yield gateways
    finally:
        for gateway in gateways:
            gateway.kill()
        coordinator.stop()
        log.close()
    assert coordinator.rejected == 0


@only_at_night("test_kafka_log.py kills one of two gateways")
def test_members_go_on_at_the_other_gateway_and_stay_in_their_group(tmp_path: Path) -> None:
    with KafkaBroker(tmp_path, {"t1": 8}, {}) as broker, two_gateways(tmp_path, "--upstream", broker.address) as both:
        producer = Producer({"bootstrap.servers": both[0].address, "log_level": 0})
        for number in range(8):
            producer.produce("t1", b"record", partition=number)
        assert producer.flush(120) == 0
        bootstrap = ",".join(gateway.address for gateway in both)
        fleet = Fleet(tmp_path, bootstrap, session_ms=SESSION_MS)
        try:
            members = [fleet.start(client, group="g", topics=["t1"]) for client in CLIENTS]
            fleet.wait_for_assignment(members, PLACES)
            heard = [len(member.events) for member in members]
            both[0].kill()
            # Longer than a session: whoever doesn't find the other gateway is expelled meanwhile.
            time.sleep(SESSION_MS / 1000 + 4)
            for member, before in zip(members, heard, strict=True):
                assert member.events[before:] == [], member.tail()
            for number, member in enumerate(members):
                place = min(member.assignment)
                member.order("committed", do="commit", place=place, offset=number)
                assert member.order("found", do="find", place=place)["offset"] == number
            with Wire(both[1].port) as wire:
                asked = {"groups": ["g"], "includeAuthorizedOperations": False}
                (group,) = wire.ask("DescribeGroups", 5, asked)["groups"]
            assert (group["groupState"], len(group["members"])) == ("Stable", len(CLIENTS))
        finally:
            fleet.kill()
