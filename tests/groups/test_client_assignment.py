"""KIP-848's client-side mode, sentence by sentence: who computes an assignment, from what, and what becomes of it.

CONFORMANCE.md names the sentence that each test is of. Every scenario goes through the state row after each request.
"""

from __future__ import annotations

import pytest

from coordinator_udf.protocol.requests import Topic
from coordinator_udf.settings.file import topic_id
from tests.groups.bodies import subscription
from tests.groups.computing_member import (
    CLIENT_SIDE,
    Computing,
    assignor,
    error_of,
    in_turns,
    settle_computing,
)
from tests.groups.consumer_member import Consumer, settle
from tests.groups.coordinators import OurCoordinator
from tests.groups.harness import TOPICS, G, World

ALL = {"t0": [0, 1, 2, 3]}


def make_world(**settings: object) -> World:
    coordinator = OurCoordinator({**CLIENT_SIDE, **settings}, TOPICS)
    return World(coordinator, coordinator.records)


@pytest.fixture
def world() -> World:
    return make_world()


def alone(world: World, **how: object) -> Computing:
    """A member that has computed its group's first assignment and has it."""
    member = Computing(world, "a", **how)  # type: ignore[arg-type]
    member.join()
    settle_computing(member, rounds=3)
    return member


def two(world: World) -> tuple[Computing, Computing]:
    """Two members with two partitions each; nothing is to be computed."""
    first, second = alone(world), Computing(world, "b")
    second.join()
    second.compute()
    settle_computing(first, second)
    assert (first.owned, second.owned, world.state()) == ({"t0": [0, 2]}, {"t0": [1, 3]}, "Stable")
    return first, second


def shared_out(*members: Consumer) -> list[int]:
    """All partitions of t0 that the members have."""
    return sorted(partition for member in members for partition in member.owned["t0"])


def epochs(world: World) -> tuple[int, int]:
    inside = world.inside()
    assert inside is not None
    return inside["groupEpoch"], inside["assignmentEpoch"]


def rules(world: World) -> list[str]:
    assert isinstance(world.coordinator, OurCoordinator)
    return [each["rule"] for each in world.coordinator.transitions]


def described(world: World, group: str = G) -> dict[str, object]:
    body = {"groupIds": [group], "includeAuthorizedOperations": False}
    (found,) = world.ask("ConsumerGroupDescribe", 1, body).body["groups"]
    return dict(found)


# -- which assignor -----------------------------------------------------------------------------------------------


def test_an_assignor_that_all_members_support_is_used(world: World) -> None:
    first = Computing(world, "a", assignors=[assignor("x"), assignor("y")])
    first.join()
    assert first.is_asked()
    assert first.prepare().body["assignorName"] == "x"


def test_the_order_of_preference_decides_among_several(world: World) -> None:
    members = [Computing(world, id_, assignors=[assignor(one), assignor(other)])
               for id_, one, other in (("a", "x", "y"), ("b", "y", "x"), ("c", "y", "x"))]  # fmt: skip
    for member in members:
        member.join()
    asked = next(member for member in members if member.beat().body.get("shouldComputeAssignment"))
    assert asked.prepare().body["assignorName"] == "y"


def test_without_a_common_one_the_coordinator_assigns(world: World) -> None:
    first, second = Computing(world, "a", assignors=[assignor("x")]), Computing(world, "b", assignors=[assignor("y")])
    first.join()
    second.join()
    assert not second.is_asked()
    settle(first, second)
    assert (first.owned, second.owned) == ({"t0": [0, 2]}, {"t0": [1, 3]})
    assert described(world)["assignorName"] == "oracle-sorted"


def test_a_client_that_knows_nothing_of_it_is_served_as_before_in_the_same_group(world: World) -> None:
    first, plain = alone(world), Consumer(world, "b")
    asked = plain.join()
    assert set(asked.body) == {
        "throttleTimeMs", "errorCode", "errorMessage", "memberId", "memberEpoch", "heartbeatIntervalMs", "assignment",
    }  # fmt: skip
    settle(first, plain)
    assert (first.owned, plain.owned) == ({"t0": [0, 2]}, {"t0": [1, 3]})
    plain.leave()
    settle_computing(first)
    assert first.owned == ALL
    assert described(world)["computedBy"] == "a"


def test_a_version_in_the_ranges_of_all_members_is_used(world: World) -> None:
    first = Computing(world, "a", assignors=[assignor(least=1, most=5)])
    second = Computing(world, "b", assignors=[assignor(least=2, most=3)])
    first.join()
    second.join()
    first.beat()
    assert first.prepare().body["assignorVersion"] == 3


def test_a_range_that_cannot_meet_the_groups_is_refused(world: World) -> None:
    alone(world, assignors=[assignor(least=0, most=1)])
    late = Computing(world, "b", assignors=[assignor(least=2, most=3)])
    refused = late.join()
    assert refused.error == "UNSUPPORTED_ASSIGNOR"
    assert "turns in versions 2 to 3" in refused.body["errorMessage"]
    assert world.members() == ["a"]


def test_a_member_with_another_assignor_that_meets_is_not_refused(world: World) -> None:
    first = alone(world, assignors=[assignor("x", most=1), assignor("y")])
    late = Computing(world, "b", assignors=[assignor("x", least=2, most=3), assignor("y")])
    assert late.join().error == "NONE"
    settle_computing(first, late)
    assert described(world)["assignorName"] == "y"


def test_ranges_that_no_longer_meet_make_the_coordinator_assign(world: World) -> None:
    """Nobody is refused while a third member hasn't got the assignor; when that one goes the ranges matter."""
    first = alone(world, assignors=[assignor(most=1)])
    plain, third = Consumer(world, "b"), Computing(world, "c", assignors=[assignor(least=2, most=3)])
    plain.join()
    assert third.join().error == "NONE"
    plain.leave()
    settle_computing(first, third)
    assert (first.owned, third.owned) == ({"t0": [0, 2]}, {"t0": [1, 3]})
    assert described(world)["assignorName"] == "oracle-sorted"


def test_an_unknown_assignor_of_the_coordinator_is_refused(world: World) -> None:
    assert Computing(world, "a", assignor="nobody's").join().error == "UNSUPPORTED_ASSIGNOR"


def test_the_coordinators_assignor_is_the_one_that_most_members_name(world: World) -> None:
    for id_, name in (("a", "range"), ("b", "uniform"), ("c", "uniform")):
        Computing(world, id_, assignors=[assignor(id_)], assignor=name).join()
    assert described(world)["assignorName"] == "uniform"


@pytest.mark.parametrize(
    "assignors",
    [
        [assignor("")],
        [assignor("x"), assignor("x")],
        [assignor(least=-2)],
        [assignor(least=-1, most=-1)],
        [assignor(least=2, most=1)],
    ],
)
def test_assignors_that_cannot_be_are_refused(world: World, assignors: list[dict[str, object]]) -> None:
    assert Computing(world, "a", assignors=assignors).join().error == "INVALID_REQUEST"
    assert world.inside() is None


def test_protocols_of_classic_members_count_as_assignors(world: World) -> None:
    classic = world.join(type_="consumer", protocols={"turns": subscription("t0")}, version=3)
    world.advance(3_000)
    world.sync(
        classic.member, {classic.member.id: b"\0\0\0\0\0\1\0\2t0\0\0\0\1\0\0\0\0\xff\xff\xff\xff"}, protocol="turns"
    )
    able = Computing(world, "b", assignors=[assignor(least=-1, version=-1)])
    able.join()
    assert able.is_asked()
    prepared = able.prepare()
    assert (prepared.body["assignorName"], prepared.body["assignorVersion"]) == ("turns", -1)
    assert {member["memberId"]: member["metadataVersion"] for member in prepared.body["members"]} == {
        classic.member.id: -1,
        "b": -1,
    }


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
    first, second = two(world)
    third = Computing(world, "c", rebalance_ms=5_000)
    third.join()
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
    first, second = two(world)
    third = Computing(world, "c")
    third.join()
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
    first, second = two(world)
    third = Computing(world, "c", rebalance_ms=60_000)
    third.join()
    for _ in range(3):
        world.advance(15_000)
        first.beat()
        second.beat()
    assert world.members() == ["a", "b"]
    assert described(world)["computingMemberId"] == "a"


def test_who_leaves_makes_room(world: World) -> None:
    first, second = two(world)
    third = Computing(world, "c")
    third.join()
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
    first, second = two(world)
    third, fourth = Computing(world, "c"), Computing(world, "d")
    third.join()
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


# -- what was computed --------------------------------------------------------------------------------------------


def test_an_installed_assignment_is_what_members_converge_to(world: World) -> None:
    first, second = two(world)
    third = Computing(world, "c")
    third.join()
    third.install({"a": {"t0": [0]}, "b": {"t0": [1, 3]}, "c": {"t0": [2]}}, 4)
    settle_computing(first, second, third)
    assert (first.owned, second.owned, third.owned) == ({"t0": [0]}, {"t0": [1, 3]}, {"t0": [2]})
    assert epochs(world) == (4, 4)


@pytest.mark.parametrize(
    ("plan", "what"),
    [
        ({"nobody": {"t0": [0]}}, "nobody is not a member"),
        ({"a": {topic_id("t9"): [0]}}, "doesn't exist"),
        ({"a": {"t0": [4]}}, "Partition 4 of topic t0"),
        ({"a": {"t0": [0]}, "b": {"t0": [0]}}, "assigned twice"),
        ({"a": {"t0": [0, 0]}}, "assigned twice"),
        ({"a": {"t1": [0]}}, "not subscribed to topic t1"),
    ],
)
def test_an_assignment_that_cannot_be_is_refused(
    world: World, plan: dict[str, dict[str, list[int]]], what: str
) -> None:
    first, second = two(world)
    third = Computing(world, "c")
    third.join()
    refused = third.install(plan, 4)
    assert error_of(refused) == "INVALID_ASSIGNMENT"
    assert what in refused.body["errorMessage"]
    assert world.inside()["assignmentEpoch"] == 3  # type: ignore[index]
    # Who failed makes room and stays a member.
    assert third.beat().error == "NONE"
    assert not third.is_asked()
    settle_computing(first, second, third)
    assert epochs(world) == (4, 4)
    assert (first.error, described(world)["assignmentRefusals"]) == (0, 1)


@pytest.mark.parametrize("epoch", [0, 3, 5])
def test_an_assignment_for_an_epoch_that_was_not_asked_for_is_refused(world: World, epoch: int) -> None:
    two(world)
    third = Computing(world, "c")
    third.join()
    assert error_of(third.install({}, epoch)) == "INVALID_ASSIGNMENT"


def test_who_is_named_twice_is_refused(world: World) -> None:
    member = Computing(world, "a")
    member.join()
    body = {"groupId": G, "memberId": "a", "memberEpoch": member.epoch, "groupEpoch": 2, "error": 0}
    entry = {"memberId": "a", "partitions": [], "metadataVersion": -1, "metadata": ""}
    asked = world.ask("ConsumerGroupInstallAssignment", 0, {**body, "members": [entry, entry]})
    assert error_of(asked) == "INVALID_ASSIGNMENT"


def test_who_joined_since_has_nothing_until_the_next_epoch(world: World) -> None:
    first, second = two(world)
    third, late = Computing(world, "c"), Computing(world, "d")
    third.join()
    prepared = third.prepare()
    late.join()
    third.install(in_turns(prepared.body), 4)
    assert late.beat().error == "NONE"
    assert late.owned == {}
    settle_computing(first, second, third, late)
    assert late.owned == {"t0": [3]}


def test_who_joined_since_cannot_be_in_the_assignment(world: World) -> None:
    two(world)
    third, late = Computing(world, "c"), Computing(world, "d")
    third.join()
    late.join()
    refused = third.install({"d": {"t0": [0]}}, 4)
    assert error_of(refused) == "INVALID_ASSIGNMENT"
    assert "joined with epoch 5" in refused.body["errorMessage"]


def test_who_has_gone_since_is_dropped(world: World) -> None:
    first, second = two(world)
    third = Computing(world, "c")
    third.join()
    prepared = third.prepare()
    second.leave()
    assert error_of(third.install(in_turns(prepared.body), 4)) == "NONE"
    assert (epochs(world), world.members()) == ((5, 4), ["a", "c"])
    settle_computing(first, third)
    assert (first.owned, third.owned) == ({"t0": [0, 2]}, {"t0": [1, 3]})


def test_who_came_back_since_is_dropped_too(world: World) -> None:
    first, second = two(world)
    third = Computing(world, "c")
    third.join()
    prepared = third.prepare()
    second.leave()
    second.owned = {}
    second.join()
    assert error_of(third.install(in_turns(prepared.body), 4)) == "NONE"
    settle_computing(first, second, third)
    assert shared_out(first, second, third) == [0, 1, 2, 3]


def test_a_static_member_that_came_back_has_what_was_computed_for_it(world: World) -> None:
    first, static = alone(world), Computing(world, "s", instance="i")
    static.join()
    settle_computing(static, first)
    third = Computing(world, "t")
    third.join()
    prepared = third.prepare()
    static.leave(-2)
    back = Computing(world, "s2", instance="i")
    back.join()
    assert (
        error_of(third.install({"a": {"t0": [0]}, "s": {"t0": [1, 2]}, "t": {"t0": [3]}}, prepared.body["groupEpoch"]))
        == "NONE"
    )
    settle_computing(first, back, third)
    assert back.owned == {"t0": [1, 2]}


def test_what_a_member_has_unsubscribed_from_since_is_dropped(world: World) -> None:
    first, second = two(world)
    first.beat(subscribedTopicNames=["t0", "t1"])
    prepared = first.prepare()
    second.beat(subscribedTopicNames=["t1"])
    assert error_of(first.install(in_turns(prepared.body), prepared.body["groupEpoch"])) == "NONE"
    settle_computing(first, second)
    assert (first.owned["t0"], second.owned) == ([0, 1, 2, 3], {"t1": [1]})


def test_an_error_of_the_last_assignor_keeps_the_partitions_and_reaches_all_members(world: World) -> None:
    first, second = two(world)
    for member in (first, second):
        member.beat(clientAssignors=[assignor(reason=1)])
    failing = next(member for member in (first, second) if member.beat().body.get("shouldComputeAssignment"))
    other = second if failing is first else first
    epoch = failing.prepare().body["groupEpoch"]
    assert error_of(failing.install({}, epoch, error=7)) == "NONE"
    assert "ASSIGNMENT_FAILED" in rules(world)
    other.beat()
    assert (other.is_asked(), other.error) == (True, 7)
    assert error_of(other.install({}, epoch, error=8)) == "NONE"
    assert epochs(world) == (epoch, epoch)
    settle_computing(first, second)
    assert (first.error, second.error, first.owned, second.owned) == (8, 8, {"t0": [0, 2]}, {"t0": [1, 3]})
    assert described(world)["assignmentError"] == 8


def test_an_error_ends_with_the_next_assignment(world: World) -> None:
    member = alone(world)
    member.beat(clientAssignors=[assignor(reason=1)])
    member.install({}, 3, error=7)
    member.beat()
    assert (member.error, member.owned) == (7, ALL)
    member.beat(clientAssignors=[assignor(reason=2)])
    member.compute()
    settle_computing(member)
    assert (member.error, member.owned) == (0, ALL)


def test_a_member_that_fails_is_asked_again_in_the_next_epoch(world: World) -> None:
    member = Computing(world, "a")
    member.join()
    member.install({}, 2, error=7)
    member.beat()
    assert not member.is_asked()
    world.set_topics(Topic(name="t0", partitions=5, id=topic_id("t0")), TOPICS[1])
    member.beat()
    assert member.is_asked()


def test_metadata_goes_from_members_to_the_assignor_and_back(world: World) -> None:
    first = alone(world, assignors=[assignor(metadata=b"up a")])
    second = Computing(world, "b", assignors=[assignor(metadata=b"up b")])
    second.join()
    prepared = second.prepare().body
    assert {member["memberId"]: member["metadata"] for member in prepared["members"]} == {
        "a": "dXAgYQ==",
        "b": "dXAgYg==",
    }
    second.install(in_turns(prepared), 3, metadata={"a": b"down a", "b": b"down b"})
    settle_computing(first, second)
    assert (first.metadata, second.metadata) == ((1, b"down a"), (1, b"down b"))


def test_metadata_of_members_of_the_classic_protocol_stands_in_their_assignments(world: World) -> None:
    classic = world.join(protocols={"turns": subscription("t0", version=1)}, version=3)
    world.advance(3_000)
    world.sync(
        classic.member, {classic.member.id: b"\0\1\0\0\0\1\0\2t0\0\0\0\1\0\0\0\0\xff\xff\xff\xff"}, protocol="turns"
    )
    able = Computing(world, "b", assignors=[assignor(least=-1, version=-1)])
    able.join()
    plan = {classic.member.id: {"t0": [0]}, "b": {"t0": [1, 2, 3]}}
    able.install(plan, able.prepare().body["groupEpoch"], metadata={classic.member.id: b"down"})
    joined = world.join(classic.member, protocols={"turns": subscription("t0", version=1)}, version=3)
    synced = world.sync(joined.member, protocol="turns")
    assert synced.error == "NONE"
    assert "AAAABGRvd24=" in synced.body["assignment"] or synced.body["assignment"].endswith("ZG93bg==")


# -- what survives ------------------------------------------------------------------------------------------------


def test_a_failover_goes_on_where_it_stopped(world: World) -> None:
    first, second = two(world)
    third = Computing(world, "c", assignors=[assignor(metadata=b"of c")])
    third.join()
    prepared = third.prepare()
    before = world.inside()
    world.advance(15_000)
    world.fail_over()
    assert world.inside() == before
    # The clock goes on from when it was told: no member more is asked, and the next one at the same time.
    second.beat()
    assert not second.is_asked()
    assert third.prepare().body == prepared.body
    world.advance(4_999)
    assert described(world)["computingMemberId"] == "c"
    world.advance(1)
    assert described(world)["computingMemberId"] == "a"
    first.beat()
    assert first.is_asked()


def test_an_assignment_can_be_installed_after_a_failover(world: World) -> None:
    first, second = two(world)
    third = Computing(world, "c")
    third.join()
    prepared = third.prepare()
    second.leave()
    world.fail_over()
    assert error_of(third.install(in_turns(prepared.body), 4, metadata={"a": b"down"})) == "NONE"
    world.fail_over()
    first.beat()
    first.beat()
    assert first.metadata == (1, b"down")


def test_an_error_is_told_after_a_failover(world: World) -> None:
    member = alone(world)
    member.beat(clientAssignors=[assignor(reason=1)])
    member.install({}, 3, error=7)
    world.fail_over()
    member.beat()
    assert (member.error, member.owned) == (7, ALL)


def test_a_downgrade_drops_what_classic_groups_cannot_hold(world: World) -> None:
    able = alone(world, assignors=[assignor("range", least=-1, version=-1)])
    # A classic member joins the consumer group.
    classic = world.join(protocols={"range": subscription("t0")}, version=3)
    assert classic.error == "NONE"
    able.leave()
    assert world.inside()["type"] == "classic"  # type: ignore[index]
    world.fail_over()
    assert world.members() == [classic.member.id]


# -- without the setting ------------------------------------------------------------------------------------------


def test_without_the_setting_nothing_of_it_is_there() -> None:
    coordinator = OurCoordinator({**CLIENT_SIDE, "group.consumer.client.assignors.enable": False}, TOPICS)
    world = World(coordinator, coordinator.records)
    member = Computing(world, "a", assignors=[assignor("")])
    asked = member.join()
    assert (asked.error, member.owned, member.is_asked()) == ("NONE", ALL, False)
    assert all("clientAssignors" not in (record.value or {}) for record in world.coordinator_records)
    assert member.prepare().waits, "an API that isn't known is set aside, as before"


def test_a_member_that_goes_back_to_version_0_is_not_waited_for(world: World) -> None:
    member = Computing(world, "a")
    member.join()
    body = {
        "groupId": G, "memberId": "a", "memberEpoch": member.epoch, "instanceId": None, "rackId": None,
        "rebalanceTimeoutMs": -1, "subscribedTopicNames": None, "serverAssignor": None, "topicPartitions": None,
    }  # fmt: skip
    answer = world.ask("ConsumerGroupHeartbeat", 0, body).body
    assert answer["assignment"]["topicPartitions"], "the coordinator assigns"


def test_version_0_knows_nothing_of_it(world: World) -> None:
    body = {
        "groupId": G, "memberId": "a", "memberEpoch": 0, "instanceId": None, "rackId": None,
        "rebalanceTimeoutMs": 20_000, "subscribedTopicNames": ["t0"], "serverAssignor": None, "topicPartitions": [],
        "clientAssignors": [assignor()],
    }  # fmt: skip
    answer = world.ask("ConsumerGroupHeartbeat", 0, body).body
    assert "shouldComputeAssignment" not in answer
    assert answer["assignment"]["topicPartitions"]
