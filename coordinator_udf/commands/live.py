"""The live coordinator: reads the request log as a stream, until it is stopped (SIGTERM, Ctrl-C)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession

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
from coordinator_udf.commands.live_options import (
    AvailableNow,
    Checkpoint,
    Config,
    Durable,
    FoldAfter,
    LargeBatch,
    Listen,
    Log,
    LogSource,
    MaxRows,
    Partitions,
    Recover,
    Root,
    Setting,
    Source,
    SparkConf,
    Tables,
    Tick,
    Trigger,
)
from coordinator_udf.gateway.driver_gateway import DriverGateway
from coordinator_udf.gateway.options import GatewayOptions
from coordinator_udf.gateway.settings import GatewaySettingsError, parse_address
from coordinator_udf.log.configured_topics import check_topics_at
from coordinator_udf.log.kafka.place import is_kafka
from coordinator_udf.log.kafka.security import read_kafka_security
from coordinator_udf.log.opening import LogPlace
from coordinator_udf.monitoring import MonitoringEndpoint, configure_logging, tell
from coordinator_udf.settings.file import CoordinatorConfig, load_settings
from coordinator_udf.streaming.coordinator import Coordinator
from coordinator_udf.streaming.failures import told_in_words
from coordinator_udf.streaming.folding import DEFAULT_FOLD_AFTER_ROWS
from coordinator_udf.streaming.metrics import CoordinatorMetrics
from coordinator_udf.streaming.options import StreamOptions
from coordinator_udf.streaming.power_loss import repair_after_power_loss
from coordinator_udf.streaming.session import coordinator_session
from coordinator_udf.streaming.signals import stop_on_signals
from coordinator_udf.streaming.sink import DEFAULT_LARGE_BATCH_ROWS
from coordinator_udf.streaming.startup import StartupPhases
from coordinator_udf.tables.spark_session import stop_session
from coordinator_udf.user_errors import InputError


def main(
    *,
    root: Root = Path("data/live"),
    log: Log = None,
    tables: Tables = None,
    checkpoint: Checkpoint = None,
    config: Config = None,
    setting: Setting = None,
    spark_conf: SparkConf = None,
    source: LogSource = Source.embedded,
    partitions: Partitions = None,
    kafka_config: KafkaConfig = None,
    available_now: AvailableNow = False,
    trigger: Trigger = 0,
    tick: Tick = 500,
    max_rows: MaxRows = 100_000,
    large_batch: LargeBatch = DEFAULT_LARGE_BATCH_ROWS,
    fold_after: FoldAfter = DEFAULT_FOLD_AFTER_ROWS,
    durable: Durable = True,
    recover: Recover = False,
    delete_topics: DeleteTopics = False,
    listen: Listen = None,
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
    with told_in_words("coordinator"):
        gateway = None
        if listen is not None:
            gateway = GatewayOptions(listen, advertise, config, upstream, broker_ports, security, gateways)
        else:
            _refuse_without_gateway(
                {
                    "--upstream": upstream,
                    "--security": security,
                    "--advertise": advertise,
                    "--broker-ports": broker_ports,
                    "--gateways": gateways,
                }
            )
        settings = load_settings(config, setting or (), topics_known=upstream is not None)
        _refuse_mixed(source, log, kafka_config)
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
            delete_topics=delete_topics,
            of_cluster=upstream is not None,
            large_batch_rows=large_batch,
            fold_after_rows=fold_after,
            durable=durable,
            clock_waits=listen is not None,
            kafka=read_kafka_security(kafka_config),
        )
        _coordinate(options, settings, gateway, metrics, spark_conf)


def _refuse_without_gateway(options: Mapping[str, object]) -> None:
    """Refuses options that would do nothing.

    Raises:
        GatewaySettingsError: one is given.
    """
    for name, value in options.items():
        if value is not None:
            raise GatewaySettingsError(f"{name} is about the gateway of --listen; name that, too")


def _coordinate(
    options: StreamOptions,
    settings: CoordinatorConfig,
    gateway_options: GatewayOptions | None,
    metrics: str | None,
    spark_conf: Path | None,
) -> None:
    """Runs the coordinator, and its gateway where there is one, until it is stopped."""
    phases = StartupPhases()
    if options.durable:
        # Before metrics and the gateway read the tables.
        repair_after_power_loss(options.tables, options.checkpoint)
    told = None if metrics is None else _Told(parse_address(metrics), options.tables)
    gateway = None
    if gateway_options is not None:
        gateway = DriverGateway(gateway_options, options.tables, None if told is None else told.registry)
        settings = gateway.reserve(LogPlace(options.log, options.kafka), settings)
    if options.source == "embedded" and not options.delete_topics:
        check_topics_at(Path(options.log), settings.topics)
    stop = threading.Event()
    phases.end("Python")
    spark = coordinator_session(spark_conf, with_kafka=options.source == "kafka")
    stop_on_signals(spark, stop)
    phases.end("Spark's session")
    with (
        nullcontext() if told is None else told,
        _coordinator(spark, options, settings, gateway, told) as coordinator,
        nullcontext() if gateway is None else gateway.open(coordinator, stop, phases),
    ):
        if told is not None:
            told.metrics.watch(coordinator)
        coordinator.wait(stop)
        # While clients can still be told what the last micro-batch decided.
        coordinator.stop()
    totals = coordinator.sink.totals
    said = f"{totals.requests:,} requests, {totals.answers:,} answers, {totals.rejected:,} rejected"
    tell(f"handled {said}")
    stop_session(spark)


def _refuse_mixed(source: Source, log: str | None, kafka_config: Path | None) -> None:
    """Refuses a topic that is read as something else, and the other way round."""
    if (source is Source.kafka) != (log is not None and is_kafka(log)):
        raise InputError(
            f"--source is {source.value} and --log {log}, expected kafka://HOST:PORT,.../TOPIC with --source kafka and "
            "only there"
        )
    if kafka_config is not None and source is not Source.kafka:
        raise InputError(f"--kafka-config is {kafka_config} and --source {source.value}, expected --source kafka")


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
    spark: SparkSession,
    options: StreamOptions,
    config: CoordinatorConfig,
    gateway: DriverGateway | None,
    told: _Told | None,
) -> Coordinator:
    written = None if told is None else told.metrics.take
    if gateway is None:
        return Coordinator(spark, options, config, written=written)
    return Coordinator(
        spark,
        options,
        config,
        gateway.answers,
        gateway.records,
        clients=gateway.status,
        written=written,
    )
