"""`stream`: the live job at three rates, and the floor that Spark sets."""

from __future__ import annotations

import time

from scripts.benchmarks.live import MEMBERS, PARTITIONS, Batch, Live, measured
from scripts.benchmarks.results import Outcome
from scripts.benchmarks.running import Options, percentile, say

#: After the last request was offered, how long its answer may take for the rate to count as sustained.
_GRACE_S = 10.0
_LEFT_OUT_S = 5.0


def run(options: Options) -> Outcome:
    """Measures batch duration, request-to-answer time, state and memory; the ratio of batches to the floor's."""
    outcome = Outcome()
    for rate in options.rates:
        _at_rate(options, options.sized(rate, 10), outcome)
    outcome.notes.append(
        f"heartbeats of groups of {MEMBERS} members, one each 3 s, offered for {options.seconds:g} s on an embedded "
        f"log of {PARTITIONS} partitions; the floor is the same query with an empty function"
    )
    return outcome


def _at_rate(options: Options, rate: int, outcome: Outcome) -> None:
    # A member's heartbeat each three seconds, so three members for each request a second.
    groups = max(rate * 3 // MEMBERS, 1)
    names = f"{rate:,}/s"
    ours = _measure(options, rate, groups, outcome, floor=False)
    floors = _measure(options, rate, groups, outcome, floor=True)
    for share, name in ((0.5, "p50"), (0.99, "p99")):
        mine, floor = percentile(ours, share), percentile(floors, share)
        outcome.add(f"{names}: batch {name}", mine, "ms", "lower")
        outcome.add(f"{names}: batch {name}, floor", floor, "ms", "neither")
        outcome.add(f"{names}: batch {name}, ratio to the floor's", mine / floor, "", "lower")


def _measure(options: Options, rate: int, groups: int, outcome: Outcome, *, floor: bool) -> list[float]:
    say(f"stream: {groups:,} groups, {rate:,} requests/s{', the floor' if floor else ''}")
    live = Live(options.data / "stream", groups)
    with live.job(floor=floor) as job:
        began = live.offer(rate, options.seconds, job)
        end, ended = live.log.end(), time.time()
        while time.time() < ended + _GRACE_S and live.batches()[-1].append < end:
            time.sleep(0.1)
        batches = live.batches()
        chosen = measured(batches, began + min(_LEFT_OUT_S, options.seconds / 4), ended)
        if not floor:
            _tell(live, job.peak_bytes, batches, began, is_sustained=batches[-1].append >= end, rate=rate, to=outcome)
    return [float(batch.ms["triggerExecution"]) for batch in chosen]


def _tell(
    live: Live,
    peak: dict[str, int],
    batches: list[Batch],
    began: float,
    *,
    is_sustained: bool,
    rate: int,
    to: Outcome,
) -> None:
    name = f"{rate:,}/s"
    to.add(f"{name}: sustained", float(is_sustained), "1 is yes")
    late = live.latencies_ms(began)
    if late:
        to.add(f"{name}: request to answer p50", percentile(late, 0.5), "ms", "lower")
        to.add(f"{name}: request to answer p99", percentile(late, 0.99), "ms", "lower")
    to.add(f"{name}: state a member", batches[-1].state_bytes / live.members, "bytes", "lower")
    to.add(f"{name}: memory, Python", peak.get("python", 0) / 2**20, "MiB", "lower")
    to.add(f"{name}: memory, JVM", peak.get("java", 0) / 2**20, "MiB", "lower")
