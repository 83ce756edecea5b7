"""A topic of a real broker as the request log: two gateways, one job, real clients, and whatever is killed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import certifi
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from coordinator_udf.log.file import LogError
from coordinator_udf.log.kafka.place import parse_place
from coordinator_udf.log.kafka.security import read_kafka_security
from coordinator_udf.log.kafka.topics import check
from coordinator_udf.tables.spark_session import KAFKA_JARS
from tests.conftest import ROOT
from tests.gateway import crowd, history
from tests.gateway.fleet import Fleet
from tests.gateway.security.locked import Locked
from tests.gateway.security.locked_broker import SECRET, locked_broker, locked_with_kafka_config
from tests.gateway.wire import Wire
from tests.members.kafka_broker import KafkaBroker
from tests.nightly import only_at_night
from tests.spark.conftest import in_order
from tests.spark.kafka_fleet import START_S, KafkaFleet, make_topics
from tests.waiting import wait

pytestmark = [pytest.mark.slow, pytest.mark.spark]

PLACES = {("t1", number) for number in range(4)}
CROWD = {"mixed": ("confluent", "kafka-python", "aiokafka"), "new": ("confluent",)}
WELL_S = 300
#: So few rows that a batch with more than what members do in a moment is one of executors alone.
LARGE_BATCH = "20"


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Locked:
    return locked_with_kafka_config(tmp_path_factory.mktemp("locked"))


@pytest.fixture(scope="module")
def broker(locked: Locked, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with locked_broker(tmp_path_factory.mktemp("broker"), locked, {"t1": 4}) as started:
        yield started


@pytest.fixture(scope="module")
def running(broker: KafkaBroker, locked: Locked, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaFleet]:
    if not KAFKA_JARS.is_file():
        pytest.skip("scripts/setup hasn't fetched Spark's source of Kafka topics")
    log = f"kafka://localhost:{broker.port_of_more}/requests"
    config = ["--kafka-config", str(locked.directory / "kafka.toml")]
    make_topics(log, *config)
    fleet = KafkaFleet(
        tmp_path_factory.mktemp("fleet"), broker, *config, log=log, job_options=[*config, "--large-batch", LARGE_BATCH]
    )
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.kill()


def test_requests_that_ask_several_shards_have_one_answer(running: KafkaFleet) -> None:
    groups = [f"group {number}" for number in range(20)]
    for port in running.ports:
        with Wire(port) as wire:
            asked = {"groups": groups, "includeAuthorizedOperations": False}
            described = wire.ask("DescribeGroups", 5, asked)["groups"]
            assert sorted(group["groupId"] for group in described) == sorted(groups)
            assert wire.ask("ListGroups", 4, {"statesFilter": []})["errorCode"] == 0


@pytest.mark.parametrize("wrong", ["password", "certificate"])
def test_brokers_that_let_nobody_in_say_why(broker: KafkaBroker, locked: Locked, tmp_path: Path, wrong: str) -> None:
    for name in ("kafka.toml", "kafka.password", "ca.pem"):
        (tmp_path / name).write_bytes((locked.directory / name).read_bytes())
    if wrong == "password":
        (tmp_path / "kafka.password").write_text("guessed")
    else:
        shutil.copy(certifi.where(), tmp_path / "ca.pem")
    place = parse_place(f"kafka://localhost:{broker.port_of_more}/any", read_kafka_security(tmp_path / "kafka.toml"))
    with pytest.raises(LogError, match=f"let nobody in like this: .*(uthentication|{wrong})"):
        check(place)


def test_the_topic_is_asked_in_sql(running: KafkaFleet, locked: Locked) -> None:
    with Wire(running.ports[0]) as wire:
        wire.ask("ListGroups", 4, {"statesFilter": []})
    statement = "SELECT DISTINCT api FROM request_log WHERE api IN ('Tick', 'ListGroups') ORDER BY api"
    where = ["--log", running.log, "--kafka-config", str(locked.directory / "kafka.toml")]
    command = [sys.executable, "-m", "coordinator_udf.commands.app", "sql", "--root", str(running.root), *where]
    done = subprocess.run(
        [*command, "--format", "csv", statement], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["api", "ListGroups", "Tick"]


def test_no_acknowledged_commit_is_lost_with_broker_gateway_or_driver(
    running: KafkaFleet, broker: KafkaBroker, tmp_path: Path
) -> None:
    producer = Producer({"bootstrap.servers": running.addresses[0], "log_level": 0})
    for number in range(100):
        producer.produce("t1", f"record {number}".encode(), partition=number % 4)
    assert producer.flush(120) == 0
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
            wait(lambda: sum(attempt.acknowledged for attempt in committer.attempts) > 10, "commits go through")
            # However long what was killed was away, partitions go from one to the other now.
            for group in groups:
                for number, member in enumerate(group.members, 1):
                    member.close()
                    if rest := group.members[number:]:
                        fleet.wait_for_assignment(rest, PLACES)
    finally:
        fleet.kill()
    found, owners = history.checked_records(running.tables, crowd.acknowledged(groups))
    assert owners > 4
    assert history.assert_commits_are_whole(found, committer) > 10
    transitions = DeltaTable(str(running.tables / "group_transitions")).to_pyarrow_table().to_pylist()
    # Nor does anybody expire who waits for an answer of a driver that is gone.
    assert [row for row in transitions if row["rule"] == "SESSION_EXPIRED"] == []
    assert SECRET not in running.everything_said()


@only_at_night("test_stream.py compares with a replay what is read from an embedded log")
def test_a_replay_of_the_topic_gives_what_the_stream_gave(running: KafkaFleet, locked: Locked, tmp_path: Path) -> None:
    with history.Committer(running.addresses[1], "simple", PLACES, 2) as committer:
        wait(lambda: sum(attempt.acknowledged for attempt in committer.attempts) > 10, "commits go through")
    # Nobody lets time pass on the topic then.
    for process in (*running.gateways, running.job):
        process.kill()
    running.run_job("--available-now")
    config = ["--kafka-config", str(locked.directory / "kafka.toml"), "--config", str(running.config)]
    command = [sys.executable, "-m", "coordinator_udf.commands.app", "replay", running.log, "--out", str(tmp_path)]
    subprocess.run([*command, *config], cwd=ROOT, check=True, timeout=START_S)
    for name in ("consumer_offsets", "group_responses", "group_transitions"):
        live, replayed = (rows_of(folder, name) for folder in (running.tables, tmp_path))
        assert live
        # The first difference tells more than all of them.
        assert next((pair for pair in zip_longest(live, replayed) if pair[0] != pair[1]), None) is None


def rows_of(folder: Path, name: str) -> list[dict[str, Any]]:
    """A table's rows in order, without the name of their source."""
    rows: list[dict[str, Any]] = in_order(name, DeltaTable(str(folder / name)).to_pyarrow_table()).to_pylist()
    return [{column: value for column, value in row.items() if column != "source"} for row in rows]


def test_groups_are_loaded_when_the_checkpoint_is_lost(running: KafkaFleet) -> None:
    last = {
        (row["topic"], row["topic_partition"]): row["offset_commit"]["offset"]
        for row in history.records(running.tables)
        if row["group_id"] == "simple" and row["offset_commit"] is not None
    }
    for process in (*running.gateways, running.job):
        process.kill()
    # With a gateway in the driver, which waits until the groups are loaded.
    listen = ["--listen", running.addresses[0]]
    job = running.another_job("--recover-from-offsets", "--checkpoint", str(running.root / "new"), *listen)
    try:
        job.start().wait_until_ready()
        asked = {"groupId": "simple", "topics": None}
        with Wire(running.ports[0]) as wire:
            (group,) = wire.ask("OffsetFetch", 8, {"groups": [asked], "requireStable": False})["groups"]
    finally:
        job.kill()
    found = {
        (topic["name"], partition["partitionIndex"]): partition["committedOffset"]
        for topic in group["topics"]
        for partition in topic["partitions"]
    }
    assert found == last
