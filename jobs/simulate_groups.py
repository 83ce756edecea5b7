"""Simulates groups: ``spark-submit jobs/simulate_groups.py SCENARIO... --out DIR --seeds N``.

Each seed of a scenario is a world of its own; worlds run side by side as Spark tasks. The tables are those of a
coordinator, so that every view works on them, with member_events and violations beside them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coordinator_udf.replay.tasks.session import replay_session
from coordinator_udf.simulation.tasks import SimulationRequest, check_request, simulate
from coordinator_udf.user_errors import UserError

#: So many violations are told on the terminal; all are in the table.
_TOLD = 20


def main(
    *,
    scenarios: Annotated[list[Path], typer.Argument(metavar="SCENARIO...", help="Scenario files (conf/scenarios).")],
    out: Annotated[Path, typer.Option(help="The folder for the tables.")],
    seeds: Annotated[int, typer.Option(min=1, help="How many worlds of each scenario.")] = 100,
    first_seed: Annotated[int, typer.Option(min=0, help="The seed of the first; --seeds 1 runs that one again.")] = 0,
    overwrite: Annotated[bool, typer.Option(help="Replace tables that are there already.")] = False,
) -> None:
    """Runs scenarios in virtual time and looks in each world for what must not be; exit status 1 if there is any."""
    request = SimulationRequest(tuple(scenarios), out, first_seed, seeds, overwrite)
    try:
        check_request(request)
        with replay_session() as spark:
            found = simulate(spark, request, lambda line: typer.echo(f"simulate: {line}", err=True))
    except UserError as error:
        typer.echo(f"simulate: {error}", err=True)
        raise typer.Exit(2) from error
    worlds = seeds * len(scenarios)
    broken = {(one.scenario, one.seed) for one in found}
    typer.echo(f"{worlds} worlds, {len(broken)} with a violation, {len(found)} violations")
    for one in found[:_TOLD]:
        violation = one.violation
        typer.echo(
            f"{one.scenario}, seed {one.seed}: {violation.kind} in {violation.group_id}: {violation.detail} "
            f"(again: --first-seed {one.seed} --seeds 1)"
        )
    if found:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
