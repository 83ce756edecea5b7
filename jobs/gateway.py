"""A gateway in a process of its own, before the request log of a live coordinator; as many as one likes.

``python jobs/gateway.py --listen HOST:PORT --log FILE --tables DIR --config FILE``. It starts no Spark.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Annotated

import typer

from coordinator_udf import stopping
from coordinator_udf.commands.gateway_options import (
    Advertise,
    BrokerPorts,
    DeleteTopics,
    Gateways,
    KafkaConfig,
    LogJson,
    Metrics,
    SecurityFile,
    Upstream,
)
from coordinator_udf.commands.job import run_job
from coordinator_udf.gateway.options import GatewayOptions
from coordinator_udf.gateway.own_process import serve_alone
from coordinator_udf.gateway.settings import parse_address
from coordinator_udf.log.kafka.security import read_kafka_security
from coordinator_udf.log.opening import LogPlace
from coordinator_udf.monitoring import configure_logging, tell
from coordinator_udf.user_errors import UserError


def main(
    *,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where Kafka clients connect.")],
    root: Annotated[
        Path | None, typer.Option(help="Where all is that has no option of its own. [default: data/live]")
    ] = None,
    log: Annotated[
        str | None,
        typer.Option(help="The coordinator's log: a path, or kafka://HOST:PORT,.../TOPIC. [default: ROOT/log]"),
    ] = None,
    kafka_config: KafkaConfig = None,
    tables: Annotated[
        str | None, typer.Option(help="The folder of its tables, a path or a URI. [default: ROOT/tables]")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The settings file; its topics are served.")
    ] = None,
    advertise: Advertise = None,
    upstream: Upstream = None,
    broker_ports: BrokerPorts = None,
    security: SecurityFile = None,
    gateways: Gateways = None,
    metrics: Metrics = None,
    log_json: LogJson = False,
    request_timeout: Annotated[
        int, typer.Option(min=1, metavar="MS", help="How long the coordinator may take to answer.")
    ] = 30_000,
    delete_topics: DeleteTopics = False,
    poll: Annotated[int, typer.Option(min=1, metavar="MS", help="The pause between two looks at the answers.")] = 25,
) -> None:
    """Serve Kafka clients from a process of its own."""
    configure_logging(as_json=log_json)
    stop = threading.Event()
    stopping.call_instead(stop.set)
    options = GatewayOptions(
        listen, advertise, config, upstream, broker_ports, security, gateways, request_timeout, delete_topics
    )
    folder = root or Path("data/live")
    try:
        place = LogPlace(log or str(folder / "log"), read_kafka_security(kafka_config))
        serve_alone(
            options,
            log=place,
            tables=tables or str(folder / "tables"),
            # A topic may be of another coordinator than the one in the default folder.
            watches=place.kafka is None or tables is not None or root is not None,
            poll_ms=poll,
            stop=stop,
            metrics=None if metrics is None else parse_address(metrics),
        )
    except UserError as error:
        tell(f"gateway: {error}", logging.ERROR)
        raise typer.Exit(error.status) from error


if __name__ == "__main__":
    run_job(main)
