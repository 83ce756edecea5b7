"""Runs a group's world as it was and as it would have been, and compares what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from statistics import fmean, multimode
from typing import TypeVar

from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.measures import Measures, measured
from coordinator_udf.simulation.plan import WorldPlan
from coordinator_udf.simulation.what_if.assumed import assumed
from coordinator_udf.simulation.what_if.change import Change
from coordinator_udf.simulation.what_if.change_checks import checked_plan
from coordinator_udf.simulation.what_if.details import Details, detailed, mean_of
from coordinator_udf.simulation.what_if.group_log import GroupLog
from coordinator_udf.simulation.what_if.older_members import formed_too_late
from coordinator_udf.simulation.what_if.other_days import on_another_day
from coordinator_udf.simulation.what_if.pairing import goes_another_way, paired
from coordinator_udf.simulation.what_if.rebalances import Rebalance, simulated_rebalances
from coordinator_udf.simulation.what_if.span import Span, counted, why_nothing_is_counted
from coordinator_udf.simulation.what_if.without_effect import without_effect
from coordinator_udf.simulation.world import World

_Counts = TypeVar("_Counts", int, float, tuple[int, int])


@dataclass(frozen=True, slots=True)
class Calibration:
    """How much of what really happened happens again under the settings as they were.

    Attributes:
        pairs: what was recorded and what was simulated, side by side, of a world as most are; None where one is alone.
    """

    recorded: int
    simulated: int
    matched: int
    pairs: tuple[tuple[Rebalance | None, Rebalance | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Spread:
    """The least and the most of each measure, in all worlds that were run."""

    least: Measures
    most: Measures


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a group, as it was and as it would have been; the middle of several seeds.

    Attributes:
        base_spread, changed_spread: between what it may lie, as what was chance in the log might have been otherwise.
        base_details, changed_details: of each member and partition; the mean of the seeds.
        base_on_other_days: what `base` is on other days, where the group no longer follows the recorded one once it is
            changed: then `changed` is of other days, and to be compared with this. Else None.
        base_details_on_other_days: likewise of `base_details`.
        uncounted: why nothing of it is counted, in words, if nothing is.
        without_effect: what of the change makes no difference to it, in words.
    """

    group_id: str
    calibration: Calibration
    base: Measures
    changed: Measures
    base_spread: Spread
    changed_spread: Spread
    base_details: Details
    changed_details: Details
    unknown: tuple[str, ...]
    base_on_other_days: Measures | None = None
    base_details_on_other_days: Details | None = None
    uncounted: str | None = None
    without_effect: tuple[str, ...] = ()


def compare(
    group: GroupLog,
    change: Change,
    seeds: Sequence[int],
    span: tuple[int | None, int | None],
    other_days: Sequence[int] = (),
) -> Outcome:
    """Runs a group's world under the settings as they were and as changed, once for each seed.

    What the log shows of when members did things holds in the changed world for as long as that goes on as the recorded
    one did. Where it doesn't, what would have been chance in it isn't known, and the changed measures are the middle of
    worlds in which it is drawn.

    Args:
        span: from when to when is counted, in milliseconds since the epoch; by default from the first disturbance to
            the shutdown.
        other_days: seeds of worlds in which what was chance is drawn anew; without any there are only the recorded
            chances, and no spread but theirs.

    Raises:
        InputError: a member can't be set up like that.
        SettingsError: a coordinator can't.
    """
    plan = replace(group.plan, keeps_requests=True)
    other = checked_plan(group.group_id, group.plan, change)
    as_they_were = [World(plan, seed).run() for seed in seeds]
    as_changed = [World(replace(other, keeps_requests=True), seed).run() for seed in seeds]
    base, changed = ([_look(group, history, span) for history in one] for one in (as_they_were, as_changed))
    base_days = list(_on_other_days(group, group.plan, other_days, span))
    changed_days = list(_on_other_days(group, other, other_days, span))
    is_another_day = bool(changed_days) and goes_another_way(group, other, as_they_were, as_changed)
    told = changed_days if is_another_day else changed
    return Outcome(
        group_id=group.group_id,
        calibration=_calibration(group, as_they_were),
        base=_middle([one.measures for one in base]),
        changed=(_expected if is_another_day else _middle)([one.measures for one in told]),
        base_spread=_spread([one.measures for one in (*base, *base_days)]),
        changed_spread=_spread([one.measures for one in (*changed, *changed_days)]),
        base_details=mean_of([one.details for one in base]),
        changed_details=mean_of([one.details for one in told]),
        unknown=(
            *group.unknown,
            *assumed(group.plan, other, change),
            *formed_too_late(group.plan, group.partitions, as_they_were, as_changed),
        ),
        base_on_other_days=_expected([one.measures for one in base_days]) if is_another_day else None,
        base_details_on_other_days=mean_of([one.details for one in base_days]) if is_another_day else None,
        uncounted=why_nothing_is_counted(group.plan, group.formed_ms, Span(*span)),
        without_effect=tuple(without_effect(group.plan, other, change)),
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """What came of a group in one world."""

    measures: Measures
    details: Details


def _on_other_days(
    group: GroupLog, plan: WorldPlan, seeds: Iterable[int], span: tuple[int | None, int | None]
) -> Iterator[_Found]:
    for seed in seeds:
        yield _look(group, World(on_another_day(plan, group.formed_ms, seed), seed).run(), span)


def _look(group: GroupLog, history: History, span: tuple[int | None, int | None]) -> _Found:
    counts = counted(Span(*span), group.plan, group.formed_ms)
    return _Found(
        measured(history, group.group_id, group.partitions, counts),
        detailed(history, group.group_id, group.partitions, counts),
    )


def _calibration(group: GroupLog, histories: Sequence[History]) -> Calibration:
    changed_ms = group.plan.topics_changed_ms()
    found = [paired(group.rebalances, simulated_rebalances(one, group.group_id, changed_ms)) for one in histories]
    matched = [sum(None not in pair for pair in pairs) for pairs in found]
    simulated = [sum(pair[1] is not None for pair in pairs) for pairs in found]
    typical = _most_common(list(zip(simulated, matched, strict=True)))
    shown = found[next(n for n, counts in enumerate(zip(simulated, matched, strict=True)) if counts == typical)]
    return Calibration(len(group.rebalances), *typical, tuple(shown))


def _middle(found: Sequence[Measures]) -> Measures:
    """Returns the counts that most worlds have, and the mean of times."""
    return Measures(
        _most_common([m.rebalances for m in found]),
        round(fmean(m.unowned_s for m in found), 3),
        _most_common([m.moves for m in found]),
        _most_common([m.expulsions for m in found]),
    )


def _expected(found: Sequence[Measures]) -> Measures:
    """Returns the middle of several days: of moves, whose number the ids decide that members draw, the mean, too."""
    moves = round(fmean(m.moves for m in found), 1)
    return replace(_middle(found), moves=int(moves) if moves.is_integer() else moves)


def _spread(found: Sequence[Measures]) -> Spread:
    return Spread(*(Measures(*map(pick, zip(*map(astuple, found), strict=True))) for pick in (min, max)))


def _most_common(counts: Sequence[_Counts]) -> _Counts:
    """Returns what most worlds have; of several such counts the one nearest to the middle, as ids are drawn."""
    order = sorted(counts)
    middle = (len(order) - 1) // 2
    return min(multimode(counts), key=lambda count: abs(order.index(count) - middle))
