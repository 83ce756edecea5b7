"""Offsets, listings and deletions of consumer groups, and subscriptions by regular expression."""

from __future__ import annotations

import pytest

from coordinator_udf.protocol.requests import Topic
from coordinator_udf.settings.file import topic_id
from tests.groups.conftest import Worlds
from tests.groups.consumer_member import SETTINGS, Consumer, settle
from tests.groups.harness import TOPICS, G, Member, World


@pytest.fixture
def world(worlds: Worlds) -> World:
    return worlds(SETTINGS)


def test_a_member_commits_with_its_epoch(world: World) -> None:
    member = Consumer(world, "a")
    member.join()
    assert world.commit(Member("a", 2), {("t0", 0): 5}).errors == {("t0", 0): "NONE"}
    assert world.fetched() == {("t0", 0): 5}


def test_an_older_epoch_will_do_for_what_the_member_has_had_since(world: World) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b", ["t1"])
    first.join()
    second.join()
    first.beat()
    assert first.epoch == 3
    assert world.commit(Member("a", 2), {("t0", 0): 5}).errors == {("t0", 0): "NONE"}
    assert world.commit(Member("a", 2), {("t1", 0): 5}).errors == {("t1", 0): "STALE_MEMBER_EPOCH"}
    assert world.commit(Member("a", 1), {("t0", 0): 5}).errors == {("t0", 0): "STALE_MEMBER_EPOCH"}
    assert world.commit(Member("a", 9), {("t0", 0): 5}).errors == {("t0", 0): "STALE_MEMBER_EPOCH"}


def test_old_versions_know_no_member_epoch(world: World) -> None:
    Consumer(world, "a").join()
    assert world.commit(Member("a", 2), {("t0", 0): 5}, version=8).errors == {("t0", 0): "UNSUPPORTED_VERSION"}
    assert world.commit(Member("x", 2), {("t0", 0): 5}).errors == {("t0", 0): "UNKNOWN_MEMBER_ID"}


def test_offsets_of_subscribed_topics_stay(world: World) -> None:
    member = Consumer(world, "a")
    member.join()
    world.commit(Member("a", 2), {("t0", 0): 5, ("t1", 0): 6})
    asked = world.delete_offsets(("t0", 0), ("t1", 0))
    assert asked.errors == {("t0", 0): "GROUP_SUBSCRIBED_TO_TOPIC", ("t1", 0): "NONE"}


def test_listings_say_what_kind_a_group_is(world: World) -> None:
    Consumer(world, "a").join()
    assert world.list_groups(types=["consumer"]) == [G]
    assert world.list_groups(types=["classic"]) == []
    assert world.list_groups(states=["stable"]) == [G]
    assert world.describe_groups(G)[0]["errorCode"] == 69


def test_an_empty_group_is_deleted_and_one_with_members_is_not(world: World) -> None:
    member = Consumer(world, "a")
    member.join()
    world.commit(Member("a", 2), {("t0", 0): 5})
    assert world.delete_groups(G).errors == {G: "NON_EMPTY_GROUP"}
    member.leave()
    assert world.delete_groups(G).errors == {G: "NONE"}
    assert world.inside() is None
    world.fail_over()
    assert world.inside() is None


def test_a_regular_expression_is_resolved_after_the_answer(world: World) -> None:
    member = Consumer(world, "a", None, regex="t.*")
    member.join()
    assert (member.epoch, member.owned) == (1, {})
    settle(member)
    assert member.owned == {"t0": [0, 1, 2, 3], "t1": [0, 1]}


def test_a_new_topic_that_matches_is_found(world: World) -> None:
    member = Consumer(world, "a", None, regex="t.*")
    member.join()
    settle(member)
    world.set_topics(*TOPICS, Topic(name="t2", partitions=1, id=topic_id("t2")))
    world.advance(10_001)
    settle(member)
    assert member.owned["t2"] == [0]


def test_a_regular_expression_that_can_not_be_read_is_refused(world: World) -> None:
    asked = Consumer(world, "a", None, regex="(").join()
    assert asked.error == "INVALID_REGULAR_EXPRESSION"
    assert asked.body["errorMessage"] == (
        "SubscribedTopicRegex `(` is not a valid regular expression: missing closing )."
    )


def test_a_group_may_have_a_session_timeout_of_its_own(world: World) -> None:
    world.control("GroupConfig", {"group": G, "configs": {"consumer.session.timeout.ms": "50000"}})
    Consumer(world, "a").join()
    world.advance(49_999)
    assert world.members() == ["a"]
    world.advance(1)
    assert world.members() == []


def test_a_deleted_topic_is_taken_away(world: World) -> None:
    member = Consumer(world, "a", ["t0", "t1"])
    member.join()
    world.set_topics(TOPICS[0])
    member.beat()
    settle(member)
    assert member.owned == {"t0": [0, 1, 2, 3]}
