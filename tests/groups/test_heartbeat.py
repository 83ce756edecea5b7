"""Heartbeat: what each state answers, and that it keeps the session."""

from __future__ import annotations

import pytest

from tests.groups.harness import Member, World


def test_a_group_that_is_not_there_knows_nobody(world: World) -> None:
    assert world.heartbeat(Member("m", 1)).error == "UNKNOWN_MEMBER_ID"


def test_the_empty_group_id_is_invalid(world: World) -> None:
    assert world.heartbeat(Member("m", 1, None, "")).error == "INVALID_GROUP_ID"


def test_an_empty_group_knows_nobody(world: World) -> None:
    world.new_ids(1)
    assert world.heartbeat(Member("m", 0)).error == "UNKNOWN_MEMBER_ID"


def test_a_group_that_was_deleted_knows_nobody(world: World) -> None:
    (member,) = world.stable(1)
    world.leave(member)
    world.advance(20_000)
    assert world.delete_groups("g").errors == {"g": "NONE"}
    assert world.heartbeat(member).error == "UNKNOWN_MEMBER_ID"


def test_somebody_with_a_pending_id_is_unknown(world: World) -> None:
    world.stable(1)
    (pending,) = world.new_ids(1)
    assert world.heartbeat(Member(pending, 1)).error == "UNKNOWN_MEMBER_ID"


@pytest.mark.parametrize("generation", [0, 2, -1, 2**31 - 1])
def test_another_generation_is_illegal(world: World, generation: int) -> None:
    (member,) = world.stable(1)
    assert world.heartbeat(member._replace(generation=generation)).error == "ILLEGAL_GENERATION"


def test_an_unknown_member_is_noticed_before_its_generation(world: World) -> None:
    world.stable(1)
    assert world.heartbeat(Member("stranger", 7)).error == "UNKNOWN_MEMBER_ID"


def test_in_a_stable_group_all_is_well(world: World) -> None:
    (member,) = world.stable(1)
    assert world.heartbeat(member).error == "NONE"


@pytest.mark.parametrize("version", range(5))
def test_every_version_is_answered(world: World, version: int) -> None:
    (member,) = world.stable(1)
    asked = world.heartbeat(member, version=version)
    assert asked.error == "NONE"
    assert ("throttleTimeMs" in asked.body) == (version >= 1)


def test_while_members_join_again_a_member_is_told_to_join(world: World) -> None:
    leader, follower = world.stable(2)
    world.join(leader)
    assert world.heartbeat(follower).error == "REBALANCE_IN_PROGRESS"
    assert world.heartbeat(leader).error == "REBALANCE_IN_PROGRESS"


def test_while_the_assignment_is_awaited_all_is_well(world: World) -> None:
    leader, follower = world.joined(2)
    assert world.heartbeat(leader).error == "NONE"
    assert world.heartbeat(follower).error == "NONE"


def test_a_silent_member_is_removed_when_its_session_is_over(world: World) -> None:
    leader, follower = world.stable(2, session_ms=7_000)
    world.advance(3_000)
    world.heartbeat(leader)
    world.advance(3_999)
    assert world.state() == "Stable"
    world.advance(1)
    assert world.state() == "PreparingRebalance"
    assert world.members() == [leader.id]
    assert world.heartbeat(follower).error == "UNKNOWN_MEMBER_ID"


def test_each_heartbeat_begins_the_session_anew(world: World) -> None:
    members = world.stable(2, session_ms=6_000)
    world.keep_alive(members, 600_000, 5_999)
    assert world.state() == "Stable"
    assert world.generation() == 1


@pytest.mark.parametrize(("generation", "instance"), [(9, None), (1, "nobody")])
def test_a_refused_heartbeat_does_not_keep_the_session(world: World, generation: int, instance: str | None) -> None:
    leader, follower = world.stable(2, session_ms=6_000)
    for _ in range(2):
        world.advance(2_999)
        world.heartbeat(leader)
        world.heartbeat(follower._replace(generation=generation, instance=instance))
    world.advance(2)
    assert world.members() == [leader.id]


def test_a_commit_keeps_the_session_too(world: World) -> None:
    (member,) = world.stable(1, session_ms=6_000)
    for offset in range(4):
        world.advance(5_999)
        assert world.commit(member, {("t0", 0): offset}).errors == {("t0", 0): "NONE"}
    assert world.state() == "Stable"


def test_a_fetch_does_not_keep_the_session(world: World) -> None:
    (member,) = world.stable(1, session_ms=6_000)
    world.advance(5_999)
    world.fetch()
    world.advance(1)
    assert member.id not in world.members()


def test_members_that_are_silent_from_one_moment_are_removed_at_one_moment(world: World) -> None:
    world.stable(3, session_ms=6_000)
    world.advance(6_000)
    assert world.members() == []


def test_each_member_has_a_session_of_its_own_length(world: World) -> None:
    ids = world.new_ids(2)
    asked = [world.join(ids[0], session_ms=6_000), world.join(ids[1], session_ms=20_000)]
    world.advance(6_000)
    members = sorted((one.member for one in asked), key=lambda m: m.id != m.leader)
    world.synced(members)
    world.advance(6_000)
    assert world.members() == [ids[1]]
