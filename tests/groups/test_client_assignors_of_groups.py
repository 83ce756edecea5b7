"""KIP-848's client-side mode, sentence by sentence: which assignor a group uses.

CONFORMANCE.md names the sentence that each test is of. Every scenario goes through the state row after each request.
"""

from __future__ import annotations

import pytest

from tests.groups.bodies import subscription
from tests.groups.client_side import ALL, alone, described, make_world
from tests.groups.computing_member import (
    Computing,
    assignor,
    settle_computing,
)
from tests.groups.consumer_member import Consumer, settle
from tests.groups.harness import World


@pytest.fixture
def world() -> World:
    return make_world()


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
