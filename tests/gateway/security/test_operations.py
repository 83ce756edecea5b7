"""What a client may do with what it asks about is told where it wants to know it, and as Kafka's broker counts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.gateway.alone import METADATA, Alone
from tests.gateway.in_process import Front, topics
from tests.gateway.security.locked import Locked
from tests.gateway.security.test_acls import AuthenticatedWire
from tests.gateway.wire import Wire

UNTOLD = -(2**31)
#: What a broker of 4.3.1 without an authorizer answers: a bit for each code of AclOperation.
ALL_OF_TOPIC, ALL_OF_GROUP, ALL_OF_CLUSTER = 3576, 3400, 8096
READ, DESCRIBE = 1 << 3, 1 << 8

ABOUT_GROUPS = {"groups": ["g"], "includeAuthorizedOperations": True}
ABOUT_CONSUMER_GROUPS = {"groupIds": ["n"], "includeAuthorizedOperations": True}
JOIN: dict[str, Any] = {
    "groupId": "n",
    "memberId": "AAAAAAAAAAAAAAAAAAAAAA",
    "memberEpoch": 0,
    "instanceId": None,
    "rackId": None,
    "rebalanceTimeoutMs": 10_000,
    "subscribedTopicNames": ["t1"],
    "subscribedTopicRegex": None,
    "serverAssignor": None,
    "topicPartitions": [],
}


def operations_of_topics(wire: Wire) -> dict[str, int]:
    asked = METADATA | {"includeTopicAuthorizedOperations": True}
    return {topic["name"]: topic["topicAuthorizedOperations"] for topic in wire.ask("Metadata", 10, asked)["topics"]}


def operations_of_cluster(wire: Wire) -> int:
    asked = {"includeClusterAuthorizedOperations": True, "endpointType": 1, "includeFencedBrokers": False}
    told: int = wire.ask("DescribeCluster", 2, asked)["clusterAuthorizedOperations"]
    return told


def test_everybody_may_do_everything_where_nothing_is_locked(tmp_path: Path) -> None:
    with Front(tmp_path / "log.db", topics(t1=1)) as front, Wire(front.gateway.port) as wire:
        assert wire.ask("ConsumerGroupHeartbeat", 1, JOIN)["errorCode"] == 0
        assert operations_of_topics(wire) == {"t1": ALL_OF_TOPIC}
        assert operations_of_cluster(wire) == ALL_OF_CLUSTER
        asked = METADATA | {"includeClusterAuthorizedOperations": True}
        assert wire.ask("Metadata", 10, asked)["clusterAuthorizedOperations"] == ALL_OF_CLUSTER
        (described,) = wire.ask("ConsumerGroupDescribe", 1, ABOUT_CONSUMER_GROUPS)["groups"]
        assert (described["errorCode"], described["authorizedOperations"]) == (0, ALL_OF_GROUP)
        (missing,) = wire.ask("DescribeGroups", 6, ABOUT_GROUPS)["groups"]
        assert (missing["errorCode"], missing["authorizedOperations"]) == (69, UNTOLD)
        # A group that isn't there has no error before v6.
        (missing,) = wire.ask("DescribeGroups", 5, ABOUT_GROUPS)["groups"]
        assert (missing["groupState"], missing["authorizedOperations"]) == ("Dead", ALL_OF_GROUP)


def test_nothing_is_told_to_who_does_not_ask(alone: Alone) -> None:
    with alone.wire() as wire:
        said = wire.ask("Metadata", 10, METADATA)
        assert {topic["topicAuthorizedOperations"] for topic in said["topics"]} == {UNTOLD}
        assert said["clusterAuthorizedOperations"] == UNTOLD


def test_acls_count(tmp_path: Path) -> None:
    locked = Locked(tmp_path)
    rules = locked.rules("alice READ TOPIC t1", "alice READ GROUP g", "bob DESCRIBE CLUSTER kafka-cluster")
    security = locked.security("SASL_PLAINTEXT", rules)
    with Front(tmp_path / "log.db", topics(t1=1, t2=1), security=security) as front:
        with AuthenticatedWire(front, "alice") as wire:
            assert operations_of_topics(wire) == {"t1": READ | DESCRIBE}
            (group,) = wire.ask("DescribeGroups", 5, ABOUT_GROUPS)["groups"]
            assert group["authorizedOperations"] == READ | DESCRIBE
            assert operations_of_cluster(wire) == 0
        with AuthenticatedWire(front, "bob") as wire:
            assert operations_of_cluster(wire) == DESCRIBE
            (group,) = wire.ask("DescribeGroups", 5, ABOUT_GROUPS)["groups"]
            assert (group["errorCode"], group["authorizedOperations"]) == (30, UNTOLD)
        with AuthenticatedWire(front, "admin") as wire:
            assert operations_of_topics(wire) == {"t1": ALL_OF_TOPIC, "t2": ALL_OF_TOPIC}
