"""`history`: what a micro-batch costs after 100, 1,000 and 5,000 of them."""

from __future__ import annotations

from scripts.benchmarks.live import Live
from scripts.benchmarks.results import Outcome
from scripts.benchmarks.running import Options, median, percentile, say

AGES = (100, 1_000, 5_000)
_GROUPS = 100
_RATE = 100
#: How many micro-batches are looked at, at each age.
_WINDOW = 50


def run(options: Options) -> Outcome:
    """The duration of micro-batches by their number, with requests in each."""
    outcome = Outcome()
    ages = [options.sized(age, number) for age, number in zip(AGES, (3, 6, 9), strict=True)]
    live = Live(options.data / "history", _GROUPS)
    durations: dict[int, list[float]] = {}
    with live.job(floor=False) as job:
        first = live.batches()[-1].batch + 1
        for age in ages:
            while live.batches()[-1].batch < first + age:
                live.offer(_RATE, 10, job)
                say(f"history: {live.batches()[-1].batch - first:,} of {ages[-1]:,} micro-batches")
            window = [batch for batch in live.batches() if first + age - _WINDOW < batch.batch <= first + age]
            durations[age] = [float(batch.ms["triggerExecution"]) for batch in window if batch.batch >= first]
    for age, found in durations.items():
        outcome.add(f"batch after {age:,} batches, p50", median(found), "ms", "lower")
        outcome.add(f"batch after {age:,} batches, p99", percentile(found, 0.99), "ms", "lower")
    ratio = median(durations[ages[-1]]) / median(durations[ages[0]])
    outcome.add(f"after {ages[-1]:,} to after {ages[0]:,} batches", ratio, "ratio", "lower")
    outcome.notes.append(f"{_GROUPS} groups, {_RATE} requests/s; the last {_WINDOW} micro-batches up to each age")
    return outcome
