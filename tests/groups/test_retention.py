"""Offsets that expire (KIP-211), and groups that go with their last one."""

from __future__ import annotations

import pytest

from tests.groups.conftest import Worlds
from tests.groups.harness import World

T = ("t0", 0)
MINUTE = 60_000


@pytest.fixture
def world(worlds: Worlds) -> World:
    """Offsets are kept for two minutes and looked at every ten seconds."""
    return worlds({"offsets.retention.minutes": 2, "offsets.retention.check.interval.ms": 10_000})


def test_a_simple_groups_offset_expires_two_minutes_after_its_commit(world: World) -> None:
    world.commit(None, {T: 1})
    world.advance(2 * MINUTE - 1)
    assert world.fetched() == {T: 1}
    world.advance(1)
    assert world.fetched() == {}


def test_the_group_goes_with_its_last_offset_and_both_leave_tombstones(world: World) -> None:
    world.commit(None, {T: 1})
    world.advance(2 * MINUTE)
    assert world.inside() is None
    offset, group = world.coordinator_records[-2:]
    assert offset.key == {"type": "OffsetCommit", "group": "g", "topic": "t0", "partition": 0}
    assert group.key == {"type": "GroupMetadata", "group": "g"}
    assert offset.value is None
    assert group.value is None
    assert group.cause is None


def test_each_partition_has_a_time_of_its_own(world: World) -> None:
    world.commit(None, {T: 1})
    world.advance(MINUTE)
    world.commit(None, {("t0", 1): 2})
    world.advance(MINUTE)
    assert world.fetched() == {("t0", 1): 2}
    assert world.state() == "Empty"


def test_a_new_commit_begins_it_anew(world: World) -> None:
    world.commit(None, {T: 1})
    world.advance(MINUTE)
    world.commit(None, {T: 2})
    world.advance(MINUTE)
    assert world.fetched() == {T: 2}


def test_offsets_are_looked_at_when_the_interval_is_over_and_not_before(worlds: Worlds) -> None:
    world = worlds({"offsets.retention.minutes": 1, "offsets.retention.check.interval.ms": 50_000})
    world.commit(None, {T: 1})
    world.advance(99_999)
    assert world.fetched() == {T: 1}
    world.advance(1)
    assert world.fetched() == {}


def test_while_members_are_subscribed_their_offsets_do_not_expire(world: World) -> None:
    members = world.stable(1)
    world.commit(members[0], {T: 1})
    world.keep_alive(members, 5 * MINUTE, 5_000)
    assert world.fetched() == {T: 1}


def test_an_offset_of_a_topic_to_which_no_member_is_subscribed_expires(world: World) -> None:
    members = world.stable(1)
    world.commit(members[0], {T: 1, ("t1", 0): 2})
    world.keep_alive(members, 3 * MINUTE, 5_000)
    assert world.fetched() == {T: 1}


def test_offsets_of_a_group_of_another_type_do_not_expire_while_it_has_members(world: World) -> None:
    members = world.joined(1, type_="connect", protocols=("p",))
    world.sync(members[0], {}, type_="connect", protocol="p")
    world.commit(members[0], {T: 1})
    world.keep_alive(members, 5 * MINUTE, 5_000)
    assert world.fetched() == {T: 1}


def test_when_a_group_has_become_empty_its_offsets_are_kept_for_two_minutes_more(world: World) -> None:
    members = world.stable(1)
    world.commit(members[0], {T: 1})
    world.keep_alive(members, 5 * MINUTE, 5_000)
    world.leave(members[0])
    world.advance(2 * MINUTE - 1)
    assert world.fetched() == {T: 1}
    world.advance(10_000)
    assert world.fetched() == {}
    assert world.inside() is None


def test_an_empty_group_without_offsets_goes_at_the_next_look(world: World) -> None:
    (member,) = world.stable(1)
    world.leave(member)
    assert world.state() == "Empty"
    world.advance(10_000)
    assert world.inside() is None


def test_so_does_a_group_that_gave_out_an_id_only(world: World) -> None:
    world.new_ids(1, session_ms=60_000)
    world.advance(10_000)
    assert world.inside() is None


def test_a_commit_with_its_own_retention_expires_by_that(world: World) -> None:
    world.commit(None, {T: 1}, version=2, retention_ms=15_000)
    world.advance(15_000)
    assert world.fetched() == {T: 1}
    world.advance(5_000)
    assert world.fetched() == {}


def test_a_pending_offset_keeps_the_group_and_the_committed_one(world: World) -> None:
    world.commit(None, {T: 1})
    world.txn_commit({T: 2})
    world.advance(5 * MINUTE)
    assert world.fetched() == {T: 1}
    world.end_txn(committed=False)
    world.advance(10_000)
    assert world.inside() is None


def test_a_pending_offset_alone_keeps_its_group(world: World) -> None:
    world.txn_commit({T: 2})
    world.advance(5 * MINUTE)
    assert world.state() == "Empty"


def test_while_the_members_of_a_group_rebalance_nothing_expires(world: World) -> None:
    leader, follower = world.stable(2, session_ms=30_000, rebalance_ms=10 * MINUTE)
    world.commit(leader, {("t1", 0): 1})
    world.join(leader, rebalance_ms=10 * MINUTE)
    world.keep_alive([follower], 3 * MINUTE, 10_000)
    assert world.state() == "PreparingRebalance"
    assert world.fetched() == {("t1", 0): 1}


def test_offsets_of_a_deleted_group_do_not_come_back(world: World) -> None:
    world.commit(None, {T: 1})
    world.delete_groups("g")
    assert world.fetched() == {}
    assert world.list_groups() == []
    world.commit(None, {("t0", 1): 1})
    assert world.fetched() == {("t0", 1): 1}
