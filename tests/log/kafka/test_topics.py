"""The topics of a request log on a real broker: made as the log counts on, refused otherwise, written to and read."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions
from typer.testing import CliRunner

from coordinator_udf.log.file import LogError
from coordinator_udf.log.kafka import topics
from coordinator_udf.log.kafka.answers import AnswersReader, AnswersWriter, _decode, _records
from coordinator_udf.log.kafka.appender import KafkaLog, NotAppendedError
from coordinator_udf.log.kafka.cli import app
from coordinator_udf.log.kafka.client import RECORD_BYTES_MAX
from coordinator_udf.log.kafka.place import KafkaPlace, parse_place
from coordinator_udf.log.kafka.records import to_rows
from coordinator_udf.log.rows import control_rows
from coordinator_udf.protocol.errors import BadRequest
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.settings.file import CoordinatorConfig
from coordinator_udf.streaming.checkpoint_files import LocalFiles
from coordinator_udf.streaming.recovery import RecoveryError
from coordinator_udf.streaming.topic_recovery import starting_offsets
from tests.members.kafka_broker import KafkaBroker
from tests.waiting import PATIENCE_S, wait

pytestmark = pytest.mark.slow


def a_log(broker: KafkaBroker, name: str, partitions: int = 2) -> KafkaPlace:
    place = parse_place(f"kafka://{broker.address}/{name}")
    topics.create(place, partitions, 1)
    return place


def test_topics_are_made_once_and_checked(broker: KafkaBroker) -> None:
    place = f"kafka://{broker.address}/made"
    made = CliRunner().invoke(app, ["create", place, "--partitions", "3", "--replication-factor", "1"])
    assert made.stdout == f"{place} has 3 partitions\n", made
    again = CliRunner().invoke(app, ["create", place, "--partitions", "3", "--replication-factor", "1"])
    assert again.stdout == made.stdout
    told = CliRunner().invoke(app, ["check", place]).stdout.splitlines()
    assert [line.partition(", id")[0] for line in told] == [
        "made: 3 partitions, 1 replicas",
        "made-answers: 3 partitions, 1 replicas",
    ]
    with pytest.raises(LogError, match="partitions of the topic made is 3, expected 4"):
        topics.create(parse_place(place), 4, 1)


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("message.timestamp.type", "CreateTime", "LogAppendTime"),
        ("cleanup.policy", "compact", "delete"),
        ("retention.ms", "1000", "86400000 or more"),
        ("retention.bytes", "1000000", "-1"),
        ("max.message.bytes", "1000", "33554432 or more"),
        ("unclean.leader.election.enable", "true", "false"),
        ("min.insync.replicas", "2", "1 where there are one or two replicas, else 2 to their number"),
    ],
)
def test_a_topic_that_is_otherwise_is_refused(broker: KafkaBroker, setting: str, value: str, expected: str) -> None:
    place = a_log(broker, f"wrong-{setting}")
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ResourceType.TOPIC, place.topic, incremental_configs=[entry])
    admin.incremental_alter_configs([changed])[changed].result(120)
    wait(lambda: complaint(place), "the broker has read of the change")
    assert complaint(place) == f"{setting} of the topic {place.topic} is {value}, expected {expected}"
    with pytest.raises(LogError):
        KafkaLog.open(place)


def complaint(place: KafkaPlace) -> str:
    """What the check says against the topics; nothing where they are as they have to be."""
    try:
        topics.check(place)
    except LogError as error:
        return str(error)
    return ""


def test_a_topic_that_was_given_more_partitions_is_refused(broker: KafkaBroker) -> None:
    place = a_log(broker, "grown")
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    admin.create_partitions([NewPartitions(place.topic, 5)])[place.topic].result(120)
    expected = "partitions of the topic grown is 5, expected 2 as grown-answers has"
    wait(lambda: expected in complaint(place), "it is refused")


def test_what_is_not_there_is_named(broker: KafkaBroker) -> None:
    with pytest.raises(LogError, match=r"there is no topic none at .*; make it: scripts/topics create kafka://"):
        KafkaLog.open(parse_place(f"kafka://{broker.address}/none"))


def read_all(place: KafkaPlace, partition: int) -> list[dict[str, Any]]:
    consumer = Consumer({"bootstrap.servers": place.bootstrap, "group.id": "test", "log_level": 0})
    at = TopicPartition(place.topic, partition, 0)
    _, end = consumer.get_watermark_offsets(at, timeout=PATIENCE_S)
    consumer.assign([at])
    found: list[tuple[int, int, int, bytes | None]] = []
    while len(found) < end:
        for record in consumer.consume(100, 0.2):
            assert record.error() is None
            assert record.key() == str(partition).encode()
            found.append((record.partition() or 0, record.offset() or 0, record.timestamp()[1], record.value()))
    consumer.close()
    rows: list[dict[str, Any]] = to_rows(found).to_pylist()
    return rows


def test_rows_are_in_the_topic_in_order_and_by_the_brokers_clock(broker: KafkaBroker) -> None:
    place = a_log(broker, "written")
    log = KafkaLog.open(place)
    before_ms = int(time.time() * 1_000)
    log.append(control_rows(partitions=2, log_ts=0, api="TopicMetadata", body={"topics": []}))
    threads = [threading.Thread(target=append_ticks, args=(log, 50)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with pytest.raises(BadRequest, match="partition is 2, expected 0 to 1"):
        log.append([control_rows(partitions=3, log_ts=1, api="Tick")[2]])
    log.close()
    for partition in range(2):
        first, began, *ticks = read_all(place, partition)
        assert (first["api"], first["log_ts"]) == ("TopicMetadata", 0)
        assert (began["api"], began["body"]) == ("Tick", '{"appenderBegan":true}')
        assert len(ticks) == 200
        assert [row["offset"] for row in ticks] == list(range(2, 202))
        times = [row["log_ts"] for row in ticks]
        assert times == sorted(times)
        assert times[0] >= before_ms


def append_ticks(log: KafkaLog, count: int) -> None:
    for _ in range(count):
        log.append(control_rows(partitions=2, log_ts=1, api="Tick"))


def test_answers_reach_the_gateway_that_asked_and_no_other(broker: KafkaBroker) -> None:
    place = a_log(broker, "answered")
    writer = AnswersWriter(place, 2)
    asked = {"request_id": ["one-1", "two-1", None, "one-2"], "partition": [0, 1, 0, 1], "body": ["{}", "2", "x", None]}
    writer.write(pa.table(asked))
    readers = {name: AnswersReader(place, 2, name) for name in ("one", "two")}
    writer.write(pa.table(asked))
    found: dict[str, list[Any]] = {name: [] for name in readers}

    def all_read() -> bool:
        for name, reader in readers.items():
            found[name] += [list(row.values()) for table in reader.read() for row in table.to_pylist()]
        return len(found["one"]) >= 2 and len(found["two"]) >= 1

    wait(all_read, "answers come")
    # Not what was sent before they began.
    assert found == {"one": [["one-1", 0, "{}"], ["one-2", 1, None]], "two": [["two-1", 1, "2"]]}
    for reader in readers.values():
        reader.close()


def test_an_answer_that_no_record_can_hold_fails_alone() -> None:
    answers: list[tuple[str, int, str | None]] = [
        ("g-1", 0, "x" * 300_000),
        ("g-2", 0, "y" * RECORD_BYTES_MAX),
        ("g-3", 1, "z" * 400_000),
    ]
    records = [_decode(record) for record in _records(answers)]
    assert records == [[answers[0], ("g-2", 0, None)], [answers[2]]]


def test_a_checkpoint_belongs_to_one_topic(broker: KafkaBroker, tmp_path: Path) -> None:
    place = a_log(broker, "bound")
    config = CoordinatorConfig(Settings())
    spark: Any = None  # nothing is loaded
    for _ in range(2):
        log = KafkaLog.open(place)
        assert starting_offsets(spark, log, "tables", LocalFiles(str(tmp_path)), config, recover=False) == {}
        log.close()
    with pytest.raises(RecoveryError, match="there is a checkpoint at"):
        starting_offsets(spark, log, "tables", LocalFiles(str(tmp_path)), config, recover=True)
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    admin.delete_topics([place.topic])[place.topic].result(120)
    # The controller has deleted it; the broker tells of it for a moment more.
    wait(lambda: complaint(place).startswith("there is no topic bound "), "the broker knows that it is gone")

    def is_made_again() -> bool:
        try:
            topics.create(place, 2, 1)
        except LogError:
            return False  # it is being deleted still
        return True

    wait(is_made_again, "the topic is made again")
    log = KafkaLog.open(place)
    with pytest.raises(RecoveryError, match="is of a topic with id"):
        starting_offsets(spark, log, "tables", LocalFiles(str(tmp_path)), config, recover=False)
    log.close()


def test_a_broker_that_is_gone_is_said_until_it_is_back(broker: KafkaBroker) -> None:
    log = KafkaLog.open(a_log(broker, "gone"))
    log.append(control_rows(partitions=2, log_ts=1, api="Tick"))
    broker.kill()
    with pytest.raises(NotAppendedError, match=r"can't be appended to now: .*timed out \(partitions 0, 1\)") as told:
        log.append(control_rows(partitions=2, log_ts=1, api="Tick"))
    assert told.value.partitions == {0, 1}
    broker.start()
    wait(lambda: appends(log), "the broker is back")
    log.close()


def appends(log: KafkaLog) -> bool:
    try:
        return log.append(control_rows(partitions=2, log_ts=1, api="Tick")) > 0
    except NotAppendedError:
        return False
