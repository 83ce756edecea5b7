"""What who may do: Kafka's rules and Kafka's errors, and that who may not learns nothing."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coordinator_udf.gateway.security.acls import Acls
from coordinator_udf.gateway.security.cluster import CLUSTER_RULES
from coordinator_udf.gateway.security.restriction import Asker
from coordinator_udf.gateway.security.settings import Acl
from coordinator_udf.gateway.settings import plain_address
from coordinator_udf.gateway.topics import TopicCatalog
from coordinator_udf.protocol.requests import ZERO_UUID, Topic
from coordinator_udf.settings.file import topic_id
from tests.gateway.in_process import Front, topics
from tests.gateway.security.locked import PASSWORDS, Locked
from tests.gateway.wire import HEARTBEAT, Wire, join
from tests.waiting import wait

GROUP, TOPIC = 30, 29
METADATA = {
    "allowAutoTopicCreation": False,
    "includeTopicAuthorizedOperations": False,
}


def acl(text: str) -> Acl:
    user, operation, resource, name, *more = text.split()
    pattern = "PREFIXED" if name.endswith("*") and name != "*" else "LITERAL"
    entry = {"principal": f"User:{user}", "operation": operation, "resource": resource, "pattern": pattern}
    entry |= {"name": name.rstrip("*") or "*", "permission": more[0] if more else "ALLOW"}
    return msgspec.convert({**entry, "host": more[1] if len(more) > 1 else "*"}, Acl)


@pytest.mark.parametrize(
    ("rules", "operation", "name", "allowed"),
    [
        ([], "READ", "t", False),
        (["a READ TOPIC t"], "READ", "t", True),
        (["a READ TOPIC t"], "DESCRIBE", "t", True),
        (["a DESCRIBE TOPIC t"], "READ", "t", False),
        (["a READ TOPIC t"], "WRITE", "t", False),
        (["a READ TOPIC t"], "READ", "t2", False),
        (["a READ TOPIC t*"], "READ", "t2", True),
        (["a READ TOPIC *"], "READ", "anything", True),
        (["a ALL TOPIC t"], "DELETE", "t", True),
        (["b READ TOPIC t"], "READ", "t", False),
        (["* READ TOPIC t"], "READ", "t", True),
        (["a READ TOPIC t", "a READ TOPIC t* DENY"], "READ", "t", False),
        (["a READ TOPIC t", "* ALL TOPIC * DENY"], "READ", "t", False),
        (["a READ TOPIC t", "a READ TOPIC t DENY"], "DESCRIBE", "t", True),
        (["a READ TOPIC t ALLOW 10.0.0.1"], "READ", "t", False),
        (["a READ TOPIC t ALLOW 127.0.0.1"], "READ", "t", True),
        (["a ALTER_CONFIGS TOPIC t"], "DESCRIBE_CONFIGS", "t", True),
        (["a READ GROUP t"], "READ", "t", False),
    ],
)
def test_rules_are_read_as_kafka_reads_them(rules: list[str], operation: str, name: str, allowed: bool) -> None:
    acls = Acls([acl(rule) for rule in rules], ["User:root"])
    assert acls.allows("User:a", "127.0.0.1", operation, "TOPIC", name) == allowed
    assert acls.allows("User:root", "127.0.0.1", operation, "TOPIC", name)


def test_what_no_rule_is_about_may_be_left_open() -> None:
    acls = Acls([acl("a READ TOPIC t")], allow_without_acl=True)
    assert acls.allows("User:b", "127.0.0.1", "READ", "TOPIC", "other")
    assert not acls.allows("User:b", "127.0.0.1", "READ", "TOPIC", "t")


class AuthenticatedWire(Wire):
    """A connection of one of the users."""

    def __init__(self, front: Front, user: str) -> None:
        super().__init__(front.gateway.port)
        assert self.ask("SaslHandshake", 1, {"mechanism": "PLAIN"})["errorCode"] == 0
        token = b64encode(f"\0{user}\0{PASSWORDS[user]}".encode()).decode()
        assert self.ask("SaslAuthenticate", 2, {"authBytes": token})["errorCode"] == 0

    def __enter__(self) -> AuthenticatedWire:
        return self


RULES = (
    "alice READ GROUP g*",
    "alice DELETE GROUP g-gone",
    "alice READ TOPIC t1",
    "alice WRITE TOPIC w",
    "bob DESCRIBE GROUP only-seen",
)


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    locked = Locked(tmp_path_factory.mktemp("locked"))
    security = locked.security("SASL_PLAINTEXT", locked.rules(*RULES))
    with Front(tmp_path_factory.mktemp("front") / "log.db", topics(t1=2, t2=2, w=1), security=security) as front:
        with AuthenticatedWire(front, "admin") as wire:
            for group in ("g", "secret"):
                said = wire.ask("OffsetCommit", 8, commit(group, "t1", "t2"))
                assert {p["errorCode"] for topic in said["topics"] for p in topic["partitions"]} == {0}
        yield front
        assert front.coordinator.rejected == 0


def commit(group: str, *names: str) -> dict[str, Any]:
    partition = {"partitionIndex": 0, "committedOffset": 5, "committedLeaderEpoch": -1, "committedMetadata": ""}
    return {
        "groupId": group,
        "generationIdOrMemberEpoch": -1,
        "memberId": "",
        "groupInstanceId": None,
        "topics": [{"name": name, "partitions": [partition]} for name in names],
    }


def list_offsets(topic: str) -> dict[str, Any]:
    partitions = [{"partitionIndex": 0, "currentLeaderEpoch": -1, "timestamp": -1}]
    return {"replicaId": -1, "isolationLevel": 0, "topics": [{"name": topic, "partitions": partitions}]}


def fetch(group: str, *names: str) -> dict[str, Any]:
    asked = [{"name": name, "partitionIndexes": [0]} for name in names] or None
    return {"groups": [{"groupId": group, "topics": asked}], "requireStable": False}


def test_members_need_read_on_the_group(front: Front) -> None:
    asked = [
        ("JoinGroup", 5, join("GROUP")),
        ("Heartbeat", 4, HEARTBEAT),
        ("LeaveGroup", 3, {"groupId": "GROUP", "members": [{"memberId": "m", "groupInstanceId": None}]}),
        (
            "SyncGroup",
            3,
            {"groupId": "GROUP", "generationId": 1, "memberId": "m", "groupInstanceId": None, "assignments": []},
        ),
    ]
    for group in ("g", "secret", "not there"):
        with AuthenticatedWire(front, "bob") as wire:
            for api, version, body in asked:
                assert wire.ask(api, version, {**body, "groupId": group})["errorCode"] == GROUP, (api, group)
    with AuthenticatedWire(front, "alice") as wire:
        assert wire.ask("Heartbeat", 4, {**HEARTBEAT, "groupId": "g"})["errorCode"] == 25
    log = [row for append in front.log.read(0, front.log.end()) for row in append.to_pylist()]
    heartbeats = [row["principal"] for row in log if row["api"] == "Heartbeat"]
    assert set(heartbeats) == {"User:alice"}, "whose request it is stands on the log; what was refused doesn't"
    assert not any(password in str(log) for password in PASSWORDS.values() if len(password) > 4)


def changes(group: str, topic: str) -> list[tuple[str, int, dict[str, Any]]]:
    """Requests that would change or read a group and a topic."""
    new = {"name": topic, "numPartitions": 1, "replicationFactor": 1, "assignments": [], "configs": []}
    more = {"name": topic, "count": 9, "assignments": None}
    timed = {"timeoutMs": 1_000, "validateOnly": False}
    resources = [{"resourceType": 32, "resourceName": group}, {"resourceType": 2, "resourceName": topic}]
    setting = {"name": "consumer.session.timeout.ms", "configOperation": 0, "value": "46000"}
    set_anew = {"name": setting["name"], "value": setting["value"]}
    epoch = {"partition": 0, "currentLeaderEpoch": -1, "leaderEpoch": 0}
    wanted = {"partition": 0, "currentLeaderEpoch": -1, "fetchOffset": 0, "logStartOffset": -1, "partitionMaxBytes": 9}
    nowhere = {"maxWaitMs": 0, "minBytes": 0, "maxBytes": 9, "isolationLevel": 0, "sessionId": 0, "sessionEpoch": -1}
    fetched = {"topics": [{"topic": topic, "partitions": [{**wanted, "lastFetchedEpoch": -1}]}]}
    return [
        ("CreateTopics", 7, {"topics": [new], **timed}),
        ("CreatePartitions", 3, {"topics": [more], **timed}),
        ("DeleteTopics", 6, {"topics": [{"name": topic, "topicId": ZERO_UUID}], "timeoutMs": 1_000}),
        (
            "DescribeConfigs",
            4,
            {
                "resources": [{**resource, "configurationKeys": None} for resource in resources],
                "includeSynonyms": False,
                "includeDocumentation": False,
            },
        ),
        (
            "IncrementalAlterConfigs",
            1,
            {"resources": [{**resource, "configs": [setting]} for resource in resources], "validateOnly": False},
        ),
        (
            "AlterConfigs",
            2,
            {"resources": [{**resource, "configs": [set_anew]} for resource in resources], "validateOnly": False},
        ),
        ("ListConfigResources", 1, {"resourceTypes": []}),
        ("OffsetDelete", 0, {"groupId": group, "topics": [{"name": topic, "partitions": [{"partitionIndex": 0}]}]}),
        ("OffsetForLeaderEpoch", 3, {"replicaId": -1, "topics": [{"topic": topic, "partitions": [epoch]}]}),
        ("Fetch", 12, {"replicaId": -1, **nowhere, **fetched, "forgottenTopicsData": [], "rackId": ""}),
    ]


def test_who_has_no_right_gets_one_answer_whether_something_is_there_or_not(front: Front) -> None:
    answers: dict[str, list[Any]] = {}
    for group, topic in (("secret", "t2"), ("not there", "nor this")):
        with AuthenticatedWire(front, "bob") as wire:
            found = [
                wire.ask("OffsetFetch", 8, fetch(group, topic)),
                wire.ask("OffsetFetch", 8, fetch(group)),
                wire.ask("OffsetCommit", 8, commit(group, topic)),
                wire.ask("DescribeGroups", 5, {"groups": [group], "includeAuthorizedOperations": False}),
                wire.ask("DeleteGroups", 2, {"groupsNames": [group]}),
                wire.ask("FindCoordinator", 4, {"keyType": 0, "coordinatorKeys": [group]}),
                wire.ask("ConsumerGroupDescribe", 1, {"groupIds": [group], "includeAuthorizedOperations": False}),
                wire.ask("Metadata", 12, {**METADATA, "topics": [{"topicId": "A" * 22, "name": topic}]}),
                wire.ask("Metadata", 12, {**METADATA, "topics": None})["topics"],
                wire.ask("ListGroups", 4, {"statesFilter": []}),
                wire.ask("ListOffsets", 5, list_offsets(topic)),
                *(wire.ask(api, version, body) for api, version, body in changes(group, topic)),
            ]  # fmt: skip
        text = msgspec.json.encode(found).decode().replace(group, "GROUP").replace(topic, "TOPIC")
        answers[group] = [text]
        assert found[0]["groups"][0]["errorCode"] == GROUP
        assert found[7]["topics"][0]["errorCode"] == TOPIC
        assert found[8] == []
        assert found[9]["groups"] == []
    assert answers["secret"] == answers["not there"]


def test_of_a_request_only_what_is_allowed_is_done(front: Front) -> None:
    with AuthenticatedWire(front, "alice") as wire:
        said = wire.ask("OffsetCommit", 8, commit("g", "t1", "t2"))
        assert {t["name"]: t["partitions"][0]["errorCode"] for t in said["topics"]} == {"t1": 0, "t2": TOPIC}
        said = wire.ask("OffsetFetch", 8, fetch("g", "t1", "t2"))["groups"][0]
        assert {t["name"]: t["partitions"][0]["errorCode"] for t in said["topics"]} == {"t1": 0, "t2": TOPIC}
        seen = wire.ask("OffsetFetch", 8, fetch("g"))["groups"][0]["topics"]
        assert [topic["name"] for topic in seen] == ["t1"]
        asked = {"groups": [fetch("g", "t1")["groups"][0], fetch("secret", "t1")["groups"][0]], "requireStable": False}
        said = wire.ask("OffsetFetch", 8, asked)
        assert {group["groupId"]: group["errorCode"] for group in said["groups"]} == {"g": 0, "secret": GROUP}
        said = wire.ask("OffsetFetch", 5, {"groupId": "g", "topics": fetch("g", "t1", "t2")["groups"][0]["topics"]})
        assert {t["name"]: t["partitions"][0]["errorCode"] for t in said["topics"]} == {"t1": 0, "t2": TOPIC}
        described = wire.ask("DescribeGroups", 5, {"groups": ["g", "secret"], "includeAuthorizedOperations": False})
        assert {group["groupId"]: group["errorCode"] for group in described["groups"]} == {"g": 0, "secret": GROUP}
        assert [group["groupId"] for group in wire.ask("ListGroups", 4, {"statesFilter": []})["groups"]] == ["g"]
        named = wire.ask("Metadata", 12, {**METADATA, "topics": None})["topics"]
        assert [topic["name"] for topic in named] == ["t1", "w"]
        by_id = [{"topicId": topic_id("t2"), "name": None}]
        assert wire.ask("Metadata", 12, {**METADATA, "topics": by_id})["topics"][0]["errorCode"] == TOPIC
    with AuthenticatedWire(front, "admin") as wire:
        kept = wire.ask("OffsetFetch", 8, fetch("g", "t2"))["groups"][0]["topics"][0]["partitions"][0]
        assert kept["committedOffset"] == 5


def test_who_names_a_group_twice_sees_no_more_of_it(front: Front) -> None:
    with AuthenticatedWire(front, "alice") as wire:
        (of_all,) = fetch("g")["groups"]
        for groups in ([of_all, {**of_all, "topics": []}], [{**of_all, "topics": []}, of_all]):
            said = wire.ask("OffsetFetch", 8, {"groups": groups, "requireStable": False})["groups"]
            names = [[topic["name"] for topic in group["topics"]] for group in said]
            assert names == [["t1"] if group["topics"] is None else [] for group in groups]


@pytest.mark.parametrize(("version", "replica"), [(12, {"replicaId": 2}), (15, {"replicaState": {"replicaId": 2}})])
def test_only_who_may_act_for_the_cluster_fetches_as_a_follower(version: int, replica: dict[str, Any]) -> None:
    """By that it would say how far a broker has got, and read what isn't replicated yet."""
    named = {"topic": "t"} if version < 13 else {"topicId": topic_id("t")}
    asked = {**named, "partitions": [{"partition": 0, "fetchOffset": 5}]}
    known = TopicCatalog([Topic("t", 1, topic_id("t"))])
    for rules, refused in ((["a READ TOPIC t"], True), (["a READ TOPIC t", "a CLUSTER_ACTION CLUSTER *"], False)):
        asker = Asker("User:a", "127.0.0.1", Acls([acl(rule) for rule in rules], []), known)
        consumers = {"topics": [asked], "replicaId": -1}
        assert CLUSTER_RULES["Fetch"](version, consumers, asker) is None
        assert (CLUSTER_RULES["Fetch"](version, {**consumers, **replica}, asker) is not None) == refused


@pytest.mark.parametrize("version", [1, 12])
def test_nobody_has_topics_made_who_may_not_create_them(version: int) -> None:
    """A cluster that makes topics by itself would make one that the gateway asks for."""
    known = TopicCatalog([Topic("t", 1, topic_id("t"))])
    names = ["t", "new"]
    asked = {"allowAutoTopicCreation": True, "topics": [{"name": name, "topicId": ZERO_UUID} for name in names]}
    for rules, is_left in ((["a DESCRIBE TOPIC *"], False), (["a DESCRIBE TOPIC *", "a CREATE TOPIC n*"], True)):
        asker = Asker("User:a", "127.0.0.1", Acls([acl(rule) for rule in rules], []), known)
        restriction = CLUSTER_RULES["Metadata"](version, asked, asker)
        if is_left:
            assert restriction is None
            continue
        assert restriction is not None
        passed = restriction.body
        assert passed is not None
        assert (passed["allowAutoTopicCreation"], [topic["name"] for topic in passed["topics"]]) == (
            (True, ["t"]) if version < 4 else (False, names)
        )


def test_rules_of_hosts_are_about_addresses_as_java_has_them() -> None:
    assert plain_address("::ffff:10.0.0.5") == "10.0.0.5"
    assert [plain_address(host) for host in ("10.0.0.5", "::1", "unknown")] == ["10.0.0.5", "::1", "unknown"]


def test_subscriptions_need_the_right_to_see_the_topics(front: Front) -> None:
    body = {
        "groupId": "g-848", "memberId": "AAAAAAAAAAAAAAAAAAAAAQ", "memberEpoch": 0, "instanceId": None, "rackId": None,
        "rebalanceTimeoutMs": 5_000, "serverAssignor": None, "topicPartitions": [],
    }  # fmt: skip
    with AuthenticatedWire(front, "alice") as wire:
        for names, pattern in ((["t1", "t2"], None), ([], "t.*"), (["nor this"], None)):
            asked = {**body, "subscribedTopicNames": names, "subscribedTopicRegex": pattern}
            assert wire.ask("ConsumerGroupHeartbeat", 1, asked)["errorCode"] == TOPIC
        asked = {**body, "subscribedTopicNames": ["t1"], "subscribedTopicRegex": None}
        assert wire.ask("ConsumerGroupHeartbeat", 1, asked)["errorCode"] == 0


def test_rules_are_taken_over_while_the_gateway_runs(tmp_path: Path) -> None:
    locked = Locked(tmp_path)
    security = locked.security("SASL_PLAINTEXT", locked.rules("alice READ GROUP g"))
    with Front(tmp_path / "log.db", topics(t1=2), security=security) as front, AuthenticatedWire(front, "bob") as wire:
        assert wire.ask("Heartbeat", 4, HEARTBEAT)["errorCode"] == GROUP
        locked.file.write_text(locked.file.read_text() + locked.rules("bob READ GROUP g").partition("\n")[2])
        front.gateway.look_at_users()
        wait(lambda: wire.ask("Heartbeat", 4, HEARTBEAT)["errorCode"] == 25, "bob may")
