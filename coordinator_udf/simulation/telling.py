"""Tells a person of a violation: the fewest events that show it, and the command that runs its world again."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from coordinator_udf.simulation.invariants import KAFKAS_OWN
from coordinator_udf.simulation.plan import WorldPlan
from coordinator_udf.simulation.scenario import draw_world, read_scenario
from coordinator_udf.simulation.shrink import event_list, run, shrink


def replay_command(job: Path, scenario: Path, seed: int) -> str:
    """Returns what to type to run a world alone, and to be told the fewest events.

    Args:
        job: the file of the job that simulates groups.
    """
    return shlex.join([_near(Path(sys.executable)), _near(job), str(scenario), "--replay", str(seed)])


def _near(path: Path) -> str:
    """Returns a path from here, if it is below."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def fewest_events(plan: WorldPlan, seed: int, kind: str, say: Callable[[str], None]) -> Iterator[str]:
    """Yields the first violation of a kind and the fewest events that show it, a line each."""
    if all(violation.kind != kind for violation in run(plan, seed)):
        yield f"{kind}: it isn't in this world any more"
        return
    short = shrink(plan, seed, kind, say)
    first = next(violation for violation in run(short, seed) if violation.kind == kind)
    yield f"{kind}: {first.detail}, {(first.ts_ms - short.start_ms) / 1000:.3f} s after the start of"
    for line in event_list(short):
        yield f"  {line}"


def first_of_each_kind(
    found: list[tuple[Path, int, str]], most: int, job: Path, say: Callable[[str], None]
) -> Iterator[str]:
    """Yields the fewest events of the first violation of each kind that isn't Kafka's own, and its command.

    Args:
        found: the scenario, seed and kind of each violation.
        most: so many kinds, for it takes some time.
        job: the file of the job that simulates groups.
    """
    first: dict[str, tuple[Path, int]] = {}
    for scenario, seed, kind in found:
        if kind not in KAFKAS_OWN:
            first.setdefault(kind, (scenario, seed))
    for kind, (scenario, seed) in list(first.items())[:most]:
        yield f"{scenario.stem}, seed {seed}, in as few events as show it ({replay_command(job, scenario, seed)}):"
        yield from fewest_events(draw_world(read_scenario(scenario), seed), seed, kind, say)
