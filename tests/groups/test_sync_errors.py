"""An error of the leader that reaches all members (the proposal of 2015: SyncErrorCode)."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_udf.protocol.requests import Topic
from tests.groups.coordinators import OurCoordinator
from tests.groups.harness import TOPICS, Asked, Member, World

ON = {"group.classic.client.extensions.enable": True, "group.initial.rebalance.delay.ms": 3_000}
FAILED = {"syncErrorCode": 23, "syncErrorReason": "the members don't agree"}


def extended(settings: dict[str, Any] | None = None, topics: list[Topic] | None = None) -> World:
    coordinator = OurCoordinator({**ON, **(settings or {})}, topics or TOPICS)
    return World(coordinator, coordinator.records)


def transitions(world: World) -> list[dict[str, Any]]:
    assert isinstance(world.coordinator, OurCoordinator)
    return world.coordinator.transitions


def rules(world: World) -> list[str]:
    return [row["rule"] for row in transitions(world)]


def fail(world: World, leader: Member, **more: Any) -> Asked:
    return world.sync(leader, more={**FAILED, **more})


@pytest.fixture
def world() -> World:
    return extended()


def test_who_understands_is_told_that_errors_are_passed_on(world: World) -> None:
    leader, _ = world.joined(2, extensions=True)
    told = world.join(leader, extensions=True)
    assert not told.waits
    assert told.body["syncErrors"] is True
    assert told.body["resync"] is True


def test_who_does_not_understand_is_told_nothing_that_kafka_has_not_got(world: World) -> None:
    (leader,) = world.joined(1)
    assert set(world.join(leader).body) == set(world.join(leader, extensions=True).body)
    assert not {"syncErrors", "resync"} & set(world.join(leader).body)


def test_the_error_reaches_all_that_wait_and_those_that_come_later(world: World) -> None:
    leader, second, third = world.joined(3, extensions=True)
    waiting = world.sync(second)
    failed = fail(world, leader)
    late = world.sync(third)
    for asked in (waiting, failed, late):
        assert asked.error == "INCONSISTENT_GROUP_PROTOCOL"
        assert asked.body["assignment"] == ""
        assert asked.body["syncErrorReason"] == "the members don't agree"
    assert waiting.by == failed.request_id


def test_an_unmodified_member_gets_the_error_alone(world: World) -> None:
    kept = world.joined(2, extensions=False)
    waiting = world.sync(kept[1])
    fail(world, kept[0])
    assert waiting.error == "INCONSISTENT_GROUP_PROTOCOL"
    assert set(waiting.body) == {"throttleTimeMs", "errorCode", "protocolType", "protocolName", "assignment"}


def test_nothing_is_stored_and_the_generation_stays(world: World) -> None:
    leader, follower = world.joined(2, extensions=True)
    before = len(world.coordinator_records)
    world.sync(follower)
    assert fail(world, leader).records == []
    assert len(world.coordinator_records) == before
    assert (world.state(), world.generation()) == ("CompletingRebalance", 1)
    assert world.heartbeat(follower).error == "NONE"


def test_a_transition_tells_the_reason_of_the_leader(world: World) -> None:
    leader, _ = world.joined(2, extensions=True)
    failed = fail(world, leader)
    row = transitions(world)[-1]
    assert (row["rule"], row["from_state"], row["to_state"]) == (
        "LEADER_SYNC_FAILED", "CompletingRebalance", "CompletingRebalance",
    )  # fmt: skip
    assert row["reason"] == (
        f"Leader {leader.id} can't compute an assignment: INCONSISTENT_GROUP_PROTOCOL; the members don't agree"
    )
    assert (row["cause_request_id"], row["cause_member_id"]) == (failed.request_id, leader.id)
    assert row["cause_client_reason"] == "the members don't agree"


def test_the_next_join_of_the_leader_begins_a_rebalance(world: World) -> None:
    leader, follower = world.joined(2, extensions=True)
    world.sync(follower)
    fail(world, leader)
    again = world.join(follower, extensions=True)
    assert again.waits
    assert world.state() == "CompletingRebalance"
    leaders = world.join(leader, extensions=True)
    assert [leaders.error, again.error] == ["NONE", "NONE"]
    assert (world.state(), world.generation()) == ("CompletingRebalance", 2)
    assert rules(world)[-3:] == ["LEADER_SYNC_FAILED", "LEADER_REJOINED", "ALL_JOINED"]
    synced = world.sync(leaders.member, {leader.id: b"l", follower.id: b"f"})
    assert synced.error == "NONE"
    assert world.state() == "Stable"


def test_without_it_the_rebalance_begins_after_the_rebalance_timeout(world: World) -> None:
    leader, follower = world.joined(2, extensions=True, rebalance_ms=20_000, session_ms=30_000)
    world.sync(follower)
    world.advance(7_000)
    fail(world, leader)
    again = world.join(follower, extensions=True, rebalance_ms=20_000, session_ms=30_000)
    world.advance(19_999)
    assert (again.waits, world.state()) == (True, "CompletingRebalance")
    world.advance(1)
    assert world.state() == "PreparingRebalance"
    assert rules(world)[-1] == "SYNC_FAILURE_EXPIRED"
    world.advance(20_000)
    # The leader's session, or the join phase, has ended without it.
    assert again.error == "NONE"
    assert again.member.leader == follower.id


def test_who_has_not_synced_by_then_is_out_as_in_kafka(world: World) -> None:
    leader, silent = world.joined(2, extensions=True, rebalance_ms=20_000, session_ms=60_000)
    fail(world, leader)
    world.advance(20_000)
    assert world.members() == [leader.id]
    assert rules(world)[-2:] == ["SYNC_EXPIRED", "SYNC_EXPIRED"]
    assert world.heartbeat(silent).error == "UNKNOWN_MEMBER_ID"


def test_a_follower_with_other_metadata_begins_a_rebalance_as_in_kafka(world: World) -> None:
    leader, follower = world.joined(2, extensions=True)
    fail(world, leader)
    world.join(follower, extensions=True, protocols={"range": b"other"})
    assert rules(world)[-1] == "MEMBER_UPDATED"


def test_an_error_of_a_follower_is_none(world: World) -> None:
    leader, follower = world.joined(2, extensions=True)
    waiting = world.sync(follower, more=FAILED)
    assert waiting.waits
    assert world.sync(leader, {leader.id: b"l", follower.id: b"f"}).error == "NONE"
    assert waiting.error == "NONE"


@pytest.mark.parametrize(("code", "told"), [(-1, "UNKNOWN_SERVER_ERROR"), (9_999, "UNKNOWN_SERVER_ERROR"), (27, None)])
def test_a_code_that_clients_cannot_read_stands_for_an_unforeseen_error(
    world: World, code: int, told: str | None
) -> None:
    (leader,) = world.joined(1, extensions=True)
    assert fail(world, leader, syncErrorCode=code).error == (told or "REBALANCE_IN_PROGRESS")


def test_a_failure_is_forgotten_with_the_coordinator(world: World) -> None:
    # What was never stored is of no generation: as in Kafka, all join again.
    leader, follower = world.joined(2, extensions=True)
    fail(world, leader)
    parked = world.join(follower, extensions=True)
    world.fail_over()
    assert parked.error == "NOT_COORDINATOR"
    assert world.heartbeat(leader).error == "UNKNOWN_MEMBER_ID"


def test_with_the_setting_off_the_fields_are_not_there() -> None:
    world = extended({"group.classic.client.extensions.enable": False})
    leader, follower = world.joined(2, extensions=True)
    assert not {"syncErrors", "resync"} & set(world.join(leader, extensions=True).body)
    waiting = world.sync(follower)
    assert fail(world, leader).error == "NONE"
    assert waiting.error == "NONE"
    assert world.state() == "Stable"
