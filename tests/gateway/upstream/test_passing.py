"""What is passed on, and that no answer that gets through names a broker's own address. No broker is needed."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import KioIndexError, load_response_schema

from coordinator_udf.gateway.upstream.cluster_state import Broker, ServedApis
from coordinator_udf.gateway.upstream.passing import Relay, relay, told_features, told_ranges
from coordinator_udf.gateway.upstream.rewriting import rewrite
from coordinator_udf.gateway.versions import COORDINATED
from coordinator_udf.protocol.wire import read_request_header, request_bytes, response_bytes, split_response
from coordinator_udf.protocol.wire.schema import KEYS_BY_NAME
from coordinator_udf.protocol.wire.shaping import answer

#: A broker that serves more than any does today.
EVERYTHING = ServedApis(dict.fromkeys(range(100), (0, 99)))
REWRITTEN = {"Metadata", "FindCoordinator", "DescribeCluster"}


def test_no_answer_that_is_passed_on_as_it_is_has_a_place_for_an_address() -> None:
    rewritten = {KEYS_BY_NAME[api] for api in REWRITTEN}
    own = {KEYS_BY_NAME[api] for api in COORDINATED}
    asked = 0
    for key, (first, last) in told_ranges(EVERYTHING, COORDINATED).items():
        for version in range(first, last + 1):
            if key in rewritten | own or (key == 0 and version < 3):
                continue
            try:
                names = _names(load_response_schema(key, version))
            except KioIndexError:
                continue  # a version that Kafka dropped
            asked += 1
            assert not names >= {"host", "port"}, (key, version)
    assert asked > 60


def test_group_apis_are_never_passed_on() -> None:
    for api, (first, last) in COORDINATED.items():
        for version in range(first, last + 1):
            frame = bytes([0, KEYS_BY_NAME[api], 0, version]) + bytes(20)
            assert relay(read_request_header(frame), frame) is None


@pytest.mark.parametrize("version", range(3, 10))
@pytest.mark.parametrize("transactional_id", [None, "", "t" * 200])
@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_a_produce_tells_whether_it_is_answered(version: int, transactional_id: str | None, acks: int) -> None:
    body: dict[str, Any] = {"transactionalId": transactional_id, "acks": acks, "timeoutMs": 1, "topicData": []}
    frame = request_bytes("Produce", version, 1, "c", body)[4:]
    assert relay(read_request_header(frame), frame) == Relay(is_answered=acks != 0)


@pytest.mark.parametrize(("version", "last"), [(9, True), (10, False), (13, False)])
def test_versions_that_name_addresses_are_not_passed_on(version: int, last: bool) -> None:
    frame = bytes([0, 0, 0, version, 0, 0, 0, 1, 255, 255, 0, 0, 255, 255, 0])
    assert (relay(read_request_header(frame), frame) is not None) == last


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("key_type", [0, 1, 2])
def test_only_coordinators_of_transactions_are_the_clusters(version: int, key_type: int) -> None:
    body: dict[str, Any] = {"coordinatorKeys": ["k"]} if version >= 4 else {"key": "k"}
    if version >= 1:
        body["keyType"] = key_type
    frame = request_bytes("FindCoordinator", version, 1, "c", body)[4:]
    passed = relay(read_request_header(frame), frame)
    is_transaction = version >= 1 and key_type == 1
    assert passed == (Relay(rewritten=("FindCoordinator", version)) if is_transaction else None)


@pytest.mark.parametrize("version", [0, 1])
def test_the_cluster_lists_what_has_settings(version: int) -> None:
    body: dict[str, Any] = {"resourceTypes": [2]} if version else {}
    frame = request_bytes("ListConfigResources", version, 1, "c", body)[4:]
    assert relay(read_request_header(frame), frame) == Relay()
    assert told_ranges(EVERYTHING, COORDINATED)[74] == (0, 1)


@pytest.mark.parametrize("kinds", [[32], [32, 32], [32, 2], [2], []], ids=str)
def test_settings_of_groups_alone_are_not_the_clusters(kinds: list[int]) -> None:
    resources = [{"resourceType": kind, "resourceName": "g"} for kind in kinds]
    bodies: dict[str, dict[str, Any]] = {
        "DescribeConfigs": {
            "resources": [{**resource, "configurationKeys": None} for resource in resources],
            "includeSynonyms": False,
            "includeDocumentation": False,
        },
        "AlterConfigs": {
            "resources": [{**resource, "configs": []} for resource in resources],
            "validateOnly": False,
        },
        "ListConfigResources": {"resourceTypes": kinds},
    }
    bodies["IncrementalAlterConfigs"] = bodies["AlterConfigs"]
    for api, body in bodies.items():
        frame = request_bytes(api, 4 if api == "DescribeConfigs" else 1, 1, "c", body)[4:]
        assert relay(read_request_header(frame), frame) == (None if set(kinds) == {32} else Relay())


def test_clients_are_told_of_transactions_as_they_pass() -> None:
    finalized = [
        {"name": "transaction.version", "minVersionLevel": 2, "maxVersionLevel": 2},
        {"name": "metadata.version", "minVersionLevel": 29, "maxVersionLevel": 29},
    ]
    told = told_features(ServedApis({}, {"finalizedFeaturesEpoch": 7, "finalizedFeatures": finalized}))
    # Kafka's tools refuse a least level above the last one.
    levels = {
        entry["name"]: (entry["minVersionLevel"], entry["maxVersionLevel"]) for entry in told["finalizedFeatures"]
    }
    assert levels == {"transaction.version": (1, 1), "metadata.version": (29, 29)}
    ranges = told_ranges(EVERYTHING, COORDINATED)
    assert ranges[0][1] < 12
    assert ranges[26][1] < 5


_TEXT = st.text(max_size=200)
_BROKERS = st.lists(
    st.builds(Broker, st.integers(0, 2**31 - 1), _TEXT, st.integers(0, 65_535), st.none() | _TEXT),
    max_size=150,
    unique_by=lambda broker: broker.node_id,
)


@given(version=st.integers(0, 13), brokers=_BROKERS, host=_TEXT, tail=st.integers(0, 3))
def test_metadata_gets_other_addresses_and_nothing_else(
    version: int, brokers: list[Broker], host: str, tail: int
) -> None:
    topics = [{"errorCode": 0, "name": f"t{number}", "isInternal": False, "partitions": []} for number in range(tail)]
    entries = [dataclasses.asdict(broker) for broker in brokers]
    nodes = [{"nodeId": entry.pop("node_id"), **entry} for entry in entries]
    body = answer("Metadata", version, brokers=nodes, clusterId="c", controllerId=1, topics=topics)
    frame = response_bytes("Metadata", version, 77, body)[4:]

    async def advertise(asked: Sequence[Broker]) -> list[tuple[str, int]]:
        assert [broker.node_id for broker in asked] == [broker.node_id for broker in brokers]
        return [(host, 10_000 + number) for number in range(len(asked))]

    found = asyncio.run(rewrite("Metadata", version, frame, advertise))
    assert int.from_bytes(found[:4]) == len(found) - 4
    for number, broker in enumerate(body["brokers"]):
        broker["host"], broker["port"] = host, 10_000 + number
    assert split_response("Metadata", version, found[4:]) == (77, body)


def _names(entity: type[Any]) -> set[str]:
    found: set[str] = set()
    for field in dataclasses.fields(entity):
        found.add(field.name)
        for nested in (field.type, *get_args(field.type), *(a for p in get_args(field.type) for a in get_args(p))):
            if isinstance(nested, type) and dataclasses.is_dataclass(nested):
                found |= _names(nested)
    return found
