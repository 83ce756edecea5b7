"""Unmodified clients whose bootstrap is the gateway, before a real Kafka 4.3.1 broker: its records, our groups."""

from __future__ import annotations

import dataclasses
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from coordinator_udf.gateway.settings import GatewaySettings, GatewaySettingsError
from coordinator_udf.gateway.upstream.settings import UpstreamSettings
from coordinator_udf.gateway.upstream.watch import UpstreamCluster
from scripts.ports import free_port
from tests.gateway.clients.built import java_command
from tests.gateway.fleet import Fleet
from tests.gateway.in_process import Front
from tests.gateway.test_configs import HEARTBEAT, OF_GROUPS, SESSION, alter, described, interval_ms, replace
from tests.gateway.upstream import consumers
from tests.gateway.upstream.behind import front_of
from tests.gateway.wire import Wire
from tests.members.kafka_broker import KafkaBroker
from tests.waiting import PATIENCE_S, wait

pytestmark = [
    pytest.mark.slow,
    # kafka-python reads its schemas as Python 3.11 no longer likes.
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]

RECORDS = 1_000
WRITTEN = {f"record {number}".encode() for number in range(RECORDS)}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("broker"), {"t1": 4, "t2": 2}, {"broker.rack": "r1"}) as started:
        yield started


@pytest.fixture(scope="module")
def front(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    gateway = GatewaySettings(port=0, of_groups=OF_GROUPS)
    with front_of(tmp_path_factory.mktemp("front") / "log.db", broker.address, gateway=gateway) as front:
        producer = Producer({"bootstrap.servers": front.address, "log_level": 0})
        for record in WRITTEN:
            producer.produce("t1", record)
        assert producer.flush(120) == 0
        yield front
        assert front.coordinator.rejected == 0
        assert front.gateway.status().timed_out == 0


@pytest.mark.parametrize("library", list(consumers.PYTHON))
def test_consumers_read_the_clusters_records_while_muster_has_their_group(
    front: Front, broker: KafkaBroker, library: str
) -> None:
    read = consumers.PYTHON[library]
    assert read(front.address, "t1", library, RECORDS) == WRITTEN
    committed = _committed(front.address, library, "t1", 4)
    assert sum(committed.values()) == RECORDS
    ends = _ends(broker.address, "t1", 4)
    # A client that has all records before it heard where an empty partition begins commits nothing of that.
    assert {**dict.fromkeys(ends, 0), **committed} == ends
    assert library in _groups(front.address)
    assert library not in _groups(broker.address)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_kafkas_own_console_writes_and_reads(front: Front, broker: KafkaBroker, protocol: str) -> None:
    java = java_command()
    group, lines = f"java-{protocol}", {f"{protocol} {number}".encode() for number in range(100)}
    producer = [*java, "org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", front.address, "--topic", "t2"]
    done = subprocess.run(producer, input=b"\n".join(lines), capture_output=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr.decode()
    before = sum(_ends(broker.address, "t2", 2).values()) - len(lines)
    read = consumers.java(java, front.address, "t2", group, before + 100, properties=[f"group.protocol={protocol}"])
    assert lines <= read
    assert group in _groups(front.address)
    assert group not in _groups(broker.address)


def test_settings_of_groups_are_musters_and_all_others_the_clusters(front: Front, broker: KafkaBroker) -> None:
    with Wire(front.gateway.port) as wire, Wire(int(broker.address.split(":")[1])) as at_broker:
        assert alter(wire, 32, "tuned", (HEARTBEAT, 0, "7000")) == (0, None)
        assert interval_ms(wire, "tuned") == 7_000
        assert (described(wire, "tuned")[HEARTBEAT], described(at_broker, "tuned")[HEARTBEAT][1]) == (("7000", 8), 5)
        listed = wire.ask("ListConfigResources", 1, {"resourceTypes": [32]})["configResources"]
        assert listed == [{"resourceName": "tuned", "resourceType": 32}]
        assert alter(wire, 2, "t2", ("retention.ms", 0, "77777777")) == (0, None)
        topics = wire.ask("ListConfigResources", 1, {"resourceTypes": [2]})["configResources"]
        assert {"resourceName": "t2", "resourceType": 2} in topics


def test_all_settings_of_a_group_given_at_once_are_judged_as_by_a_broker(front: Front, broker: KafkaBroker) -> None:
    given: list[dict[str, str | None]] = [
        {HEARTBEAT: "7000", SESSION: "50000"},
        {SESSION: " 50000 "},
        {HEARTBEAT: "9000", SESSION: "60001"},
        {HEARTBEAT: "1", SESSION: "1"},
        {HEARTBEAT: None, SESSION: None},
        {"no.setting": "1"},
        {SESSION: "soon"},
        {SESSION: ""},
        {HEARTBEAT: "10000"},
    ]
    with Wire(front.gateway.port) as wire, Wire(int(broker.address.split(":")[1])) as at_broker:
        # A group that is named twice isn't among them: a broker of Kafka 4.3.1 raises on that and never answers.
        named: list[tuple[str, dict[str, str | None]]] = [("anew", settings) for settings in given]
        named.append(("", {SESSION: "50000"}))
        for name, settings in named:
            ours, brokers = (replace(asked, (32, name, settings)) for asked in (wire, at_broker))
            assert ours == brokers, settings
        assert replace(wire, (32, "anew", {}), validateOnly=True) == [(0, None)]
        told = {SESSION: ("45000", 5), HEARTBEAT: ("10000", 8)}
        assert described(wire, "anew") == told
        wait(lambda: described(at_broker, "anew").items() >= told.items(), "the broker tells the group's last settings")
        # To the topic goes what is the topic's, and the cluster never hears of the group.
        mixed = [(2, "t2", {"retention.ms": "99999999"}), (32, "only here", {HEARTBEAT: "9000"}), (2, "nowhere", {})]
        assert [error for error, _ in replace(wire, *mixed)] == [0, 0, 3]
        assert described(wire, "only here")[HEARTBEAT] == ("9000", 8)
        listed = at_broker.ask("ListConfigResources", 1, {"resourceTypes": [32]})["configResources"]
        assert "only here" not in {entry["resourceName"] for entry in listed}


def test_a_request_for_settings_of_groups_and_others_is_answered_by_both(front: Front) -> None:
    def resource(kind: int, name: str, **more: object) -> dict[str, object]:
        return {"resourceType": kind, "resourceName": name, **more}

    def change(name: str, value: str) -> list[dict[str, object]]:
        return [{"name": name, "configOperation": 0, "value": value}]

    def value(result: dict[str, Any], name: str) -> str | None:
        found: str | None = next(config["value"] for config in result["configs"] if config["name"] == name)
        return found

    asked = [(2, "t2"), (32, "mixed"), (2, "nowhere"), (32, ""), (4, "1")]
    changes = [
        resource(32, "mixed", configs=change(HEARTBEAT, "8000")),
        resource(2, "t2", configs=change("retention.ms", "88888888")),
        resource(32, "other", configs=change("no.setting", "1")),
    ]
    with Wire(front.gateway.port) as wire:
        responses = wire.ask("IncrementalAlterConfigs", 1, {"resources": changes, "validateOnly": False})["responses"]
        told = [(entry["resourceType"], entry["resourceName"], entry["errorCode"]) for entry in responses]
        assert told == [(32, "mixed", 0), (2, "t2", 0), (32, "other", 40)]
        named = [resource(*one, configurationKeys=None) for one in asked]
        body = {"resources": named, "includeSynonyms": False, "includeDocumentation": False}
        results = wire.ask("DescribeConfigs", 4, body)["results"]
        assert [(entry["resourceType"], entry["resourceName"]) for entry in results] == asked
        assert [entry["errorCode"] for entry in results] == [0, 0, 3, 42, 0]
        assert value(results[1], HEARTBEAT) == "8000"
        # The controller answers once the change is in its log; a broker reads it from there a moment later.
        wait(
            lambda: value(wire.ask("DescribeConfigs", 4, body)["results"][0], "retention.ms") == "88888888",
            "the broker tells the topic's new setting",
        )
        for kinds, others in ([], {2, 4, 8}), ([2, 32], {2}):
            listed = wire.ask("ListConfigResources", 1, {"resourceTypes": kinds})["configResources"]
            assert {entry["resourceName"] for entry in listed if entry["resourceType"] == 32} >= {"mixed"}
            assert {entry["resourceType"] for entry in listed} == {*others, 32}
        refused = wire.ask("ListConfigResources", 1, {"resourceTypes": [32, 99]})
        assert (refused["errorCode"], refused["configResources"]) == (35, [])


def test_a_topic_grows_and_goes_in_the_cluster(front: Front, broker: KafkaBroker, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": front.address, "log_level": 0})
    admin.create_topics([NewTopic("grows", 1, 1)])["grows"].result(120)
    # Java's consumer is told by the coordinator, not by its own look at the topics.
    with Fleet(tmp_path, front.address) as fleet:
        member = fleet.start("confluent", group="grows", topics=["grows"], protocol="consumer", strategy="uniform")
        fleet.wait_for_assignment([member], {("grows", 0)})
        at_broker = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
        at_broker.create_partitions([NewPartitions("grows", 3)])["grows"].result(120)
        fleet.wait_for_assignment([member], {("grows", number) for number in range(3)})
        member.order("committed", do="commit", place=("grows", 0), offset=0)
        member.close()
    assert _committed(front.address, "grows", "grows", 1) == {0: 0}
    at_broker.delete_topics(["grows"])["grows"].result(120)
    wait(lambda: _committed(front.address, "grows", "grows", 1) == {}, "the offsets of a topic that is gone are gone")


def test_a_group_outlives_its_broker_and_reads_on_when_that_is_back(tmp_path: Path) -> None:
    with KafkaBroker(tmp_path, {"t1": 2}, {}) as broker, front_of(tmp_path / "log.db", broker.address) as front:
        producer = Producer({"bootstrap.servers": front.address, "log_level": 0})
        consumer = Consumer(
            {
                "bootstrap.servers": front.address,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 500,
                "log_level": 0,
            }
        )
        generations = []
        consumer.subscribe(["t1"], on_assign=lambda _, places: generations.append(places))
        for number in range(2):
            producer.produce("t1", b"record", partition=number)
        assert producer.flush(120) == 0
        assert _poll(consumer, 2) == 2
        broker.kill()
        # It heartbeats for longer than its session, and commits, while there is no broker.
        assert _poll(consumer, 1, 12) == 0
        consumer.commit(offsets=[TopicPartition("t1", 0, 1)], asynchronous=False)
        broker.start()
        producer.produce("t1", b"one more", partition=1)
        assert producer.flush(PATIENCE_S) == 0
        assert _poll(consumer, 1) == 1
        assert len(generations) == 1
        consumer.close()


@contextmanager
def forwarding(port: int, address: str) -> Iterator[None]:
    """Another address of a broker, as long as the context lasts."""
    host, _, broker_port = address.rpartition(":")

    def pump(source: socket.socket, target: socket.socket) -> None:
        while data := source.recv(65_536):
            target.sendall(data)

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                behind = socket.create_connection((host, int(broker_port)))
                for ends in ((client, behind), (behind, client)):
                    threading.Thread(target=pump, args=ends, daemon=True).start()

    with socket.create_server(("127.0.0.1", port)) as server:
        threading.Thread(target=serve, daemon=True).start()
        yield
        server.shutdown(socket.SHUT_RDWR)


def test_a_gateway_that_starts_waits_for_a_broker(broker: KafkaBroker, caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    settings = UpstreamSettings(bootstrap=(("127.0.0.1", port),), first_broker_port=None, start_timeout_ms=600_000)
    with pytest.raises(GatewaySettingsError, match="can't be reached"):
        UpstreamCluster(dataclasses.replace(settings, start_timeout_ms=0)).look_first()
    cluster = UpstreamCluster(settings)
    looking = threading.Thread(target=cluster.look_first)
    looking.start()
    wait(lambda: "trying again" in caplog.text, "it has looked in vain")
    with forwarding(port, broker.address):
        looking.join(PATIENCE_S)
        assert {"t1", "t2"} <= {topic.name for topic in cluster.state.topics}


def test_transactions_pass_but_offsets_in_them_are_refused(front: Front) -> None:
    producer = Producer(
        {"bootstrap.servers": front.address, "transactional.id": "t", "log_level": 0, "transaction.timeout.ms": 300_000}
    )
    producer.init_transactions(PATIENCE_S)
    for outcome in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.produce("t2", outcome.__name__.encode(), partition=0)
        outcome(PATIENCE_S)
    consumer = Consumer(
        {
            "bootstrap.servers": front.address,
            "group.id": "txn",
            "auto.offset.reset": "earliest",
            "log_level": 0,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe(["t2"])
    found: set[bytes] = set()
    wait(lambda: _read_into(found, consumer) and b"commit_transaction" in found, "the committed record is read")
    assert b"abort_transaction" not in found
    producer.begin_transaction()
    group = consumer.consumer_group_metadata()
    with pytest.raises(KafkaException) as refused:
        producer.send_offsets_to_transaction([TopicPartition("t2", 0, 1)], group, PATIENCE_S)
    assert "UNSUPPORTED" in str(refused.value) or "not supported" in str(refused.value), refused.value
    producer.abort_transaction(PATIENCE_S)
    consumer.close()


def test_a_producer_that_wants_no_answer_is_passed_on(front: Front, broker: KafkaBroker) -> None:
    before = sum(_ends(broker.address, "t2", 2).values())
    producer = Producer({"bootstrap.servers": front.address, "acks": 0, "log_level": 0})
    for _ in range(100):
        producer.produce("t2", b"unanswered")
    assert producer.flush(120) == 0
    wait(lambda: sum(_ends(broker.address, "t2", 2).values()) == before + 100, "all records are there")


def test_no_answer_tells_a_brokers_own_address(front: Front, broker: KafkaBroker) -> None:
    java = java_command()
    tool = [*java, "org.apache.kafka.tools.ClusterTool", "list-endpoints", "--bootstrap-server", front.address]
    done = subprocess.run(tool, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    admin = AdminClient({"bootstrap.servers": front.address, "log_level": 0})
    cluster = admin.describe_cluster().result(120)
    ports = {str(node.port) for node in cluster.nodes} | set(re.findall(r"127\.0\.0\.1 +(\d+)", done.stdout))
    assert len(ports) == 1
    assert ports != {broker.address.rpartition(":")[2]}
    assert cluster.cluster_id == AdminClient({"bootstrap.servers": broker.address}).list_topics(timeout=120).cluster_id


def _poll(consumer: Consumer, wanted: int, seconds: float = PATIENCE_S) -> int:
    found = 0
    for _ in range(int(seconds * 10)):
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found += 1
            if found == wanted:
                break
    return found


def _read_into(found: set[bytes], consumer: Consumer) -> bool:
    message = consumer.poll(0.1)
    if message is not None and message.error() is None:
        found.add(message.value() or b"")
    return True


def _committed(address: str, group: str, topic: str, partitions: int) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "log_level": 0})
    places = consumer.committed([TopicPartition(topic, number) for number in range(partitions)], timeout=PATIENCE_S)
    consumer.close()
    return {place.partition: place.offset for place in places if place.offset >= 0}


def _ends(address: str, topic: str, partitions: int) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "ends", "log_level": 0})
    ends = {
        number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=PATIENCE_S)[1]
        for number in range(partitions)
    }
    consumer.close()
    return ends


def _groups(address: str) -> set[str]:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    found = admin.list_consumer_groups().result(120)
    return {group.group_id for group in found.valid}
