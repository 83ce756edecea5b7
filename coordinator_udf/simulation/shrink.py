"""Finds the shortest list of events that still shows a violation: all that can be is left out of a world's plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from coordinator_udf.protocol.partitioner import partition_for
from coordinator_udf.simulation.invariants import violations
from coordinator_udf.simulation.plan import MemberPlan, NetworkPlan, WorldPlan
from coordinator_udf.simulation.scenario import failovers_apart
from coordinator_udf.simulation.violation import Violation
from coordinator_udf.simulation.world import World

#: So many worlds are tried at most: it bounds how long a search for fewer events takes to 16 to 130 s of CPU (0.04 to
#: 0.32 s a world). With half a plan of more than some twenty events that are all needed keeps ones that aren't; with
#: double the search takes up to twice as long.
_MAX_WORLDS = 400
#: What may be left out of a member's plan, by the field.
_LISTS = ("stalls", "cuts", "hangs", "refusals", "slow", "resubscribes")
_SINGLE = ("habit", "crash_at_ms", "close_at_ms")


def run(plan: WorldPlan, seed: int) -> list[Violation]:
    """Returns the violations of a world."""
    return violations(World(plan, seed).run())


def shrink(plan: WorldPlan, seed: int, kind: str, say: Callable[[str], None] = lambda _: None) -> WorldPlan:
    """Returns a plan with as little in it as still shows a violation of a kind with the same seed.

    Args:
        say: is told how many events are left each time there are fewer, and if it ends before all was tried.
    """
    return _Search(seed, kind, say).simplest(plan)


class _Search:
    """A search for a simpler plan, without halves, then quarters and so on, of its groups, families and members."""

    def __init__(self, seed: int, kind: str, say: Callable[[str], None]) -> None:
        self._seed = seed
        self._kind = kind
        self._say = say
        self._tried = 0

    def simplest(self, plan: WorldPlan) -> WorldPlan:
        """Returns a plan of which nothing can be left out, as far as worlds may be tried."""
        before = None
        while plan is not before and self._tried <= _MAX_WORLDS:
            before = plan
            plan = self._with(_with_one_shard, plan)
            for name_of in (_group, _family, _client, _process):
                plan = self._with_fewer_members(plan, name_of)
            plan = self._with_fewer_disturbances(plan)
            for calmer in _CALMER:
                plan = self._with(calmer, plan)
        return plan

    def _with(self, calmer: Callable[[WorldPlan], WorldPlan], plan: WorldPlan) -> WorldPlan:
        simpler = calmer(plan)
        return plan if simpler == plan else self._if_it_shows(simpler) or plan

    def _with_fewer_members(self, plan: WorldPlan, name_of: Callable[[MemberPlan], Hashable]) -> WorldPlan:
        names = list(dict.fromkeys(name_of(member) for member in plan.members))

        def without(plan: WorldPlan, left_out: Collection[Hashable]) -> WorldPlan:
            members = tuple(one for one in plan.members if name_of(one) not in left_out)
            left = {member.name for member in members}
            return replace(plan, members=members, removals=tuple(one for one in plan.removals if one.process in left))

        return self._with_fewer(plan, names, without)

    def _with_fewer_disturbances(self, plan: WorldPlan) -> WorldPlan:
        changes = [topic for topic in plan.topics if topic.at_ms > 0]
        for field, parts in (
            ("failovers", plan.failovers),
            ("pauses", plan.pauses),
            ("removals", plan.removals),
            ("topics", changes),
        ):
            plan = self._with_fewer(plan, parts, partial(_world_without, field))
        of_members = [disturbance for member in plan.members for disturbance in _disturbances(member)]
        return self._with_fewer(plan, of_members, _calmed)

    def _with_fewer(
        self, plan: WorldPlan, parts: Sequence[Any], without: Callable[[WorldPlan, Sequence[Any]], WorldPlan]
    ) -> WorldPlan:
        """Returns a plan without those of its parts that it can do without: it tries halves, then ever smaller ones."""
        size = max(1, len(parts) // 2)
        while parts:
            place = 0
            while place < len(parts):
                left_out = parts[place : place + size]
                simpler = self._if_it_shows(without(plan, left_out))
                if simpler is None:
                    place += size
                else:
                    plan, parts = simpler, [*parts[:place], *parts[place + size :]]
            if size == 1:
                break
            size //= 2
        return plan

    def _if_it_shows(self, plan: WorldPlan) -> WorldPlan | None:
        """Returns a plan if its world shows the violation; None if it doesn't, or no more worlds may be tried."""
        if not plan.members or self._tried > _MAX_WORLDS:
            return None
        self._tried += 1
        if self._tried > _MAX_WORLDS:
            self._say(f"{_MAX_WORLDS} worlds were tried, and not all that could be left out: fewer events may show it")
            return None
        if all(violation.kind != self._kind for violation in run(plan, self._seed)):
            return None
        self._say(f"{sum(1 for _ in event_list(plan))} events left after {self._tried} worlds")
        return plan


def _group(member: MemberPlan) -> Hashable:
    return member.group_id


def _family(member: MemberPlan) -> Hashable:
    """Returns what members have in common that are set up alike: their group, and their names but for the number."""
    return member.group_id, member.client_id.rstrip("0123456789")


def _client(member: MemberPlan) -> Hashable:
    return member.client_id


def _process(member: MemberPlan) -> Hashable:
    return member.name


def _world_without(field: str, plan: WorldPlan, left_out: Sequence[Any]) -> WorldPlan:
    changes: dict[str, Any] = {field: _without(getattr(plan, field), left_out)}
    return replace(plan, **changes)


def _without(all_of: tuple[Any, ...], left_out: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(one for one in all_of if one not in left_out)


def _disturbances(member: MemberPlan) -> Iterator[tuple[str, str, Any]]:
    """Yields what happens to a member: its name, the field of its plan, and what of a list."""
    for field in _SINGLE:
        if getattr(member, field) is not None:
            yield member.name, field, None
    for field in _LISTS:
        for one in getattr(member, field):
            yield member.name, field, one


def _calmed(plan: WorldPlan, left_out: Sequence[tuple[str, str, Any]]) -> WorldPlan:
    """Returns a plan without some of what happens to members."""
    members = []
    for member in plan.members:
        changes: dict[str, Any] = {}
        for name, field, one in left_out:
            if name == member.name and field in _SINGLE:
                changes[field] = None
            elif name == member.name:
                changes[field] = _without(changes.get(field, getattr(member, field)), [one])
        members.append(replace(member, **changes) if changes else member)
    return replace(plan, members=tuple(members))


def _without_loss(plan: WorldPlan) -> WorldPlan:
    return replace(plan, network=replace(plan.network, loss=0.0))


def _with_short_links(plan: WorldPlan) -> WorldPlan:
    return replace(plan, network=NetworkPlan(loss=plan.network.loss))


def _without_cadence(plan: WorldPlan) -> WorldPlan:
    return replace(plan, cadence_ms=0)


def _with_one_shard(plan: WorldPlan) -> WorldPlan:
    failovers = failovers_apart(replace(failover, shard=0) for failover in plan.failovers)
    pauses = tuple(dict.fromkeys(replace(pause, shard=0) for pause in plan.pauses))
    return replace(plan, shards=1, failovers=failovers, pauses=pauses)


_CALMER = (_without_loss, _with_short_links, _without_cadence)


def event_list(plan: WorldPlan) -> Iterator[str]:
    """Yields what is planned to happen in a world, a line each, in the order of time."""
    events = [*_of_the_world(plan)]
    for member in plan.members:
        events += _of_member(member)
    for at_ms, text in sorted(events):
        yield f"{at_ms / 1000:9.3f} s  {text}"


def _of_the_world(plan: WorldPlan) -> Iterator[tuple[int, str]]:
    for topic in plan.topics:
        has = f"has {topic.partitions} partitions" if topic.partitions else "is deleted"
        yield topic.at_ms, f"{topic.name} {has}"
    for failover in plan.failovers:
        yield failover.at_ms, f"{_shard(plan, failover.shard)} is away for {failover.down_ms} ms"
    for pause in plan.pauses:
        yield pause.at_ms, f"{_shard(plan, pause.shard)} pauses for {pause.length_ms} ms"
    for removal in plan.removals:
        yield removal.at_ms, f"an administrator removes {removal.process}"
    low, high = plan.network.latency_ms
    if plan.network.latency_ms != NetworkPlan().latency_ms:
        yield (
            0,
            f"messages take {low} to {high} ms from now on" if low < high else f"messages take {low} ms from now on",
        )
    if plan.network.loss:
        yield 0, f"with {plan.network.loss:.4%} of requests the connection is lost from now on"
    if plan.shards > 1:
        groups = dict.fromkeys(member.group_id for member in plan.members)
        places = ", ".join(f"{group_id} in {partition_for(group_id, plan.shards)}" for group_id in groups)
        yield 0, f"the coordinator has {plan.shards} shards, with group {places}"
    if plan.cadence_ms:
        yield 0, f"the coordinator answers once in {plan.cadence_ms} ms from now on"


def _shard(plan: WorldPlan, shard: int) -> str:
    return "the coordinator" if plan.shards == 1 else f"shard {shard}"


def _of_member(member: MemberPlan) -> Iterator[tuple[int, str]]:
    protocol = member.properties.get("group.protocol", "classic")
    kind = protocol if member.habit is None else f"{protocol}, {member.habit}"
    if "group.instance.id" in member.properties:
        kind += f", static as {member.properties['group.instance.id']}"
    if member.again_ms is not None:
        kind += f", and again {member.again_ms} ms after poll threw"
    yield member.start_ms, f"{member.name} starts, in the group {member.group_id} ({kind})"
    for field, text in (
        ("stalls", "doesn't poll"),
        ("hangs", "hangs"),
        ("refusals", "can't connect"),
        ("cuts", "is cut off"),
    ):
        for one in getattr(member, field):
            yield one.at_ms, f"{member.name} {text} for {one.length_ms} ms"
    for at_ms, topics in member.resubscribes:
        yield at_ms, f"{member.name} subscribes to {', '.join(topics) or 'nothing'}"
    for slow in member.slow:
        yield slow.at_ms, f"{member.name}'s messages take {slow.by_ms} ms longer for {slow.length_ms} ms"
    if member.crash_at_ms is not None:
        yield member.crash_at_ms, f"{member.name} is killed"
    if member.close_at_ms is not None:
        yield member.close_at_ms, f"{member.name} closes"
