"""Members of both protocols in one group, and the group's change of kind."""

from __future__ import annotations

from base64 import b64decode

import pytest

from coordinator_udf.protocol.consumer_protocol import decode_assignment
from tests.groups.bodies import subscription
from tests.groups.conftest import Worlds
from tests.groups.consumer_member import SETTINGS, Consumer, settle
from tests.groups.harness import Asked, Member, World

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
