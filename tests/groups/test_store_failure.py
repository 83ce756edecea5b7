"""What is larger than the log takes (group.metadata.max.bytes; in Kafka it is the topic's max.message.bytes)."""

from __future__ import annotations

import pytest

from tests.groups.bodies import base64
from tests.groups.conftest import Worlds
from tests.groups.harness import World

LIMIT = 1_000
HUGE = b"x" * 2_000


@pytest.fixture
def world(worlds: Worlds) -> World:
    return worlds({"group.metadata.max.bytes": LIMIT})


def test_an_assignment_that_is_too_large_is_an_error_for_all_that_wait(world: World) -> None:
    leader, follower = world.joined(2)
    parked = world.sync(follower)
    asked = world.sync(leader, {follower.id: HUGE})
    assert asked.error == parked.error == "UNKNOWN_SERVER_ERROR"
    assert parked.by == asked.request_id
    assert asked.body["assignment"] == parked.body["assignment"] == ""
    assert asked.records == []


def test_the_group_begins_a_new_rebalance(world: World) -> None:
    leader, follower = world.joined(2)
    world.sync(leader, {follower.id: HUGE})
    assert world.state() == "PreparingRebalance"
    assert world.generation() == 1
    assert world.members() == sorted([leader.id, follower.id])
    assert world.heartbeat(follower).error == "REBALANCE_IN_PROGRESS"
    assert world.sync(follower).error == "REBALANCE_IN_PROGRESS"


def test_nobody_keeps_an_assignment(world: World) -> None:
    leader, follower = world.stable(2)
    asked = [world.join(leader), world.join(follower)]
    world.sync(asked[0].member, {follower.id: HUGE})
    inside = world.inside()
    assert inside is not None
    assert [member["assignment"] for member in inside["members"]] == ["", ""]


def test_the_next_rebalance_with_a_smaller_assignment_goes_well(world: World) -> None:
    leader, follower = world.joined(2)
    world.sync(leader, {follower.id: HUGE})
    asked = [world.join(leader), world.join(follower)]
    assert {one.member.generation for one in asked} == {2}
    world.synced([one.member for one in asked])
    assert world.state() == "Stable"


def test_with_the_error_the_session_of_those_that_waited_begins_anew(world: World) -> None:
    leader, follower = world.joined(2, session_ms=6_000)
    world.sync(follower)
    world.advance(4_000)
    world.sync(leader, {follower.id: HUGE})
    world.advance(5_999)
    assert follower.id in world.members()
    world.advance(1)
    assert follower.id not in world.members()


def test_a_static_member_whose_return_cannot_be_stored_keeps_its_old_id(world: World) -> None:
    (member,) = world.stable(1, instances=["a"])
    asked = world.join(instance="a", protocols={"range": HUGE})
    assert asked.error == "UNKNOWN_SERVER_ERROR"
    assert asked.body["memberId"] == ""
    assert asked.body["generationId"] == 1
    assert asked.body["leader"] == member.id
    assert asked.body["protocolName"] == "range"
    assert asked.body["protocolType"] == "consumer"
    assert asked.records == []
    assert world.members() == [member.id]
    assert world.state() == "Stable"
    assert world.heartbeat(member).error == "NONE"
    assert world.sync(member).body["assignment"] == base64(b"for " + member.id.encode())


def test_a_static_member_whose_return_cannot_be_stored_keeps_its_metadata_and_timeouts(world: World) -> None:
    (member,) = world.stable(1, instances=["a"])
    before = world.inside()
    world.join(instance="a", protocols={"range": HUGE}, session_ms=29_000, rebalance_ms=29_000)
    assert world.inside() == before
    assert world.join(member).member.generation == 2


def test_a_static_member_whose_return_could_not_be_stored_may_try_again(world: World) -> None:
    (member,) = world.stable(1, instances=["a"])
    world.join(instance="a", protocols={"range": HUGE})
    again = world.join(instance="a")
    assert again.error == "NONE"
    assert again.member.id != member.id
    assert world.heartbeat(member).error == "FENCED_INSTANCE_ID"


def test_a_join_with_large_metadata_is_taken_until_the_group_is_stored(world: World) -> None:
    (member,) = world.joined(1, type_="connect", protocols={"p": HUGE})
    assert world.sync(member, {}, type_="connect", protocol="p").error == "UNKNOWN_SERVER_ERROR"
    assert world.state() == "PreparingRebalance"


@pytest.mark.parametrize(("metadata", "error"), [(700, "NONE"), (1_000, "UNKNOWN_SERVER_ERROR")])
def test_a_commit_that_is_too_large_is_refused(world: World, metadata: int, error: str) -> None:
    asked = world.commit(None, {("t0", 0): 1}, metadata="m" * metadata)
    assert asked.errors == {("t0", 0): error}


def test_the_partitions_of_one_commit_are_too_large_together(world: World) -> None:
    asked = world.commit(None, {("t0", 0): 1, ("t0", 1): 2, ("t1", 0): 3}, metadata="m" * 400)
    assert set(asked.errors.values()) == {"UNKNOWN_SERVER_ERROR"}
    assert asked.records == []
    assert world.fetched() == {}


def test_each_of_them_alone_is_not(world: World) -> None:
    for offset, partition in enumerate([("t0", 0), ("t0", 1), ("t1", 0)]):
        assert world.commit(None, {partition: offset}, metadata="m" * 400).errors == {partition: "NONE"}


@pytest.mark.parametrize(
    ("group", "metadata", "error"),
    [
        ("g", 874, "NONE"),
        ("g", 875, "UNKNOWN_SERVER_ERROR"),
        ("a longer name", 862, "NONE"),
        ("a longer name", 863, "UNKNOWN_SERVER_ERROR"),
        ("grün", 870, "NONE"),
        ("grün", 871, "UNKNOWN_SERVER_ERROR"),
    ],
)
def test_the_limit_is_that_of_kafkas_record_batch_to_the_byte(
    world: World, group: str, metadata: int, error: str
) -> None:
    asked = world.commit(None, {("t0", 0): 1}, metadata="m" * metadata, group=group)
    assert asked.errors == {("t0", 0): error}


@pytest.mark.parametrize(("assignment", "error"), [(747, "NONE"), (748, "UNKNOWN_SERVER_ERROR")])
def test_so_is_a_groups(world: World, assignment: int, error: str) -> None:
    (member,) = world.joined(1, type_="connect", protocols={"p": b"m" * 20})
    asked = world.sync(member, {member.id: b"a" * assignment}, type_="connect", protocol="p")
    assert asked.error == error


def test_a_commit_in_a_transaction_is_refused_alike(world: World) -> None:
    offsets = {(f"t{index % 2}", index): index for index in range(40)}
    assert set(world.txn_commit(offsets).errors.values()) == {"UNKNOWN_SERVER_ERROR"}
    world.end_txn(committed=True)
    assert world.fetched() == {}


def test_a_simple_group_that_came_with_a_refused_commit_is_gone_with_it(world: World) -> None:
    world.commit(None, {("t0", 0): 1}, metadata="m" * 2_000)
    assert world.inside() is None
    assert world.delete_groups("g").errors == {"g": "GROUP_ID_NOT_FOUND"}


def test_a_group_of_which_nothing_was_written_is_gone_with_anybodys_refused_commit(world: World) -> None:
    """Kafka goes back to where the log ends."""
    world.commit(None, {("t0", 0): 1}, group="other", metadata="m" * 5_000)
    assert world.state("other") == "Empty"
    world.commit(None, {("t0", 0): 1}, metadata="m" * 2_000)
    assert world.inside("other") is None


def test_a_refused_commit_of_a_member_keeps_its_session_all_the_same(world: World) -> None:
    (member,) = world.stable(1, session_ms=6_000)
    world.advance(5_000)
    world.commit(member, {("t0", 0): 1}, metadata="m" * 2_000)
    world.advance(5_000)
    assert world.state() == "Stable"


def test_offsets_whose_tombstones_are_too_large_together_stay(world: World) -> None:
    for index in range(60):
        world.commit(None, {("t0", index): index})
    asked = world.delete_offsets(*(("t0", index) for index in range(60)))
    assert asked.error == "UNKNOWN_SERVER_ERROR"
    assert asked.body["topics"] == []
    assert len(world.fetched()) == 60


def test_a_group_whose_tombstones_are_too_large_together_stays_and_so_do_the_others_of_the_request(
    world: World,
) -> None:
    for index in range(40):
        world.commit(None, {("t0", index): index}, group="large")
    world.commit(None, {("t0", 0): 1}, group="small")
    asked = world.delete_groups("small", "large", "ghost")
    assert asked.errors == dict.fromkeys(["small", "large", "ghost"], "UNKNOWN_SERVER_ERROR")
    assert len(world.fetched("large")) == 40
    assert world.state("small") == "Empty"


def test_what_expires_is_not_limited_for_it_is_written_in_parts(worlds: Worlds) -> None:
    world = worlds({"group.metadata.max.bytes": LIMIT, "offsets.retention.minutes": 1})
    for index in range(40):
        world.commit(None, {("t0", index): index})
    world.advance(700_000)
    assert world.inside() is None


def partitions_told(world: World, *, stable: bool = False) -> list[int]:
    (answer,) = world.fetch(stable=stable).body["groups"]
    return sorted(p["partitionIndex"] for topic in answer["topics"] for p in topic["partitions"])


def test_what_a_refused_commit_had_changed_is_told_twice_until_something_is_written(world: World) -> None:
    for index in (0, 1):
        world.commit(None, {("t0", index): index})
    world.commit(None, {("t0", 1): 5, ("t0", 2): 5}, metadata="m" * 500)
    assert partitions_told(world) == [0, 1, 1]
    assert partitions_told(world, stable=True) == [0, 1]
    world.commit(None, {("t0", 0): 1}, group="other")
    assert partitions_told(world) == [0, 1]


def test_so_is_a_group_that_could_not_be_deleted(world: World) -> None:
    for index in range(40):
        world.commit(None, {("t0", index): index}, group="large")
    world.commit(None, {("t0", 0): 1}, group="small")
    world.delete_groups("large")
    assert world.list_groups() == ["large", "large", "small"]


@pytest.mark.parametrize(("metadata", "groups"), [(809, ["new", "other"]), (810, ["other"])])
def test_a_write_that_would_be_too_large_with_a_second_header_goes_back_first(
    world: World, metadata: int, groups: list[str]
) -> None:
    world.commit(None, {("t0", 0): 1}, group="new", metadata="m" * 5_000)
    asked = world.commit(None, {("t0", 0): 1}, group="other", metadata="m" * metadata)
    assert asked.errors == {("t0", 0): "NONE"}
    assert world.list_groups() == groups


def test_a_group_that_nearly_fills_the_log_alone_is_in_the_log_alone(worlds: Worlds) -> None:
    world = worlds({"group.metadata.max.bytes": 150})
    asked = world.join()
    assert asked.error == "MEMBER_ID_REQUIRED"
    assert len(asked.records) == 1
    assert world.join(asked.body["memberId"]).error == "UNKNOWN_MEMBER_ID"
