"""Members in each of the ten states, brought there by what can happen to them."""

from __future__ import annotations

from collections.abc import Callable

from coordinator_udf.members.consumer.states import MemberState
from coordinator_udf.members.inputs import Close, Membership, Subscribe, Unsubscribe
from tests.members.consumer.world import World, assignment, coordinator_answer, heartbeat_answer

ASSIGNED = {"t0": frozenset({0, 1}), "t1": frozenset({2})}


def unsubscribed() -> World:
    """Knows its coordinator; isn't subscribed to anything."""
    world = World()
    world.tell_metadata()
    world.answer("FindCoordinator", coordinator_answer())
    return world


def joining() -> World:
    """Its first heartbeat is on its way."""
    world = unsubscribed()
    world.give(Subscribe(("t0", "t1")))
    world.tell_metadata()
    world.poll()
    return world


def reconciling() -> World:
    """Was assigned something; the application hasn't polled since."""
    world = joining()
    world.answer("ConsumerGroupHeartbeat", heartbeat_answer(assignment=assignment(ASSIGNED)))
    return world


def acknowledging() -> World:
    """Has reconciled while a heartbeat was on its way, so the one that says so has to wait."""
    world = reconciling()
    world.pass_time((world.requests("ConsumerGroupHeartbeat") == [] and 1100) or 0)
    world.poll()
    return world


def stable() -> World:
    """Has its assignment, and no heartbeat on its way."""
    world = reconciling()
    world.poll()
    world.answer("ConsumerGroupHeartbeat", heartbeat_answer())
    return world


def fenced() -> World:
    """Was thrown out; the application hasn't polled since, so onPartitionsLost hasn't run."""
    world = stable()
    world.pass_time(1100)
    world.answer("ConsumerGroupHeartbeat", heartbeat_answer(errorCode=110))
    return world


def prepare_leaving() -> World:
    """Unsubscribes; onPartitionsRevoked runs."""
    world = stable()
    world.give(Unsubscribe())
    return world


def leaving() -> World:
    """Closes without leaving for good while a heartbeat is on its way, so the last one has to wait."""
    world = stable()
    world.pass_time(1100)
    world.give(Close(1000, Membership.REMAIN_IN_GROUP))
    world.end_callback()
    return world


def stale() -> World:
    """Its application hasn't polled for too long."""
    world = stable()
    while True:
        world.pass_time(500)
        if world.transitions()[-1] == "STALE":
            return world
        for _ in world.requests("ConsumerGroupHeartbeat"):
            world.answer("ConsumerGroupHeartbeat", heartbeat_answer())


def fatal() -> World:
    """Was told that it may not be in this group."""
    world = stable()
    world.pass_time(1100)
    world.answer("ConsumerGroupHeartbeat", heartbeat_answer(errorCode=30))
    return world


STATIONS: dict[MemberState, Callable[[], World]] = {
    MemberState.UNSUBSCRIBED: unsubscribed,
    MemberState.JOINING: joining,
    MemberState.RECONCILING: reconciling,
    MemberState.ACKNOWLEDGING: acknowledging,
    MemberState.STABLE: stable,
    MemberState.FENCED: fenced,
    MemberState.PREPARE_LEAVING: prepare_leaving,
    MemberState.LEAVING: leaving,
    MemberState.FATAL: fatal,
    MemberState.STALE: stale,
}
