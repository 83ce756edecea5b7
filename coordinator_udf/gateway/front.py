"""Puts a gateway together: from an address and a settings file, in the coordinator's process or in one of its own."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
from prometheus_client import CollectorRegistry

from coordinator_udf.background import BackgroundThread, Watch
from coordinator_udf.gateway.ends import PartitionEnds
from coordinator_udf.gateway.gateway import Gateway
from coordinator_udf.gateway.responses_table import ResponsesFollower
from coordinator_udf.gateway.security.load import Security
from coordinator_udf.gateway.server.listener import bound_socket
from coordinator_udf.gateway.settings import GatewaySettings, GatewaySettingsError, GroupConfig, parse_address
from coordinator_udf.gateway.upstream.settings import UpstreamSettings, parse_bootstrap
from coordinator_udf.gateway.upstream.watch import UpstreamCluster
from coordinator_udf.log.file import LogError
from coordinator_udf.log.kafka.answers import AnswersReader
from coordinator_udf.log.kafka.appender import KafkaLog
from coordinator_udf.log.opening import AppendableLog, LogPlace
from coordinator_udf.monitoring import MonitoringEndpoint
from coordinator_udf.settings.coordinator import SETTINGS_OF_GROUPS, Settings, SettingsError
from coordinator_udf.settings.file import CoordinatorConfig, load_settings
from coordinator_udf.streaming.ticker import Ticker

if TYPE_CHECKING:
    from coordinator_udf.streaming.coordinator import Coordinator
    from coordinator_udf.streaming.startup import StartupPhases

_log = logging.getLogger(__name__)

#: How often the files of topics, users and ACLs are looked at, in seconds: as late as that a change is seen.
_WATCH_S: Final = 2.0
#: How often it is looked whether the coordinator's first micro-batch is through, in seconds.
_WARM_S: Final = 0.05

#: How often a gateway without a coordinator beside it lets time pass, in milliseconds.
_CLOCK_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """What a person says about a gateway on a command line.

    Attributes:
        listen: where clients connect, ``HOST:PORT``.
        advertise: what clients are told to connect to, if not that.
        config: the settings file whose topics are served; it is read again whenever it is written to.
        request_timeout_ms: how long the coordinator may take to answer.
        upstream: the cluster that the topics and their records are of, ``HOST:PORT,...``.
        gateways: where clients reach all gateways before this log, ``HOST:PORT,...``; this one is among them.
        security: the file that says who may come in, and how the cluster is spoken to.
        broker_ports: the gateway's port for that cluster's broker 0; by default the one after that listened on.
    """

    listen: str
    advertise: str | None = None
    config: Path | None = None
    request_timeout_ms: int = 30_000
    upstream: str | None = None
    broker_ports: int | None = None
    security: Path | None = None
    gateways: str | None = None

    def settings(self) -> GatewaySettings:
        """The gateway's settings.

        Raises:
            GatewaySettingsError: an address isn't one.
        """
        host, port = parse_address(self.listen)
        advertised: tuple[str | None, int | None] = (None, None)
        if self.advertise is not None:
            advertised = parse_address(self.advertise)
        return GatewaySettings(
            host=host,
            port=port,
            advertised_host=advertised[0],
            advertised_port=advertised[1],
            request_timeout_ms=self.request_timeout_ms,
            gateways=() if self.gateways is None else parse_bootstrap(self.gateways),
        )

    def load_security(self) -> Security | None:
        """Who may come in; None where everybody may.

        Raises:
            GatewaySettingsError: a file can't be used.
        """
        return None if self.security is None else Security(self.security)

    def cluster(self, security: Security | None) -> UpstreamCluster | None:
        """The cluster behind the gateway, looked at once; None where there is none.

        Raises:
            GatewaySettingsError: an option is wrong, or the cluster can't be asked.
        """
        if self.upstream is None:
            if self.broker_ports is not None:
                raise GatewaySettingsError("--broker-ports says where the brokers of --upstream are reached; name that")
            return None
        _, port = parse_address(self.listen)
        first = self.broker_ports if self.broker_ports is not None else port + 1
        settings = UpstreamSettings(
            bootstrap=parse_bootstrap(self.upstream),
            first_broker_port=first if port or self.broker_ports else None,
            tls=None if security is None else security.upstream_tls(),
            credentials=None if security is None else security.upstream_credentials(),
        )
        cluster = UpstreamCluster(settings)
        cluster.look_first()
        return cluster

    def config_with_topics(self, config: CoordinatorConfig, cluster: UpstreamCluster | None) -> CoordinatorConfig:
        """The configuration with the topics of the cluster, if there is one.

        Raises:
            GatewaySettingsError: the settings file names topics, too.
        """
        if cluster is None:
            return config
        if config.topics:
            named = ", ".join(topic.name for topic in config.topics)
            raise GatewaySettingsError(
                f"the settings file {self.config} names topics ({named}), but with --upstream they are those of the "
                "cluster; take the [[topics]] out"
            )
        return CoordinatorConfig(config.settings, cluster.state.topics)


class FrontDoor:
    """The gateway of a coordinator's own process: clients may knock long before there is somebody to answer them."""

    def __init__(self, options: GatewayOptions, tables: str, metrics: CollectorRegistry | None = None) -> None:
        """A door that is shut, before a coordinator with tables in this folder.

        Raises:
            GatewaySettingsError: an option is wrong.
        """
        self._metrics = metrics
        self._options = options
        self._settings = options.settings()
        self._gateway: Gateway | None = None
        self._listener: socket.socket | None = None
        self._ends = PartitionEnds()
        self._offsets_uri = f"{tables.rstrip('/')}/consumer_offsets"
        self._opening = ThreadPoolExecutor(1, thread_name_prefix="gateway-opening")
        self._opened: Future[None] | None = None
        self._log: AppendableLog | None = None
        self._cluster: UpstreamCluster | None = None
        self._security: Security | None = None

    def reserve(self, log: LogPlace, config: CoordinatorConfig) -> CoordinatorConfig:
        """Takes the address, so that it is known before anything else is started that it is free.

        Where there is a log already, clients are let in from then on, as soon as it is known which offsets were ever
        committed. Who asks for a group waits for the coordinator a while, and is told then that it loads.
        The cluster is asked what it has.

        Returns:
            The coordinator's configuration, with the topics that its clients see.

        Raises:
            GatewaySettingsError: the address can't be listened on, the cluster not be asked, or the settings file names
                topics and the cluster has its own.
        """
        with _address_in_words(self._options):
            self._listener = bound_socket(self._settings.host, self._settings.port)
        self._security = self._options.load_security()
        self._cluster = self._options.cluster(self._security)
        config = self._options.config_with_topics(config, self._cluster)
        self._opened = self._opening.submit(self._open_early, log, config)
        return config

    def _open_early(self, log: LogPlace, config: CoordinatorConfig) -> None:
        if self._cluster is None:
            self._ends.load(self._offsets_uri)
        if log.is_there():
            try:
                self._log = log.open()
            except LogError:
                return  # the coordinator will say so
            gateway = self._started(self._log, config, is_loading=True)
            _log.info("clients that connect to %s wait for the coordinator", gateway.address)

    def records(self, table: pa.Table) -> None:
        """Takes the records of a micro-batch, before its answers."""
        self._ends.add(table)

    def answers(self, table: pa.Table) -> None:
        """Takes the answers of a micro-batch (`Gateway.answers`)."""
        if self._gateway is not None:
            self._gateway.answers(table)

    def status(self) -> str:
        """What clients have met so far and should not: the end of the coordinator's status line."""
        if self._gateway is None:
            return ""
        found = self._gateway.status()
        counts = {"shed": found.shed, "timed out": found.timed_out, "withdrawn": found.withdrawn}
        told = "".join(f", {count:,} {what}" for what, count in counts.items() if count)
        return f", {found.connections:,} connections, {found.unanswered:,} unanswered{told}"

    @contextmanager
    def open(self, coordinator: Coordinator, stop: threading.Event, phases: StartupPhases) -> Iterator[None]:
        """Serves clients for as long as the context lasts, once the coordinator has been through its first batch.

        Args:
            coordinator: it runs, and has put the topics on its log; time passes on that log once it has answered.
            stop: ends the waiting.
            phases: what the start took so far; the line of it is printed.

        Raises:
            GatewaySettingsError: the address can't be listened on, or the coordinator reads no embedded log.
            DeltaError: the offsets that were committed can't be read.
        """
        if coordinator.log is None:
            raise GatewaySettingsError(
                "--listen needs a log that can be appended to; choose --source embedded or kafka"
            )
        phases.end("query")
        while coordinator.query.isActive and not coordinator.sink.totals.sink_ms and not stop.wait(_WARM_S):
            pass
        if (failure := coordinator.query.exception()) is not None:
            raise failure
        if self._opened is not None:
            with _address_in_words(self._options):
                self._opened.result()
        gateway = self._gateway or self._started(coordinator.log, coordinator.config, is_loading=False)
        # Only now: the first batch takes longer than clients wait for an answer.
        gateway.loaded()
        try:
            coordinator.start_clock()
            phases.end("first micro-batch")
            print(phases.line(), file=sys.stderr, flush=True)
            print(f"listening on {gateway.address}", file=sys.stderr, flush=True)
            with BackgroundThread(_watch_files(gateway, self._options), "files"):
                yield
        finally:
            gateway.stop()
            if self._log is not None:
                self._log.close()

    def _started(self, log: AppendableLog, config: CoordinatorConfig, *, is_loading: bool) -> Gateway:
        gateway = Gateway(
            log,
            config.topics,
            _with_coordinators(self._settings, config.settings),
            announce=False,
            listener=self._listener,
            ends=self._ends,
            cluster=self._cluster,
            security=self._security,
            metrics=self._metrics,
            is_loading=is_loading,
        )
        # A client may ask at once, and its answer come at once.
        self._gateway = gateway
        with _address_in_words(self._options):
            gateway.start()
        return gateway


def serve_alone(
    options: GatewayOptions,
    *,
    log: LogPlace,
    tables: Path,
    poll_ms: int,
    stop: threading.Event,
    metrics: tuple[str, int] | None = None,
) -> None:
    """A gateway in a process of its own: it appends to the log and follows the table of answers, until ``stop`` is set.

    Args:
        metrics: where metrics, health and readiness are told, if anywhere.

    Raises:
        GatewaySettingsError: an option is wrong, or the address can't be listened on.
        LogError: there is no log.
    """
    settings = options.settings()
    security = options.load_security()
    cluster = options.cluster(security)
    config = options.config_with_topics(load_settings(options.config), cluster)
    registry = None if metrics is None else CollectorRegistry()
    request_log = log.open()
    try:
        gateway = Gateway(
            request_log,
            config.topics,
            _with_coordinators(settings, config.settings),
            cluster=cluster,
            security=security,
            metrics=registry,
        )
        answers = None
        if isinstance(request_log, KafkaLog):
            answers = AnswersReader(request_log.place, request_log.partitions, gateway.name)
        # A cluster says itself where its partitions end.
        needed = None if answers is not None and cluster is not None else str(tables)
        follower = ResponsesFollower(needed, gateway.answers, gateway.ends, poll_ms, answers=answers)
        follower.start()
        # Members that can reach this gateway and don't are silent, whether the coordinator runs or not.
        clock = Ticker(request_log, _CLOCK_MS, only_when_quiet=True)
        with _listening(gateway, options), _monitored(metrics, registry, gateway):
            print(f"listening on {gateway.address}", file=sys.stderr, flush=True)
            clock.start()
            stop.wait()
            clock.stop()
        follower.stop()
        if answers is not None:
            answers.close()
    finally:
        request_log.close()


@contextmanager
def _monitored(address: tuple[str, int] | None, registry: CollectorRegistry | None, gateway: Gateway) -> Iterator[None]:
    """Tells of a gateway that listens."""
    if address is None or registry is None:
        yield
        return
    endpoint = MonitoringEndpoint(address, registry, health=gateway.trouble, readiness=gateway.trouble)
    endpoint.start()
    try:
        yield
    finally:
        endpoint.stop()


def _with_coordinators(settings: GatewaySettings, coordinators: Settings) -> GatewaySettings:
    """A gateway's settings with what follows from those of its coordinator."""
    default = Settings()
    of_groups = tuple(
        GroupConfig(
            name,
            coordinators.shared_by_groups(name),
            default.shared_by_groups(name),
            *coordinators.bounds_of_groups(name),
        )
        for name in SETTINGS_OF_GROUPS
    )
    return msgspec.structs.replace(
        settings,
        client_assignors=coordinators.group_consumer_client_assignors_enable,
        classic_extensions=coordinators.group_classic_client_extensions_enable,
        of_groups=of_groups,
    )


@contextmanager
def _listening(gateway: Gateway, options: GatewayOptions) -> Iterator[None]:
    with _address_in_words(options):
        gateway.start()
    try:
        with BackgroundThread(_watch_files(gateway, options), "files"):
            yield
    finally:
        gateway.stop()


@contextmanager
def _address_in_words(options: GatewayOptions) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise GatewaySettingsError(f"can't listen on {options.listen}: {error}; choose another --listen") from error


def _watch_files(gateway: Gateway, options: GatewayOptions) -> Watch:
    """Takes over topics that clients of other gateways change, and what is written to files of topics, users and ACLs.

    A file that can't be read is logged, and all stays as it was. With a cluster the topics are its.
    """
    seen = _stamp(options.config)

    def look() -> None:
        nonlocal seen
        gateway.look_at_users()
        if options.upstream is not None:
            return
        stamp = _stamp(options.config)
        if stamp != seen:
            seen = stamp
            gateway.set_topics(load_settings(options.config).topics)
        gateway.look_at_topics()

    failed = f"the topics could not be put on the log; write {options.config} again to have it tried"
    expected = (SettingsError, ValueError)
    return Watch(look, _WATCH_S, expected, "topics, users and ACLs stay as they were", failed, _log)


def _stamp(config: Path | None) -> int | None:
    try:
        return None if config is None else config.stat().st_mtime_ns
    except OSError:
        return None
