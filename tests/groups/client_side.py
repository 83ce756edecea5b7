"""Groups of members that compute their assignments, for the tests of KIP-848's client-side mode."""

from __future__ import annotations

from typing import Any

from tests.groups.computing_member import CLIENT_SIDE, Computing, settle_computing
from tests.groups.consumer_member import Consumer
from tests.groups.coordinators import OurCoordinator
from tests.groups.harness import TOPICS, G, World

ALL = {"t0": [0, 1, 2, 3]}


def make_world(**settings: object) -> World:
    coordinator = OurCoordinator({**CLIENT_SIDE, **settings}, TOPICS)
    return World(coordinator, coordinator.records)


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


def two_and_a_third(world: World, **how: Any) -> tuple[Computing, Computing, Computing]:
    """Two members with two partitions each, and one that has come since and is asked to compute."""
    first, second = two(world)
    third = Computing(world, "c", **how)
    third.join()
    return first, second, third


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
