"""KIP-848's client-side mode, sentence by sentence: what becomes of an assignment that a member computed.

CONFORMANCE.md names the sentence that each test is of. Every scenario goes through the state row after each request.
"""

from __future__ import annotations

import pytest

from coordinator_udf.protocol.requests import Topic
from coordinator_udf.protocol.unchanged_heartbeat import unchanged_heartbeat
from coordinator_udf.settings.file import topic_id
from tests.groups.bodies import subscription
from tests.groups.client_side import ALL, alone, described, epochs, make_world, rules, shared_out, two, two_and_a_third
from tests.groups.computing_member import (
    CLIENT_SIDE,
    Computing,
    assignor,
    error_of,
    in_turns,
    settle_computing,
)
from tests.groups.coordinators import OurCoordinator
from tests.groups.harness import TOPICS, G, World


@pytest.fixture
def world() -> World:
    return make_world()


# -- what was computed --------------------------------------------------------------------------------------------


def test_an_installed_assignment_is_what_members_converge_to(world: World) -> None:
    first, second, third = two_and_a_third(world)
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
    first, second, third = two_and_a_third(world)
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
    *_, third = two_and_a_third(world)
    assert error_of(third.install({}, epoch)) == "INVALID_ASSIGNMENT"


def test_who_is_named_twice_is_refused(world: World) -> None:
    member = Computing(world, "a")
    member.join()
    body = {"groupId": G, "memberId": "a", "memberEpoch": member.epoch, "groupEpoch": 2, "error": 0}
    entry = {"memberId": "a", "partitions": [], "metadataVersion": -1, "metadata": ""}
    asked = world.ask("ConsumerGroupInstallAssignment", 0, {**body, "members": [entry, entry]})
    assert error_of(asked) == "INVALID_ASSIGNMENT"


def test_who_joined_since_has_nothing_until_the_next_epoch(world: World) -> None:
    first, second, third = two_and_a_third(world)
    late = Computing(world, "d")
    prepared = third.prepare()
    late.join()
    third.install(in_turns(prepared.body), 4)
    assert late.beat().error == "NONE"
    assert late.owned == {}
    settle_computing(first, second, third, late)
    assert late.owned == {"t0": [3]}


def test_who_joined_since_cannot_be_in_the_assignment(world: World) -> None:
    *_, third = two_and_a_third(world)
    late = Computing(world, "d")
    late.join()
    refused = third.install({"d": {"t0": [0]}}, 4)
    assert error_of(refused) == "INVALID_ASSIGNMENT"
    assert "joined with epoch 5" in refused.body["errorMessage"]


def test_who_has_gone_since_is_dropped(world: World) -> None:
    first, second, third = two_and_a_third(world)
    prepared = third.prepare()
    second.leave()
    assert error_of(third.install(in_turns(prepared.body), 4)) == "NONE"
    assert (epochs(world), world.members()) == ((5, 4), ["a", "c"])
    settle_computing(first, third)
    assert (first.owned, third.owned) == ({"t0": [0, 2]}, {"t0": [1, 3]})


def test_who_came_back_since_is_dropped_too(world: World) -> None:
    first, second, third = two_and_a_third(world)
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
    first, second, third = two_and_a_third(world, assignors=[assignor(metadata=b"of c")])
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
    first, second, third = two_and_a_third(world)
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
    answer = world.ask("ConsumerGroupHeartbeat", 0, unchanged_heartbeat(G, "a", member.epoch, version=0)).body
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
