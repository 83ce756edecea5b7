"""Simulates groups: ``muster simulate SCENARIO... --out DIR --seeds N``.

Each seed of a scenario is a world of its own; worlds run side by side as Spark tasks. The tables are those of a
coordinator, so that every view works on them, with what applications did and were told, and violations, beside them.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Annotated

import typer

from coordinator_udf.commands.job import options_given
from coordinator_udf.replay.tasks.session import replay_session
from coordinator_udf.simulation.charts import check_plot, load_chart
from coordinator_udf.simulation.garbage import look_for_garbage_rarely
from coordinator_udf.simulation.invariants import KAFKAS_OWN
from coordinator_udf.simulation.planning import fleet_load, load_lines
from coordinator_udf.simulation.scenario import LAST_SEED, draw_world, read_scenario
from coordinator_udf.simulation.shrink import run
from coordinator_udf.simulation.tasks import SimulationRequest, check_request, simulate
from coordinator_udf.simulation.telling import fewest_events, violation_lines
from coordinator_udf.user_errors import InputError, telling_errors

#: As many as a search of worlds takes: tasks for them fit into memory. Of the smallest scenarios they are a week.
_MOST_WORLDS = 1_000_000
#: More than all machines that run clients of Kafka.
_MOST_MEMBERS = 1_000_000_000

#: What is left of the other options where one of these is given, and why.
_ALONE = {
    "--replay": (
        ("--members", "--plot", "--out", "--overwrite", "--seeds", "--first-seed"),
        "it runs one world, and writes nothing",
    ),
    "--members": (("--out", "--overwrite", "--first-seed"), "it reckons from the first seeds, and writes no tables"),
}


def main(
    context: typer.Context,
    *,
    scenarios: Annotated[list[Path], typer.Argument(metavar="SCENARIO...", help="Scenario files (conf/scenarios).")],
    out: Annotated[Path | None, typer.Option(help="The folder for the tables.")] = None,
    seeds: Annotated[int, typer.Option(min=1, max=_MOST_WORLDS, help="How many worlds of each scenario.")] = 100,
    first_seed: Annotated[int, typer.Option(min=0, max=LAST_SEED, help="The seed of the first.")] = 0,
    replay: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=LAST_SEED,
            help="Run the world of this seed alone, and find the shortest list of events that shows it.",
        ),
    ] = None,
    members: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=_MOST_MEMBERS,
            help="Reckon from the worlds what a fleet of so many members asks of its coordinators.",
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw that load over time, as SVG, PNG or HTML by its suffix.")
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace tables that are there already.")] = False,
) -> None:
    """Runs scenarios in virtual time and looks in each world for what must not be.

    Exit status 1 if there is any that isn't Kafka's own (docs/found-in-kafka.md).
    """
    look_for_garbage_rarely()
    with telling_errors("simulate"):
        _check_options(options_given(context))
        if replay is not None:
            raise typer.Exit(_replay(scenarios, replay))
        if members is not None:
            _reckon(scenarios, members, seeds, plot)
            return
        if plot is not None:
            raise InputError("--plot is of the load that --members reckons")
        if out is None:
            raise InputError("--out is missing: the folder for the tables")
        request = SimulationRequest(tuple(scenarios), out, first_seed, seeds, overwrite)
        check_request(request)
        with replay_session() as spark:
            found = simulate(spark, request, _say)
    for line in violation_lines(found, request, _say):
        typer.echo(line)
    if any(one.violation.kind not in KAFKAS_OWN for one in found):
        raise typer.Exit(1)


def _check_options(given: AbstractSet[str]) -> None:
    """Looks whether the options on the command line go together.

    Raises:
        InputError: one would do nothing beside another.
    """
    for option, (others, why) in _ALONE.items():
        for other in others if option in given else ():
            if other in given:
                raise InputError(f"{option} doesn't go with {other}: {why}; give one of them")


def _say(line: str) -> None:
    typer.echo(f"simulate: {line}", err=True)


def _reckon(scenarios: list[Path], members: int, worlds: int, plot: Path | None) -> None:
    """Tells what a fleet asks of its coordinators, each world's groups standing for many."""
    if plot is not None:
        check_plot(plot)
        if len(scenarios) > 1:
            raise InputError(f"--plot is of one scenario, not of {len(scenarios)}")
    for path in scenarios:
        load = fleet_load(read_scenario(path), members, worlds)
        if len(scenarios) > 1:
            typer.echo(f"{path.stem}:")
        for line in load_lines(load):
            typer.echo(line)
        if plot is not None:
            load_chart(load).save(str(plot))


def _replay(scenarios: list[Path], seed: int) -> int:
    """Tells what must not be in one world, and the shortest list of events that shows it. Returns the exit status."""
    is_ours = False
    for path in scenarios:
        plan = draw_world(read_scenario(path), seed)
        found = run(plan, seed)
        typer.echo(f"{path.stem}, seed {seed}: {len(found)} violations")
        for kind in dict.fromkeys(violation.kind for violation in found):
            is_ours = is_ours or kind not in KAFKAS_OWN
            for line in fewest_events(plan, seed, kind, _say):
                typer.echo(line)
    return 1 if is_ours else 0
