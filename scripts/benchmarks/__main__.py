"""The command line: runs benchmarks, prints a table, writes JSON, compares with an earlier run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from scripts.benchmarks import (
    gateway,
    growth,
    history,
    incident,
    large_batch,
    replay,
    scale_plot,
    shard,
    simulation,
    stream,
)
from scripts.benchmarks.results import Outcome, Results, ResultsError, environment, load, save, table
from scripts.benchmarks.running import BenchmarkError, Options, say


class Name(StrEnum):
    """The benchmarks."""

    shard = "shard"
    replay = "replay"
    stream = "stream"
    history = "history"
    scale = "scale"
    gateway = "gateway"
    growth = "growth"
    simulation = "simulation"
    incident = "incident"
    batch = "batch"
    all = "all"


_RUN: dict[Name, Callable[[Options], Outcome]] = {
    Name.shard: shard.run,
    Name.replay: replay.run,
    Name.stream: stream.run,
    Name.history: history.run,
    Name.scale: scale_plot.run,
    Name.gateway: gateway.run,
    Name.growth: growth.run,
    Name.simulation: simulation.run,
    Name.incident: incident.run,
    Name.batch: large_batch.run,
}


def main(
    names: Annotated[list[Name] | None, typer.Argument(metavar="[NAME]...", help=", ".join(Name))] = None,
    *,
    scale: Annotated[float, typer.Option(min=0.0001, help="Sizes, relative to the documented ones.")] = 1.0,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each short measurement; the median counts.")] = 5,
    seconds: Annotated[float, typer.Option(min=10, help="How long `stream` offers requests at each rate.")] = 120.0,
    against: Annotated[Path | None, typer.Option(metavar="FILE", help="Earlier results to compare with.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the JSON goes. [default: DATA/<time>.json]")
    ] = None,
    data: Annotated[Path, typer.Option(help="Where generated logs and the tables of runs are kept.")] = Path(
        "data/bench"
    ),
    oracle_jar: Annotated[
        Path | None,
        typer.Option(
            metavar="JAR", envvar="MUSTER_ORACLE", help="Has Kafka's own coordinator run beside (`bench` command)."
        ),
    ] = None,
    rates: Annotated[
        list[int] | None,
        typer.Option("--rate", min=1, metavar="N", help="Requests/s `stream` offers; may be given again. [all three]"),
    ] = None,
    kafka_log: Annotated[
        str | None,
        typer.Option(metavar="kafka://...", help="Measure `gateway` with this topic as the log, too (scripts/topics)."),
    ] = None,
    plots: Annotated[Path, typer.Option(help="Where the plots of `scale` go.")] = Path("docs/plots"),
) -> None:
    """Measures the coordinator. Ratios of one run count; absolute figures are for orientation."""
    chosen = list(_RUN) if not names or Name.all in names else list(dict.fromkeys(names))
    options = Options(scale, repeats, seconds, data, oracle_jar, plots, kafka_log=kafka_log)
    if rates:
        options = replace(options, rates=tuple(rates))
    try:
        before = load(against) if against is not None else None
    except ResultsError as error:
        typer.echo(f"bench: {error}", err=True)
        raise typer.Exit(1) from error
    results = Results(environment(), scale, {})
    failed = [name for name in chosen if not _measure(name, options, results)]
    target = out or data / f"{results.environment.taken_at.replace(':', '')}.json"
    save(results, target)
    for line in table(results, before):
        typer.echo(line)
    typer.echo(f"written to {target}")
    if failed:
        typer.echo(f"bench: failed: {', '.join(failed)}", err=True)
        raise typer.Exit(1)


def _measure(name: Name, options: Options, results: Results) -> bool:
    """Adds what a benchmark finds; where it fails says why, and what others found is kept."""
    say(f"{name.value}, scale {options.scale:g}")
    started = time.perf_counter()
    try:
        outcome = _RUN[name](options)
    except BenchmarkError as error:
        typer.echo(f"bench: {error}", err=True)
        return False
    outcome.seconds = round(time.perf_counter() - started, 1)
    results.benchmarks[name.value] = outcome
    return True


if __name__ == "__main__":
    typer.run(main)
