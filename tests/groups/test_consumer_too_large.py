"""Consumer groups whose records are larger than the log takes (group.metadata.max.bytes)."""

from __future__ import annotations

import pytest

from coordinator_udf.protocol.requests import Topic
from coordinator_udf.settings.file import topic_id
from tests.groups.conftest import Worlds
from tests.groups.consumer_member import SETTINGS, Consumer, settle
from tests.groups.harness import G, World

SMALL = Topic(name="t0", partitions=4, id=topic_id("t0"))
LARGE = Topic(name="t0", partitions=400, id=topic_id("t0"))


@pytest.fixture
def world(worlds: Worlds) -> World:
    return worlds({**SETTINGS, "group.metadata.max.bytes": 1_000}, [SMALL])


def test_a_join_that_is_too_large_leaves_no_group(world: World) -> None:
    world.set_topics(LARGE)
    asked = Consumer(world, "a").join()
    assert (asked.error, asked.body["errorMessage"]) == ("UNKNOWN_SERVER_ERROR", None)
    assert asked.records == []
    assert world.inside() is None
    world.advance(60_000)
    assert world.inside() is None


def test_a_group_goes_on_as_it_was_and_its_members_stay(world: World) -> None:
    member = Consumer(world, "a")
    member.join()
    settle(member)
    before = world.inside()
    world.set_topics(LARGE)
    for _ in range(3):
        world.advance(30_000)
        asked = member.beat()
        assert (asked.error, asked.records) == ("UNKNOWN_SERVER_ERROR", [])
    assert world.inside() == before
    assert Consumer(world, "b").join().error == "UNKNOWN_SERVER_ERROR"


def test_what_fits_again_is_written(world: World) -> None:
    member = Consumer(world, "a")
    member.join()
    world.set_topics(LARGE)
    assert member.beat().error == "UNKNOWN_SERVER_ERROR"
    world.set_topics(Topic(name="t0", partitions=5, id=topic_id("again")))
    asked = member.ask(member.epoch)
    assert asked.error == "NONE"
    assert [record.key["type"] for record in asked.records][:1] == ["ConsumerGroupMetadata"]


def test_a_session_that_can_not_be_ended_is_tried_again(worlds: Worlds) -> None:
    world = worlds({**SETTINGS, "group.metadata.max.bytes": 1_000}, [SMALL])
    member = Consumer(world, "a", [f"topic-{number:03}" for number in range(20)])
    assert member.join().error == "NONE"
    world.advance(45_000)
    assert world.members() == []


def fail_a_write(world: World) -> None:
    """Another group's member joins, whose records are too large."""
    world.set_topics(LARGE)
    assert Consumer(world, "z", group="other").join().error == "UNKNOWN_SERVER_ERROR"


def test_a_group_that_made_room_for_nobody_comes_back(world: World) -> None:
    member = Consumer(world, "a")
    member.join()
    member.leave()
    assert world.join("nobody").error == "UNKNOWN_MEMBER_ID"
    assert world.inside() is None
    fail_a_write(world)
    assert world.state() == "Empty"
    assert world.delete_groups(G).errors == {G: "NONE"}


def test_it_stays_away_once_something_was_written(world: World) -> None:
    member = Consumer(world, "a")
    member.join()
    member.leave()
    assert world.join("nobody").error == "UNKNOWN_MEMBER_ID"
    assert world.commit(None, {("t0", 0): 1}, group="simple").records
    fail_a_write(world)
    assert world.inside() is None


def test_a_classic_group_of_which_nothing_was_written_is_gone(world: World) -> None:
    # A commit in a name that nobody has makes a simple group, and then finds nothing that it may write.
    world.commit(None, {("t0", 0): 1}, group="simple", metadata="m" * 5_000)
    assert world.state("simple") == "Empty"
    fail_a_write(world)
    assert world.inside("simple") is None
