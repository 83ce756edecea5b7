"""Which rebalances of two runs of a group are the same, and whether the one goes another way than the other."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.plan import MemberPlan, WorldPlan
from coordinator_udf.simulation.what_if.group_log import GroupLog
from coordinator_udf.simulation.what_if.rebalances import Rebalance, simulated_rebalances

#: A simulated rebalance is the recorded one if it has the same trigger and begins within so many milliseconds of it, or
#: within a tenth of its length.
MATCH_MS = 1_000


def paired(
    recorded: Sequence[Rebalance], simulated: Sequence[Rebalance]
) -> list[tuple[Rebalance | None, Rebalance | None]]:
    """Returns each recorded rebalance with the simulated one of the same trigger that began nearest to it.

    Those that are nearest to each other come first: of two within a second, one isn't to have the other's.
    """
    near = sorted(
        (abs(one.start_ms - rebalance.start_ms), place, other)
        for place, rebalance in enumerate(recorded)
        for other, one in enumerate(simulated)
        if one.trigger == rebalance.trigger
        and abs(one.start_ms - rebalance.start_ms) <= max(MATCH_MS, rebalance.duration_ms / 10)
    )
    chosen: dict[int, int] = {}
    taken: set[int] = set()
    for _, place, other in near:
        if place not in chosen and other not in taken:
            chosen[place] = other
            taken.add(other)
    pairs: list[tuple[Rebalance | None, Rebalance | None]] = [
        (rebalance, simulated[chosen[place]] if place in chosen else None) for place, rebalance in enumerate(recorded)
    ]
    return sorted([*pairs, *((None, one) for n, one in enumerate(simulated) if n not in taken)], key=_start_ms)


def _start_ms(pair: tuple[Rebalance | None, Rebalance | None]) -> float:
    first = pair[0] or pair[1]
    return 0.0 if first is None else first.start_ms


def goes_another_way(
    group: GroupLog, changed: WorldPlan, as_they_were: Sequence[History], as_changed: Sequence[History]
) -> bool:
    """Tells whether a group, once changed, no longer follows the recorded day.

    That is so where members' recorded times aren't used any more (another protocol, other heartbeats), where partitions
    are assigned otherwise, and where most of the worlds have other rebalances than before.

    Args:
        as_they_were, as_changed: worlds of the group before and after the change, of the same seeds.
    """
    if _assignors(group.plan) != _assignors(changed) or any(
        _recorded_times(was) != _recorded_times(will_be)
        for was, will_be in zip(group.plan.members, changed.members, strict=True)
    ):
        return True
    changed_ms = group.plan.topics_changed_ms()
    others = 0
    for before, after in zip(as_they_were, as_changed, strict=True):
        pairs = paired(*(simulated_rebalances(one, group.group_id, changed_ms) for one in (before, after)))
        others += any(None in pair for pair in pairs)
    return 2 * others > len(as_changed)


def _assignors(plan: WorldPlan) -> tuple[object, ...]:
    """Returns who assigns partitions: what members ask for, and what the coordinator has."""
    names = ("partition.assignment.strategy", "group.remote.assignor")
    asked_for = tuple(member.properties.get(name) for member in plan.members for name in names)
    return asked_for, plan.settings.get("group.consumer.assignors")


def _recorded_times(member: MemberPlan) -> tuple[object, ...]:
    return member.beats_ms, member.looks_ms, member.sent_ms
