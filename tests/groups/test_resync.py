"""A new assignment of the same generation without a join round (the proposal of 2015: resync)."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_udf.offsets_topic.records import Record, from_json, to_json
from tests.groups.bodies import base64
from tests.groups.consumer_member import Consumer
from tests.groups.harness import Asked, Member, World
from tests.groups.test_sync_errors import extended, rules, transitions

ADDS, MOVES = {"resync": 1}, {"resync": 2, "ownsNothing": True}
OWNS_NOTHING = {"ownsNothing": True}


@pytest.fixture
def world() -> World:
    return extended()


def stable(world: World, count: int, **how: Any) -> list[Member]:
    return world.stable(count, extensions=True, **how)


def resync(world: World, members: list[Member], how: dict[str, Any], name: str = "new") -> Asked:
    """The leader's, which gives every member ``<name> for <member id>``."""
    return world.sync(members[0], {m.id: f"{name} for {m.id}".encode() for m in members}, more=how)


def given(member: Member, name: str = "new") -> str:
    return base64(f"{name} for {member.id}".encode())


# -- nobody gets what another may own ---------------------------------------------------------------------------------


def test_it_is_stored_before_anybody_is_told(world: World) -> None:
    members = stable(world, 3)
    asked = resync(world, members, ADDS)
    (record,) = asked.records
    assert record.value is not None
    assert record.version == 4
    assert (record.value["generation"], record.value["resyncEpoch"], record.value["resync"]) == (1, 1, 1)
    assert {m["memberId"]: m["assignment"] for m in record.value["members"]} == {m.id: given(m) for m in members}
    assert asked.error == "NONE"
    assert (asked.body["assignment"], asked.body["resyncEpoch"]) == (given(members[0]), 1)


def test_members_learn_it_from_their_heartbeats_and_ask(world: World) -> None:
    members = stable(world, 3)
    assert "resyncEpoch" not in world.heartbeat(members[1]).body
    resync(world, members, ADDS)
    for member in members[1:]:
        told = world.heartbeat(member)
        assert (told.error, told.body["resyncEpoch"]) == ("NONE", 1)
        assert "giveUpFirst" not in told.body
        synced = world.sync(member)
        assert (synced.body["assignment"], synced.body["resyncEpoch"]) == (given(member), 1)
        assert "resyncEpoch" not in world.heartbeat(member).body
    assert (world.state(), world.generation()) == ("Stable", 1)


def test_the_leader_is_not_told_of_its_own(world: World) -> None:
    members = stable(world, 2)
    resync(world, members, ADDS)
    assert "resyncEpoch" not in world.heartbeat(members[0]).body


def test_when_all_have_it_that_is_written_and_said(world: World) -> None:
    members = stable(world, 3)
    resync(world, members, ADDS)
    assert world.sync(members[1]).records == []
    last = world.sync(members[2])
    (record,) = last.records
    assert record.value is not None
    assert record.value["resyncEpoch"] == 1
    assert "resync" not in record.value
    assert rules(world)[-3:] == ["LEADER_SYNCED", "LEADER_RESYNCED", "RESYNC_COMPLETED"]
    received, completed = transitions(world)[-2:]
    assert received["reason"] == (
        f"Assignment 2 of the generation received from leader {members[0].id}; 2 members are told by their heartbeats"
    )
    assert completed["cause_member_id"] == members[2].id


def test_a_group_of_one_is_done_at_once(world: World) -> None:
    (leader,) = stable(world, 1)
    asked = resync(world, [leader], MOVES)
    assert asked.body["assignment"] == given(leader)
    (record,) = asked.records
    assert record.value is not None
    assert "resync" not in record.value
    assert rules(world)[-2:] == ["LEADER_RESYNCED", "RESYNC_COMPLETED"]


def test_a_second_one_before_all_have_the_first_is_told_to_all(world: World) -> None:
    members = stable(world, 3)
    resync(world, members, ADDS)
    world.sync(members[1])
    resync(world, members, ADDS, "newer")
    for member in members[1:]:
        assert world.heartbeat(member).body["resyncEpoch"] == 2
        assert world.sync(member).body["assignment"] == given(member, "newer")
    assert rules(world)[-1] == "RESYNC_COMPLETED"


# -- partitions change hands ------------------------------------------------------------------------------------------


def test_nobody_is_answered_before_all_own_nothing(world: World) -> None:
    members = stable(world, 3)
    leaders = resync(world, members, MOVES)
    assert leaders.waits
    for member in members[1:]:
        assert world.heartbeat(member).body["giveUpFirst"] is True
    second = world.sync(members[1], more=OWNS_NOTHING)
    assert (leaders.waits, second.waits) == (True, True)
    world.keep_alive(members, 9_000)
    third = world.sync(members[2], more=OWNS_NOTHING)
    for member, asked in zip(members, (leaders, second, third), strict=True):
        assert (asked.error, asked.body["assignment"], asked.body["resyncEpoch"]) == ("NONE", given(member), 1)
    assert leaders.by == third.request_id
    assert (world.state(), world.generation()) == ("Stable", 1)


def test_who_waits_is_not_told_again_and_who_does_not_is(world: World) -> None:
    members = stable(world, 3)
    resync(world, members, MOVES)
    world.sync(members[1], more=OWNS_NOTHING)
    assert "resyncEpoch" not in world.heartbeat(members[1]).body
    assert world.heartbeat(members[2]).body["resyncEpoch"] == 1


def test_who_may_own_something_gets_nothing_and_all_join_again(world: World) -> None:
    members = stable(world, 3)
    leaders = resync(world, members, MOVES)
    waiting = world.sync(members[1], more=OWNS_NOTHING)
    refused = world.sync(members[2])
    assert [one.error for one in (leaders, waiting, refused)] == ["REBALANCE_IN_PROGRESS"] * 3
    assert world.state() == "PreparingRebalance"
    assert rules(world)[-1] == "RESYNC_ABORTED"


def test_a_newer_assignment_goes_to_those_that_wait_already(world: World) -> None:
    members = stable(world, 3)
    resync(world, members, MOVES)
    waiting = world.sync(members[1], more=OWNS_NOTHING)
    # A leader that lost its connection asks once more; that it says less by now doesn't let anybody in.
    leaders = resync(world, members, ADDS, "newer")
    assert leaders.waits
    world.sync(members[2], more=OWNS_NOTHING)
    assert waiting.body["assignment"] == given(members[1], "newer")
    assert leaders.body["resyncEpoch"] == 2


def test_who_does_not_ask_within_the_rebalance_timeout_is_out(world: World) -> None:
    members = stable(world, 3, rebalance_ms=20_000, session_ms=10_000)
    leaders = resync(world, members, MOVES)
    waiting = world.sync(members[1], more=OWNS_NOTHING)
    world.keep_alive(members, 19_000)
    assert waiting.waits
    world.advance(1_000)
    assert [leaders.error, waiting.error] == ["REBALANCE_IN_PROGRESS"] * 2
    assert world.members() == sorted(member.id for member in members[:2])
    assert rules(world)[-1] == "SYNC_EXPIRED"


# -- what ends it, and what doesn't begin it --------------------------------------------------------------------------


@pytest.mark.parametrize("how", [ADDS, MOVES])
def test_a_join_during_a_resync_ends_it(world: World, how: dict[str, Any]) -> None:
    members = stable(world, 3)
    asked = resync(world, members, how)
    waits = asked.waits
    # In plain Kafka a join with the same metadata in Stable is answered with the generation that there is.
    joined = world.join(members[1], extensions=True)
    assert joined.waits
    assert world.state() == "PreparingRebalance"
    assert rules(world)[-1] == "RESYNC_ABORTED"
    if waits:
        assert asked.error == "REBALANCE_IN_PROGRESS"
    assert world.heartbeat(members[2]).error == "REBALANCE_IN_PROGRESS"
    assert world.sync(members[2], more=OWNS_NOTHING).error == "REBALANCE_IN_PROGRESS"


def test_after_it_such_a_join_is_answered_as_in_kafka(world: World) -> None:
    members = stable(world, 2)
    resync(world, members, ADDS)
    world.sync(members[1])
    again = world.join(members[1], extensions=True)
    assert (again.error, again.body["generationId"]) == ("NONE", 1)
    assert world.state() == "Stable"


@pytest.mark.parametrize("how", [ADDS, MOVES])
@pytest.mark.parametrize("end", ["new member", "leave", "session", "leader"])
def test_so_does_whatever_begins_a_rebalance(world: World, how: dict[str, Any], end: str) -> None:
    members = stable(world, 3)
    asked = resync(world, members, how)
    waiting = world.sync(members[1], more=OWNS_NOTHING)
    match end:
        case "new member":
            world.join(world.new_ids(1)[0], extensions=True)
        case "leave":
            world.leave(members[2])
        case "leader":
            world.join(members[0], extensions=True)
        case _:
            world.keep_alive(members[:2], 9_000)
            world.advance(1_000)
    assert world.state() == "PreparingRebalance"
    if how is MOVES:
        assert [asked.error, waiting.error] == ["REBALANCE_IN_PROGRESS"] * 2
    rejoined = [world.join(member, extensions=True) for member in members[:2]]
    world.keep_alive([], 25_000)
    assert [one.body["generationId"] for one in rejoined] == [2, 2]


def test_a_static_member_that_comes_back_ends_it(world: World) -> None:
    leader, other = stable(world, 2, instances=["a", "b"])
    members = [leader, other]
    resync(world, members, MOVES)
    back = world.join("", instance=other.instance, extensions=True)
    assert back.waits
    assert rules(world)[-1] == "RESYNC_ABORTED"


def test_where_one_member_does_not_understand_there_is_an_ordinary_rebalance(world: World) -> None:
    first, second = world.new_ids(2)
    asked = [world.join(first, extensions=True), world.join(second)]
    world.advance(10_000)
    leader, follower = sorted((one.member for one in asked), key=lambda member: member.id != member.leader)
    leads = next(one for one in asked if one.member.id == leader.id)
    assert "resync" not in leads.body
    world.synced([leader, follower])
    refused = resync(world, [leader, follower], ADDS)
    assert (refused.error, refused.records) == ("REBALANCE_IN_PROGRESS", [])
    assert world.state() == "PreparingRebalance"
    row = transitions(world)[-1]
    assert row["rule"] == "RESYNC_REFUSED"
    assert row["reason"] == f"Leader {leader.id} assigned anew, and 1 members can't be told without a rejoin"
    assert world.heartbeat(follower).error == "REBALANCE_IN_PROGRESS"


def test_a_follower_cannot_begin_one(world: World) -> None:
    members = stable(world, 2)
    asked = world.sync(members[1], {members[1].id: b"mine"}, more=ADDS)
    assert asked.body["assignment"] == base64(b"for " + members[1].id.encode())
    assert asked.records == []


def test_a_group_that_is_too_large_rebalances(world: World) -> None:
    world = extended({"group.metadata.max.bytes": 2_000})
    members = stable(world, 2)
    asked = world.sync(members[0], {member.id: bytes(2_000) for member in members}, more=ADDS)
    assert (asked.error, asked.records) == ("UNKNOWN_SERVER_ERROR", [])
    assert rules(world)[-1] == "STORE_FAILED"


def test_with_the_setting_off_it_is_a_leader_that_syncs_again() -> None:
    world = extended({"group.classic.client.extensions.enable": False})
    members = stable(world, 2)
    asked = resync(world, members, MOVES)
    assert asked.body["assignment"] == base64(b"for " + members[0].id.encode())
    assert asked.records == []
    assert set(world.heartbeat(members[1]).body) == {"throttleTimeMs", "errorCode"}


def test_a_member_of_the_consumer_protocol_has_to_come_later(world: World) -> None:
    members = stable(world, 2)
    resync(world, members, MOVES)
    refused = Consumer(world, "AAAAAAAAAAAAAAAAAAAAAQ").join()
    assert refused.error == "COORDINATOR_LOAD_IN_PROGRESS"
    assert world.state() == "Stable"


# -- failovers --------------------------------------------------------------------------------------------------------


def test_what_is_under_way_goes_on_after_a_failover(world: World) -> None:
    members = stable(world, 3)
    leaders = resync(world, members, MOVES)
    waiting = world.sync(members[1], more=OWNS_NOTHING)
    world.fail_over()
    assert [leaders.error, waiting.error] == ["NOT_COORDINATOR"] * 2
    assert world.heartbeat(members[1]).body["giveUpFirst"] is True
    again = [world.sync(member, more=OWNS_NOTHING) for member in members]
    assert [one.body["assignment"] for one in again] == [given(member) for member in members]
    assert world.state() == "Stable"


def test_who_asked_before_a_failover_is_told_once_more(world: World) -> None:
    members = stable(world, 3)
    resync(world, members, ADDS)
    world.sync(members[1])
    world.fail_over()
    assert [world.heartbeat(member).body.get("resyncEpoch") for member in members] == [1, 1, 1]
    for member in members:
        assert world.sync(member).body["assignment"] == given(member)
    assert rules(world)[-1] == "RESYNC_COMPLETED"


def test_what_was_done_is_done_after_a_failover(world: World) -> None:
    members = stable(world, 2)
    resync(world, members, ADDS)
    world.sync(members[1])
    world.fail_over()
    assert "resyncEpoch" not in world.heartbeat(members[1]).body
    assert world.sync(members[1]).body["assignment"] == given(members[1])
    resync(world, members, ADDS, "newer")
    assert world.heartbeat(members[1]).body["resyncEpoch"] == 2


def test_which_members_understand_survives_a_failover(world: World) -> None:
    leader, follower = stable(world, 2, instances=["a", "b"])
    world.fail_over()
    back = world.join("", instance=follower.instance, extensions=False)
    refused = resync(world, [leader, back.member], ADDS)
    assert refused.error == "REBALANCE_IN_PROGRESS"


def test_the_record_is_kafkas_with_tagged_fields(world: World) -> None:
    members = stable(world, 2)
    (record,) = resync(world, members, MOVES).records
    key, value = from_json(Record(record.key, record.version, record.value))
    assert to_json(key, value) == Record(record.key, record.version, record.value)
    assert value is not None
    assert value[:2] == b"\0\4"
