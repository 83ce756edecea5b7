"""Settings of topics, the broker and groups, as Kafka's tools ask for them and change them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from coordinator_udf.gateway.settings import GatewaySettings, GroupSetting
from coordinator_udf.log.embedded import EmbeddedLog
from tests.gateway.in_process import PARTITIONS, Front, topics
from tests.gateway.wire import Wire

KNOWN = topics(t1=4)

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
OF_GROUPS = (
    GroupSetting(SESSION, 45_000, 45_000, 45_000, 60_000),
    GroupSetting(HEARTBEAT, 5_000, 5_000, 5_000, 15_000),
)


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Front]:
    with Front(tmp_path / "log.db", KNOWN, gateway=GatewaySettings(port=0, of_groups=OF_GROUPS)) as front:
        yield front
        assert front.coordinator.rejected == 0


def alter(wire: Wire, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False) -> Any:
    """The error and its message of one resource's changes: names, operations (0 set, 1 delete, 2 append), values."""
    configs = [{"name": config, "configOperation": op, "value": value} for config, op, value in changes]
    resource = {"resourceType": kind, "resourceName": name, "configs": configs}
    body = {"resources": [resource], "validateOnly": validate_only}
    (response,) = wire.ask("IncrementalAlterConfigs", 1, body)["responses"]
    assert (response["resourceType"], response["resourceName"]) == (kind, name)
    return response["errorCode"], response["errorMessage"]


def replace(wire: Wire, *resources: tuple[int, str, Mapping[str, str | None]], version: int = 2, **more: Any) -> Any:
    """The errors and messages of resources that are given all their settings (AlterConfigs), and no others."""
    entries = [
        {"resourceType": kind, "resourceName": name, "configs": [{"name": n, "value": v} for n, v in configs.items()]}
        for kind, name, configs in resources
    ]
    responses = wire.ask("AlterConfigs", version, {"resources": entries, "validateOnly": False, **more})["responses"]
    assert [(told["resourceType"], told["resourceName"]) for told in responses] == [entry[:2] for entry in resources]
    return [(told["errorCode"], told["errorMessage"]) for told in responses]


def described(wire: Wire, group: str) -> dict[str, tuple[str, int]]:
    resource = {"resourceType": 32, "resourceName": group, "configurationKeys": None}
    body = {"resources": [resource], "includeSynonyms": True, "includeDocumentation": False}
    (result,) = wire.ask("DescribeConfigs", 4, body)["results"]
    return {config["name"]: (config["value"], config["configSource"]) for config in result["configs"]}


def interval_ms(wire: Wire, group: str) -> int:
    """The heartbeat interval that a new member of a group is told."""
    body: Mapping[str, Any] = {
        "groupId": group,
        "memberId": "m",
        "memberEpoch": 0,
        "instanceId": None,
        "rackId": None,
        "rebalanceTimeoutMs": 60_000,
        "subscribedTopicNames": ["t1"],
        "subscribedTopicRegex": None,
        "serverAssignor": None,
        "topicPartitions": [],
    }
    answered = wire.ask("ConsumerGroupHeartbeat", 1, body)
    assert answered["errorCode"] == 0, answered
    interval: int = answered["heartbeatIntervalMs"]
    return interval


def test_topics_and_the_broker_have_no_settings(front: Front) -> None:
    asked = [(2, "t1"), (2, "nowhere"), (4, "1"), (4, "2"), (16, "m")]
    resources = [{"resourceType": kind, "resourceName": name, "configurationKeys": None} for kind, name in asked]
    body = {"resources": resources, "includeSynonyms": False, "includeDocumentation": False}
    with Wire(front.gateway.port) as wire:
        results = wire.ask("DescribeConfigs", 4, body)["results"]
    assert [(result["errorCode"], result["configs"]) for result in results] == [
        (0, []),
        (3, []),
        (0, []),
        (42, []),
        (42, []),
    ]


def test_groups_have_the_settings_of_the_coordinator_and_none_of_their_own(tmp_path: Path) -> None:
    config = GroupSetting("consumer.session.timeout.ms", 50_000, 45_000), GroupSetting("consumer.x.ms", 1, 1)
    resource = {"resourceType": 32, "resourceName": "g", "configurationKeys": None}
    body = {"resources": [resource], "includeSynonyms": True, "includeDocumentation": False}
    listed = {"resourceTypes": [2, 4, 8, 16, 32]}
    with (
        Front(tmp_path / "log.db", KNOWN, gateway=GatewaySettings(port=0, of_groups=config)) as front,
        Wire(front.gateway.port) as wire,
    ):
        (result,) = wire.ask("DescribeConfigs", 4, body)["results"]
        changed, default = result["configs"]
        assert (changed["name"], changed["value"], changed["configSource"]) == (config[0].name, "50000", 4)
        assert changed["synonyms"] == [{"name": "group.consumer.session.timeout.ms", "value": "50000", "source": 4}]
        assert default["configSource"] == 5
        assert wire.ask("ListConfigResources", 1, listed)["configResources"] == [
            {"resourceName": "t1", "resourceType": 2},
            {"resourceName": "1", "resourceType": 4},
        ]
        assert wire.ask("ListConfigResources", 0, {})["configResources"] == []


def test_a_group_has_the_settings_that_a_client_gave_it_and_others_have_not(front: Front) -> None:
    with Wire(front.gateway.port) as wire:
        assert alter(wire, 32, "g", (HEARTBEAT, 0, "7000"), (SESSION, 0, "50000")) == (0, None)
        assert (interval_ms(wire, "g"), interval_ms(wire, "other")) == (7_000, 5_000)
        assert described(wire, "g") == {SESSION: ("50000", 8), HEARTBEAT: ("7000", 8)}
        assert described(wire, "other") == {SESSION: ("45000", 5), HEARTBEAT: ("5000", 5)}
        listed = wire.ask("ListConfigResources", 1, {"resourceTypes": [32]})["configResources"]
        assert listed == [{"resourceName": "g", "resourceType": 32}]
        assert alter(wire, 32, "g", (HEARTBEAT, 1, None)) == (0, None)
        assert described(wire, "g") == {SESSION: ("50000", 8), HEARTBEAT: ("5000", 5)}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_what_a_group_is_not_given_with_all_its_settings_it_has_no_more(front: Front, version: int) -> None:
    with Wire(front.gateway.port) as wire:
        assert alter(wire, 32, "g", (HEARTBEAT, 0, "7000"), (SESSION, 0, "50000")) == (0, None)
        assert replace(wire, (32, "g", {HEARTBEAT: "8000"}), version=version, validateOnly=True) == [(0, None)]
        assert front.log.group_configs() == {"g": {HEARTBEAT: "7000", SESSION: "50000"}}
        assert replace(wire, (32, "g", {HEARTBEAT: "8000"}), version=version) == [(0, None)]
        assert described(wire, "g") == {SESSION: ("45000", 5), HEARTBEAT: ("8000", 8)}
        assert interval_ms(wire, "g") == 8_000
        assert replace(wire, (32, "g", {}), version=version) == [(0, None)]
        assert described(wire, "g") == {SESSION: ("45000", 5), HEARTBEAT: ("5000", 5)}
        assert wire.ask("ListConfigResources", 1, {"resourceTypes": [32]})["configResources"] == []


def test_a_groups_settings_are_there_after_a_restart_and_in_files_of_earlier_releases(tmp_path: Path) -> None:
    gateway = GatewaySettings(port=0, of_groups=OF_GROUPS)
    log = EmbeddedLog.create(tmp_path / "log.db", PARTITIONS)
    assert log.group_configs() == {}
    log.close()
    with Front(tmp_path / "log.db", KNOWN, gateway=gateway) as front, Wire(front.gateway.port) as wire:
        assert alter(wire, 32, "g", (HEARTBEAT, 0, "7000")) == (0, None)
    with Front(tmp_path / "log.db", KNOWN, gateway=gateway) as front, Wire(front.gateway.port) as wire:
        assert described(wire, "g")[HEARTBEAT] == ("7000", 8)
        assert interval_ms(wire, "g") == 7_000


@pytest.mark.parametrize(
    ("kind", "name", "changes", "told"),
    [
        (32, "g", [("consumer.x.ms", 0, "1")], (40, "Unknown group config name: consumer.x.ms")),
        (32, "g", [("share.session.timeout.ms", 0, "45000")], (40, "isn't served")),
        (32, "g", [(SESSION, 0, "1")], (40, "greater than or equal to group.consumer.min.session.timeout.ms")),
        (32, "g", [(SESSION, 0, "60001")], (40, "less than or equal to group.consumer.max.session.timeout.ms")),
        (32, "g", [(SESSION, 0, "soon")], (40, "Not a number of type INT")),
        (32, "g", [(SESSION, 2, "50000")], (40, "is not LIST")),
        (32, "g", [(SESSION, 7, "50000")], (42, "expected 0 (set)")),
        (32, "g", [(SESSION, 0, None)], (42, "Null value not supported")),
        (32, "g", [(SESSION, 0, "50000"), (SESSION, 1, None)], (42, "duplicate")),
        (32, "g", [(HEARTBEAT, 0, "7000"), (SESSION, 0, "1")], (40, "min.session")),
        (32, "", [(SESSION, 0, "50000")], (42, "Default group resources")),
        (2, "t1", [("retention.ms", 0, "1")], (40, "a topic has no settings; given: retention.ms")),
        (2, "nowhere", [("retention.ms", 0, "1")], (3, "no topic")),
        (4, "1", [("log.retention.ms", 0, "1")], (44, "settings file")),
        (16, "m", [("interval.ms", 0, "1")], (42, "expected 2 (topic)")),
    ],
)
def test_what_no_group_can_have_is_refused_and_changes_nothing(
    front: Front, kind: int, name: str, changes: list[Any], told: tuple[int, str]
) -> None:
    with Wire(front.gateway.port) as wire:
        error, message = alter(wire, kind, name, *changes)
        assert (error, told[1] in message) == (told[0], True), message
        if {op for _, op, _ in changes} == {0}:
            whole = {config: value for config, _, value in changes}
            assert replace(wire, (kind, name, whole)) == [(error, message)]
        assert front.log.group_configs() == {}


def test_one_resource_that_is_refused_keeps_no_other_back_and_asking_only_changes_nothing(front: Front) -> None:
    changes = {
        name: [{"name": SESSION, "configOperation": 0, "value": value}] for name, value in (("a", "1"), ("b", "50000"))
    }
    resources = [{"resourceType": 32, "resourceName": name, "configs": configs} for name, configs in changes.items()]
    with Wire(front.gateway.port) as wire:
        assert alter(wire, 32, "c", (SESSION, 0, "50000"), validate_only=True) == (0, None)
        body = {"resources": [*resources, resources[1] | {"resourceName": "d"}], "validateOnly": False}
        responses = wire.ask("IncrementalAlterConfigs", 0, body)["responses"]
        assert [response["errorCode"] for response in responses] == [40, 0, 0]
        body = {"resources": [resources[1], resources[1]], "validateOnly": False}
        twice = wire.ask("IncrementalAlterConfigs", 0, body)["responses"]
        assert [response["errorCode"] for response in twice] == [42, 42]
        refused, done = (32, "e", {SESSION: "1"}), (32, "d", {SESSION: "50000"})
        assert [error for error, _ in replace(wire, refused, done)] == [40, 0]
        assert [error for error, _ in replace(wire, refused, refused)] == [42, 42]
    assert front.log.group_configs() == {"b": {SESSION: "50000"}, "d": {SESSION: "50000"}}
