"""Runs historical logs through the shard in this process and prints the first differences: a tool for developers.

``python -m coordinator_udf.replay.tasks.check INPUT... [--first N] [--all] [--what answer] [--api JoinGroup]``
"""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.judge.compare import Difference, Verdict
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import ReplaySource
from coordinator_udf.replay.tasks.run_and_compare import run_and_compare
from coordinator_udf.settings.file import read_pairs


def check(path: Path, options: ReplayOptions) -> tuple[ReplaySource, Verdict]:
    """Reads one input, runs it and compares."""
    source = read_source(path, path.name, options)
    return source, run_and_compare(source)[1]


def main(  # noqa: PLR0917
    inputs: Annotated[list[Path], typer.Argument(help="traces or request logs of a broker, plain or gzip")],
    first: Annotated[int, typer.Option(help="how many differences of an input to print")] = 1,
    what: Annotated[str, typer.Option(help="only answer, record or describe")] = "",
    api: Annotated[str, typer.Option(help="only this API or record type")] = "",
    set_: Annotated[list[str] | None, typer.Option("--set", help="a setting, name=value")] = None,
    partitions: Annotated[int | None, typer.Option(help="number of shards")] = None,
) -> None:
    """Compares what the shard says with what was recorded; exit status 1 where anything differs."""
    options = ReplayOptions(overrides=read_pairs(set_ or ()), partitions=partitions)
    total: dict[str, Counter[tuple[str, str, str]]] = {
        name: Counter() for name in ("identical", "different", "undecided", "excluded")
    }
    clean = 0
    began = time.monotonic()
    for path in inputs:
        source, verdict = check(path, options)
        total["identical"] += verdict.identical
        total["different"] += verdict.different
        total["excluded"] += verdict.incomparable
        total["undecided"] += sum(verdict.undecided.values(), Counter())
        clean += not verdict.different
        _print_source(source, verdict, [d for d in verdict.differences if _wanted(d, what, api)][:first])
    typer.echo(f"\n{clean} of {len(inputs)} inputs without a difference, {time.monotonic() - began:.1f} s")
    for place in sorted(set().union(*total.values())):
        counts = ", ".join(f"{name} {counter[place]}" for name, counter in total.items() if counter[place])
        typer.echo(f"  {' '.join(place)}: {counts}")
    if clean < len(inputs):
        raise typer.Exit(1)


def _wanted(difference: Difference, what: str, api: str) -> bool:
    return difference.undecided is None and what in {"", difference.what} and api in {"", difference.api}


def _print_source(source: ReplaySource, verdict: Verdict, differences: list[Difference]) -> None:
    different, excluded = sum(verdict.different.values()), sum(verdict.incomparable.values())
    line = f"{source.source}: identical {sum(verdict.identical.values())}, different {different}"
    if source.notes:
        line += f", notes {dict(source.notes)}"
    for reason, places in verdict.undecided.items():
        line += f", undecided {sum(places.values())} ({reason})"
    if excluded:
        line += f", not compared {excluded}"
    if source.rejections:
        line += f", rejected {len(source.rejections)} (first: {source.rejections[0].reason[:120]})"
    typer.echo(line)
    for (partition, group_id), outcome in source.explained.outcomes.items() if source.explained else ():
        for found in outcome.explanations:
            moves = [
                (move.place, move.at_ms - (outcome.natural_ms[move.place] if move.place is not None else move.at_ms))
                for move in found.moved
            ]
            typer.echo(f"  {partition} {group_id} step {found.place} explained in {found.tries} tries by {moves}")
        if outcome.unexplained:
            failed = [(unexplained.place, unexplained.tries) for unexplained in outcome.unexplained]
            line = f"{partition} {group_id} unexplained {len(failed)} of {len(outcome.course)}: {failed[:20]}"
            typer.echo(f"  {line}, put right {len(outcome.adopted)} times")
    for difference in differences:
        typer.echo(
            f"  {difference.what} {difference.api} {difference.error} request {difference.request_id}\n"
            + "\n".join(f"    {part}" for part in _contrast(difference.recorded, difference.ours))
        )


def _contrast(recorded: Any, ours: Any) -> list[str]:
    """Returns both sides, field by field where they are objects, and only the fields that differ."""
    if not isinstance(recorded, dict) or not isinstance(ours, dict):
        return [f"recorded {_json(recorded)}", f"ours     {_json(ours)}"]
    lines: list[str] = []
    for name in dict.fromkeys([*recorded, *ours]):
        left, right = recorded.get(name, "(absent)"), ours.get(name, "(absent)")
        if left == right:
            continue
        if isinstance(left, dict) and isinstance(right, dict):
            lines += [f"{name}.{line}" for line in _contrast(left, right)]
        else:
            lines += [f"{name}: recorded {_json(left)}", f"{name}: ours     {_json(right)}"]
    lines.append(f"in {_json({k: v for k, v in recorded.items() if v == ours.get(k)})[:600]}")
    return lines


def _json(value: Any) -> str:
    return json.dumps(value)


if __name__ == "__main__":
    typer.run(main)
