"""`history`: what a micro-batch costs after 100, 1,000 and 5,000 of them; a table and a plot."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from scripts.benchmarks.live import Batch, Live
from scripts.benchmarks.plots import save_plot
from scripts.benchmarks.results import Outcome
from scripts.benchmarks.running import Options, median, percentile, say

AGES = (100, 1_000, 5_000)
_GROUPS = 100
_RATE = 100
#: How many micro-batches are looked at, at each age, and for how many marks of ten seconds their CPU time is.
_WINDOW = 50
_MARKS = 4


def run(options: Options) -> Outcome:
    """Returns the duration of micro-batches by their number, with requests in each."""
    outcome = Outcome()
    ages = [options.sized(age, number) for age, number in zip(AGES, (3, 6, 9), strict=True)]
    live = Live(options.data / "history", _GROUPS)
    durations: dict[int, list[float]] = {}
    cpu_ms: dict[int, float] = {}
    with live.job(floor=False) as job:
        first = live.batches()[-1].batch + 1
        for age in ages:
            marks = [(live.batches()[-1].batch, job.cpu_s)]
            while len(marks) == 1 or marks[-1][0] < first + age:
                live.offer(_RATE, 10, job)
                marks.append((live.batches()[-1].batch, job.cpu_s))
                say(f"history: {marks[-1][0] - first:,} of {ages[-1]:,} micro-batches")
            cpu_ms[age] = _cpu_ms(marks[-_MARKS:])
            window = [batch for batch in live.batches() if first + age - _WINDOW < batch.batch <= first + age]
            durations[age] = [float(batch.ms["triggerExecution"]) for batch in window if batch.batch >= first]
        _plot([batch for batch in live.batches() if batch.batch >= first], options.plots / "cost-by-history")
    for age, found in durations.items():
        outcome.add(f"batch after {age:,} batches, p50", median(found), "ms", "lower")
        outcome.add(f"batch after {age:,} batches, p99", percentile(found, 0.99), "ms", "lower")
        outcome.add(f"batch after {age:,} batches, CPU time", cpu_ms[age], "ms", "lower")
    names = f"after {ages[-1]:,} to after {ages[0]:,} batches"
    outcome.add(names, median(durations[ages[-1]]) / median(durations[ages[0]]), "ratio", "lower")
    # What else the machine does makes a batch longer, but hardly changes its CPU time.
    outcome.add(f"{names}, CPU time", cpu_ms[ages[-1]] / cpu_ms[ages[0]], "ratio", "lower")
    outcome.notes.append(f"{_GROUPS} groups, {_RATE} requests/s; the last {_WINDOW} micro-batches up to each age")
    outcome.notes.append(f"the plot is in {options.plots}")
    return outcome


def _plot(batches: list[Batch], path: Path) -> None:
    import altair as alt

    times = pd.DataFrame({"batch": [b.batch for b in batches], "ms": [b.ms["triggerExecution"] for b in batches]})
    times["micro-batches before"] = (times["batch"] - times["batch"].min()) // _WINDOW * _WINDOW
    by_age = times.groupby("micro-batches before")["ms"]
    shown = pd.DataFrame({"p50": by_age.median(), "p90": by_age.quantile(0.9)}).reset_index()
    chart = (
        alt.Chart(shown.melt("micro-batches before", var_name="what", value_name="duration, ms"))
        .mark_line()
        .encode(alt.X("micro-batches before"), alt.Y("duration, ms"), alt.Color("what").title(None))
        .properties(width=480, height=300)
    )
    save_plot(chart, path)


def _cpu_ms(marks: list[tuple[int, float]]) -> float:
    """Returns a micro-batch's CPU time between marks: a batch's number and the job's CPU time by then, seconds."""
    (first, before), (last, after) = marks[0], marks[-1]
    return (after - before) / max(last - first, 1) * 1_000
