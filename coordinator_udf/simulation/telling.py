"""Tells a person of violations, with the fewest events that show one, and the command that runs its world again."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from coordinator_udf.simulation.invariants import KAFKAS_OWN
from coordinator_udf.simulation.plan import WorldPlan
from coordinator_udf.simulation.scenario import draw_world, read_scenario
from coordinator_udf.simulation.shrink import event_list, run, shrink
from coordinator_udf.simulation.tasks import FoundViolation, SimulationRequest
from coordinator_udf.simulation.violation import SeedViolation

#: Of so many worlds' groups it is told on the terminal, a screen; all is in the table.
_TOLD: Final = 20
#: Of so many kinds the fewest events are looked for that show one, which takes 16 to 130 s of CPU each.
_SHORTENED: Final = 3


def replay_command(scenario: Path, seed: int) -> str:
    """Returns what to type to run a world alone, and to be told the fewest events."""
    python = Path(sys.executable)
    muster = python.with_name("muster")
    # A cluster's Python has the package from a file that came with the job, and no command beside it.
    words = [_near(muster)] if muster.exists() else [_near(python), "-m", "coordinator_udf.commands.app"]
    return shlex.join([*words, "simulate", str(scenario), "--replay", str(seed)])


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


def told_once(scenario: Path, found: Iterable[SeedViolation]) -> Iterator[str]:
    """Yields a line for each kind of violation of each group of a world: the first one, and how many there are.

    Args:
        scenario: the scenario's file.
        found: in the order of time in each world.
    """
    alike: dict[tuple[int, str, str], list[SeedViolation]] = {}
    for one in found:
        alike.setdefault((one.seed, one.kind, one.group_id), []).append(one)
    for (seed, kind, group_id), of_kind in alike.items():
        often = "" if len(of_kind) == 1 else f", the first of {len(of_kind)}"
        again = replay_command(scenario, seed)
        yield f"{scenario.stem}, seed {seed}: {kind} in {group_id}{often}: {of_kind[0].detail} (again: {again})"


def violation_lines(
    found: Sequence[FoundViolation], request: SimulationRequest, say: Callable[[str], None]
) -> Iterator[str]:
    """Yields what was found in all worlds: how much, the first violations, and fewest events that show some of them.

    Args:
        say: is told how far it is.
    """
    paths = {path.stem: path for path in request.scenarios}
    worlds = request.seeds * len(request.scenarios)
    broken = {(one.scenario, one.seed) for one in found}
    kafkas = sum(one.violation.kind in KAFKAS_OWN for one in found)
    of_all = f"{len(found)} violations, {kafkas} of them Kafka's own"
    yield f"{worlds} worlds, {len(broken)} with a violation, {of_all}"
    lines = [
        line
        for name, path in paths.items()
        for line in told_once(
            path, (SeedViolation.of(one.seed, one.violation) for one in found if one.scenario == name)
        )
    ]
    yield from lines[:_TOLD]
    if len(lines) > _TOLD:
        yield f"{len(lines) - _TOLD} more such lines: all is in the table violations"
    kinds = [(paths[one.scenario], one.seed, one.violation.kind) for one in found]
    yield from first_of_each_kind(kinds, say)


def first_of_each_kind(found: Iterable[tuple[Path, int, str]], say: Callable[[str], None]) -> Iterator[str]:
    """Yields the fewest events of the first violation of each kind, of some, that isn't Kafka's own, and its command.

    Args:
        found: the scenario, seed and kind of each violation.
    """
    first: dict[str, tuple[Path, int]] = {}
    for scenario, seed, kind in found:
        if kind not in KAFKAS_OWN:
            first.setdefault(kind, (scenario, seed))
    for kind, (scenario, seed) in list(first.items())[:_SHORTENED]:
        yield f"{scenario.stem}, seed {seed}, in as few events as show it ({replay_command(scenario, seed)}):"
        yield from fewest_events(draw_world(read_scenario(scenario), seed), seed, kind, say)
