"""Looks in the worlds of many seeds for what must not be, without Spark and without tables: for the night.

``muster search-worlds SCENARIO... --seeds 0:10000 --done FILE``: begun again, it goes on where it was stopped.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from coordinator_udf.simulation.invariants import KAFKAS_OWN
from coordinator_udf.simulation.seed_search import Searched, search
from coordinator_udf.simulation.telling import first_of_each_kind, told_once
from coordinator_udf.user_errors import InputError, telling_errors

#: Of so many seeds a search can be planned in memory; of the smallest scenarios that many take a week.
_MOST_SEEDS = 1_000_000


def main(
    *,
    scenarios: Annotated[list[Path], typer.Argument(metavar="SCENARIO...", help="Scenario files (conf/scenarios).")],
    seeds: Annotated[str, typer.Option(metavar="FIRST:LAST", help="The seeds, the last one excluded.")] = "0:10000",
    done: Annotated[Path, typer.Option(metavar="FILE", help="What was searched is appended to it.")],
    processes: Annotated[int, typer.Option(min=1, help="How many worlds run side by side.")] = 1,
) -> None:
    """Runs worlds and tells what must not be in them; exit status 1 if any of it isn't Kafka's own."""
    with telling_errors("search-worlds"):
        paths = {path.stem: path for path in scenarios}
        searched = search(scenarios, _range(seeds), done, processes, lambda one: _tell(one, paths[one.scenario]))
    ours = False
    for scenario in dict.fromkeys(one.scenario for one in searched):
        of_scenario = [one for one in searched if one.scenario == scenario]
        worlds = Counter(kind for _, kind in {(found.seed, found.kind) for one in of_scenario for found in one.found})
        ours = ours or not worlds.keys() <= KAFKAS_OWN
        told = ", ".join(f"{count} with {kind}" for kind, count in sorted(worlds.items())) or "none with a violation"
        typer.echo(f"{scenario}: {sum(one.seeds for one in of_scenario):,} worlds, {told}")
        kinds = [(paths[scenario], found.seed, found.kind) for one in of_scenario for found in one.found]
        for line in first_of_each_kind(kinds, lambda line: typer.echo(line, err=True)):
            typer.echo(line)
    if ours:
        raise typer.Exit(1)


def _range(text: str) -> range:
    ends = re.fullmatch(r"([0-9]{1,18}):([0-9]{1,18})", text)
    seeds = range(int(ends[1]), int(ends[2])) if ends else range(0)
    if not 0 < len(seeds) <= _MOST_SEEDS:
        expected = f"FIRST:LAST, whole numbers with FIRST below LAST, {_MOST_SEEDS:,} seeds at most"
        raise InputError(f"--seeds is {text!r}, expected {expected}, such as 0:10000")
    return seeds


def _tell(searched: Searched, scenario: Path) -> None:
    typer.echo(f"{searched.scenario}: {searched.first} to {searched.first + searched.seeds - 1}", err=True)
    for line in told_once(scenario, searched.found):
        typer.echo(line)
