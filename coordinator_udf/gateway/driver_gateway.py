"""The gateway in the driver, the coordinator's own process."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from prometheus_client import CollectorRegistry

from coordinator_udf.gateway.gateway import Gateway
from coordinator_udf.gateway.options import GatewayOptions, address_in_words, with_coordinators
from coordinator_udf.gateway.partition_ends import PartitionEnds
from coordinator_udf.gateway.security.load import Security
from coordinator_udf.gateway.server.listener import bound_socket
from coordinator_udf.gateway.settings import GatewaySettingsError
from coordinator_udf.gateway.upstream.watch import UpstreamCluster
from coordinator_udf.gateway.watched_files import files_watched
from coordinator_udf.log.file import LogError
from coordinator_udf.log.opening import AppendableLog, LogPlace
from coordinator_udf.monitoring import tell
from coordinator_udf.settings.file import CoordinatorConfig

if TYPE_CHECKING:
    from coordinator_udf.streaming.coordinator import Coordinator
    from coordinator_udf.streaming.startup import StartupPhases

_log = logging.getLogger(__name__)

#: How often it is looked whether the coordinator's first micro-batch is through, in seconds: as late as that clients
#: are served after a start of some seconds. Half and double differ by 25 and 50 ms of it.
_WARM_S: Final = 0.05


class DriverGateway:
    """The gateway in the driver: clients may connect long before the coordinator can answer them."""

    def __init__(self, options: GatewayOptions, tables: str, metrics: CollectorRegistry | None = None) -> None:
        """Makes a gateway that serves nobody yet, before a coordinator with tables in this folder.

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
        with address_in_words(self._options):
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
        """Returns what clients have met so far and should not: the end of the coordinator's status line."""
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
            with address_in_words(self._options):
                self._opened.result()
        gateway = self._gateway or self._started(coordinator.log, coordinator.config, is_loading=False)
        # Only now: the first batch takes longer than clients wait for an answer.
        gateway.loaded()
        try:
            coordinator.start_clock()
            phases.end("first micro-batch")
            tell(phases.line())
            tell(f"listening on {gateway.address}")
            with files_watched(gateway, self._options):
                yield
        finally:
            gateway.stop()
            if self._log is not None:
                self._log.close()

    def _started(self, log: AppendableLog, config: CoordinatorConfig, *, is_loading: bool) -> Gateway:
        gateway = Gateway(
            log,
            config.topics,
            with_coordinators(self._settings, config.settings),
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
        with address_in_words(self._options):
            gateway.start()
        return gateway
