"""What a gateway answers to odd requests is what a broker of Kafka 4.3.1 answered to the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from coordinator_udf.gateway.options import with_coordinators
from coordinator_udf.gateway.settings import GatewaySettings
from coordinator_udf.protocol.requests import ZERO_UUID
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.settings.file import topic_id
from tests.gateway.in_process import Front, topics
from tests.gateway.wire import Wire

T1, UNKNOWN = topic_id("t1"), topic_id("nobody's")
INVALID_TOPIC, UNSUPPORTED_VERSION, INVALID_REQUEST = 17, 35, 42


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    log: Path = tmp_path_factory.mktemp("odd") / "log.db"
    with Front(log, topics(t1=1, t2=1)) as front, Wire(front.gateway.port) as connection:
        yield connection


def metadata(*asked: tuple[str | None, str]) -> dict[str, Any]:
    entries = [{"name": name, "topicId": topic_id} for name, topic_id in asked]
    return {"topics": entries, "allowAutoTopicCreation": False, "includeTopicAuthorizedOperations": False}


@pytest.mark.parametrize(
    ("version", "asked", "told"),
    [
        (12, [("t1", ZERO_UUID), ("t1", ZERO_UUID)], [(0, "t1", T1)]),
        (12, [("a b", ZERO_UUID)], [(INVALID_TOPIC, "a b", ZERO_UUID)]),
        (12, [("", ZERO_UUID), (".", ZERO_UUID)], [(INVALID_TOPIC, "", ZERO_UUID), (INVALID_TOPIC, ".", ZERO_UUID)]),
        (12, [("t2", ZERO_UUID), (None, T1), (None, UNKNOWN)], [(0, "t1", T1), (100, None, UNKNOWN)]),
        (12, [(None, ZERO_UUID)], [(-1, "", ZERO_UUID)]),
        (11, [("t2", ZERO_UUID), (None, T1)], [(INVALID_REQUEST, "t2", ZERO_UUID), (INVALID_REQUEST, "", T1)]),
    ],
    ids=["twice", "no name for a topic", "no names at all", "ids alone", "neither", "ids before their version"],
)
def test_metadata(
    wire: Wire, version: int, asked: list[tuple[str | None, str]], told: list[tuple[int, str | None, str]]
) -> None:
    found = wire.ask("Metadata", version, metadata(*asked))["topics"]
    assert [(topic["errorCode"], topic["name"], topic["topicId"]) for topic in found] == told


@pytest.mark.parametrize(("name", "software"), [("", ""), ("a b", "1"), ("-x", "1"), ("ok", "1 2")])
def test_api_versions_of_a_client_that_does_not_say_who_it_is(wire: Wire, name: str, software: str) -> None:
    said = wire.ask("ApiVersions", 3, {"clientSoftwareName": name, "clientSoftwareVersion": software})
    assert (said["errorCode"], said["apiKeys"]) == (INVALID_REQUEST, [])


def places(version: int, *asked: tuple[int, int]) -> dict[str, Any]:
    entries = [{"partitionIndex": index, "currentLeaderEpoch": -1, "timestamp": time} for index, time in asked]
    more = {"timeoutMs": 1} if version >= 10 else {}
    return {"replicaId": -1, "isolationLevel": 0, "topics": [{"name": "t1", "partitions": entries}], **more}


@pytest.mark.parametrize(("timestamp", "first"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, None)])
def test_list_offsets_of_a_place_that_came_with_a_later_version(wire: Wire, timestamp: int, first: int | None) -> None:
    def errors(version: int) -> list[int]:
        (topic,) = wire.ask("ListOffsets", version, places(version, (0, timestamp)))["topics"]
        return [place["errorCode"] for place in topic["partitions"]]

    served = [version for version in range(4, 12) if errors(version) == [0]]
    assert served == ([] if first is None else list(range(first, 12)))
    assert errors(4) == [UNSUPPORTED_VERSION]


def test_list_offsets_of_one_partition_twice(wire: Wire) -> None:
    (topic,) = wire.ask("ListOffsets", 8, places(8, (0, -1), (0, -2)))["topics"]
    assert [(place["errorCode"], place["offset"]) for place in topic["partitions"]] == [(INVALID_REQUEST, -1)]


def fetch(**changes: Any) -> dict[str, Any]:
    place = {"partition": 0, "currentLeaderEpoch": -1, "fetchOffset": 0, "lastFetchedEpoch": -1}
    place |= {"logStartOffset": -1, "partitionMaxBytes": 1_000, **changes.pop("place", {})}
    asked: dict[str, Any] = {
        "maxWaitMs": 0,
        "minBytes": 1,
        "maxBytes": 1_000,
        "isolationLevel": 0,
        "sessionId": 0,
        "sessionEpoch": -1,
    }
    asked |= {"topics": [{"topicId": T1, "partitions": [place]}], "forgottenTopicsData": [], "rackId": ""}
    return asked | changes


@pytest.mark.parametrize(("session", "error"), [((5, -1), 0), ((5, 0), 0), ((5, 1), 70), ((0, 3), 70)], ids=str)
def test_fetch_in_a_session_that_is_none(wire: Wire, session: tuple[int, int], error: int) -> None:
    said = wire.ask("Fetch", 16, fetch(sessionId=session[0], sessionEpoch=session[1]))
    assert (said["errorCode"], len(said["responses"])) == (error, 0 if error else 1)


def test_fetch_from_before_the_beginning(wire: Wire) -> None:
    (topic,) = wire.ask("Fetch", 16, fetch(place={"fetchOffset": -5}))["responses"]
    assert [(place["errorCode"], place["highWatermark"]) for place in topic["partitions"]] == [(1, -1)]


def test_fetch_and_list_offsets_of_nothing_and_of_topics_twice(wire: Wire) -> None:
    (topic,) = fetch(place={"partition": 9})["topics"]
    twice = wire.ask("Fetch", 16, fetch(topics=[topic, topic]))["responses"]
    assert [(one["topicId"], [place["errorCode"] for place in one["partitions"]]) for one in twice] == [(T1, [3])]
    assert twice[0]["partitions"][0]["abortedTransactions"] == []
    assert wire.ask("Fetch", 16, fetch(topics=[{**topic, "partitions": []}]))["responses"] == []
    asked = places(8, (0, -1))
    (told,) = wire.ask("ListOffsets", 8, {**asked, "topics": asked["topics"] * 2})["topics"]
    assert [place["errorCode"] for place in told["partitions"]] == [INVALID_REQUEST]
    assert wire.ask("ListOffsets", 8, places(8))["topics"] == []


@pytest.mark.parametrize(("endpoint", "error"), [(1, 0), (2, 114), (0, 115), (9, 115)])
def test_describe_cluster_of_other_endpoints(wire: Wire, endpoint: int, error: int) -> None:
    asked = {"includeClusterAuthorizedOperations": False, "endpointType": endpoint}
    assert wire.ask("DescribeCluster", 1, asked)["errorCode"] == error


def told(answer: Mapping[str, Any], field: str) -> list[tuple[str | None, int]]:
    return [(entry["name"], entry["errorCode"]) for entry in answer[field]]


def test_changes_of_one_topic_twice_are_refused_once(wire: Wire) -> None:
    new = {"name": "q", "numPartitions": 1, "replicationFactor": 1, "assignments": [], "configs": []}
    timing = {"timeoutMs": 1, "validateOnly": True}
    assert told(wire.ask("CreateTopics", 4, {"topics": [new, new], **timing}), "topics") == [("q", INVALID_REQUEST)]
    more = {"name": "t1", "count": 9, "assignments": None}
    grown = wire.ask("CreatePartitions", 3, {"topics": [more, more], **timing})
    assert told(grown, "results") == [("t1", INVALID_REQUEST)]
    gone = wire.ask("DeleteTopics", 5, {"topicNames": ["nope", "nope"], "timeoutMs": 1})
    assert told(gone, "responses") == [("nope", INVALID_REQUEST)]


def test_a_created_topic_comes_without_a_message_and_new_partitions_with_as_many_assignments(wire: Wire) -> None:
    new = {"name": "made", "numPartitions": 1, "replicationFactor": 1, "assignments": [], "configs": []}
    (made,) = wire.ask("CreateTopics", 4, {"topics": [new], "timeoutMs": 1, "validateOnly": False})["topics"]
    assert (made["errorCode"], made["errorMessage"]) == (0, None)
    more = {"name": "made", "count": 9, "assignments": [{"brokerIds": [1]}]}
    asked = {"topics": [more], "timeoutMs": 1, "validateOnly": True}
    assert told(wire.ask("CreatePartitions", 3, asked), "results") == [("made", 39)]


@pytest.mark.parametrize("name_and_id", [(None, ZERO_UUID), ("t1", T1)])
def test_a_topic_is_deleted_either_by_name_or_by_id(wire: Wire, name_and_id: tuple[str | None, str]) -> None:
    name, topic_id = name_and_id
    asked = {"topics": [{"name": name, "topicId": topic_id}], "timeoutMs": 1}
    assert told(wire.ask("DeleteTopics", 6, asked), "responses") == [(name, INVALID_REQUEST)]


@pytest.mark.parametrize(("api", "version"), [("SaslHandshake", 0), ("SaslHandshake", 1), ("SaslAuthenticate", 2)])
def test_who_need_not_authenticate_and_does_is_told_so(wire: Wire, api: str, version: int) -> None:
    asked = {"mechanism": "PLAIN"} if api == "SaslHandshake" else {"authBytes": ""}
    assert wire.ask(api, version, asked)["errorCode"] == 34


def test_no_names_of_settings_ask_for_all(tmp_path: Path) -> None:
    gateway = with_coordinators(GatewaySettings(port=0), Settings())
    with Front(tmp_path / "log.db", (), gateway=gateway) as front, Wire(front.gateway.port) as wire:

        def names(wanted: list[str] | None) -> list[str]:
            resource = {"resourceType": 32, "resourceName": "g", "configurationKeys": wanted}
            asked = {"resources": [resource], "includeSynonyms": False, "includeDocumentation": False}
            (found,) = wire.ask("DescribeConfigs", 4, asked)["results"]
            return [config["name"] for config in found["configs"]]

        assert names([]) == names(None)
        assert names(["consumer.session.timeout.ms"]) == ["consumer.session.timeout.ms"]


def test_settings_of_what_cannot_be(wire: Wire) -> None:
    resource = {"resourceType": 2, "resourceName": "a b", "configurationKeys": None}
    asked = {"resources": [resource], "includeSynonyms": False, "includeDocumentation": False}
    (found,) = wire.ask("DescribeConfigs", 4, asked)["results"]
    assert found["errorCode"] == INVALID_TOPIC
    assert wire.ask("ListConfigResources", 1, {"resourceTypes": [99]})["errorCode"] == UNSUPPORTED_VERSION
