"""A coordinator that goes away, one that loads what is stored, and what they answer meanwhile."""

from __future__ import annotations

from typing import Any

from tests.groups.coordinators import OurCoordinator, Written
from tests.groups.harness import TOPICS, Member, World

T = ("t0", 0)


# -- what comes back ----------------------------------------------------------------------------------------------


def test_a_stable_group_comes_back_with_members_and_assignments(world: World) -> None:
    leader, follower = world.stable(2)
    before = world.inside()
    world.fail_over()
    assert world.inside() == before
    assert world.heartbeat(follower).error == "NONE"
    assert world.sync(leader).body["assignment"] != ""
    assert world.state() == "Stable"


def test_loaded_members_get_a_fresh_session(world: World) -> None:
    (member,) = world.stable(1, session_ms=6_000)
    world.advance(5_999)
    world.fail_over()
    world.advance(5_999)
    assert world.heartbeat(member).error == "NONE"


def test_a_loaded_member_that_stays_silent_is_removed_all_the_same(world: World) -> None:
    world.stable(1, session_ms=6_000)
    world.fail_over()
    world.advance(6_000)
    assert world.members() == []
    assert world.generation() == 2


def test_offsets_come_back(world: World) -> None:
    world.commit(None, {T: 1, ("t1", 1): 2})
    world.delete_offsets(T)
    world.fail_over()
    assert world.fetched() == {("t1", 1): 2}


def test_pending_offsets_come_back_with_their_transactions(world: World) -> None:
    world.txn_commit({T: 1}, producer=1)
    world.txn_commit({T: 2}, producer=2)
    world.end_txn(committed=True, producer=1)
    world.fail_over()
    assert world.fetched() == {T: 1}
    world.end_txn(committed=True, producer=2)
    assert world.fetched() == {T: 2}


def test_an_empty_group_comes_back_with_its_generation(world: World) -> None:
    (member,) = world.stable(1)
    world.leave(member)
    world.fail_over()
    assert world.state() == "Empty"
    assert world.generation() == 2
    assert world.joined(1)[0].generation == 3


def test_deleted_groups_stay_deleted(world: World) -> None:
    world.commit(None, {T: 1})
    world.delete_groups("g")
    world.fail_over()
    assert world.list_groups() == []


def test_a_static_member_comes_back_under_its_newest_id_and_with_its_assignment(world: World) -> None:
    leader, follower = world.stable(2, instances=["a", "b"])
    again = world.join(instance=follower.instance).member
    world.fail_over()
    assert world.members() == sorted([leader.id, again.id])
    assert world.heartbeat(follower).error == "FENCED_INSTANCE_ID"
    assert world.sync(again).body["assignment"] != ""


def test_a_group_that_was_rebalancing_comes_back_as_it_was_last_stored(world: World) -> None:
    leader, follower = world.stable(2)
    asked = world.join(leader)
    world.fail_over()
    assert asked.error == "NOT_COORDINATOR"
    assert world.state() == "Stable"
    assert world.generation() == 1
    assert world.heartbeat(follower).error == "NONE"


def test_a_generation_that_was_never_stored_is_lost(world: World) -> None:
    leader, follower = world.stable(2)
    new = [one.member for one in (world.join(leader), world.join(follower))]
    parked = world.sync(new[1])
    world.fail_over()
    assert parked.error == "NOT_COORDINATOR"
    assert world.generation() == 1
    assert world.sync(new[0], {}).error == "ILLEGAL_GENERATION"
    assert world.heartbeat(new[0]).error == "ILLEGAL_GENERATION"


def test_ids_that_were_given_out_are_lost(world: World) -> None:
    (pending,) = world.new_ids(1)
    world.fail_over()
    assert world.join(pending).error == "UNKNOWN_MEMBER_ID"


def test_what_was_written_is_written_no_second_time(world: World) -> None:
    world.stable(2)
    world.commit(None, {T: 1}, group="other")
    before = len(world.coordinator_records)
    world.fail_over()
    assert len(world.coordinator_records) == before


def test_a_second_failover_changes_nothing(world: World) -> None:
    world.stable(2)
    world.fail_over()
    before = world.inside()
    world.fail_over()
    assert world.inside() == before


# -- what is answered meanwhile (our control rows; GroupCoordinatorService says what) ---------------------------------


def _everything(world: World) -> dict[str, str]:
    """The error of each API."""
    member = Member("m", 1)
    listed = world.ask("ListGroups", 5, {"statesFilter": [], "typesFilter": []})
    described = world.describe_groups("g")
    fetched = world.fetch("g", [T])
    return {
        "JoinGroup": world.join("m").error,
        "SyncGroup": world.sync(member).error,
        "Heartbeat": world.heartbeat(member).error,
        "LeaveGroup": world.leave(member).error,
        "OffsetCommit": world.commit(member, {T: 1}).errors[T],
        "TxnOffsetCommit": world.txn_commit({T: 1}).errors[T],
        "OffsetFetch": fetched.errors["g"],
        "OffsetDelete": world.delete_offsets(T).error,
        "DescribeGroups": str(described[0]["errorCode"]),
        "ListGroups": listed.error,
        "DeleteGroups": world.delete_groups("g").errors["g"],
    }


def test_while_a_shard_loads_everybody_is_told_so(ours: World) -> None:
    ours.stable(1)
    ours.control("LoadGroup")
    told = _everything(ours)
    assert told == {
        **dict.fromkeys(told, "COORDINATOR_LOAD_IN_PROGRESS"),
        "SyncGroup": "REBALANCE_IN_PROGRESS",
        "Heartbeat": "NONE",
        "DescribeGroups": "14",
    }


def test_a_shard_that_is_not_owned_sends_everybody_elsewhere(ours: World) -> None:
    ours.stable(1)
    ours.control("Unload")
    told = _everything(ours)
    assert told == {**dict.fromkeys(told, "NOT_COORDINATOR"), "DescribeGroups": "16", "ListGroups": "NONE"}


def test_the_group_id_and_the_session_are_checked_even_then(ours: World) -> None:
    ours.control("LoadGroup")
    assert ours.join(group="").error == "INVALID_GROUP_ID"
    assert ours.join(session_ms=1).error == "INVALID_SESSION_TIMEOUT"
    assert ours.sync(Member("m", 1), type_=None).error == "INCONSISTENT_GROUP_PROTOCOL"


def test_who_waits_when_a_shard_goes_is_sent_elsewhere(ours: World) -> None:
    leader, follower = ours.stable(2)
    asked = ours.join(leader)
    parked_in = ours.joined(2, group="other")
    parked = ours.sync(parked_in[1])
    ours.control("Unload")
    assert asked.error == parked.error == "NOT_COORDINATOR"
    assert ours.heartbeat(follower).error == "NOT_COORDINATOR"


def test_timers_of_a_shard_that_went_do_not_fire(ours: World) -> None:
    ours.stable(2, session_ms=6_000)
    before = len(ours.coordinator_records)
    ours.control("Unload")
    ours.advance(3_600_000)
    assert len(ours.coordinator_records) == before


def test_a_shard_that_came_back_empty_is_loaded_when_the_end_is_told(ours: World) -> None:
    ours.stable(1)
    ours.control("Unload")
    ours.control("LoadGroup")
    ours.control("LoadEnd")
    assert ours.list_groups() == []
    assert ours.join().error == "MEMBER_ID_REQUIRED"


def test_a_transaction_that_ends_while_a_shard_is_away_is_not_for_it(ours: World) -> None:
    ours.txn_commit({T: 1})
    ours.control("Unload")
    ours.end_txn(committed=True)
    assert {"error": "NOT_COORDINATOR"} in [answer.body for answer in ours.answers.values()]


def _loaded(records: list[Written], settings: dict[str, Any]) -> World:
    """What a coordinator with other settings makes of what the first one wrote."""
    coordinator = OurCoordinator(settings, TOPICS)
    coordinator.keep(records)
    world = World(coordinator, coordinator.records)
    world.fail_over()
    return world


def test_a_loaded_group_with_more_members_than_allowed_rebalances(ours: World) -> None:
    leader, _, third = ours.stable(3)
    world = _loaded(ours.coordinator_records, {"group.max.size": 2})
    assert world.state() == "PreparingRebalance"
    asked = [world.join(leader), world.join(third)]
    world.advance(10_000)
    assert [one.error for one in asked] == ["NONE", "NONE"]
    assert world.members() == sorted([leader.id, third.id])


def test_a_loaded_group_as_large_as_allowed_does_not(ours: World) -> None:
    ours.stable(3)
    assert _loaded(ours.coordinator_records, {"group.max.size": 3}).state() == "Stable"


def test_the_log_goes_on_where_it_ended(ours: World) -> None:
    ours.commit(None, {T: 1, ("t0", 1): 2})
    world = _loaded(ours.coordinator_records, {})
    world.commit(None, {T: 3})
    assert world.coordinator_records[-1].offset == 2
