"""A gateway in a process of its own, before the request log of a live coordinator; as many as one likes.

``python jobs/gateway.py --listen HOST:PORT --log FILE --tables DIR --config FILE``. It needs no Spark.
"""

from __future__ import annotations

import logging
import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from coordinator_udf.gateway.front import GatewayOptions, Standalone
from coordinator_udf.gateway.settings import GatewaySettingsError
from coordinator_udf.protocol.settings import SettingsError
from coordinator_udf.streaming.embedded_log import LogError


def main(
    *,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where Kafka clients connect.")],
    log: Annotated[Path, typer.Option(metavar="FILE", help="The request log, made by jobs/coordinator_stream.py.")],
    tables: Annotated[Path, typer.Option(metavar="DIR", help="The directory with the Delta tables.")],
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The settings file; its topics are served.")
    ] = None,
    advertise: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="What clients are told to connect to, if not --listen.")
    ] = None,
    request_timeout_ms: Annotated[
        int, typer.Option(min=1, help="How long the coordinator may take to answer.")
    ] = 30_000,
    poll_ms: Annotated[int, typer.Option(min=1, help="The pause between two looks at the answers.")] = 25,
) -> None:
    """Serve Kafka clients from a process of its own."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    options = GatewayOptions(listen=listen, advertise=advertise, request_timeout_ms=request_timeout_ms)
    try:
        Standalone(options, log=log, tables=tables, config=config, poll_ms=poll_ms).run(stop)
    except (GatewaySettingsError, SettingsError, LogError, OSError) as error:
        typer.echo(f"gateway: {error}", err=True)
        raise typer.Exit(1) from error


if __name__ == "__main__":
    typer.run(main)
