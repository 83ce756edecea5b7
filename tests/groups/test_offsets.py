"""OffsetCommit, OffsetFetch and OffsetDelete: who may, what is stored, what is told."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.settings.file import topic_id
from tests.groups.bodies import commit_topics
from tests.groups.conftest import Worlds
from tests.groups.harness import Member, World

T = ("t0", 0)


# -- commits ------------------------------------------------------------------------------------------------------


def test_somebody_without_membership_commits_and_a_simple_group_comes_to_be(world: World) -> None:
    asked = world.commit(None, {T: 7})
    assert asked.errors == {T: "NONE"}
    assert world.fetched() == {T: 7}
    inside = world.inside()
    assert inside is not None
    assert inside["state"] == "Empty"
    assert inside["protocolType"] is None


def test_the_record_of_a_commit(world: World) -> None:
    (record,) = world.commit(None, {T: 7}, metadata="note").records
    assert record.key == {"type": "OffsetCommit", "group": "g", "topic": "t0", "partition": 0}
    assert record.version == 4
    assert record.value == {
        "offset": 7,
        "leaderEpoch": -1,
        "metadata": "note",
        "commitTimestamp": world.now_ms,
        "topicId": topic_id("t0"),
    }


def test_the_record_of_a_commit_for_a_topic_that_is_not_there_has_no_topic_id(world: World) -> None:
    (record,) = world.commit(None, {("nowhere", 0): 7}).records
    assert record.value is not None
    assert "topicId" not in record.value


def test_no_metadata_is_stored_as_the_empty_text(world: World) -> None:
    (record,) = world.commit(None, {T: 7}, metadata=None).records
    assert record.value is not None
    assert record.value["metadata"] == ""


@pytest.mark.parametrize("version", range(2, 11))
def test_every_version_commits(world: World, version: int) -> None:
    asked = world.commit(None, {T: version}, version=version)
    assert list(asked.errors.values()) == ["NONE"]
    assert world.fetched() == {T: version}


def test_until_version_4_a_commit_may_bring_its_own_retention(world: World) -> None:
    (record,) = world.commit(None, {T: 7}, version=4, retention_ms=5_000).records
    assert record.version == 1
    assert record.value == {
        "offset": 7,
        "metadata": "",
        "commitTimestamp": world.now_ms,
        "expireTimestamp": world.now_ms + 5_000,
    }


@pytest.mark.parametrize(("version", "error"), [(8, "ILLEGAL_GENERATION"), (9, "GROUP_ID_NOT_FOUND")])
def test_a_member_of_a_group_that_is_not_there(world: World, version: int, error: str) -> None:
    assert world.commit(Member("m", 1), {T: 7}, version=version).errors == {T: error}
    assert world.inside() is None


def test_a_member_commits(world: World) -> None:
    (member,) = world.stable(1)
    assert world.commit(member, {T: 1, ("t1", 1): 2}).errors == {T: "NONE", ("t1", 1): "NONE"}
    assert world.fetched() == {T: 1, ("t1", 1): 2}


@pytest.mark.parametrize("generation", [0, 2])
def test_another_generation_is_illegal(world: World, generation: int) -> None:
    (member,) = world.stable(1)
    assert world.commit(member._replace(generation=generation), {T: 1}).errors == {T: "ILLEGAL_GENERATION"}


def test_a_stranger_is_unknown(world: World) -> None:
    world.stable(1)
    assert world.commit(Member("stranger", 1), {T: 1}).errors == {T: "UNKNOWN_MEMBER_ID"}


def test_without_membership_nobody_commits_to_a_group_with_members(world: World) -> None:
    world.stable(1)
    assert world.commit(None, {T: 1}).errors == {T: "UNKNOWN_MEMBER_ID"}


def test_without_membership_one_may_once_the_group_is_empty(world: World) -> None:
    (member,) = world.stable(1)
    world.leave(member)
    assert world.commit(None, {T: 1}).errors == {T: "NONE"}


def test_a_generation_of_minus_one_with_a_member_id_commits_to_an_empty_group(world: World) -> None:
    assert world.commit(Member("anybody", -1), {T: 1}).errors == {T: "NONE"}


def test_a_generation_of_minus_one_with_a_member_id_is_illegal_in_a_group_with_members(world: World) -> None:
    (member,) = world.stable(1)
    assert world.commit(member._replace(generation=-1), {T: 1}).errors == {T: "ILLEGAL_GENERATION"}


def test_a_member_id_with_a_generation_is_unknown_to_a_simple_group(world: World) -> None:
    world.commit(None, {T: 1})
    assert world.commit(Member("m", 1), {T: 2}).errors == {T: "UNKNOWN_MEMBER_ID"}


def test_while_the_assignment_is_awaited_commits_are_refused(world: World) -> None:
    (member,) = world.joined(1)
    assert world.commit(member, {T: 1}).errors == {T: "REBALANCE_IN_PROGRESS"}


def test_while_members_join_again_the_old_generation_may_still_commit(world: World) -> None:
    leader, follower = world.stable(2)
    world.join(leader)
    assert world.commit(follower, {T: 1}).errors == {T: "NONE"}
    assert world.commit(leader, {T: 2}).errors == {T: "NONE"}


def test_a_fenced_instance_can_not_commit(world: World) -> None:
    (member,) = world.stable(1, instances=["a"])
    world.join(instance="a")
    assert world.commit(member, {T: 1}).errors == {T: "FENCED_INSTANCE_ID"}


def test_an_instance_id_that_nobody_has_can_not_commit(world: World) -> None:
    (member,) = world.stable(1)
    assert world.commit(member._replace(instance="x"), {T: 1}).errors == {T: "UNKNOWN_MEMBER_ID"}


@pytest.mark.parametrize(("length", "error"), [(10, "NONE"), (11, "OFFSET_METADATA_TOO_LARGE")])
def test_metadata_has_a_limit(worlds: Worlds, length: int, error: str) -> None:
    world = worlds({"offset.metadata.max.bytes": 10})
    assert world.commit(None, {T: 1}, metadata="x" * length).errors == {T: error}


@pytest.mark.parametrize(
    ("text", "error"), [("ü" * 10, "NONE"), ("\U0001f600" * 5, "NONE"), ("\U0001f600" * 6, "OFFSET_METADATA_TOO_LARGE")]
)
def test_the_limit_counts_javas_characters_and_not_bytes(worlds: Worlds, text: str, error: str) -> None:
    world = worlds({"offset.metadata.max.bytes": 10})
    assert world.commit(None, {T: 1}, metadata=text).errors == {T: error}


def test_metadata_that_is_too_large_refuses_its_partition_only(worlds: Worlds) -> None:
    world = worlds({"offset.metadata.max.bytes": 10})
    parts = [
        {"partitionIndex": index, "committedOffset": 1, "committedLeaderEpoch": -1, "committedMetadata": "x" * length}
        for index, length in ((0, 11), (1, 10))
    ]
    body = {"groupId": "g", "generationIdOrMemberEpoch": -1, "memberId": "", "groupInstanceId": None}
    asked = world.ask("OffsetCommit", 9, {**body, "topics": [{"name": "t0", "partitions": parts}]})
    assert asked.errors == {T: "OFFSET_METADATA_TOO_LARGE", ("t0", 1): "NONE"}
    assert world.fetched() == {("t0", 1): 1}


def test_in_version_10_a_topic_is_named_by_its_id(world: World) -> None:
    asked = world.commit(None, {T: 3}, version=10)
    assert asked.errors == {(topic_id("t0"), 0): "NONE"}
    assert world.fetched() == {T: 3}


def test_in_version_10_an_unknown_id_is_refused_and_the_rest_is_committed(world: World) -> None:
    asked = world.commit(None, {("nowhere", 0): 1, T: 3}, version=10)
    assert asked.errors == {(topic_id("nowhere"), 0): "UNKNOWN_TOPIC_ID", (topic_id("t0"), 0): "NONE"}


def test_what_the_broker_refuses_stands_before_what_the_coordinator_says(worlds: Worlds) -> None:
    """In the order of the request, and so a KIP-848 member makes most of the first of it (KafkaApis, merge)."""
    world = worlds({"offsets.topic.partition.check": True})
    of_member = Member("nobody", 4)
    asked = world.commit(of_member, {T: 3, ("t0", 99): 3, ("nowhere", 0): 1, ("t1", 99): 1}, version=10)
    answers = [
        (topic["topicId"], [(place["partitionIndex"], place["errorCode"]) for place in topic["partitions"]])
        for topic in asked.body["topics"]
    ]
    assert answers == [
        (topic_id("t0"), [(99, Errors.UNKNOWN_TOPIC_OR_PARTITION), (0, Errors.GROUP_ID_NOT_FOUND)]),
        (topic_id("nowhere"), [(0, Errors.UNKNOWN_TOPIC_ID)]),
        (topic_id("t1"), [(99, Errors.UNKNOWN_TOPIC_OR_PARTITION)]),
    ]


def test_a_topic_that_is_named_twice_is_answered_twice_unless_the_broker_refuses_a_part(worlds: Worlds) -> None:
    world = worlds({"offsets.topic.partition.check": True})

    def answered(*topics: dict[tuple[str, int], int]) -> list[tuple[str, list[int]]]:
        body: dict[str, Any] = {
            "groupId": "g",
            "generationIdOrMemberEpoch": -1,
            "memberId": "",
            "groupInstanceId": None,
        }
        body["topics"] = [topic for offsets in topics for topic in commit_topics(offsets, "")]
        found = world.ask("OffsetCommit", 9, body).body["topics"]
        return [(topic["name"], [place["partitionIndex"] for place in topic["partitions"]]) for topic in found]

    assert answered({T: 3}, {T: 4}) == [("t0", [0]), ("t0", [0])]
    assert answered({T: 3}, {T: 4}, {("t0", 99): 1}) == [("t0", [99, 0, 0])]


def test_a_commit_of_nothing_is_answered_with_nothing(world: World) -> None:
    assert world.commit(None, {}).body["topics"] == []
    assert world.commit(Member("m", 4), {}, version=9).body["topics"] == []


def test_a_later_commit_wins_though_its_offset_is_lower(world: World) -> None:
    for offset in (9, 3):
        world.commit(None, {T: offset})
    assert world.fetched() == {T: 3}


def test_the_empty_group_id_is_a_group_for_old_consumers(world: World) -> None:
    assert world.commit(None, {T: 1}, group="", version=2).errors == {T: "NONE"}
    assert world.fetched("") == {T: 1}


def test_offsets_survive_rebalances_and_members(world: World) -> None:
    (member,) = world.stable(1)
    world.commit(member, {T: 5})
    world.leave(member)
    world.joined(2)
    assert world.fetched() == {T: 5}


# -- fetches ------------------------------------------------------------------------------------------------------


def test_of_a_group_that_is_not_there_nothing_is_known(world: World) -> None:
    assert world.fetch("nobody").body["groups"] == [{"groupId": "nobody", "topics": [], "errorCode": 0}]


def test_a_partition_without_an_offset_is_minus_one(world: World) -> None:
    world.commit(None, {T: 5})
    (group,) = world.fetch("g", [T, ("t0", 1), ("nowhere", 0)]).body["groups"]
    told = {(t["name"], p["partitionIndex"]): p for t in group["topics"] for p in t["partitions"]}
    assert {key: part["committedOffset"] for key, part in told.items()} == {T: 5, ("t0", 1): -1, ("nowhere", 0): -1}
    assert {part["errorCode"] for part in told.values()} == {0}


@pytest.mark.parametrize("version", range(1, 8))
def test_until_version_7_one_group_is_fetched(world: World, version: int) -> None:
    world.commit(None, {T: 5}, metadata="m")
    body = world.fetch("g", [T], version=version).body
    (topic,) = body["topics"]
    (part,) = topic["partitions"]
    assert part["committedOffset"] == 5
    assert part["metadata"] == "m"
    assert ("committedLeaderEpoch" in part) == (version >= 5)
    assert ("errorCode" in body) == (version >= 2)
    assert ("throttleTimeMs" in body) == (version >= 3)


@pytest.mark.parametrize("version", range(2, 11))
def test_from_version_2_on_all_topics_can_be_fetched(world: World, version: int) -> None:
    world.commit(None, {T: 5, ("t1", 1): 6})
    body = world.fetch("g", version=version).body
    topics = body["topics"] if version < 8 else body["groups"][0]["topics"]
    assert sum(len(topic["partitions"]) for topic in topics) == 2


@pytest.mark.parametrize("version", [8, 9, 10])
def test_from_version_8_on_several_groups_are_fetched(world: World, version: int) -> None:
    world.commit(None, {T: 1}, group="a")
    world.commit(None, {T: 2}, group="b")
    groups = [{"groupId": id_, "memberId": None, "memberEpoch": -1, "topics": None} for id_ in ("b", "a", "c")]
    body = world.ask("OffsetFetch", version, {"groups": groups, "requireStable": False}).body
    assert [group["groupId"] for group in body["groups"]] == ["b", "a", "c"]
    assert [len(group["topics"]) for group in body["groups"]] == [1, 1, 0]


def test_in_version_10_topics_are_fetched_by_id(world: World) -> None:
    world.commit(None, {T: 5})
    (group,) = world.fetch("g", [T, ("nowhere", 0)], version=10).body["groups"]
    told = {topic["topicId"]: topic["partitions"][0] for topic in group["topics"]}
    assert told[topic_id("t0")]["committedOffset"] == 5
    assert told[topic_id("nowhere")]["errorCode"] == 100


def test_in_version_10_a_topic_without_an_id_is_left_out(world: World) -> None:
    world.commit(None, {T: 5, ("nowhere", 0): 6})
    (group,) = world.fetch(version=10).body["groups"]
    assert [topic["topicId"] for topic in group["topics"]] == [topic_id("t0")]


def test_an_empty_list_of_topics_is_none_and_not_all(world: World) -> None:
    world.commit(None, {T: 5})
    assert world.fetch("g", []).body["groups"][0]["topics"] == []


def test_a_member_id_and_epoch_mean_nothing_to_a_classic_group(world: World) -> None:
    (member,) = world.stable(1)
    world.commit(member, {T: 5})
    group = {"groupId": "g", "memberId": "stranger", "memberEpoch": 9, "topics": None}
    (told,) = world.ask("OffsetFetch", 9, {"groups": [group], "requireStable": False}).body["groups"]
    assert told["errorCode"] == 0
    assert len(told["topics"]) == 1


# -- deletions ----------------------------------------------------------------------------------------------------


def test_a_group_that_is_not_there_has_no_offsets_to_delete(world: World) -> None:
    assert world.delete_offsets(T).error == "GROUP_ID_NOT_FOUND"


def test_the_empty_group_id_is_invalid_for_deletions(world: World) -> None:
    assert world.delete_offsets(T, group="").error == "INVALID_GROUP_ID"


def test_a_simple_groups_offset_is_deleted_with_a_tombstone(world: World) -> None:
    world.commit(None, {T: 1, ("t0", 1): 2})
    asked = world.delete_offsets(T)
    assert asked.errors == {T: "NONE"}
    (record,) = asked.records
    assert record.key == {"type": "OffsetCommit", "group": "g", "topic": "t0", "partition": 0}
    assert record.value is None
    assert world.fetched() == {("t0", 1): 2}


def test_an_offset_that_is_not_there_is_deleted_without_a_record(world: World) -> None:
    world.commit(None, {T: 1})
    asked = world.delete_offsets(("t0", 3), ("nowhere", 0))
    assert set(asked.errors.values()) == {"NONE"}
    assert asked.records == []


def test_a_partition_that_is_named_twice_gets_two_tombstones(world: World) -> None:
    world.commit(None, {T: 1})
    assert len(world.delete_offsets(T, T).records) == 2


def test_of_deletions_too_what_the_broker_refuses_stands_first(worlds: Worlds) -> None:
    world = worlds({"offsets.topic.partition.check": True})
    world.commit(None, {T: 5, ("t1", 0): 5})
    body = world.delete_offsets(T, ("t0", 99), ("t1", 0), ("nowhere", 0)).body
    assert [(topic["name"], [tuple(place.values()) for place in topic["partitions"]]) for topic in body["topics"]] == [
        ("t0", [(99, Errors.UNKNOWN_TOPIC_OR_PARTITION), (0, Errors.NONE)]),
        ("nowhere", [(0, Errors.UNKNOWN_TOPIC_OR_PARTITION)]),
        ("t1", [(0, Errors.NONE)]),
    ]


def test_of_a_topic_to_which_a_member_is_subscribed_nothing_is_deleted(world: World) -> None:
    (member,) = world.stable(1)
    world.commit(member, {T: 1, ("t1", 0): 2})
    asked = world.delete_offsets(T, ("t1", 0))
    assert asked.errors == {T: "GROUP_SUBSCRIBED_TO_TOPIC", ("t1", 0): "NONE"}
    assert world.fetched() == {T: 1}


def test_when_a_subscription_can_not_be_read_all_topics_count_as_subscribed(world: World) -> None:
    (member,) = world.stable(1, protocols={"range": b"\xff\xff"})
    world.commit(member, {T: 1})
    assert world.delete_offsets(T).errors == {T: "GROUP_SUBSCRIBED_TO_TOPIC"}


def test_a_group_of_another_type_with_members_is_not_empty(world: World) -> None:
    (member,) = world.joined(1, type_="connect", protocols=("p",))
    world.sync(member, {}, type_="connect", protocol="p")
    world.commit(member, {T: 1})
    assert world.delete_offsets(T).error == "NON_EMPTY_GROUP"


def test_when_the_members_are_gone_their_topics_may_be_deleted(world: World) -> None:
    (member,) = world.stable(1)
    world.commit(member, {T: 1})
    world.leave(member)
    assert world.delete_offsets(T).errors == {T: "NONE"}


def test_a_pending_offset_of_a_transaction_is_deleted_too(world: World) -> None:
    world.txn_commit({T: 1})
    asked = world.delete_offsets(T)
    assert len(asked.records) == 1
    world.end_txn(committed=True)
    assert world.fetched() == {}


# -- topics that go -----------------------------------------------------------------------------------------------


def test_when_a_topic_is_deleted_its_offsets_are_too(world: World) -> None:
    world.commit(None, {T: 1, ("t1", 0): 2})
    from tests.groups.harness import TOPICS

    world.set_topics(TOPICS[1])
    assert world.fetched() == {("t1", 0): 2}
    assert world.coordinator_records[-1].value is None
    assert world.coordinator_records[-1].cause is None
