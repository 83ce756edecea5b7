"""What came of the worlds of a log's groups, as lines and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Any

from coordinator_udf.simulation.measures import Measures
from coordinator_udf.simulation.what_if.comparison import Calibration, Outcome
from coordinator_udf.simulation.what_if.rebalances import Rebalance

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
        yield from _calibration_lines(found)
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
    calibrations = [_counts(outcome.calibration) for outcome in outcomes]
    return {
        "calibration": {name: sum(one[name] for one in calibrations) for name in ("recorded", "simulated", "matched")},
        "base": _sum([o.base for o in outcomes]) | {o.group_id: asdict(o.base) for o in outcomes},
        "changed": _sum([o.changed for o in outcomes]) | {o.group_id: asdict(o.changed) for o in outcomes},
        "groups": {
            o.group_id: {
                "calibration": _counts(o.calibration),
                "rebalances": [_pair(*pair) for pair in o.calibration.pairs],
                "unknown": list(o.unknown),
            }
            for o in outcomes
        },
    }


def _calibration_lines(found: Calibration) -> Iterator[str]:
    yield f"  {'trigger':<16} {'recorded from':<23} {'for':>9}    {'simulated from':<23} {'for':>9}"
    for recorded, simulated in found.pairs:
        trigger = next(one.trigger for one in (recorded, simulated) if one is not None)
        yield f"  {trigger:<16} {_when(recorded)}    {_when(simulated)}"


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


def _sum(measures: Sequence[Measures]) -> dict[str, Any]:
    return {field.name: round(sum(getattr(one, field.name) for one in measures), 3) for field in fields(Measures)}


def _figure(value: float, *, sign: bool = False) -> str:
    shown = f"{value:+.1f}" if sign else f"{value:.1f}"
    return shown.removesuffix(".0") if isinstance(value, int) else shown
