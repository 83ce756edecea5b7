"""What came of the worlds of a log's groups, as lines and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from typing import Any

from coordinator_udf.simulation.measures import Measures
from coordinator_udf.simulation.what_if.comparison import Outcome

_TITLES = {
    "rebalances": "rebalances",
    "unowned_s": "partition-seconds without owner",
    "moves": "moves",
    "expulsions": "expulsions",
}


def report_lines(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yields for each group how well its world is calibrated, then what would have changed, then what isn't known."""
    for outcome in outcomes:
        found = outcome.calibration
        yield (
            f"{outcome.group_id}: calibration: {found.recorded} rebalances recorded, {found.simulated} simulated, "
            f"{found.matched} of them at their time"
        )
        for name, title in _TITLES.items():
            before, after = getattr(outcome.base, name), getattr(outcome.changed, name)
            change = _figure(after - before, sign=True)
            yield f"  {title:<32} {_figure(before):>10} -> {_figure(after):>10}   ({change})"
        for text in outcome.unknown:
            yield f"  not known: {text}"
    if len(outcomes) > 1:
        yield "all groups:"
        base, changed = _sum([o.base for o in outcomes]), _sum([o.changed for o in outcomes])
        for name, title in _TITLES.items():
            yield f"  {title:<32} {_figure(base[name]):>10} -> {_figure(changed[name]):>10}"


def as_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Returns the calibration and the measures of all groups together, and each group's under its name."""
    calibrations = [asdict(outcome.calibration) for outcome in outcomes]
    return {
        "calibration": {name: sum(one[name] for one in calibrations) for name in ("recorded", "simulated", "matched")},
        "base": _sum([o.base for o in outcomes]) | {o.group_id: asdict(o.base) for o in outcomes},
        "changed": _sum([o.changed for o in outcomes]) | {o.group_id: asdict(o.changed) for o in outcomes},
        "groups": {o.group_id: {"calibration": asdict(o.calibration), "unknown": list(o.unknown)} for o in outcomes},
    }


def _sum(measures: Sequence[Measures]) -> dict[str, Any]:
    return {field.name: round(sum(getattr(one, field.name) for one in measures), 3) for field in fields(Measures)}


def _figure(value: float, *, sign: bool = False) -> str:
    shown = f"{value:+.1f}" if sign else f"{value:.1f}"
    return shown.removesuffix(".0") if isinstance(value, int) else shown
