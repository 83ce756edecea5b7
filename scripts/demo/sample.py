"""Runs the live coordinator on a recorded log.

The first time the recorded requests are put on an embedded log under the root. At the end it shows the groups, the
rebalances with their causes, and how many answers were the same as the real broker's.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import typer

from coordinator_udf.commands.sql import SETTINGS, quiet
from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.judge.compare import Verdict
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.rerun import compare_with_tables, put_on_log
from coordinator_udf.sql.results import Results
from coordinator_udf.sql.shell import Shell
from coordinator_udf.tables.spark_session import delta_session

HERE = Path(__file__).resolve().parents[2]
SAMPLE = HERE / "tests" / "data" / "crash.log.gz"
PARTITIONS = 8

QUESTIONS = {
    "groups": "SELECT group_id, state, generation, members, since FROM groups ORDER BY group_id",
    "rebalances": """
        SELECT group_id, generation AS gen, outcome, date_format(started, 'HH:mm:ss.SSS') AS started,
               waiting_for_joins_ms AS joins_ms, waiting_for_sync_ms AS sync_ms, size(members_before) AS before,
               size(members_after) AS after, trigger, trigger_client_id AS client,
               regexp_replace(reason, '-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|; client reason: not provided', '')
                   AS reason
        FROM rebalances ORDER BY group_id, rebalances.started""",
}


def run_sample(root: Path, sample: Path, options: list[str]) -> None:
    """Puts a recorded log on an embedded one, drains it with the live coordinator, and shows what came of it.

    Args:
        root: where the log, the tables and the checkpoint are.
        sample: a request log of a broker.
        options: more options of coordinator_stream.py.
    """
    source = read_source(sample, sample.name, ReplayOptions(partitions=PARTITIONS))
    log = root / "log"
    if log.exists():
        typer.echo(f"{log} is there already: going on with what is on it")
    else:
        put_on_log(source, log).close()
        typer.echo(f"put {source.requests} requests of {sample.name}, which a real broker answered, on {log}")
    sys.stdout.flush()
    stream = [sys.executable, str(HERE / "jobs" / "coordinator_stream.py"), "--root", str(root), "--available-now"]
    settings = ["--set", "offsets.topic.partition.check=true"]
    status = subprocess.run([*stream, *settings, *options], check=False).returncode
    if status:
        raise typer.Exit(status)
    show(root)
    _tell(compare_with_tables(source, root / "tables"))


def show(root: Path) -> None:
    """Shows the groups and rebalances of a root."""
    spark = delta_session("muster-sample", SETTINGS)
    quiet(spark)
    shell = Shell(spark, str(root / "tables"), Results())
    for title, question in QUESTIONS.items():
        typer.echo(f"\n{title}")
        shell.run(question)
    spark.stop()


def _tell(verdict: Verdict) -> None:
    same, other = sum(verdict.identical.values()), sum(verdict.different.values())
    typer.echo(f"{same} of {same + other} answers are the same as the real broker's")
    for what, api, error in sorted(verdict.different):
        typer.echo(f"  different: {what} {api} {error}: {verdict.different[what, api, error]}")
    for (_, api, _), number in sorted(verdict.incomparable.items()):
        typer.echo(f"  not compared, as it is not served: {api}: {number}")
