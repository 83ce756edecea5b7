"""Static members (KIP-345): they come back under a new member id without a rebalance, and their doubles are fenced."""

from __future__ import annotations

import pytest

from tests.groups.bodies import base64, subscription
from tests.groups.harness import Asked, Member, World


def _back(world: World, member: Member, **how: object) -> Asked:
    """The member's process was started again: it knows its instance id and nothing else."""
    return world.join("", instance=member.instance, **how)  # type: ignore[arg-type]


def test_a_new_static_member_joins_at_once_whatever_the_version(world: World) -> None:
    asked = world.join(instance="a")
    assert asked.waits
    world.advance(3_000)
    assert asked.error == "NONE"
    assert asked.member.id.startswith("a-")
    assert asked.body["members"][0]["groupInstanceId"] == "a"


def test_a_follower_that_comes_back_gets_a_new_id_and_no_rebalance(world: World) -> None:
    leader, follower = world.stable(2, instances=["a", "b"])
    asked = _back(world, follower)
    assert asked.error == "NONE"
    assert asked.member.id != follower.id
    assert asked.member.generation == 1
    assert asked.body["leader"] == leader.id
    assert asked.body["members"] == []
    assert asked.body["skipAssignment"] is False
    assert world.state() == "Stable"
    assert world.members() == sorted([leader.id, asked.member.id])


def test_a_follower_that_comes_back_finds_its_old_assignment(world: World) -> None:
    _, follower = world.stable(2, instances=["a", "b"])
    again = _back(world, follower).member
    assert world.sync(again).body["assignment"] == base64(b"for " + follower.id.encode())


def test_a_member_that_comes_back_twice_still_finds_it(world: World) -> None:
    _, follower = world.stable(2, instances=["a", "b"])
    again = _back(world, _back(world, follower).member).member
    assert world.sync(again).body["assignment"] == base64(b"for " + follower.id.encode())


def test_the_group_is_stored_with_the_new_id_and_all_assignments(world: World) -> None:
    leader, follower = world.stable(2, instances=["a", "b"])
    asked = _back(world, follower)
    (record,) = asked.records
    assert record.value is not None
    stored = {member["memberId"]: member["assignment"] for member in record.value["members"]}
    assert stored == {
        leader.id: base64(b"for " + leader.id.encode()),
        asked.member.id: base64(b"for " + follower.id.encode()),
    }


def test_a_leader_that_comes_back_leads_and_is_told_to_skip_the_assignment(world: World) -> None:
    leader, _ = world.stable(2, instances=["a", "b"])
    asked = _back(world, leader)
    assert asked.body["leader"] == asked.member.id != leader.id
    assert asked.body["skipAssignment"] is True
    assert len(asked.body["members"]) == 2
    assert world.state() == "Stable"


@pytest.mark.parametrize("version", [5, 8])
def test_before_version_9_a_leader_that_comes_back_is_not_told_that_it_leads(world: World, version: int) -> None:
    leader, _ = world.stable(2, instances=["a", "b"])
    asked = _back(world, leader, version=version)
    assert asked.body["leader"] == leader.id
    assert asked.body["memberId"] != leader.id
    assert asked.body["members"] == []
    inside = world.inside()
    assert inside is not None
    assert inside["leader"] == asked.body["memberId"]


def test_the_double_under_the_old_id_is_fenced_everywhere(world: World) -> None:
    leader, follower = world.stable(2, instances=["a", "b"])
    _back(world, follower)
    assert world.heartbeat(follower).error == "FENCED_INSTANCE_ID"
    assert world.sync(follower).error == "FENCED_INSTANCE_ID"
    assert world.join(follower).error == "FENCED_INSTANCE_ID"
    assert world.commit(follower, {("t0", 0): 1}).errors == {("t0", 0): "FENCED_INSTANCE_ID"}
    assert world.leave(follower).errors == {follower.id: "FENCED_INSTANCE_ID"}
    assert world.heartbeat(leader).error == "NONE"


def test_an_old_id_without_its_instance_id_is_unknown(world: World) -> None:
    _, follower = world.stable(2, instances=["a", "b"])
    _back(world, follower)
    assert world.heartbeat(follower._replace(instance=None)).error == "UNKNOWN_MEMBER_ID"


def test_an_instance_id_that_nobody_has_is_unknown(world: World) -> None:
    leader, _ = world.stable(2, instances=["a", "b"])
    assert world.heartbeat(leader._replace(instance="c")).error == "UNKNOWN_MEMBER_ID"


def test_the_instance_id_of_another_is_fenced(world: World) -> None:
    leader, follower = world.stable(2, instances=["a", "b"])
    assert world.heartbeat(leader._replace(instance=follower.instance)).error == "FENCED_INSTANCE_ID"


def test_a_double_that_waits_in_the_join_phase_is_told_that_it_is_fenced(world: World) -> None:
    leader, follower = world.stable(2, instances=["a", "b"])
    waiting = world.join(leader)
    assert waiting.waits
    again = _back(world, leader)
    assert waiting.error == "FENCED_INSTANCE_ID"
    assert waiting.by == again.request_id
    assert again.waits
    world.join(follower)
    assert again.error == "NONE"


def test_a_double_that_waits_for_its_assignment_is_told_that_it_is_fenced(world: World) -> None:
    _, follower = world.joined(2, instances=["a", "b"])
    parked = world.sync(follower)
    _back(world, follower)
    assert parked.error == "FENCED_INSTANCE_ID"


def test_while_the_assignment_is_awaited_coming_back_begins_a_rebalance(world: World) -> None:
    leader, follower = world.joined(2, instances=["a", "b"])
    again = _back(world, follower)
    assert again.waits
    assert world.state() == "PreparingRebalance"
    assert world.heartbeat(leader).error == "REBALANCE_IN_PROGRESS"


def test_coming_back_with_a_protocol_that_changes_the_choice_begins_a_rebalance(world: World) -> None:
    both = ("range", "sticky")
    leader, follower = world.stable(2, instances=["a", "b"], protocols=both)
    again = _back(world, follower, protocols=("sticky",))
    assert again.waits
    assert world.state() == "PreparingRebalance"
    asked = world.join(leader, protocols=both)
    assert asked.body["protocolName"] == again.body["protocolName"] == "sticky"


def test_coming_back_with_a_protocol_that_leaves_the_choice_as_it_is_begins_none(world: World) -> None:
    both = ("range", "sticky")
    _, follower = world.stable(2, instances=["a", "b"], protocols=both)
    assert _back(world, follower, protocols=("range",)).error == "NONE"
    assert world.state() == "Stable"


def test_coming_back_with_another_subscription_begins_no_rebalance(world: World) -> None:
    """The leader finds out by itself: it sees the new metadata when it joins next."""
    _, follower = world.stable(2, instances=["a", "b"])
    asked = _back(world, follower, protocols={"range": subscription("t1")})
    assert asked.error == "NONE"
    (record,) = asked.records
    assert record.value is not None
    stored = {m["memberId"]: m["subscription"] for m in record.value["members"]}
    assert stored[asked.member.id] == base64(subscription("t1"))


def test_coming_back_without_a_common_protocol_is_inconsistent(world: World) -> None:
    _, follower = world.stable(2, instances=["a", "b"])
    assert _back(world, follower, protocols=("sticky",)).error == "INCONSISTENT_GROUP_PROTOCOL"
    assert world.heartbeat(follower).error == "NONE"


def test_a_static_member_that_joins_with_its_id_is_a_member_that_joins_again(world: World) -> None:
    _, follower = world.stable(2, instances=["a", "b"])
    asked = world.join(follower)
    assert asked.error == "NONE"
    assert asked.member.id == follower.id


def test_a_static_leader_that_joins_with_its_id_begins_a_rebalance(world: World) -> None:
    leader, _ = world.stable(2, instances=["a", "b"])
    assert world.join(leader).waits


def test_an_unknown_id_with_a_known_instance_id_is_fenced(world: World) -> None:
    world.stable(2, instances=["a", "b"])
    assert world.join("stranger", instance="a").error == "FENCED_INSTANCE_ID"


def test_a_known_id_with_an_unknown_instance_id_is_unknown(world: World) -> None:
    leader, _ = world.stable(2, instances=["a", "b"])
    assert world.join(leader.id, instance="c").error == "UNKNOWN_MEMBER_ID"


def test_a_static_member_that_stays_away_is_removed_when_its_session_is_over(world: World) -> None:
    leader, follower = world.stable(2, instances=["a", "b"], session_ms=12_000)
    world.keep_alive([leader], 12_000)
    assert world.members() == [leader.id]
    assert world.state() == "PreparingRebalance"
    asked = _back(world, follower)
    assert asked.waits


def test_coming_back_begins_the_session_anew(world: World) -> None:
    leader, follower = world.stable(2, instances=["a", "b"], session_ms=12_000)
    world.keep_alive([leader], 11_000)
    again = _back(world, follower, session_ms=12_000).member
    world.keep_alive([leader], 11_999)
    assert again.id in world.members()
    assert world.heartbeat(again).error == "NONE"


def test_the_old_ids_session_does_not_end_the_new_one(world: World) -> None:
    (member,) = world.stable(1, instances=["a"], session_ms=6_000)
    world.advance(3_000)
    again = _back(world, member, session_ms=6_000).member
    world.keep_alive([again], 30_000)
    assert world.state() == "Stable"


def test_coming_back_brings_new_timeouts(world: World) -> None:
    (member,) = world.stable(1, instances=["a"])
    _back(world, member, session_ms=25_000, rebalance_ms=35_000)
    inside = world.inside()
    assert inside is not None
    assert inside["members"][0]["sessionTimeoutMs"] == 25_000
    assert inside["members"][0]["rebalanceTimeoutMs"] == 35_000


def test_coming_back_into_an_empty_group_is_joining_anew(world: World) -> None:
    (member,) = world.stable(1, instances=["a"])
    world.leave(member)
    asked = _back(world, member)
    world.advance(3_000)
    assert asked.member.generation == 3
    assert asked.member.id != member.id


def test_coming_back_while_others_join_again_takes_the_place_in_the_join_phase(world: World) -> None:
    leader, follower = world.stable(2, instances=["a", "b"])
    first = world.join(leader)
    again = _back(world, follower)
    assert first.by == again.request_id
    assert first.member.generation == again.member.generation == 2


def test_two_starts_within_the_initial_delay_leave_one_member(world: World) -> None:
    first = world.join(instance="a")
    second = world.join(instance="a")
    assert first.error == "FENCED_INSTANCE_ID"
    world.advance(6_000)
    assert second.error == "NONE"
    assert world.members() == [second.member.id]


def test_static_and_dynamic_members_share_a_group(world: World) -> None:
    members = world.stable(3, instances=["a"])
    static = next(member for member in members if member.instance)
    assert _back(world, static).error == "NONE"
    assert world.state() == "Stable"
    assert len(world.members()) == 3


def test_the_empty_instance_id_is_one_too(world: World) -> None:
    asked = world.join(instance="")
    world.advance(3_000)
    assert asked.error == "NONE"
    again = world.join(instance="")
    assert again.error == "NONE"
    assert again.member.id != asked.member.id


def test_describing_shows_the_instance_id_from_version_4_on(world: World) -> None:
    world.stable(1, instances=["a"])
    for version, shown in ((3, False), (4, True)):
        (group,) = world.describe_groups("g", version=version)
        assert ("groupInstanceId" in group["members"][0]) == shown
