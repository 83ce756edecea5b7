"""What is said on the command line of the live coordinator, beside what is said of its gateway (`gateway_options`)."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Source(StrEnum):
    """What kind of log --log is."""

    embedded = "embedded"
    kafka = "kafka"
    delta = "delta"
    json = "json"


Root = Annotated[Path, typer.Option(help="Where all is that has no option of its own.")]
Log = Annotated[
    str | None, typer.Option(help="The request log: a path, or kafka://HOST:PORT,.../TOPIC. [default: ROOT/log]")
]
Tables = Annotated[str | None, typer.Option(help="The folder of the tables. [default: ROOT/tables]")]
Checkpoint = Annotated[str | None, typer.Option(help="The query's checkpoint. [default: ROOT/checkpoint]")]
Config = Annotated[Path | None, typer.Option(metavar="FILE", help="Settings, as conf/coordinator.toml.")]
Setting = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="One setting.")]
SparkConf = Annotated[Path | None, typer.Option(help="Spark's settings, as conf/spark.conf.")]
LogSource = Annotated[Source, typer.Option(help="What --log is.")]
Partitions = Annotated[int | None, typer.Option(min=1, help="Partitions of the log, when it is made. [8]")]
AvailableNow = Annotated[bool, typer.Option("--available-now", help="Take what is there, then stop.")]
Trigger = Annotated[int, typer.Option(min=0, metavar="MS", help="Least time between micro-batches.")]
Tick = Annotated[
    int, typer.Option(min=50, max=1_000, metavar="MS", help="How often time passes; other sources are read as often.")
]
MaxRows = Annotated[
    int,
    typer.Option(
        min=1, help="Most rows of the log in a micro-batch (embedded, kafka; of the others all that is there)."
    ),
]
LargeBatch = Annotated[
    int,
    typer.Option(
        "--large-batch",
        min=0,
        metavar="ROWS",
        help="From so many rows of the log in a micro-batch on, executors write its tables, and the driver only "
        "commits; 0: never.",
    ),
]
FoldAfter = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="ROWS",
        help="Move requests from the embedded log to the table request_log once so many are needed no more by the "
        "checkpoint; 0: never, the log grows.",
    ),
]
Durable = Annotated[
    bool,
    typer.Option(
        "--durable/--no-durable",
        help="Answer only when all that the answer stands on is on this machine's disk, so that a loss of power loses "
        "nothing of it; where tables have a URI their storage sees to that.",
    ),
]
Recover = Annotated[
    bool, typer.Option("--recover-from-offsets", help="Load the groups from consumer_offsets; new checkpoint.")
]
Listen = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Serve Kafka clients there.")]
