"""The options of a replay; some are those of a report, which replays, too."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import Annotated, Final

import typer

from coordinator_udf.replay.inputs.detect import Format

#: A person is told first not to believe tables if more of their input, most of it that is, is unreadable or
#: contradicted.
DEFAULT_DOUBT_FROM: Final = 0.5

#: Partitions of __consumer_offsets, of which there are 50; a cluster of Kafka's has some 200,000 partitions at most.
_MOST_SHARDS: Final = 200_000


def _number(value: float) -> float:
    """Refuses what is no number, which no bounds do."""
    if isnan(value):
        raise typer.BadParameter("nan is no number, expected a share from 0 to 1.")
    return value


TimeZone = Annotated[str, typer.Option(metavar="ZONE", help="The time zone of times in logs that name none.")]
State = Annotated[
    list[str] | None,
    typer.Option(
        metavar="DUMP|DIR|URI",
        help="Begin request logs with the groups in a dump of __consumer_offsets, a directory of dumps, or tables; "
        "repeatable.",
    ),
]
OneBroker = Annotated[bool, typer.Option(help="Take all inputs for parts of one broker's logs.")]
Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT",
        help="A broker's request log or own log (server.log), a dump of __consumer_offsets, a trace, as plain, "
        "gzip, bzip2, xz or zstd files, in directories or by pattern, from pipes or standard input (-); a request log "
        "table; an embedded log; "
        "kafka://HOST:PORT,.../TOPIC. Also at URIs (s3://...).",
    ),
]
Out = Annotated[str, typer.Option(metavar="DIR|URI", help="Where the tables go.")]
InputFormat = Annotated[Format, typer.Option("--format", help="The format of all inputs; auto looks at each.")]
Config = Annotated[Path | None, typer.Option(metavar="FILE", help="Settings and topics, TOML.")]
BrokerSetting = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting under Kafka's name; repeatable.")
]
Shards = Annotated[
    int | None,
    typer.Option(min=1, max=_MOST_SHARDS, help="Shards of a broker's log; by default what the log tells, else 50."),
]
JsonLines = Annotated[str | None, typer.Option(metavar="FILE|URI", help="All answers and records as JSON lines.")]
Differences = Annotated[
    str | None, typer.Option(metavar="FILE|URI", help="Each difference with both answers as a JSON line.")
]
Explain = Annotated[
    bool, typer.Option("--explain", help="Print which requests were moved to explain answers, and why.")
]
FailOnDifference = Annotated[bool, typer.Option(help="Exit with status 1 if anything differs.")]
DoubtFrom = Annotated[
    float,
    typer.Option(
        min=0,
        max=1,
        callback=_number,
        help="Exit with status 3 if more of an input is unreadable or contradicted.",
    ),
]
Overwrite = Annotated[bool, typer.Option(help="Replace tables that are there already.")]
