"""What is said alike on the command line of a replay and of a report, which replays."""

from __future__ import annotations

from typing import Annotated

import typer

TimeZone = Annotated[str, typer.Option(metavar="ZONE", help="The time zone of times in logs that name none.")]
State = Annotated[
    str | None,
    typer.Option(
        metavar="DUMP|DIR|URI", help="Begin request logs with the groups in a dump of __consumer_offsets, or in tables."
    ),
]
OneBroker = Annotated[bool, typer.Option(help="Take all inputs for parts of one broker's logs.")]
