"""What admins and producers ask of topics that the gateway owns, and where partitions end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from coordinator_udf.gateway.partition_ends import PartitionEnds
from coordinator_udf.gateway.versions import LOCAL
from coordinator_udf.protocol.requests import ZERO_UUID
from tests.gateway.alone import METADATA
from tests.gateway.in_process import Front, topics
from tests.gateway.wire import Wire

KNOWN = topics(t1=4)


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Front]:
    with Front(tmp_path / "log.db", KNOWN) as front:
        yield front


def new_topic(name: str, partitions: int = 3, replicas: int = -1, **more: Any) -> dict[str, Any]:
    given = {"name": name, "numPartitions": partitions, "replicationFactor": replicas, "assignments": [], "configs": []}
    return given | more


def create(wire: Wire, *asked: dict[str, Any], validate_only: bool = False) -> list[dict[str, Any]]:
    body = {"topics": list(asked), "timeoutMs": 1_000, "validateOnly": validate_only}
    answered: list[dict[str, Any]] = wire.ask("CreateTopics", 7, body)["topics"]
    return answered


def names(wire: Wire) -> dict[str, int]:
    return {topic["name"]: len(topic["partitions"]) for topic in wire.ask("Metadata", 9, METADATA)["topics"]}


@pytest.mark.parametrize("version", range(LOCAL["Produce"][0], LOCAL["Produce"][1] + 1))
def test_each_partition_of_a_produce_is_told_that_nothing_is_stored(front: Front, version: int) -> None:
    partitions = [{"index": index, "records": ""} for index in (0, 9)]
    body = {"acks": -1, "timeoutMs": 1_000, "topicData": [{"name": "t1", "partitionData": partitions}]}
    with Wire(front.gateway.port) as wire:
        (topic,) = wire.ask("Produce", version, body | {"transactionalId": None})["responses"]
    there, missing = topic["partitionResponses"]
    assert (there["errorCode"], missing["errorCode"]) == (44, 3)
    if version >= 8:
        assert "stores no records" in there["errorMessage"]


def test_a_produce_that_wants_no_answer_ends_the_connection(front: Front) -> None:
    with Wire(front.gateway.port) as wire:
        wire.send("Produce", 9, {"transactionalId": None, "acks": 0, "timeoutMs": 1, "topicData": []})
        assert wire.is_closed()


def test_created_topics_are_there_for_clients_and_coordinator_and_after_a_restart(tmp_path: Path) -> None:
    known = {"offsets.topic.partition.check": True}
    with Front(tmp_path / "log.db", KNOWN, settings=known) as front, Wire(front.gateway.port) as wire:
        made, other = create(wire, new_topic("made"), new_topic("other", -1))
        assert (made["errorCode"], made["numPartitions"], made["replicationFactor"]) == (0, 3, 1)
        assert (other["errorCode"], other["numPartitions"]) == (0, 1)
        assert made["topicId"] != ZERO_UUID
        assert names(wire) == {"made": 3, "other": 1, "t1": 4}
        grown = {"topics": [{"name": "made", "count": 5, "assignments": None}], "timeoutMs": 1, "validateOnly": False}
        assert [result["errorCode"] for result in wire.ask("CreatePartitions", 3, grown)["results"]] == [0]
        gone = {"topics": [{"name": "other", "topicId": ZERO_UUID}], "timeoutMs": 1}
        assert [result["errorCode"] for result in wire.ask("DeleteTopics", 6, gone)["responses"]] == [0]
        assert commit(wire, "made", 4, 7) == 0
    with Front(tmp_path / "log.db", KNOWN, settings=known) as front, Wire(front.gateway.port) as wire:
        assert names(wire) == {"made": 5, "t1": 4}
        assert commit(wire, "other", 0, 1) == 3
        assert commit(wire, "made", 4, 8) == 0


@pytest.mark.parametrize(
    ("asked", "error", "says"),
    [
        (new_topic("t1"), 36, "exists already"),
        (new_topic("no/slash"), 17, "expected 1 to 249"),
        (new_topic(".."), 17, "expected 1 to 249"),
        (new_topic("a", 0), 37, "numPartitions is 0"),
        (new_topic("a", 1, 3), 38, "expected 1"),
        (new_topic("a", configs=[{"name": "retention.ms", "value": "1"}]), 40, "retention.ms"),
        (new_topic("a", -1, assignments=[{"partitionIndex": 1, "brokerIds": [1]}]), 39, "partitions 0 to 0"),
    ],
)
def test_a_topic_that_cannot_be_is_refused_with_the_reason(
    front: Front, asked: dict[str, Any], error: int, says: str
) -> None:
    with Wire(front.gateway.port) as wire:
        refused, made = create(wire, asked, new_topic("fine"))
        assert (refused["errorCode"], made["errorCode"]) == (error, 0)
        assert says in refused["errorMessage"]
        assert names(wire) == {"fine": 3, "t1": 4}


def test_asking_whether_a_topic_could_be_created_creates_none(front: Front) -> None:
    with Wire(front.gateway.port) as wire:
        assert [topic["errorCode"] for topic in create(wire, new_topic("made"), validate_only=True)] == [0]
        assert names(wire) == {"t1": 4}


def test_topics_of_the_settings_file_are_not_a_clients_to_change(front: Front) -> None:
    with Wire(front.gateway.port) as wire:
        (refused,) = wire.ask("DeleteTopics", 5, {"topicNames": ["t1"], "timeoutMs": 1})["responses"]
        assert (refused["errorCode"], "settings file" in refused["errorMessage"]) == (44, True)
        assert names(wire) == {"t1": 4}


def commit(wire: Wire, topic: str, partition: int, offset: int, group: str = "g") -> int:
    place = {
        "partitionIndex": partition,
        "committedOffset": offset,
        "committedMetadata": "",
        "committedLeaderEpoch": -1,
    }
    identity = {"groupId": group, "generationIdOrMemberEpoch": -1, "memberId": "", "groupInstanceId": None}
    answered = wire.ask("OffsetCommit", 8, identity | {"topics": [{"name": topic, "partitions": [place]}]})
    code: int = answered["topics"][0]["partitions"][0]["errorCode"]
    return code


def ends(wire: Wire, partition: int) -> tuple[int, int]:
    """The end by ListOffsets, and the high watermark by a Fetch from the beginning."""
    place = {"partitionIndex": partition, "currentLeaderEpoch": -1, "timestamp": -1}
    listed = wire.ask(
        "ListOffsets", 4, {"replicaId": -1, "isolationLevel": 0, "topics": [{"name": "t1", "partitions": [place]}]}
    )
    fetched = wire.ask("Fetch", 4, fetch_from(partition, 0))
    (found,) = fetched["responses"][0]["partitions"]
    return listed["topics"][0]["partitions"][0]["offset"], found["highWatermark"]


def fetch_from(partition: int, offset: int) -> dict[str, Any]:
    place = {"partition": partition, "fetchOffset": offset, "partitionMaxBytes": 1}
    asked = [{"topic": "t1", "partitions": [place]}]
    return {"replicaId": -1, "maxWaitMs": 0, "minBytes": 1, "maxBytes": 1, "isolationLevel": 0, "topics": asked}


def test_a_partition_ends_at_the_highest_offset_that_any_group_committed(front: Front) -> None:
    with Wire(front.gateway.port) as wire:
        assert ends(wire, 1) == (0, 0)
        for group, offset in (("a", 200), ("b", 150), ("a", 180)):
            assert commit(wire, "t1", 1, offset, group) == 0
        assert ends(wire, 1) == (200, 200)
        assert ends(wire, 2) == (0, 0)


def test_ends_are_read_from_the_table_of_the_coordinators_earlier_lives(front: Front, tmp_path: Path) -> None:
    uri = str(tmp_path / "consumer_offsets")
    loaded = PartitionEnds()
    loaded.load(uri)
    assert loaded.end(KNOWN[0], 1) == 0
    front.coordinator.ends = Written(uri)
    with Wire(front.gateway.port) as wire:
        for group, offset in (("a", 200), ("b", 150), ("a", 180)):
            assert commit(wire, "t1", 1, offset, group) == 0
        delete = {"groupId": "b", "topics": [{"name": "t1", "partitions": [{"partitionIndex": 1}]}]}
        assert wire.ask("OffsetDelete", 0, delete)["errorCode"] == 0
    loaded.load(uri)
    assert loaded.end(KNOWN[0], 1) == 200
    assert loaded.end(KNOWN[0], 2) == 0


class Written(PartitionEnds):
    """Writes the records to a table."""

    def __init__(self, uri: str) -> None:
        super().__init__()
        self._uri = uri

    def add(self, records: pa.Table) -> None:
        if len(records):
            write_deltalake(self._uri, records, mode="append")


def test_a_log_that_keeps_no_changes_refuses_them_and_says_what_to_do(tmp_path: Path) -> None:
    front = Front(tmp_path / "log.db", topics(t1=2))
    # As a Kafka topic is.
    front.log.keeps_changes = False
    with front, Wire(front.gateway.port) as wire:
        nothing = {"replicationFactor": 1, "assignments": [], "configs": []}
        new = {"name": "new", "numPartitions": 1, **nothing}
        timed = {"timeoutMs": 1_000, "validateOnly": False}
        answers = [
            wire.ask("CreateTopics", 7, {"topics": [new], **timed})["topics"],
            wire.ask("CreatePartitions", 3, {"topics": [{"name": "t1", "count": 4, "assignments": None}], **timed})[
                "results"
            ],
            wire.ask("DeleteTopics", 5, {"topicNames": ["t1"], "timeoutMs": 1_000})["responses"],
            wire.ask("DeleteTopics", 6, {"topics": [{"name": "t1", "topicId": ZERO_UUID}], "timeoutMs": 1_000})[
                "responses"
            ],
            *(
                wire.ask(
                    api,
                    1,
                    {"resources": [{"resourceType": 32, "resourceName": "g", "configs": []}], "validateOnly": False},
                )["responses"]
                for api in ("AlterConfigs", "IncrementalAlterConfigs")
            ),
        ]
        for (told,) in answers:
            assert told["errorCode"] == 44
            assert told["errorMessage"] is None or "--upstream" in told["errorMessage"]
        asked = {"topics": None, "allowAutoTopicCreation": False, "includeTopicAuthorizedOperations": False}
        assert [topic["name"] for topic in wire.ask("Metadata", 12, asked)["topics"]] == ["t1"]
