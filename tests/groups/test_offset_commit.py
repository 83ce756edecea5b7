"""OffsetCommit: who may, what is stored, what is told."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.settings.file import topic_id
from tests.groups.bodies import commit_topics
from tests.groups.conftest import Worlds
from tests.groups.harness import Member, World

T = ("t0", 0)


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
