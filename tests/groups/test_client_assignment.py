"""KIP-848's client-side mode, sentence by sentence: who computes an assignment, when, and from what.

CONFORMANCE.md names the sentence that each test is of. Every scenario goes through the state row after each request.
"""

from __future__ import annotations

import pytest

from coordinator_udf.protocol.requests import Topic
from coordinator_udf.settings.file import topic_id
from tests.groups.client_side import ALL, alone, described, epochs, make_world, rules, shared_out, two, two_and_a_third
from tests.groups.computing_member import (
    Computing,
    assignor,
    error_of,
    in_turns,
    settle_computing,
)
from tests.groups.consumer_member import Consumer, settle
from tests.groups.harness import TOPICS, G, World


@pytest.fixture
def world() -> World:
    return make_world()


# -- who computes, and when ---------------------------------------------------------------------------------------


def test_a_new_epoch_makes_one_member_compute(world: World) -> None:
    first, second = alone(world), Computing(world, "b")
    second.join()
    assert epochs(world) == (3, 2)
    assert (first.beat().body.get("shouldComputeAssignment"), second.beat().body["shouldComputeAssignment"]) == (
        None,
        True,
    )


def test_nobody_is_asked_while_nothing_is_to_be_computed(world: World) -> None:
    for member in two(world):
        member.beat()
        assert not member.is_asked()


def test_a_member_is_told_in_its_next_heartbeat(world: World) -> None:
    first, second = two(world)
    world.set_topics(Topic(name="t0", partitions=5, id=topic_id("t0")), TOPICS[1])
    first.leave()
    second.beat()
    assert second.is_asked()
    second.compute()
    settle_computing(second)
    assert second.owned == {"t0": [0, 1, 2, 3, 4]}


def test_the_clock_starts_when_the_member_is_told(world: World) -> None:
    first, second, third = two_and_a_third(world, rebalance_ms=5_000)
    third.leave()
    # The next one by id was chosen when the third went; nobody has told it yet.
    for _ in range(6):
        world.advance(5_000)
        second.beat(acknowledge=False)
    assert world.inside()["computingSinceMs"] == 0  # type: ignore[index]
    first.beat()
    assert first.is_asked()
    world.advance(19_999)
    second.beat()
    assert not second.is_asked()
    world.advance(1)
    second.beat()
    assert second.is_asked()


def test_who_is_late_makes_room_and_is_not_fenced(world: World) -> None:
    first, second, third = two_and_a_third(world)
    assert third.is_asked()
    prepared = third.prepare()
    world.advance(20_000)
    assert "ASSIGNMENT_LATE" in rules(world)
    assert world.members() == ["a", "b", "c"]
    assert third.beat().error == "NONE"
    assert not third.is_asked()
    assert error_of(third.install(in_turns(prepared.body), prepared.body["groupEpoch"])) == "UNKNOWN_MEMBER_ID"
    first.beat()
    assert first.is_asked()
    first.compute()
    settle_computing(first, second, third)
    assert shared_out(first, second, third) == [0, 1, 2, 3]


def test_a_member_alone_that_is_late_is_asked_again(world: World) -> None:
    member = Computing(world, "a")
    member.join()
    prepared = member.prepare()
    world.advance(20_000)
    # Chosen again, it needn't wait for the heartbeat.
    assert error_of(member.install(in_turns(prepared.body), prepared.body["groupEpoch"])) == "NONE"
    settle_computing(member)
    assert member.owned == ALL


def test_only_the_end_of_its_session_fences_a_slow_member(world: World) -> None:
    first, second, _ = two_and_a_third(world, rebalance_ms=60_000)
    for _ in range(3):
        world.advance(15_000)
        first.beat()
        second.beat()
    assert world.members() == ["a", "b"]
    assert described(world)["computingMemberId"] == "a"


def test_who_leaves_makes_room(world: World) -> None:
    first, second, third = two_and_a_third(world)
    third.leave()
    first.beat()
    second.beat()
    assert (first.is_asked(), second.is_asked()) == (False, True) or (first.is_asked(), second.is_asked()) == (
        True,
        False,
    )


def test_a_static_member_that_goes_for_a_while_makes_room(world: World) -> None:
    first = alone(world)
    static = Computing(world, "s", instance="i")
    static.join()
    assert static.is_asked()
    static.leave(-2)
    first.beat()
    assert first.is_asked()


def test_only_one_assignment_is_computed_at_a_time(world: World) -> None:
    first, second = two(world)
    others = [Computing(world, id_) for id_ in "cdef"]
    asked = [member for member in others if member.join().body.get("shouldComputeAssignment")]
    asked += [member for member in (first, second) if member.beat().body.get("shouldComputeAssignment")]
    assert asked == others[:1]


def test_an_assignment_for_an_older_epoch_is_installed_and_asked_for_again(world: World) -> None:
    first, second, third = two_and_a_third(world)
    fourth = Computing(world, "d")
    prepared = third.prepare()
    fourth.join()
    assert epochs(world) == (5, 3)
    assert error_of(third.install(in_turns(prepared.body), 4)) == "NONE"
    assert epochs(world) == (5, 4)
    asked = [member for member in (first, second, third, fourth) if member.beat().body.get("shouldComputeAssignment")]
    assert len(asked) == 1
    asked[0].compute()
    settle_computing(first, second, third, fourth)
    assert epochs(world) == (5, 5)
    assert [member.owned["t0"] for member in (first, second, third, fourth)] == [[0], [1], [2], [3]]


def test_a_change_of_metadata_asks_for_a_new_assignment(world: World) -> None:
    member = alone(world)
    member.beat(clientAssignors=[assignor(metadata=b"lag")])
    assert member.is_asked()
    assert epochs(world) == (3, 2)


def test_a_reason_asks_for_a_new_assignment_and_its_end_does_not(world: World) -> None:
    member = alone(world)
    member.beat(clientAssignors=[assignor(reason=3)])
    assert member.is_asked()
    assert member.prepare().body["members"][0]["reason"] == 3
    member.compute()
    settle_computing(member)
    member.beat(clientAssignors=[assignor(reason=0)])
    assert (member.is_asked(), epochs(world)) == (False, (3, 3))


def test_a_change_of_topics_asks_for_a_new_assignment(world: World) -> None:
    member = alone(world)
    world.set_topics(Topic(name="t0", partitions=6, id=topic_id("t0")), TOPICS[1])
    member.beat()
    assert member.is_asked()
    settle_computing(member)
    assert member.owned == {"t0": [0, 1, 2, 3, 4, 5]}


def test_a_member_without_the_assignor_ends_the_computation(world: World) -> None:
    member = alone(world)
    member.beat(clientAssignors=[assignor(reason=1)])
    prepared = member.prepare()
    plain = Consumer(world, "b")
    plain.join()
    assert error_of(member.install(in_turns(prepared.body), 3)) == "UNKNOWN_MEMBER_ID"
    settle(member, plain)
    assert (member.owned, plain.owned) == ({"t0": [0, 2]}, {"t0": [1, 3]})


# -- what to compute from -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("group", "member", "epoch"), [("", "a", 1), (G, "", 1), (G, "a", -1)])
def test_requests_that_cannot_be_are_invalid(world: World, group: str, member: str, epoch: int) -> None:
    body = {"groupId": group, "memberId": member, "memberEpoch": epoch}
    assert error_of(world.ask("ConsumerGroupPrepareAssignment", 0, body)) == "INVALID_REQUEST"
    install = {**body, "groupEpoch": 2, "error": 0, "members": []}
    assert error_of(world.ask("ConsumerGroupInstallAssignment", 0, install)) == "INVALID_REQUEST"


def test_the_checks_come_in_their_order(world: World) -> None:
    stranger = Computing(world, "x")
    stranger.epoch = 7
    assert error_of(stranger.prepare()) == error_of(stranger.install({}, 7)) == "GROUP_ID_NOT_FOUND"
    first, second = two(world)
    assert error_of(stranger.prepare()) == error_of(stranger.install({}, 7)) == "UNKNOWN_MEMBER_ID"
    third = Computing(world, "c")
    third.join()
    # Neither is the other one chosen nor has it this epoch: the epoch comes first.
    assert error_of(first.prepare(99)) == error_of(first.install({}, 4, epoch=99)) == "STALE_MEMBER_EPOCH"
    assert error_of(first.prepare()) == error_of(first.install({}, 4)) == "UNKNOWN_MEMBER_ID"
    assert error_of(third.prepare(99)) == "STALE_MEMBER_EPOCH"
    # The assignment is looked at last.
    assert error_of(second.install({"nobody": {}}, 99)) == "UNKNOWN_MEMBER_ID"
    assert error_of(third.prepare()) == "NONE"


def test_a_classic_group_is_no_consumer_group(world: World) -> None:
    world.stable(1)
    assert error_of(Computing(world, "a").prepare()) == "GROUP_ID_NOT_FOUND"


def test_what_is_prepared_has_all_that_an_assignor_needs(world: World) -> None:
    first = alone(world, assignors=[assignor(metadata=b"of a")])
    second = Computing(
        world, "b", ["t0", "t1", "gone"], instance="i", assignors=[assignor(reason=2, version=1, metadata=b"of b")]
    )
    second.join(rackId="r1")
    prepared = second.prepare().body
    first_one, second_one = sorted(prepared["members"], key=lambda member: member["memberId"])
    assert (prepared["groupEpoch"], prepared["assignorName"], prepared["assignorVersion"]) == (3, "turns", 1)
    assert first_one == {
        "memberId": "a",
        "memberEpoch": first.epoch,
        "instanceId": None,
        "rackId": None,
        "subscribedTopicIds": [topic_id("t0")],
        "reason": 0,
        "metadataVersion": 1,
        "metadata": "b2YgYQ==",
        "partitions": [{"topicId": topic_id("t0"), "partitions": [0, 1, 2, 3]}],
    }
    assert (second_one["instanceId"], second_one["rackId"], second_one["reason"]) == ("i", "r1", 2)
    assert sorted(second_one["subscribedTopicIds"]) == sorted([topic_id("t0"), topic_id("t1")])
    assert [(topic["topicName"], topic["topicId"], topic["numPartitions"]) for topic in prepared["topics"]] == [
        ("t0", topic_id("t0"), 4),
        ("t1", topic_id("t1"), 2),
    ]


def test_nothing_of_it_is_served_while_the_shard_loads(world: World) -> None:
    member = alone(world)
    world.control("LoadGroup")
    assert error_of(member.prepare()) == error_of(member.install({}, 2)) == "COORDINATOR_LOAD_IN_PROGRESS"
    world.control("LoadEnd")
    world.control("Unload")
    assert error_of(member.prepare()) == error_of(member.install({}, 2)) == "NOT_COORDINATOR"
