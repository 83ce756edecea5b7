"""How the join phase ends: by all having joined, by its time, and what becomes of those who didn't."""

from __future__ import annotations

import pytest

from tests.groups.harness import Member, World


def test_members_that_have_not_joined_again_are_removed_when_the_time_is_over(world: World) -> None:
    leader, follower = world.stable(2, session_ms=30_000, rebalance_ms=12_000)
    asked = world.join(leader, session_ms=30_000, rebalance_ms=12_000)
    world.advance(11_999)
    assert asked.waits
    assert world.members() == sorted([leader.id, follower.id])
    world.advance(1)
    assert asked.member.generation == 2
    assert asked.by is None
    assert world.members() == [leader.id]
    assert world.heartbeat(follower).error == "UNKNOWN_MEMBER_ID"


def test_the_longest_rebalance_timeout_of_all_members_counts(world: World) -> None:
    ids = world.new_ids(2)
    asked = [world.join(ids[0], rebalance_ms=8_000, session_ms=30_000)]
    asked.append(world.join(ids[1], rebalance_ms=25_000, session_ms=30_000))
    world.advance(6_000)
    members = sorted((one.member for one in asked), key=lambda m: m.id != m.leader)
    world.synced(members)
    again = world.join(members[0], rebalance_ms=8_000, session_ms=30_000)
    world.advance(24_999)
    assert again.waits
    world.advance(1)
    assert again.error == "NONE"


def test_a_follower_leads_when_the_leader_did_not_join_again(world: World) -> None:
    leader, follower = world.stable(2, session_ms=30_000, rebalance_ms=9_000)
    world.join(world.new_ids(1, session_ms=30_000)[0], session_ms=30_000, rebalance_ms=9_000)
    asked = world.join(follower, session_ms=30_000, rebalance_ms=9_000)
    world.advance(9_000)
    assert asked.error == "NONE"
    assert asked.body["leader"] != leader.id
    assert leader.id not in world.members()


def test_the_leader_stays_leader_over_a_rebalance(world: World) -> None:
    members = world.stable(4)
    asked = [world.join(member) for member in members]
    assert {one.body["leader"] for one in asked} == {members[0].id}


def test_a_group_in_which_nobody_joins_again_is_empty_when_the_time_is_over(world: World) -> None:
    leader, follower = world.stable(2, session_ms=30_000, rebalance_ms=12_000)
    world.leave(follower)
    assert world.state() == "PreparingRebalance"
    world.advance(12_000)
    assert world.state() == "Empty"
    assert world.generation() == 2
    inside = world.inside()
    assert inside is not None
    assert inside["leader"] is None
    record = world.coordinator_records[-1]
    assert record.cause is None
    assert record.value is not None
    assert record.value["members"] == []
    assert record.value["protocolType"] == "consumer"
    assert world.heartbeat(leader).error == "UNKNOWN_MEMBER_ID"


def test_static_members_that_do_not_join_again_extend_the_join_phase(world: World) -> None:
    """Until their sessions end: only then the group gets its next generation."""
    first, second = world.stable(2, instances=["a", "b"], session_ms=30_000, rebalance_ms=8_000)
    world.heartbeat(second)
    world.leave(first)
    world.advance(8_000)
    assert world.state() == "PreparingRebalance"
    assert world.generation() == 1
    assert world.members() == [second.id]
    world.advance(21_999)
    assert world.state() == "PreparingRebalance"
    world.advance(1)
    assert world.members() == []
    world.advance(8_000)
    assert world.state() == "Empty"
    assert world.generation() == 2


@pytest.mark.parametrize("rebalance_ms", [0, -1, 1, -(2**31)])
def test_a_rebalance_timeout_of_next_to_nothing_does_not_stop_the_coordinator(ours: World, rebalance_ms: int) -> None:
    """Kafka's coordinator is kept busy with this until the sessions end; ours would be in it for ever."""
    members = ours.stable(3, instances=["a", "b"], session_ms=60_000)
    for member in members:
        if member.instance is not None:
            assert ours.join(instance=member.instance, rebalance_ms=rebalance_ms, session_ms=60_000).error == "NONE"
    ours.leave(next(member for member in members if member.instance is None))
    ours.advance(59_999)
    assert ours.state() == "PreparingRebalance"
    asked = ours.join(instance="a", rebalance_ms=rebalance_ms, session_ms=60_000)
    ours.advance(60_000)
    assert asked.error == "NONE"


def test_a_static_member_that_does_not_join_again_stays_in_the_next_generation(world: World) -> None:
    members = world.stable(2, instances=["a", "b"], session_ms=30_000, rebalance_ms=8_000)
    leader, follower = members
    asked = world.join(leader, session_ms=30_000, rebalance_ms=8_000)
    world.advance(8_000)
    assert asked.member.generation == 2
    assert follower.id in [member["memberId"] for member in asked.body["members"]]


def test_somebody_who_was_given_an_id_holds_up_the_next_generation_until_it_joins(world: World) -> None:
    (member,) = world.stable(1)
    (pending,) = world.new_ids(1)
    asked = world.join(member)
    assert asked.waits
    joined = world.join(pending)
    assert asked.by == joined.request_id
    assert len(asked.body["members"]) == 2


def test_somebody_who_was_given_an_id_holds_it_up_no_longer_than_its_session(world: World) -> None:
    (member,) = world.stable(1, rebalance_ms=60_000)
    (pending,) = world.new_ids(1, session_ms=7_000)
    asked = world.join(member, rebalance_ms=60_000)
    world.advance(6_999)
    assert asked.waits
    world.advance(1)
    assert asked.member.generation == 2
    assert world.join(pending).error == "UNKNOWN_MEMBER_ID"


def test_somebody_who_was_given_an_id_is_forgotten_after_its_session(world: World) -> None:
    (pending,) = world.new_ids(1, session_ms=7_000)
    world.advance(7_000)
    inside = world.inside()
    assert inside is not None
    assert inside["pendingJoinMembers"] == []
    assert world.join(pending).error == "UNKNOWN_MEMBER_ID"


def test_a_heartbeat_does_not_keep_a_pending_id(world: World) -> None:
    world.stable(1, group="g")
    (pending,) = world.new_ids(1)
    asked = world.join("", version=3)
    assert asked.waits
    assert world.heartbeat(Member(pending, 1)).error == "UNKNOWN_MEMBER_ID"


def test_a_member_that_waits_in_the_join_phase_is_not_expired_though_it_is_silent(world: World) -> None:
    leader, follower = world.stable(2, session_ms=6_000, rebalance_ms=60_000)
    asked = world.join(leader, session_ms=6_000, rebalance_ms=60_000)
    world.keep_alive([follower], 50_000)
    assert asked.waits
    assert leader.id in world.members()
    assert world.join(follower, session_ms=6_000, rebalance_ms=60_000).error == "NONE"
    assert asked.error == "NONE"


def test_a_new_member_whose_client_went_away_while_it_waits_is_removed_after_the_join_timeout(world: World) -> None:
    old = world.stable(1, session_ms=10_000, rebalance_ms=600_000)
    asked = world.join("", version=3, session_ms=10_000, rebalance_ms=600_000)
    world.keep_alive(old, 299_999)
    assert asked.waits
    world.advance(1)
    assert asked.error == "UNKNOWN_MEMBER_ID"
    assert world.members() == [old[0].id]


def test_when_a_member_leaves_the_rest_that_has_joined_goes_on(world: World) -> None:
    leader, follower = world.stable(2)
    asked = world.join(leader)
    assert asked.waits
    left = world.leave(follower)
    assert asked.by == left.request_id
    assert asked.member.generation == 2


def test_when_a_session_ends_the_rest_that_has_joined_goes_on(world: World) -> None:
    leader, follower = world.stable(2, session_ms=7_000, rebalance_ms=60_000)
    asked = world.join(leader, session_ms=7_000, rebalance_ms=60_000)
    world.advance(7_000)
    assert asked.member.generation == 2
    assert asked.by is None
    assert world.heartbeat(follower).error == "UNKNOWN_MEMBER_ID"


def test_a_group_that_is_empty_comes_to_life_again_with_the_next_generation(world: World) -> None:
    (member,) = world.stable(1)
    world.leave(member)
    world.advance(20_000)
    assert world.state() == "Empty"
    assert world.generation() == 2
    (asked,) = [world.join(id_) for id_ in world.new_ids(1)]
    world.advance(3_000)
    assert asked.member.generation == 3


def test_an_empty_group_may_change_its_protocol_type(world: World) -> None:
    (member,) = world.stable(1)
    world.leave(member)
    world.advance(20_000)
    asked = world.join("", version=3, type_="connect", protocols=("eager",))
    world.advance(3_000)
    assert asked.error == "NONE"
    assert world.describe_groups("g")[0]["protocolType"] == "connect"
