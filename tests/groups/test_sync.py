"""SyncGroup: the leader's assignment on its way to everybody."""

from __future__ import annotations

import pytest

from tests.groups.bodies import base64
from tests.groups.harness import Member, World


def test_a_group_that_is_not_there_knows_nobody(world: World) -> None:
    assert world.sync(Member("m", 1)).error == "UNKNOWN_MEMBER_ID"


def test_the_empty_group_id_is_invalid(world: World) -> None:
    assert world.sync(Member("m", 1, None, "")).error == "INVALID_GROUP_ID"


def test_an_empty_group_knows_nobody(world: World) -> None:
    world.new_ids(1)
    assert world.sync(Member("m", 0)).error == "UNKNOWN_MEMBER_ID"


def test_a_stranger_is_unknown_in_a_stable_group(world: World) -> None:
    world.stable(1)
    assert world.sync(Member("stranger", 1)).error == "UNKNOWN_MEMBER_ID"


@pytest.mark.parametrize("generation", [0, 2, -1])
def test_another_generation_is_illegal(world: World, generation: int) -> None:
    (member,) = world.joined(1)
    assert world.sync(member, generation=generation).error == "ILLEGAL_GENERATION"


@pytest.mark.parametrize(("type_", "protocol"), [("connect", "range"), ("consumer", "sticky")])
def test_another_protocol_type_or_name_is_inconsistent(world: World, type_: str, protocol: str) -> None:
    (member,) = world.joined(1)
    assert world.sync(member, type_=type_, protocol=protocol).error == "INCONSISTENT_GROUP_PROTOCOL"


@pytest.mark.parametrize(("type_", "protocol"), [(None, "range"), ("consumer", None), (None, None)])
def test_from_version_5_on_type_and_name_must_be_there(world: World, type_: str | None, protocol: str | None) -> None:
    (member,) = world.joined(1)
    assert world.sync(member, type_=type_, protocol=protocol).error == "INCONSISTENT_GROUP_PROTOCOL"


def test_the_missing_protocol_is_noticed_before_the_invalid_group_id(world: World) -> None:
    assert world.sync(Member("m", 1, None, ""), type_=None).error == "INCONSISTENT_GROUP_PROTOCOL"


def test_before_version_5_no_protocol_is_named(world: World) -> None:
    (member,) = world.joined(1)
    asked = world.sync(member, {member.id: b"x"}, version=4)
    assert asked.error == "NONE"
    assert set(asked.body) == {"throttleTimeMs", "errorCode", "assignment"}


def test_version_0_has_no_throttle_time(world: World) -> None:
    (member,) = world.joined(1)
    assert set(world.sync(member, {member.id: b"x"}, version=0).body) == {"errorCode", "assignment"}


def test_a_follower_that_comes_before_the_leader_waits_for_it(world: World) -> None:
    leader, follower = world.joined(2)
    parked = world.sync(follower)
    assert parked.waits
    world.advance(500)
    leaders = world.sync(leader, {leader.id: b"for the leader", follower.id: b"for the follower"})
    assert parked.by == leaders.request_id
    assert parked.body["assignment"] == base64(b"for the follower")
    assert leaders.body["assignment"] == base64(b"for the leader")
    assert parked.body["protocolType"] == "consumer"
    assert parked.body["protocolName"] == "range"
    assert world.state() == "Stable"


def test_a_follower_that_comes_after_the_leader_is_answered_at_once(world: World) -> None:
    leader, follower = world.joined(2)
    world.sync(leader, {follower.id: b"f"})
    assert world.sync(follower).body["assignment"] == base64(b"f")


def test_a_stable_group_tells_the_assignment_as_often_as_it_is_asked(world: World) -> None:
    leader, _ = world.stable(2)
    for _ in range(3):
        assert world.sync(leader).body["assignment"] == base64(b"for " + leader.id.encode())


def test_a_leader_that_syncs_again_in_a_stable_group_changes_nothing(world: World) -> None:
    leader, _ = world.stable(2)
    again = world.sync(leader, {leader.id: b"another"})
    assert again.body["assignment"] == base64(b"for " + leader.id.encode())
    assert again.records == []


def test_the_group_is_stored_with_all_assignments_before_anybody_is_told(world: World) -> None:
    leader, follower = world.joined(2)
    asked = world.sync(leader, {leader.id: b"l", follower.id: b"f"})
    (record,) = asked.records
    assert record.value is not None
    assert record.value["generation"] == 1
    assert record.value["leader"] == leader.id
    assert record.value["protocol"] == "range"
    stored = {member["memberId"]: member["assignment"] for member in record.value["members"]}
    assert stored == {leader.id: base64(b"l"), follower.id: base64(b"f")}


def test_whom_the_leader_forgot_has_an_empty_assignment(world: World) -> None:
    leader, follower = world.joined(2)
    world.sync(leader, {leader.id: b"l"})
    assert world.sync(follower).body["assignment"] == ""


def test_an_assignment_for_a_stranger_is_ignored(world: World) -> None:
    (leader,) = world.joined(1)
    asked = world.sync(leader, {leader.id: b"l", "stranger": b"s"})
    assert asked.error == "NONE"
    (record,) = asked.records
    assert record.value is not None
    assert [member["memberId"] for member in record.value["members"]] == [leader.id]


def test_a_leader_without_any_assignment_stabilises_the_group(world: World) -> None:
    leader, follower = world.joined(2)
    parked = world.sync(follower)
    world.sync(leader, {})
    assert parked.error == "NONE"
    assert parked.body["assignment"] == ""
    assert world.state() == "Stable"


def test_a_follower_cannot_assign(world: World) -> None:
    leader, follower = world.joined(2)
    parked = world.sync(follower, {leader.id: b"mine", follower.id: b"mine"})
    assert parked.waits
    assert world.state() == "CompletingRebalance"


def test_during_the_join_phase_a_member_is_told_to_join_again(world: World) -> None:
    leader, follower = world.stable(2)
    world.join(leader)
    assert world.sync(follower).error == "REBALANCE_IN_PROGRESS"


def test_a_sync_that_is_repeated_while_it_waits_takes_the_place_of_the_first(world: World) -> None:
    leader, follower = world.joined(2)
    first, second = world.sync(follower), world.sync(follower)
    world.sync(leader, {follower.id: b"f"})
    assert first.waits
    assert second.error == "NONE"


def test_when_the_leader_leaves_before_its_sync_the_waiting_ones_are_told_to_join_again(world: World) -> None:
    leader, follower = world.joined(2)
    parked = world.sync(follower)
    world.leave(leader)
    assert parked.error == "REBALANCE_IN_PROGRESS"
    asked = world.join(follower)
    assert asked.member.leader == follower.id
    assert asked.member.generation == 2


def test_when_the_leader_expires_before_its_sync_the_waiting_ones_are_told_to_join_again(world: World) -> None:
    leader, follower = world.joined(2, session_ms=6_000, rebalance_ms=60_000)
    parked = world.sync(follower)
    world.advance(6_000)
    assert parked.error == "REBALANCE_IN_PROGRESS"
    assert world.members() == [follower.id]
    assert world.heartbeat(leader).error == "UNKNOWN_MEMBER_ID"


def test_who_has_not_synced_when_the_time_is_over_is_removed_be_it_all(world: World) -> None:
    members = world.joined(2, session_ms=30_000, rebalance_ms=12_000)
    world.advance(11_999)
    assert world.members() == sorted(member.id for member in members)
    world.advance(1)
    assert world.members() == []
    assert world.state() == "Empty"
    assert world.generation() == 2


def test_when_only_the_leader_has_not_synced_in_time_the_others_are_told_to_join_again(world: World) -> None:
    leader, follower = world.joined(2, session_ms=30_000, rebalance_ms=12_000)
    parked = world.sync(follower)
    world.advance(12_000)
    assert parked.error == "REBALANCE_IN_PROGRESS"
    assert parked.by is None
    assert world.members() == [follower.id]
    assert world.join(leader).error == "UNKNOWN_MEMBER_ID"


def test_when_only_a_follower_has_not_synced_in_time_a_stable_group_rebalances_without_it(world: World) -> None:
    leader, follower = world.joined(2, session_ms=30_000, rebalance_ms=12_000)
    world.sync(leader, {leader.id: b"l"})
    assert world.state() == "Stable"
    world.advance(12_000)
    assert world.members() == [leader.id]
    assert world.state() == "PreparingRebalance"
    assert world.heartbeat(follower).error == "UNKNOWN_MEMBER_ID"
    assert world.heartbeat(leader).error == "REBALANCE_IN_PROGRESS"


def test_when_all_have_synced_the_time_has_no_end(world: World) -> None:
    members = world.stable(2, session_ms=30_000, rebalance_ms=12_000)
    world.keep_alive(members, 60_000)
    assert world.state() == "Stable"
    assert world.generation() == 1


def test_a_heartbeat_is_no_sync(world: World) -> None:
    leader, follower = world.joined(2, session_ms=6_000, rebalance_ms=12_000)
    world.sync(leader, {})
    world.keep_alive([leader, follower], 12_000)
    assert world.members() == [leader.id]


def test_a_member_that_waits_for_its_assignment_is_not_expired_though_it_is_silent(world: World) -> None:
    leader, follower = world.joined(2, session_ms=6_000, rebalance_ms=60_000)
    parked = world.sync(follower)
    world.keep_alive([leader], 50_000)
    world.sync(leader, {follower.id: b"f"})
    assert parked.body["assignment"] == base64(b"f")
    world.advance(5_999)
    assert world.heartbeat(follower).error == "NONE"


def test_with_the_assignment_the_session_begins_anew(world: World) -> None:
    leader, follower = world.joined(2, session_ms=6_000, rebalance_ms=60_000)
    world.advance(4_000)
    world.sync(follower)
    world.sync(leader, {})
    world.advance(5_999)
    assert world.heartbeat(follower).error == "NONE"
