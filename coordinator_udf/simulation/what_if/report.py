"""What came of the worlds of a log's groups, as lines and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Any

from coordinator_udf.simulation.measures import Measures
from coordinator_udf.simulation.what_if.change import Change
from coordinator_udf.simulation.what_if.comparison import Calibration, Outcome, Spread
from coordinator_udf.simulation.what_if.details import RefusedMember
from coordinator_udf.simulation.what_if.rebalances import Rebalance

_TITLES = {
    "rebalances": "rebalances",
    "unowned_s": "partition-seconds without owner",
    "moves": "moves",
    "expulsions": "expulsions",
}
#: So many members, and as many partitions, have a line: with half or double as many of a large group are seen.
_MOST_LINES = 10


def report_lines(outcomes: Sequence[Outcome], left_out: Mapping[str, str]) -> Iterator[str]:
    """Yields for each group how well its world is calibrated, then what would have changed, then what isn't known.

    Args:
        left_out: groups that aren't simulated, each with why.
    """
    for outcome in outcomes:
        found = outcome.calibration
        yield (
            f"{outcome.group_id}: calibration: {found.recorded} rebalances recorded, {found.simulated} simulated, "
            f"{found.matched} of them at their time"
        )
        yield from _calibration_lines(found)
        if outcome.uncounted is not None:
            yield f"  nothing is counted: {outcome.uncounted}"
        for text in outcome.without_effect:
            yield f"  changes nothing: {text}"
        if outcome.base_on_other_days is not None:
            yield from _other_days_lines(outcome.base_on_other_days)
        for name, title in _TITLES.items():
            before, after = getattr(outcome.base, name), getattr(outcome.changed, name)
            changed_from = getattr(outcome.base_on_other_days or outcome.base, name)
            spread = f"{_range(outcome.base_spread, name)} -> {_range(outcome.changed_spread, name)}"
            yield f"{_line(title, before, after)}   {_change(changed_from, after):<9} by chance {spread}"
        yield from _detail_lines(outcome)
        for text in outcome.unknown:
            yield f"  not known: {text}"
    if len(outcomes) > 1:
        yield "all groups:"
        base, changed = _sum([o.base for o in outcomes]), _sum([o.changed for o in outcomes])
        for name, title in _TITLES.items():
            yield _line(title, base[name], changed[name])
        yield from _in_all(outcomes)
    for group_id, why in left_out.items():
        yield f"{group_id}: not simulated, and in no figure: {why}"


def as_json(outcomes: Sequence[Outcome], left_out: Mapping[str, str], change: Change | None = None) -> dict[str, Any]:
    """Returns the calibration and the measures of all groups together, and each group's under its name.

    Args:
        left_out: groups that aren't simulated, each with why.
        change: what was asked for.
    """
    calibrations = [_counts(outcome.calibration) for outcome in outcomes]
    return {
        "calibration": {name: sum(one[name] for one in calibrations) for name in ("recorded", "simulated", "matched")},
        "base": _sum([o.base for o in outcomes]) | {o.group_id: asdict(o.base) for o in outcomes},
        "changed": _sum([o.changed for o in outcomes]) | {o.group_id: asdict(o.changed) for o in outcomes},
        "groups": {
            o.group_id: {
                "calibration": _counts(o.calibration),
                "rebalances": [_pair(*pair) for pair in o.calibration.pairs],
                **_details(o),
                "spread": {"base": _ranges(o.base_spread), "changed": _ranges(o.changed_spread)},
                "unknown": list(o.unknown),
                "base_on_other_days": None if o.base_on_other_days is None else asdict(o.base_on_other_days),
                "nothing_counted": o.uncounted,
                "without_effect": list(o.without_effect),
            }
            for o in outcomes
        },
        "not_simulated": dict(left_out),
        "options": [] if change is None else change.in_options(),
    }


def _calibration_lines(found: Calibration) -> Iterator[str]:
    yield f"  {'trigger':<16} {'recorded from':<23} {'for':>9}    {'simulated from':<23} {'for':>9}"
    for recorded, simulated in found.pairs:
        trigger = next(one.trigger for one in (recorded, simulated) if one is not None)
        yield f"  {trigger:<16} {_when(recorded)}    {_when(simulated)}"


def _detail_lines(outcome: Outcome) -> Iterator[str]:
    base, changed = outcome.base_details, outcome.changed_details
    yield from _refused_lines("as it was", base.refused_members)
    yield from _refused_lines("as changed", changed.refused_members)
    yield from _in_all([outcome])
    before = outcome.base_details_on_other_days or base
    yield from _each("seconds stopped", base.stopped_s, changed.stopped_s, before.stopped_s)
    yield from _each("seconds without owner", base.unowned_s, changed.unowned_s, before.unowned_s)


def _refused_lines(when: str, members: Mapping[str, RefusedMember]) -> Iterator[str]:
    """Yields a line for each process that was refused for good, of many only for the first."""
    for name, refused in list(members.items())[:_MOST_LINES]:
        share = "" if refused.share == 1 else f" (in {refused.share:.0%} of the worlds)"
        yield f"  refused for good, {when}{share}: {name}: {refused.error}"
    if len(members) > _MOST_LINES:
        yield f"  refused for good, {when}: {len(members) - _MOST_LINES} more"


def _in_all(outcomes: Sequence[Outcome]) -> Iterator[str]:
    found = (
        [one.base_details for one in outcomes],
        [one.changed_details for one in outcomes],
        [one.base_details_on_other_days or one.base_details for one in outcomes],
    )
    yield _changed_line("refused commits", *(sum(one.refused_commits for one in details) for details in found))
    stopped_s = (sum(sum(one.stopped_s.values()) for one in details) for details in found)
    yield _changed_line("member-seconds stopped", *stopped_s)


def _each(
    title: str, base: Mapping[str, float], changed: Mapping[str, float], changed_from: Mapping[str, float]
) -> Iterator[str]:
    """Yields a line for each member or partition, of many only for those that lost most.

    Args:
        changed_from: what the change is told from.
    """
    both = {name: (base.get(name, 0.0), changed.get(name, 0.0)) for name in {**base, **changed}}
    most = set(sorted(both, key=lambda name: max(both[name]), reverse=True)[:_MOST_LINES])
    yield f"  {title}"
    for name, times_s in both.items():
        if name in most:
            yield _changed_line(f"  {name}", *times_s, changed_from.get(name, 0.0))
    if len(both) > len(most):
        yield f"    and {len(both) - len(most)} with less"


def _line(title: str, before: float, after: float) -> str:
    return f"  {title:<32} {_figure(before):>10} -> {_figure(after):>10}"


def _changed_line(title: str, before: float, after: float, changed_from: float) -> str:
    return f"{_line(title, before, after)}   {_change(changed_from, after)}"


def _change(before: float, after: float) -> str:
    return f"({_figure(after - before, sign=True)})"


def _other_days_lines(base: Measures) -> Iterator[str]:
    """Yields what is to be known of figures after a change that are of other days, and what those are before it."""
    figures = ", ".join(f"{title} {_figure(getattr(base, name))}" for name, title in _TITLES.items())
    yield "  once changed, it no longer follows the recorded day: what comes then is of days on which chance is drawn;"
    yield f"  what changes is told from what those have before the change: {figures}"


def _details(outcome: Outcome) -> dict[str, Any]:
    found = {"base": outcome.base_details, "changed": outcome.changed_details}
    refused = {
        when: {name: asdict(one) for name, one in details.refused_members.items()} for when, details in found.items()
    }
    if outcome.base_details_on_other_days is not None:
        found["base_on_other_days"] = outcome.base_details_on_other_days
    names = ("refused_commits", "stopped_s", "unowned_s")
    figures = {name: {when: getattr(details, name) for when, details in found.items()} for name in names}
    return {**figures, "refused_members": refused}


def _when(rebalance: Rebalance | None) -> str:
    if rebalance is None:
        return f"{'-':<23} {'-':>9}"
    start = datetime.fromtimestamp(rebalance.start_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    return f"{start} {rebalance.duration_ms:>6.0f} ms"


def _counts(found: Calibration) -> dict[str, int]:
    return {"recorded": found.recorded, "simulated": found.simulated, "matched": found.matched}


def _pair(recorded: Rebalance | None, simulated: Rebalance | None) -> dict[str, Any]:
    return {
        name: None
        if one is None
        else {"trigger": one.trigger, "start_ms": one.start_ms, "duration_ms": one.duration_ms}
        for name, one in (("recorded", recorded), ("simulated", simulated))
    }


def _range(spread: Spread, name: str) -> str:
    least, most = _figure(getattr(spread.least, name)), _figure(getattr(spread.most, name))
    return least if least == most else f"{least} to {most}"


def _ranges(spread: Spread) -> dict[str, list[float]]:
    """Returns the least and the most of each measure."""
    return {field.name: [getattr(one, field.name) for one in (spread.least, spread.most)] for field in fields(Measures)}


def _sum(measures: Sequence[Measures]) -> dict[str, Any]:
    return {field.name: round(sum(getattr(one, field.name) for one in measures), 3) for field in fields(Measures)}


def _figure(value: float, *, sign: bool = False) -> str:
    shown = f"{value:+.1f}" if sign else f"{value:.1f}"
    return shown.removesuffix(".0") if isinstance(value, int) else shown
