"""How much a simulated hour of a member costs: of a stable fleet, and of one that is assigned anew each minute."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Sequence

from coordinator_udf.simulation.garbage import look_for_garbage_rarely
from coordinator_udf.simulation.plan import MemberPlan, NetworkPlan, TopicPlan, WorldPlan
from coordinator_udf.simulation.scenario import draw_world, read_scenario
from coordinator_udf.simulation.world import World
from scripts.benchmarks.results import Outcome
from scripts.benchmarks.running import ROOT, Options, say

_MEMBERS = 10
_HOUR_MS = 3_600_000
#: After so many new objects garbage is looked for where memory is measured, as Python does by itself.
_OFTEN = 700


def _plan(members: Sequence[MemberPlan], end_ms: int) -> WorldPlan:
    return WorldPlan(tuple(members), (TopicPlan("t", 2 * _MEMBERS, records_s=1.0),), end_ms, {}, NetworkPlan((1, 5)))


def _fleet(protocol: str) -> list[MemberPlan]:
    properties = {"group.protocol": protocol}
    return [MemberPlan(f"c{number}", 1, "g", ("t",), 100 * number, properties) for number in range(_MEMBERS)]


def stable(protocol: str, hours: int) -> WorldPlan:
    """Returns a group to which nothing happens."""
    return _plan(_fleet(protocol), hours * _HOUR_MS)


def restless(protocol: str, minutes: int) -> WorldPlan:
    """Returns a group that another member joins for a minute, in every second minute: one rebalance a minute."""
    guests = [
        MemberPlan("guest", run + 1, "g", ("t",), at_ms, {"group.protocol": protocol}, close_at_ms=at_ms + 60_000)
        for run, at_ms in enumerate(range(60_000, minutes * 60_000, 120_000))
    ]
    return _plan([*_fleet(protocol), *guests], minutes * 60_000)


def deployed() -> WorldPlan:
    """Returns a day of a group with one deploy: its members are replaced one after the other."""
    day = [
        MemberPlan(f"c{number}", 1, "g", ("t",), 100 * number, close_at_ms=_HOUR_MS + 10_000 * number)
        for number in range(_MEMBERS)
    ]
    after = [MemberPlan(f"c{number}", 2, "g", ("t",), _HOUR_MS + 10_000 * number + 2_000) for number in range(_MEMBERS)]
    return _plan([*day, *after], 24 * _HOUR_MS)


def _cpu_s(plan: WorldPlan, seed: int = 1) -> float:
    started = time.process_time()
    World(plan, seed).run()
    return time.process_time() - started


def _peak_mb(plan: WorldPlan) -> float:
    """Returns the most memory, in megabytes, that a world held at once; garbage, which has its own bound, hardly."""
    before = gc.get_threshold()
    gc.set_threshold(_OFTEN)
    tracemalloc.start()
    World(plan, 1).run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    gc.set_threshold(*before)
    return peak / 1e6


def run(options: Options) -> Outcome:
    """Measures worlds on one core, by the CPU's time."""
    # As whoever simulates does.
    look_for_garbage_rarely()
    outcome = Outcome()
    for protocol in ("classic", "consumer"):
        say(f"simulation, {protocol}")
        hours = max(1, round(24 * options.scale))
        outcome.add(
            f"stable fleet, {protocol}", _MEMBERS * hours / _cpu_s(stable(protocol, hours)), "member-hours/CPU-s"
        )
        minutes = max(4, round(60 * options.scale))
        spent_s = _cpu_s(restless(protocol, minutes))
        outcome.add(f"one rebalance a minute, {protocol}", _MEMBERS * minutes / 60 / spent_s, "member-hours/CPU-s")
        one, ten = _peak_mb(stable(protocol, hours)), _peak_mb(stable(protocol, 10 * hours))
        outcome.add(f"memory of ten times as long, {protocol}", ten / one, "x", "lower")
    outcome.add("a day of a group of 10 with a deploy", _cpu_s(deployed()), "CPU-s", "lower")
    for path in sorted((ROOT / "conf" / "scenarios").glob("*.toml")):
        if path.stem in {"thundering-restart", "fleet"}:
            continue
        scenario = read_scenario(path)
        worlds = max(2, round(10 * options.scale))
        spent_s = sum(_cpu_s(draw_world(scenario, seed), seed) for seed in range(worlds))
        outcome.add(f"a world of {path.stem}", spent_s / worlds, "CPU-s", "lower")
    return outcome
