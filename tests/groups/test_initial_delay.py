"""The first rebalance of an empty group waits for more members: group.initial.rebalance.delay.ms."""

from __future__ import annotations

import pytest

from tests.groups.conftest import Worlds
from tests.groups.harness import Member, World


def test_without_a_delay_the_first_member_is_answered_in_its_own_request(worlds: Worlds) -> None:
    world = worlds({"group.initial.rebalance.delay.ms": 0})
    asked = world.join(world.new_ids(1)[0])
    assert asked.error == "NONE"
    assert asked.after_ms == 0


def test_a_member_that_comes_within_the_delay_puts_it_off_by_another_one(world: World) -> None:
    ids = world.new_ids(2)
    first = world.join(ids[0])
    world.advance(2_000)
    second = world.join(ids[1])
    world.advance(1_000)
    assert first.waits
    world.advance(3_000)
    assert first.after_ms == second.after_ms == 6_000
    assert len(first.body["members"]) == 2


def test_the_delay_is_put_off_no_longer_than_the_rebalance_timeout(world: World) -> None:
    """New members come all the time; the first one has given its rebalance 10 seconds."""
    ids = world.new_ids(12, rebalance_ms=10_000)
    asked = []
    for id_ in ids:
        asked.append(world.join(id_, rebalance_ms=10_000))
        world.advance(1_000)
    assert asked[0].after_ms == 10_000
    assert len(asked[0].body["members"]) == 10


def test_members_that_were_there_already_do_not_put_it_off(world: World) -> None:
    (id_,) = world.new_ids(1)
    asked = world.join(id_)
    world.advance(2_000)
    again = world.join(id_)
    world.advance(1_000)
    assert asked.waits
    assert again.after_ms == 3_000


@pytest.mark.parametrize("rebalance_ms", [1, 1_000, 3_000])
def test_a_rebalance_timeout_shorter_than_the_delay_does_not_shorten_it(world: World, rebalance_ms: int) -> None:
    asked = world.join(world.new_ids(1)[0], rebalance_ms=rebalance_ms)
    world.advance(2_999)
    assert asked.waits
    world.advance(1)
    assert asked.after_ms == 3_000


def test_the_first_rebalance_does_not_end_early_though_all_have_joined(world: World) -> None:
    ids = world.new_ids(2)
    asked = [world.join(id_) for id_ in ids]
    world.advance(2_999)
    assert all(one.waits for one in asked)


def test_when_all_leave_within_the_delay_the_group_is_empty_after_it(world: World) -> None:
    (id_,) = world.new_ids(1)
    asked = world.join(id_)
    world.leave(Member(id_))
    assert asked.error == "UNKNOWN_MEMBER_ID"
    assert world.state() == "PreparingRebalance"
    world.advance(3_000)
    assert world.state() == "Empty"
    assert world.generation() == 1


def test_a_rebalance_of_a_group_with_members_waits_for_no_delay(world: World) -> None:
    (member,) = world.stable(1)
    assert world.join(member).after_ms == 3_000
