"""ConsumerGroupHeartbeat: who comes, what it is given, and how partitions move from one member to another."""

from __future__ import annotations

import pytest

from tests.groups.conftest import Worlds
from tests.groups.consumer_member import SETTINGS, Consumer, settle
from tests.groups.harness import G, World


@pytest.fixture
def world(worlds: Worlds) -> World:
    return worlds(SETTINGS)


def test_the_first_member_gets_everything_at_once(world: World) -> None:
    member = Consumer(world, "a", ["t0", "t1"])
    asked = member.join()
    assert (asked.error, member.epoch) == ("NONE", 2)
    assert member.owned == {"t0": [0, 1, 2, 3], "t1": [0, 1]}
    assert [record.key["type"] for record in asked.records] == [
        "ConsumerGroupMemberMetadata",
        "ConsumerGroupMetadata",
        "ConsumerGroupTargetAssignmentMember",
        "ConsumerGroupTargetAssignmentMetadata",
        "ConsumerGroupCurrentMemberAssignment",
    ]
    assert world.state() == "Stable"


def test_a_second_member_waits_until_the_first_has_given_up(world: World) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join()
    second.join()
    assert (second.epoch, second.owned) == (3, {})
    assert world.state() == "Reconciling"
    first.beat()
    assert (first.epoch, first.owned) == (2, {"t0": [0, 2]})
    second.beat()
    assert second.owned == {}
    first.beat()
    assert first.epoch == 3
    second.beat()
    assert second.owned == {"t0": [1, 3]}
    assert world.state() == "Stable"


def test_what_is_not_acknowledged_is_not_given_away(world: World) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join()
    second.join()
    first.beat()
    first.beat(acknowledge=False)
    assert first.epoch == 2
    second.beat()
    assert second.owned == {}


def test_who_gives_up_nothing_within_its_rebalance_timeout_is_out(world: World) -> None:
    first, second = Consumer(world, "a", rebalance_ms=7_000), Consumer(world, "b")
    first.join()
    second.join()
    first.beat()
    world.advance(6_999)
    assert world.members() == ["a", "b"]
    world.advance(1)
    assert world.members() == ["b"]
    assert first.beat().error == "UNKNOWN_MEMBER_ID"


def test_a_silent_member_is_out_when_its_session_ends(world: World) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join()
    second.join()
    settle(first, second)
    world.advance(30_000)
    second.beat()
    world.advance(15_000)
    assert world.members() == ["b"]
    second.beat()
    assert second.owned == {"t0": [0, 1, 2, 3]}


def test_a_member_that_leaves_makes_room(world: World) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join()
    second.join()
    settle(first, second)
    assert first.leave().body["memberEpoch"] == -1
    second.beat()
    assert second.owned == {"t0": [0, 1, 2, 3]}
    second.leave()
    assert world.state() == "Empty"


@pytest.mark.parametrize(("epoch", "compared"), [(9, "greater"), (1, "smaller")])
def test_another_epoch_than_ones_own_is_fenced(world: World, epoch: int, compared: str) -> None:
    member = Consumer(world, "a")
    member.join()
    member.epoch = epoch
    asked = member.beat()
    assert asked.error == "FENCED_MEMBER_EPOCH"
    assert compared in asked.body["errorMessage"]


def test_the_epoch_before_will_do_where_the_answer_got_lost(world: World) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b", ["t1"])
    first.join()
    second.join()
    lost = first.beat()
    assert lost.body["memberEpoch"] == 3
    first.epoch = 2
    assert first.beat().error == "NONE"
    assert first.epoch == 3


def test_a_fenced_member_comes_back_under_its_id(world: World) -> None:
    member = Consumer(world, "a")
    member.join()
    assert member.join().error == "NONE"
    assert world.members() == ["a"]


def test_a_full_request_is_told_its_assignment_again(world: World) -> None:
    member = Consumer(world, "a")
    member.join()
    assert member.beat().body["assignment"] is None
    assert member.beat(**member.wishes).body["assignment"] is not None


def test_other_topics_are_another_epoch(world: World) -> None:
    member = Consumer(world, "a")
    member.join()
    member.beat(subscribedTopicNames=["t1"])
    member.beat()
    assert (member.epoch, member.owned) == (3, {"t1": [0, 1]})


def test_a_group_takes_no_more_than_its_size(worlds: Worlds) -> None:
    world = worlds({**SETTINGS, "group.consumer.max.size": 1})
    Consumer(world, "a").join()
    assert Consumer(world, "b").join().error == "GROUP_MAX_SIZE_REACHED"


def test_joins_within_an_interval_make_one_assignment(worlds: Worlds) -> None:
    world = worlds({**SETTINGS, "group.consumer.assignment.interval.ms": 1_000})
    members = [Consumer(world, name) for name in "abc"]
    for member in members:
        member.join()
    inside = world.inside()
    assert inside is not None
    assert (inside["groupEpoch"], inside["assignmentEpoch"]) == (4, 2)
    world.advance(1_000)
    members[0].beat()
    inside = world.inside()
    assert inside is not None
    assert (inside["groupEpoch"], inside["assignmentEpoch"]) == (4, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"memberId": ""}, "MemberId can't be empty."),
        ({"rebalanceTimeoutMs": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topicPartitions": None}, "TopicPartitions must be empty when (re-)joining."),
        ({"rackId": " "}, "RackId can't be empty."),
        ({"memberEpoch": -3}, "MemberEpoch is invalid."),
        ({"memberEpoch": -2}, "InstanceId can't be null."),
    ],
)
def test_a_request_without_sense_is_refused(world: World, change: dict[str, object], message: str) -> None:
    asked = Consumer(world, "a").join(**change)
    assert asked.error == "INVALID_REQUEST"
    assert asked.body["errorMessage"] == message
    assert world.inside() is None


def test_an_assignor_that_is_not_configured_is_refused(world: World) -> None:
    assert Consumer(world, "a", assignor="mine").join().error == "UNSUPPORTED_ASSIGNOR"


def test_a_load_finds_what_was_there(world: World) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b", regex="t1")
    first.join()
    second.join()
    before = world.inside()
    world.fail_over()
    assert world.inside() == before
    settle(first, second)
    world.advance(45_000)
    assert world.state(G) == "Empty"
