"""Finds the shortest list of events that still shows a violation: all that can be is left out of a world's plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from coordinator_udf.simulation.invariants import violations
from coordinator_udf.simulation.plan import MemberPlan, NetworkPlan, WorldPlan
from coordinator_udf.simulation.violation import Violation
from coordinator_udf.simulation.world import World

#: So many worlds are tried at most: it bounds how long a search for fewer events takes, which leaves one event out at a
#: time, to 16 to 130 s of CPU (0.04 to 0.32 s a world). With half a plan of more than some twenty events keeps ones
#: that it doesn't need; with double the search takes up to twice as long.
_MAX_WORLDS = 400


def shrink(plan: WorldPlan, seed: int, kind: str, say: Callable[[str], None] = lambda _: None) -> WorldPlan:
    """Returns a plan with as little in it as still shows a violation of a kind with the same seed.

    Args:
        say: is told each plan that is simpler than the one before.
    """
    tried, is_simpler = 0, True
    while is_simpler:
        is_simpler = False
        for simpler in _simpler(plan):
            tried += 1
            if tried > _MAX_WORLDS:
                return plan
            if any(violation.kind == kind for violation in run(simpler, seed)):
                plan, is_simpler = simpler, True
                say(f"{sum(1 for _ in event_list(plan))} events left after {tried} worlds")
                break
    return plan


def run(plan: WorldPlan, seed: int) -> list[Violation]:
    """Returns the violations of a world."""
    return violations(World(plan, seed).run())


def _simpler(plan: WorldPlan) -> Iterator[WorldPlan]:
    """Yields plans with one thing less, the largest things first."""
    for place in range(len(plan.members)):
        if len(plan.members) > 1:
            yield replace(plan, members=plan.members[:place] + plan.members[place + 1 :])
    for place in range(len(plan.failovers)):
        yield replace(plan, failovers=plan.failovers[:place] + plan.failovers[place + 1 :])
    for topic in plan.topics:
        if topic.at_ms > 0:
            yield replace(plan, topics=tuple(other for other in plan.topics if other is not topic))
    for place, member in enumerate(plan.members):
        for calmer in _calmer(member):
            yield replace(plan, members=(*plan.members[:place], calmer, *plan.members[place + 1 :]))
    if plan.network.loss:
        yield replace(plan, network=replace(plan.network, loss=0.0))
    if plan.network != NetworkPlan():
        yield replace(plan, network=NetworkPlan(loss=plan.network.loss))
    if plan.cadence_ms:
        yield replace(plan, cadence_ms=0)


def _calmer(member: MemberPlan) -> Iterator[MemberPlan]:
    if member.habit is not None:
        yield replace(member, habit=None)
    if member.crash_at_ms is not None:
        yield replace(member, crash_at_ms=None)
    if member.close_at_ms is not None:
        yield replace(member, close_at_ms=None)
    for stall in member.stalls:
        yield replace(member, stalls=tuple(other for other in member.stalls if other is not stall))
    for cut in member.cuts:
        yield replace(member, cuts=tuple(other for other in member.cuts if other is not cut))
    for hang in member.hangs:
        yield replace(member, hangs=tuple(other for other in member.hangs if other is not hang))
    for refusal in member.refusals:
        yield replace(member, refusals=tuple(other for other in member.refusals if other is not refusal))
    for slow in member.slow:
        yield replace(member, slow=tuple(other for other in member.slow if other is not slow))


def event_list(plan: WorldPlan) -> Iterator[str]:
    """Yields what is planned to happen in a world, a line each, in the order of time."""
    events: list[tuple[int, str]] = []
    for member in plan.members:
        protocol = member.properties.get("group.protocol", "classic")
        kind = protocol if member.habit is None else f"{protocol}, {member.habit}"
        events.append((member.start_ms, f"{member.name} starts, in the group {member.group_id} ({kind})"))
        events += [(one.at_ms, f"{member.name} doesn't poll for {one.length_ms} ms") for one in member.stalls]
        events += [(one.at_ms, f"{member.name} hangs for {one.length_ms} ms") for one in member.hangs]
        events += [(one.at_ms, f"{member.name} can't connect for {one.length_ms} ms") for one in member.refusals]
        events += [(one.at_ms, f"{member.name} is cut off for {one.length_ms} ms") for one in member.cuts]
        events += [
            (one.at_ms, f"{member.name}'s messages take {one.by_ms} ms longer for {one.length_ms} ms")
            for one in member.slow
        ]
        if member.crash_at_ms is not None:
            events.append((member.crash_at_ms, f"{member.name} is killed"))
        if member.close_at_ms is not None:
            events.append((member.close_at_ms, f"{member.name} closes"))
    events += [(one.at_ms, f"the coordinator is away for {one.down_ms} ms") for one in plan.failovers]
    events += [(topic.at_ms, f"{topic.name} has {topic.partitions} partitions") for topic in plan.topics]
    for at_ms, text in sorted(events):
        yield f"{at_ms / 1000:9.3f} s  {text}"
