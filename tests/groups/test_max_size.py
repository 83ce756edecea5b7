"""group.max.size: who comes too late is refused, also when joining again."""

from __future__ import annotations

import pytest

from tests.groups.conftest import Worlds
from tests.groups.harness import Member, World


@pytest.fixture
def world(worlds: Worlds) -> World:
    return worlds({"group.max.size": 2})


def test_an_empty_group_gives_out_ids_to_more_than_it_takes(world: World) -> None:
    assert len(world.new_ids(3)) == 3


def test_of_those_that_come_with_their_ids_the_first_are_taken(world: World) -> None:
    asked = [world.join(id_) for id_ in world.new_ids(3)]
    assert asked[2].error == "GROUP_MAX_SIZE_REACHED"
    assert asked[2].body["memberId"] == ""
    world.advance(6_000)
    assert [one.error for one in asked[:2]] == ["NONE", "NONE"]


def test_a_full_stable_group_takes_nobody(world: World) -> None:
    world.stable(2)
    assert world.join().error == "GROUP_MAX_SIZE_REACHED"
    assert world.join(instance="a").error == "GROUP_MAX_SIZE_REACHED"
    assert world.state() == "Stable"


def test_a_full_group_that_awaits_its_assignment_takes_nobody(world: World) -> None:
    world.joined(2)
    assert world.join(version=3).error == "GROUP_MAX_SIZE_REACHED"
    assert world.state() == "CompletingRebalance"


def test_members_of_a_full_group_may_join_again(world: World) -> None:
    leader, follower = world.stable(2)
    asked = [world.join(leader), world.join(follower)]
    assert [one.error for one in asked] == ["NONE", "NONE"]


def test_a_static_member_comes_back_into_a_full_group(world: World) -> None:
    """Kafka counts it as one more, for it comes without a member id."""
    world.stable(2, instances=["a", "b"])
    assert world.join(instance="a").error == "GROUP_MAX_SIZE_REACHED"


def test_a_refused_pending_member_has_lost_its_id(world: World) -> None:
    ids = world.new_ids(3)
    for id_ in ids:
        world.join(id_)
    inside = world.inside()
    assert inside is not None
    assert inside["pendingJoinMembers"] == []
    world.advance(6_000)
    assert world.join(ids[2]).error == "GROUP_MAX_SIZE_REACHED"


def test_when_a_member_has_left_there_is_room_again(world: World) -> None:
    leader, follower = world.stable(2)
    world.leave(follower)
    assert world.join().error == "MEMBER_ID_REQUIRED"
    assert world.join(leader).waits


def test_in_the_join_phase_only_those_that_wait_count(world: World) -> None:
    """So members that were there before are kicked out if newer ones were faster."""
    leader, follower = world.stable(2, session_ms=30_000)
    world.leave(follower)
    new = [world.join("", version=3, session_ms=30_000) for _ in range(2)]
    assert all(one.waits for one in new)
    late = world.join(leader)
    assert late.error == "GROUP_MAX_SIZE_REACHED"
    world.advance(20_000)
    assert {one.error for one in new} == {"NONE"}
    assert leader.id not in world.members()


def test_a_member_that_waits_may_repeat_its_join(world: World) -> None:
    ids = world.new_ids(2)
    first = [world.join(id_) for id_ in ids]
    again = [world.join(id_) for id_ in ids]
    world.advance(6_000)
    assert all(one.waits for one in first)
    assert [one.error for one in again] == ["NONE", "NONE"]


def test_strangers_with_an_id_are_refused_for_the_size_before_they_are_unknown(world: World) -> None:
    world.stable(2)
    assert world.join("stranger").error == "GROUP_MAX_SIZE_REACHED"


def test_a_group_of_one(worlds: Worlds) -> None:
    world = worlds({"group.max.size": 1})
    (member,) = world.stable(1)
    assert world.join().error == "GROUP_MAX_SIZE_REACHED"
    world.leave(member)
    assert world.join().error == "MEMBER_ID_REQUIRED"


def test_a_loaded_group_that_is_too_large_rebalances(worlds: Worlds) -> None:
    """The limit was lowered while the coordinator was away. Without that, a loaded group is left in peace."""
    world = worlds({"group.max.size": 3})
    members = world.stable(3)
    world.fail_over()
    assert world.state() == "Stable"
    assert world.heartbeat(Member(members[0].id, 1)).error == "NONE"
