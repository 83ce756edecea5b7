"""TLS and SASL on both sides: clients at the gateway, the gateway at a real broker; ACLs on what is passed on."""

from __future__ import annotations

import re
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from tests.gateway.clients.built import java_command
from tests.gateway.in_process import Front
from tests.gateway.security.locked import PASSWORDS, Locked, java_login
from tests.gateway.security.locked_broker import UPSTREAM, locked_broker, locked_with_kafka_config
from tests.gateway.upstream import consumers
from tests.gateway.upstream.behind import front_of
from tests.waiting import PATIENCE_S

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]

WRITTEN = {f"record {number}".encode() for number in range(300)}
RULES = (
    "alice READ GROUP *",
    "alice READ TOPIC t1",
    "alice WRITE TOPIC t1",
    "alice DESCRIBE_CONFIGS GROUP *",
    "bob READ GROUP *",
    "bob DESCRIBE TOPIC t1",
    "bob DESCRIBE_CONFIGS TOPIC t1",
)


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Locked:
    return locked_with_kafka_config(tmp_path_factory.mktemp("locked"))


@pytest.fixture(scope="module")
def front(locked: Locked, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with locked_broker(tmp_path_factory.mktemp("broker"), locked, {"t1": 2, "t2": 2}) as broker:
        security = locked.security("SASL_SSL", UPSTREAM + locked.rules(*RULES))
        path = tmp_path_factory.mktemp("front") / "log.db"
        with front_of(path, f"localhost:{broker.port_of_more}", security=security) as front:
            producer = Producer(secured(front, locked, "alice"))
            for record in WRITTEN:
                producer.produce("t1", record)
            assert producer.flush(120) == 0
            yield front
            assert front.coordinator.rejected == 0


def secured(front: Front, locked: Locked, user: str, mechanism: str = "SCRAM-SHA-512", **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": front.address,
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(locked.ca),
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": PASSWORDS[user],
        "log_level": 0,
        **more,
    }


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("library", ["confluent", "kafka-python", "aiokafka"])
def test_clients_read_all_through_two_locked_doors(front: Front, locked: Locked, library: str, mechanism: str) -> None:
    password = PASSWORDS["alice"]
    group = f"{library} {mechanism}"
    if library == "confluent":
        more = secured(front, locked, "alice", mechanism)
        found = consumers.confluent(front.address, "t1", group, len(WRITTEN), **more)
    else:
        names = {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": "alice",
            "sasl_plain_password": password,
        }
        if library == "kafka-python":
            found = consumers.kafka_python(front.address, "t1", group, len(WRITTEN), ssl_cafile=str(locked.ca), **names)
        else:
            tls = ssl.create_default_context(cafile=str(locked.ca))
            found = consumers.aiokafka(front.address, "t1", group, len(WRITTEN), ssl_context=tls, **names)
    assert found == WRITTEN


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_kafkas_own_consumer_reads_all(front: Front, locked: Locked, protocol: str) -> None:
    login = java_login(locked.ca, "alice")
    properties = [f"group.protocol={protocol}", *(f"{name}={value}" for name, value in login.items())]
    command = java_command()
    found = consumers.java(command, front.address, "t1", f"java-{protocol}", len(WRITTEN), properties=properties)
    assert found == WRITTEN


@pytest.mark.parametrize(
    ("user", "of_topic"), [("alice", {"READ", "WRITE", "DESCRIBE"}), ("bob", {"DESCRIBE", "DESCRIBE_CONFIGS"})]
)
def test_each_is_told_what_they_may_do_and_not_what_the_gateway_may(
    front: Front, locked: Locked, user: str, of_topic: set[str]
) -> None:
    admin = AdminClient(secured(front, locked, user))
    topics = admin.describe_topics(TopicCollection(["t1"]), include_authorized_operations=True)
    told = topics["t1"].result(120).authorized_operations
    assert {operation.name for operation in told} == of_topic
    cluster = admin.describe_cluster(include_authorized_operations=True).result(120)
    assert not cluster.authorized_operations


def test_kafkas_own_tool_shows_each_what_they_may_see(front: Front, locked: Locked, tmp_path: Path) -> None:
    config = tmp_path / "bob.properties"
    config.write_text("\n".join(f"{name}={value}" for name, value in java_login(locked.ca, "bob").items()))
    tool = [*java_command(), "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", front.address]
    done = subprocess.run(
        [*tool, "--command-config", str(config), "--describe"], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    assert set(re.findall(r"^Topic: (\S+)\s", done.stdout, re.MULTILINE)) == {"t1"}


def test_who_may_not_see_a_topic_is_not_told_of_it(front: Front, locked: Locked) -> None:
    bob = AdminClient(secured(front, locked, "bob"))
    assert set(bob.list_topics(timeout=120).topics) == {"t1"}
    for name in ("t2", "nothing of that name"):
        error = bob.list_topics(name, timeout=PATIENCE_S).topics[name].error
        assert error is not None
        assert error.name() == "TOPIC_AUTHORIZATION_FAILED"
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        bob.create_topics([NewTopic("bobs", 1, 1)])["bobs"].result(120)
    admin = AdminClient(secured(front, locked, "admin"))
    admin.create_topics([NewTopic("made", 1, 1)])["made"].result(120)


@pytest.mark.parametrize(("user", "seen"), [("alice", {"group"}), ("bob", {"t1"}), ("admin", {"group", "t1"})])
def test_of_settings_of_groups_and_topics_each_sees_what_they_may(
    front: Front, locked: Locked, user: str, seen: set[str]
) -> None:
    asked = [ConfigResource(ConfigResource.Type.TOPIC, "t1"), ConfigResource(ConfigResource.Type.GROUP, "group")]
    admin = AdminClient(secured(front, locked, user))
    errors = {resource.name: future.exception(120) for resource, future in admin.describe_configs(asked).items()}
    assert {name for name, error in errors.items() if error is None} == seen, errors
    assert all("AUTHORIZATION_FAILED" in str(error) for error in errors.values() if error is not None)


def test_who_may_only_describe_a_topic_neither_reads_nor_writes(front: Front, locked: Locked) -> None:
    told: list[str] = []
    producer = Producer(secured(front, locked, "bob"))
    producer.produce("t1", b"of bob", on_delivery=lambda error, _: told.append(str(error)))
    assert producer.flush(120) == 0
    assert len(told) == 1
    assert "TOPIC_AUTHORIZATION_FAILED" in told[0]
    consumer = Consumer(secured(front, locked, "bob", **{"group.id": "bob", "auto.offset.reset": "earliest"}))
    consumer.assign([TopicPartition("t1", 0, 0)])
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.name() == "TOPIC_AUTHORIZATION_FAILED"
    # Which partition has how many of the records is chance.
    partitions = [TopicPartition("t1", number) for number in range(2)]
    assert sum(consumer.get_watermark_offsets(one, timeout=PATIENCE_S)[1] for one in partitions) == len(WRITTEN)
    consumer.close()
