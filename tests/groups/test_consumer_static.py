"""Static members of consumer groups: they go for a while, come back under another id, and push nobody out."""

from __future__ import annotations

import pytest

from tests.groups.conftest import Worlds
from tests.groups.consumer_member import SETTINGS, Consumer, settle
from tests.groups.harness import World


@pytest.fixture
def world(worlds: Worlds) -> World:
    return worlds(SETTINGS)


def test_an_instance_id_that_is_in_use_is_not_given_away(world: World) -> None:
    Consumer(world, "a", instance="i").join()
    assert Consumer(world, "b", instance="i").join().error == "UNRELEASED_INSTANCE_ID"


def test_who_comes_back_in_time_has_what_it_had(world: World) -> None:
    old, other = Consumer(world, "a", instance="i"), Consumer(world, "z")
    old.join()
    other.join()
    settle(old, other)
    assert old.leave(-2).body["memberEpoch"] == -2
    new = Consumer(world, "b", instance="i")
    new.join()
    assert new.owned == old.owned
    assert new.epoch == other.epoch
    assert world.members() == ["b", "z"]


def test_who_does_not_come_back_is_out_when_its_session_ends(world: World) -> None:
    member = Consumer(world, "a", instance="i")
    member.join()
    member.leave(-2)
    world.advance(44_999)
    assert world.members() == ["a"]
    world.advance(1)
    assert world.members() == []


def test_another_member_with_the_instance_id_is_fenced(world: World) -> None:
    Consumer(world, "a", instance="i").join()
    stranger = Consumer(world, "b", instance="i")
    stranger.epoch = 2
    assert stranger.beat().error == "FENCED_INSTANCE_ID"


def test_an_instance_id_that_nobody_has_is_unknown(world: World) -> None:
    Consumer(world, "a").join()
    stranger = Consumer(world, "b", instance="j")
    stranger.epoch = 2
    assert stranger.beat().error == "UNKNOWN_MEMBER_ID"
