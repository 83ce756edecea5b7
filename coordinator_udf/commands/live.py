"""The live coordinator: reads the request log as a stream, until it is stopped (SIGTERM, Ctrl-C)."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession

from coordinator_udf.commands.gateway_options import (
    Advertise,
    BrokerPorts,
    Gateways,
    LogJson,
    Metrics,
    SecurityFile,
    Upstream,
)
from coordinator_udf.gateway.front import FrontDoor, GatewayOptions
from coordinator_udf.gateway.settings import GatewaySettingsError, parse_address
from coordinator_udf.monitoring import MonitoringEndpoint, configure_logging
from coordinator_udf.settings.file import CoordinatorConfig, load_settings
from coordinator_udf.streaming.coordinator import Coordinator, StreamOptions
from coordinator_udf.streaming.failures import told_in_words
from coordinator_udf.streaming.folding import DEFAULT_FOLD_AFTER_ROWS
from coordinator_udf.streaming.metrics import CoordinatorMetrics
from coordinator_udf.streaming.session import coordinator_session
from coordinator_udf.streaming.signals import stop_on_signals
from coordinator_udf.streaming.startup import StartupPhases


class Source(StrEnum):
    """What kind of log --log is."""

    embedded = "embedded"
    delta = "delta"
    json = "json"


def main(
    *,
    root: Annotated[Path, typer.Option(help="Where all is that has no option of its own.")] = Path("data/live"),
    log: Annotated[str | None, typer.Option(help="The request log. [default: ROOT/log]")] = None,
    tables: Annotated[str | None, typer.Option(help="The folder of the tables. [default: ROOT/tables]")] = None,
    checkpoint: Annotated[str | None, typer.Option(help="The query's checkpoint. [default: ROOT/checkpoint]")] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Settings, as conf/coordinator.toml.")] = None,
    setting: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="One setting.")] = None,
    spark_conf: Annotated[Path | None, typer.Option(help="Spark's settings, as conf/spark.conf.")] = None,
    source: Annotated[Source, typer.Option(help="What --log is.")] = Source.embedded,
    partitions: Annotated[int | None, typer.Option(min=1, help="Partitions of the log, when it is made. [8]")] = None,
    available_now: Annotated[bool, typer.Option("--available-now", help="Take what is there, then stop.")] = False,
    trigger: Annotated[int, typer.Option(min=0, metavar="MS", help="Least time between micro-batches.")] = 0,
    tick: Annotated[
        int,
        typer.Option(min=50, max=1_000, metavar="MS", help="How often time passes; other sources are read as often."),
    ] = 500,
    max_rows: Annotated[int, typer.Option(min=1, help="Most rows of the log in a micro-batch.")] = 100_000,
    fold_after: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="ROWS",
            help="Move requests from the embedded log to the table request_log once so many are needed no more by "
            "the checkpoint; 0: never, the log grows.",
        ),
    ] = DEFAULT_FOLD_AFTER_ROWS,
    recover: Annotated[
        bool, typer.Option("--recover-from-offsets", help="Load the groups from consumer_offsets; new checkpoint.")
    ] = False,
    listen: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Serve Kafka clients there.")] = None,
    advertise: Advertise = None,
    upstream: Upstream = None,
    broker_ports: BrokerPorts = None,
    security: SecurityFile = None,
    gateways: Gateways = None,
    metrics: Metrics = None,
    log_json: LogJson = False,
) -> None:
    """Coordinate the groups whose requests come on a request log, and write all decisions to Delta tables."""
    if log_json:
        configure_logging(as_json=True)
    phases = StartupPhases()
    with told_in_words("coordinator"):
        if listen is None and (upstream is not None or security is not None):
            raise GatewaySettingsError("--upstream and --security are about the gateway of --listen; name that, too")
        settings = load_settings(config, setting or (), topics_known=upstream is not None)
        options = StreamOptions(
            log=log or str(root / "log"),
            tables=tables or str(root / "tables"),
            checkpoint=checkpoint or str(root / "checkpoint"),
            source=source.value,
            partitions=partitions,
            available_now=available_now,
            trigger_ms=trigger,
            tick_ms=tick,
            max_rows=max_rows,
            recover=recover,
            fold_after_rows=fold_after,
            clock_waits=listen is not None,
        )
        told = None if metrics is None else _Told(parse_address(metrics), options.tables)
        door = None
        if listen is not None:
            gateway = GatewayOptions(
                listen,
                advertise,
                config,
                upstream=upstream,
                broker_ports=broker_ports,
                security=security,
                gateways=gateways,
            )
            door = FrontDoor(gateway, options.tables, None if told is None else told.registry)
            settings = door.reserve(Path(options.log), settings)
        stop = threading.Event()
        phases.end("Python")
        spark = coordinator_session(spark_conf)
        stop_on_signals(spark, stop)
        phases.end("Spark's session")
        with (
            nullcontext() if told is None else told,
            _coordinator(spark, options, settings, door, told) as coordinator,
            nullcontext() if door is None else door.open(coordinator, stop, phases),
        ):
            if told is not None:
                told.metrics.watch(coordinator)
            coordinator.wait(stop)
            # While clients can still be told what the last micro-batch decided.
            coordinator.stop()
        totals = coordinator.sink.totals
        said = f"{totals.requests:,} requests, {totals.answers:,} answers, {totals.rejected:,} rejected"
        typer.echo(f"handled {said}", err=True)
        spark.stop()


class _Told:
    """The metrics of a coordinator and its gateway, while the context lasts."""

    def __init__(self, address: tuple[str, int], tables: str) -> None:
        self.registry = CollectorRegistry()
        self.metrics = CoordinatorMetrics(self.registry, tables)
        self._endpoint = MonitoringEndpoint(
            address, self.registry, health=self.metrics.health, readiness=self.metrics.readiness
        )

    def __enter__(self) -> _Told:
        self._endpoint.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._endpoint.stop()


def _coordinator(
    spark: SparkSession, options: StreamOptions, config: CoordinatorConfig, door: FrontDoor | None, told: _Told | None
) -> Coordinator:
    written = None if told is None else told.metrics.take
    if door is None:
        return Coordinator(spark, options, config, written=written)
    return Coordinator(
        spark,
        options,
        config,
        door.answers,
        door.records,
        clients=door.status,
        written=written,
    )
