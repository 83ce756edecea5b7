"""A topic of a real broker as the request log: two gateways, one job, real clients, and whatever is killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from tests.conftest import ROOT
from tests.gateway import crowd, history
from tests.gateway.fleet import Fleet
from tests.gateway.security.locked import Locked
from tests.gateway.wire import Wire
from tests.members.kafka_broker import KafkaBroker
from tests.spark.kafka_fleet import KafkaFleet

pytestmark = [pytest.mark.slow, pytest.mark.spark]

PLACES = {("t1", number) for number in range(4)}
CROWD = {"mixed": ("confluent", "kafka-python", "aiokafka"), "new": ("confluent",)}
SECRET = "behind the door"
WELL_S = 150

#: How the log's brokers are spoken to; others of the cluster's clients come in plain text.
SECURITY = """
security.protocol = "SASL_SSL"
ssl.truststore.location = "ca.pem"
sasl.mechanism = "PLAIN"
sasl.username = "muster"
sasl.password.location = "kafka.password"
"""


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Locked:
    made = Locked(tmp_path_factory.mktemp("locked"))
    (made.directory / "kafka.password").write_text(f"{SECRET}\n")
    (made.directory / "kafka.toml").write_text(SECURITY)
    return made


@pytest.fixture(scope="module")
def broker(locked: Locked, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},SASL_SSL://127.0.0.1:{more}",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:{port},SASL_SSL://localhost:{more}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": locked.directory / "gateway.pem",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{plain} required user_muster="{SECRET}";',
    }
    with KafkaBroker(tmp_path_factory.mktemp("broker"), {"t1": 4}, settings) as started:
        yield started


@pytest.fixture(scope="module")
def running(broker: KafkaBroker, locked: Locked, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaFleet]:
    log = f"kafka://localhost:{broker.port_of_more}/requests"
    config = ["--kafka-config", str(locked.directory / "kafka.toml")]
    command = [sys.executable, "-m", "coordinator_udf.log.kafka.cli", "create", log, "--replication-factor", "1"]
    subprocess.run([*command, *config], cwd=ROOT, check=True, timeout=120)
    fleet = KafkaFleet(tmp_path_factory.mktemp("fleet"), broker, *config, log=log, job_options=config)
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.kill()


def test_requests_that_ask_several_shards_have_one_answer(running: KafkaFleet) -> None:
    groups = [f"group {number}" for number in range(20)]
    for port in running.ports:
        with Wire(port, 60) as wire:
            asked = {"groups": groups, "includeAuthorizedOperations": False}
            described = wire.ask("DescribeGroups", 5, asked)["groups"]
            assert sorted(group["groupId"] for group in described) == sorted(groups)
            assert wire.ask("ListGroups", 4, {"statesFilter": []})["errorCode"] == 0


def test_no_acknowledged_commit_is_lost_with_broker_gateway_or_driver(
    running: KafkaFleet, broker: KafkaBroker, tmp_path: Path
) -> None:
    producer = Producer({"bootstrap.servers": running.addresses[0], "log_level": 0})
    for number in range(100):
        producer.produce("t1", f"record {number}".encode(), partition=number % 4)
    assert producer.flush(30) == 0
    fleet = Fleet(tmp_path, running.bootstrap, session_ms=45_000, heartbeat_ms=3_000)
    committer = history.Committer(running.addresses[1], "simple", PLACES, 1)
    try:
        with committer:
            groups = crowd.start(fleet, CROWD, PLACES)
            broker.kill()
            broker.start()
            print(f"well again {crowd.wait_until_well(groups, WELL_S):.1f} s after the broker was killed")
            running.gateways[0].kill()
            print(f"well again {crowd.wait_until_well(groups, WELL_S):.1f} s after a gateway was killed")
            running.gateways[0].start()
            running.job.kill()
            running.job.start()
            print(f"well again {crowd.wait_until_well(groups, WELL_S):.1f} s after the driver was killed")
    finally:
        fleet.kill()
    found = history.records(running.tables)
    history.assert_each_number_once(found)
    history.assert_commits_are_there(found, [commit for group in groups for commit in group.acknowledged])
    assert history.assert_commits_are_whole(found, committer) > 10
    assert history.assert_one_owner(found) > 4
    transitions = DeltaTable(str(running.tables / "group_transitions")).to_pyarrow_table().to_pylist()
    assert [row for row in transitions if row["rule"] == "SESSION_EXPIRED"] == []
    assert SECRET not in running.everything_said()
