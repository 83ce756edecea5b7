"""Replays recordings of Kafka's own group members through ours and compares every output.

``python jobs/replay_members.py TRACE...``: a line a family, with identical and different recordings and outputs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from coordinator_udf.commands.job import run_job
from coordinator_udf.replay.members.summary import difference_line, family_lines, judge
from coordinator_udf.simulation.recorded.comparison import judge_in_world
from coordinator_udf.tables.output_places import check_file
from coordinator_udf.user_errors import telling_errors


def main(
    *,
    traces: Annotated[list[Path], typer.Argument(metavar="TRACE...", help="Recordings (JSON lines, plain or gzip).")],
    differences: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The first difference of each recording as a JSON line.")
    ] = None,
    protocol: Annotated[
        Literal["classic", "consumer"] | None, typer.Option(help="Run only the members that speak this protocol.")
    ] = None,
    fail_on_difference: Annotated[bool, typer.Option(help="Exit with status 1 if anything differs.")] = False,
) -> None:
    """Feeds each recorded member's inputs to one of ours and compares what it does.

    Where Kafka's coordinator answered, all members of a recording also run together in a simulated world, which takes
    the applications' calls and the network's delays from the recording.
    """
    with telling_errors("replay"):
        if differences is not None:
            check_file(differences, "--differences")
        verdicts = [judge(trace, protocol) for trace in traces]
        if protocol is None:
            verdicts += [verdict for verdict in map(judge_in_world, traces) if verdict is not None]
    different = [verdict for verdict in verdicts if verdict.difference is not None]
    if differences is not None:
        lines = (msgspec.json.encode(difference_line(verdict), enc_hook=repr) + b"\n" for verdict in different)
        differences.write_bytes(b"".join(lines))
    for line in family_lines(verdicts):
        typer.echo(line)
    if different and fail_on_difference:
        raise typer.Exit(1)


if __name__ == "__main__":
    run_job(main)
