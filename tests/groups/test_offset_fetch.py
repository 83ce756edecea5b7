"""OffsetFetch: which offsets are told, version by version."""

from __future__ import annotations

import pytest

from coordinator_udf.settings.file import topic_id
from tests.groups.harness import World

T = ("t0", 0)


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
