"""LeaveGroup: one by one, in batches, by instance id."""

from __future__ import annotations

import pytest

from tests.groups.harness import Member, World


def test_a_group_that_is_not_there_knows_nobody(world: World) -> None:
    asked = world.leave(Member("m"))
    assert asked.error == "NONE"
    assert asked.errors == {"m": "UNKNOWN_MEMBER_ID"}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_before_version_3_the_answer_itself_says_unknown(world: World, version: int) -> None:
    asked = world.leave(Member("m"), version=version)
    assert asked.error == "UNKNOWN_MEMBER_ID"
    assert "members" not in asked.body


def test_the_empty_group_id_is_invalid(world: World) -> None:
    asked = world.leave(Member("m", group=""))
    assert asked.error == "INVALID_GROUP_ID"


@pytest.mark.parametrize("version", range(6))
def test_a_member_leaves_in_every_version(world: World, version: int) -> None:
    leader, follower = world.stable(2)
    assert world.leave(follower, version=version).error == "NONE"
    assert world.members() == [leader.id]
    assert world.state() == "PreparingRebalance"


def test_a_stranger_can_not_leave(world: World) -> None:
    (member,) = world.stable(1)
    assert world.leave(Member("stranger")).errors == {"stranger": "UNKNOWN_MEMBER_ID"}
    assert world.state() == "Stable"
    assert world.heartbeat(member).error == "NONE"


def test_a_batch_answers_for_each_and_rebalances_once(world: World) -> None:
    first, second, third = world.stable(3)
    asked = world.leave(second, Member("stranger"), third)
    assert asked.errors == {second.id: "NONE", "stranger": "UNKNOWN_MEMBER_ID", third.id: "NONE"}
    assert asked.error == "NONE"
    assert world.members() == [first.id]
    assert world.generation() == 1


def test_a_batch_that_names_a_member_twice_knows_it_once(world: World) -> None:
    (member,) = world.stable(1)
    asked = world.leave(member, member)
    assert [part["errorCode"] for part in asked.body["members"]] == [0, 25]


def test_an_empty_batch_changes_nothing(world: World) -> None:
    world.stable(1)
    asked = world.leave(group="g")
    assert asked.error == "NONE"
    assert asked.body["members"] == []
    assert world.state() == "Stable"


def test_somebody_with_a_pending_id_gives_it_back(world: World) -> None:
    (member,) = world.stable(1)
    (pending,) = world.new_ids(1)
    asked = world.join(member)
    assert asked.waits
    left = world.leave(Member(pending))
    assert left.errors == {pending: "NONE"}
    assert asked.by == left.request_id


def test_a_pending_id_that_is_given_back_moves_no_stable_group(world: World) -> None:
    world.stable(1)
    (pending,) = world.new_ids(1)
    world.leave(Member(pending))
    assert world.join(pending).error == "UNKNOWN_MEMBER_ID"


def test_a_member_that_leaves_while_its_join_waits_is_answered(world: World) -> None:
    leader, follower = world.stable(2)
    asked = world.join(leader)
    world.leave(leader)
    assert asked.error == "UNKNOWN_MEMBER_ID"
    assert world.members() == [follower.id]


def test_when_the_last_member_leaves_the_group_is_empty_at_once_and_stored_so(world: World) -> None:
    (member,) = world.stable(1)
    left = world.leave(member)
    assert world.state() == "Empty"
    assert world.generation() == 2
    (record,) = left.records
    assert record.value is not None
    assert record.value["members"] == []
    assert record.value["protocol"] is None
    assert record.value["protocolType"] == "consumer"


def test_when_the_leader_leaves_another_member_leads(world: World) -> None:
    leader, follower = world.stable(2)
    world.leave(leader)
    assert world.join(follower).body["leader"] == follower.id


def test_a_static_member_leaves_by_its_instance_id_alone(world: World) -> None:
    leader, follower = world.stable(2, instances=["a", "b"])
    asked = world.leave(Member("", instance=follower.instance))
    assert asked.errors == {follower.instance: "NONE"}
    assert world.members() == [leader.id]


def test_an_instance_id_that_nobody_has_is_unknown(world: World) -> None:
    world.stable(1)
    assert world.leave(Member("", instance="x")).errors == {"x": "UNKNOWN_MEMBER_ID"}


def test_nobody_at_all_is_unknown(world: World) -> None:
    world.stable(1)
    assert world.leave(Member("")).errors == {None: "UNKNOWN_MEMBER_ID"}


def test_another_members_instance_id_is_fenced(world: World) -> None:
    first, second = world.stable(2, instances=["a", "b"])
    asked = world.leave(Member(first.id, instance=second.instance))
    assert asked.errors == {first.id: "FENCED_INSTANCE_ID"}
    assert len(world.members()) == 2


def test_a_static_member_may_leave_without_its_instance_id(world: World) -> None:
    first, _ = world.stable(2, instances=["a", "b"])
    assert world.leave(Member(first.id)).errors == {first.id: "NONE"}


def test_a_member_that_waits_for_its_assignment_and_leaves_gets_no_answer_to_its_sync(world: World) -> None:
    _, follower = world.joined(2)
    parked = world.sync(follower)
    world.leave(follower)
    assert parked.waits


def test_who_left_may_join_again_as_somebody_new(world: World) -> None:
    leader, follower = world.stable(2)
    world.leave(follower)
    asked = world.join(world.new_ids(1)[0])
    assert world.join(leader).error == "NONE"
    assert asked.member.id != follower.id
