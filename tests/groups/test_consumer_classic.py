"""Members of both protocols in one group, and the group's change of kind."""

from __future__ import annotations

from base64 import b64decode

import pytest

from coordinator_udf.groups.model.timers import KEY, SESSION
from coordinator_udf.protocol.consumer_protocol import decode_assignment
from coordinator_udf.shard.state_row.codec import decode
from tests.groups.bodies import subscription
from tests.groups.conftest import Worlds
from tests.groups.consumer_member import SETTINGS, Consumer, settle
from tests.groups.coordinators import OurCoordinator
from tests.groups.harness import TOPICS, Asked, Member, World

ASSIGNMENT = b"\0\1\0\0\0\1\0\2t0\0\0\0\4\0\0\0\0\0\0\0\1\0\0\0\2\0\0\0\3\xff\xff\xff\xff"


@pytest.fixture
def world(worlds: Worlds) -> World:
    return worlds({**SETTINGS, "group.initial.rebalance.delay.ms": 0})


def classic_group(world: World) -> Member:
    """A classic group of one member that has all of t0."""
    protocols = {"range": subscription("t0", version=1)}
    member = world.join(world.join(protocols=protocols).body["memberId"], protocols=protocols).member
    world.sync(member, {member.id: ASSIGNMENT})
    return member


def partitions(asked: Asked) -> dict[str, list[int]]:
    return decode_assignment(b64decode(asked.body["assignment"])).partitions


def kind(world: World) -> str | None:
    found = world.inside()
    return None if found is None else str(found["type"])


def test_a_consumer_turns_a_classic_group_into_its_own_kind(world: World) -> None:
    classic = classic_group(world)
    consumer = Consumer(world, "z")
    assert consumer.join().error == "NONE"
    assert kind(world) == "consumer"
    assert world.heartbeat(classic).error == "REBALANCE_IN_PROGRESS"


def test_both_kinds_share_the_partitions(world: World) -> None:
    classic = classic_group(world)
    consumer = Consumer(world, "z")
    consumer.join()
    protocols = {"range": subscription("t0", version=1)}
    classic = world.join(classic, protocols=protocols).member
    kept = partitions(world.sync(classic))
    assert kept == {"t0": [0, 2]}
    classic = world.join(classic, protocols=protocols).member
    assert partitions(world.sync(classic)) == kept
    settle(consumer)
    assert consumer.owned == {"t0": [1, 3]}
    assert world.heartbeat(classic).error == "NONE"
    assert world.state() == "Stable"


def test_the_last_consumer_to_leave_turns_it_back(world: World) -> None:
    classic = classic_group(world)
    consumer = Consumer(world, "z")
    consumer.join()
    assert consumer.leave().error == "NONE"
    assert kind(world) == "classic"
    assert world.state() == "PreparingRebalance"
    assert world.members() == [classic.id]


def test_a_group_whose_leader_gave_a_partition_to_two_stays_classic(worlds: Worlds) -> None:
    world = worlds({**SETTINGS, "group.initial.rebalance.delay.ms": 3_000})
    protocols = {"range": subscription("t0", version=1)}
    leader, other = world.joined(2, protocols=protocols)
    world.sync(leader, {leader.id: ASSIGNMENT, other.id: ASSIGNMENT})
    assert Consumer(world, "z").join().error == "UNKNOWN_SERVER_ERROR"
    assert kind(world) == "classic"
    assert world.heartbeat(leader).error == "NONE"


def test_a_policy_may_forbid_to_come(worlds: Worlds) -> None:
    world = worlds({**SETTINGS, "group.initial.rebalance.delay.ms": 0, "group.consumer.migration.policy": "downgrade"})
    classic_group(world)
    asked = Consumer(world, "z").join()
    assert asked.error == "GROUP_ID_NOT_FOUND"
    assert kind(world) == "classic"


def test_a_policy_may_forbid_to_go_back(worlds: Worlds) -> None:
    world = worlds({**SETTINGS, "group.initial.rebalance.delay.ms": 0, "group.consumer.migration.policy": "upgrade"})
    classic_group(world)
    consumer = Consumer(world, "z")
    consumer.join()
    consumer.leave()
    assert kind(world) == "consumer"


def test_without_a_policy_nobody_joins_a_group_of_the_other_kind(worlds: Worlds) -> None:
    world = worlds({**SETTINGS, "group.consumer.migration.policy": "disabled"})
    Consumer(world, "z").join()
    assert world.join().error == "INCONSISTENT_GROUP_PROTOCOL"


def test_an_empty_group_of_either_kind_makes_room_for_the_other(world: World) -> None:
    consumer = Consumer(world, "z")
    consumer.join()
    consumer.leave()
    assert world.join().error == "MEMBER_ID_REQUIRED"
    assert kind(world) == "classic"
    world.advance(10_000)
    assert consumer.join().error == "NONE"
    assert kind(world) == "consumer"


@pytest.mark.parametrize("back", [False, True], ids=["consumer", "classic again"])
def test_the_session_of_an_id_that_was_given_out_ends_without_a_trace_in_the_group_that_follows(
    world: World, back: bool
) -> None:
    (given,) = world.new_ids(1)
    world.advance(1_000)
    consumer = Consumer(world, "z")
    assert consumer.join().error == "NONE"
    if back:
        consumer.leave()
        world.new_ids(1, session_ms=60_000)
        assert world.join(given).error == "UNKNOWN_MEMBER_ID"
    before, written = world.inside(), len(world.coordinator_records)
    # It would be over in the middle of this.
    world.advance(12_000)
    assert len(world.coordinator_records) == written
    assert world.inside() == before
    assert kind(world) == ("classic" if back else "consumer")


def test_a_consumer_may_have_an_id_that_was_given_out(world: World) -> None:
    (given,) = world.new_ids(1)
    world.advance(1_000)
    consumer = Consumer(world, given)
    assert consumer.join().error == "NONE"
    # Its session is a consumer's now, and longer.
    world.advance(12_000)
    assert consumer.beat().error == "NONE"
    assert world.members() == [given]


@pytest.mark.parametrize("members", [0, 1])
def test_the_sessions_of_ids_that_were_given_out_go_with_the_classic_group(members: int) -> None:
    """What can't be seen from outside: Kafka's run out and find nobody."""
    coordinator = OurCoordinator({**SETTINGS, "group.initial.rebalance.delay.ms": 0}, TOPICS)
    world = World(coordinator, coordinator.records)

    def sessions() -> set[str]:
        shard = decode(0, coordinator.settings, coordinator.state)
        return {entry[KEY].member_id for entry in shard.ctx.timers.entries() if entry[KEY].kind == SESSION}

    there = {classic_group(world).id for _ in range(members)}
    (given,) = world.new_ids(1)
    assert sessions() == there | {given}
    Consumer(world, "z").join()
    assert sessions() == there | {"z"}


def test_a_classic_member_that_does_not_sync_is_out(world: World) -> None:
    Consumer(world, "z").join()
    id_ = world.join().body["memberId"]
    world.join(id_, rebalance_ms=7_000)
    assert len(world.members()) == 2
    world.advance(7_000)
    assert world.members() == ["z"]


def test_classic_members_leave_in_their_way(world: World) -> None:
    classic = classic_group(world)
    Consumer(world, "z").join()
    asked = world.leave(classic, Member("stranger"))
    assert asked.errors == {classic.id: "NONE", "stranger": "UNKNOWN_MEMBER_ID"}
    assert world.members() == ["z"]


def test_a_load_finds_both_kinds_of_members(world: World) -> None:
    classic_group(world)
    Consumer(world, "z").join()
    before = world.inside()
    world.fail_over()
    assert world.inside() == before
