"""A gateway in a process of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Final

from prometheus_client import CollectorRegistry

from coordinator_udf.background import BackgroundThread, Watch
from coordinator_udf.gateway.gateway import Gateway
from coordinator_udf.gateway.options import GatewayOptions, address_in_words, with_coordinators
from coordinator_udf.gateway.responses_table import ResponsesFollower
from coordinator_udf.gateway.watched_files import files_watched
from coordinator_udf.log.configured_topics import check_topics
from coordinator_udf.log.kafka.answers import AnswersReader
from coordinator_udf.log.kafka.appender import KafkaLog
from coordinator_udf.log.opening import LogPlace
from coordinator_udf.monitoring import MonitoringEndpoint, tell
from coordinator_udf.settings.file import load_settings
from coordinator_udf.streaming.lease import LeaseWatch
from coordinator_udf.streaming.ticker import Ticker

_log: Final = logging.getLogger(__name__)

#: How often it lets time pass where the coordinator appends no ticks, in milliseconds: as much later timers fire. Half
#: writes two ticks a second to an idle log; double comes near to DOWNTIME_AFTER_MS, from which a pause is taken for a
#: standstill.
_CLOCK_MS: Final = 1_000
#: How often it looks whether the coordinator is there, in seconds. Its lease is renewed every 2 s and missed after 5:
#: half gains nothing, double tells waiting clients a second later.
_LOOK_S: Final = 1.0


def serve_alone(
    options: GatewayOptions,
    *,
    log: LogPlace,
    tables: str,
    poll_ms: int,
    stop: threading.Event,
    watches: bool = True,
    metrics: tuple[str, int] | None = None,
) -> None:
    """Runs a gateway that appends to the log and follows the table of answers, until ``stop`` is set.

    Args:
        tables: the folder of the coordinator's tables, a path or a URI: where partitions end, whether it is
            there at all, and with an embedded log its answers.
        watches: whether the lease on the tables is that of this log's coordinator, and tells whether it is there.
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
        if not options.delete_topics:
            check_topics(request_log, config.topics)
        gateway = Gateway(
            request_log,
            config.topics,
            with_coordinators(settings, config.settings),
            cluster=cluster,
            security=security,
            metrics=registry,
        )
        answers = None
        if isinstance(request_log, KafkaLog):
            answers = AnswersReader(request_log.place, request_log.partitions, gateway.name)
        # A cluster says itself where its partitions end.
        needed = None if answers is not None and cluster is not None else tables
        follower = ResponsesFollower(needed, gateway.answers, gateway.ends, poll_ms, answers=answers)
        follower.start()
        # Members that can reach this gateway and don't are silent, whether the coordinator runs or not.
        clock = Ticker(request_log, _CLOCK_MS, only_when_quiet=True)
        watch = BackgroundThread(_watch_coordinator(gateway, tables), "coordinator-watch") if watches else nullcontext()
        # What can't be told is said before anything is on the log.
        with _monitored(metrics, registry, gateway), _listening(gateway, options), watch:
            tell(f"listening on {gateway.address}")
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
    """Tells of a gateway; before it listens, that it doesn't."""
    if address is None or registry is None:
        yield
        return
    endpoint = MonitoringEndpoint(address, registry, health=gateway.trouble, readiness=gateway.trouble)
    endpoint.start()
    try:
        yield
    finally:
        endpoint.stop()


def _watch_coordinator(gateway: Gateway, tables: str) -> Watch:
    """Tells a gateway whether the coordinator is away, as far as the lease on its tables says so."""
    lease = LeaseWatch(tables)
    was_away = False

    def look() -> None:
        nonlocal was_away
        is_away = lease.is_coordinator_away()
        if is_away and not was_away:
            _log.warning("the coordinator is away: heartbeats are taken on trust and wait in the log, as all requests")
        was_away = is_away
        gateway.look_at_coordinator(is_away=is_away)

    told = f"the coordinator's lease on {tables} can't be read"
    return Watch(look, _LOOK_S, (OSError,), told, told, _log)


@contextmanager
def _listening(gateway: Gateway, options: GatewayOptions) -> Iterator[None]:
    with address_in_words(options):
        gateway.start()
    try:
        with files_watched(gateway, options):
            yield
    finally:
        gateway.stop()
