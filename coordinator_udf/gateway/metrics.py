"""What a gateway counts, under Kafka's names where Kafka counts the same (RequestMetrics, SocketServer)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from coordinator_udf.gateway.server.futures import then
from coordinator_udf.gateway.server.interfaces import Handler, Incoming, MakeBody, Passage, Passed, Started, Write
from coordinator_udf.gateway.status import GatewayStatus
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.wire import RequestHeader

#: The bounds of the histograms, in seconds: from what the gateway answers itself to the request timeout.
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0)
_ERROR_NAMES: Final = {int(error): error.name for error in Errors}


class GatewayMetrics:
    """The counters of one gateway. Those of requests are kept here, all others asked of the gateway when it is scraped.

    Args:
        registry: where they are registered.
        status: returns what the gateway is doing; None before it has begun.
    """

    def __init__(self, registry: CollectorRegistry, status: Callable[[], GatewayStatus | None]) -> None:
        self._requests = Counter(
            "kafka_network_requestmetrics_requests",
            "Requests, by API and version.",
            ["request", "version"],
            registry=registry,
        )
        self._errors = Counter(
            "kafka_network_requestmetrics_errors",
            "Answers by API and the error at their top, NONE among them, as Kafka counts.",
            ["request", "error"],
            registry=registry,
        )
        self._seconds = Histogram(
            "kafka_network_requestmetrics_totaltime_seconds",
            "From a request to its answer.",
            ["request"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._passed_bytes = Counter(
            "muster_gateway_passed_bytes",
            "Bytes of requests (in) and answers (out) that were passed on to the cluster and back.",
            ["direction"],
            registry=registry,
        )
        registry.register(_StatusCollector(status))

    def began(self, api: str, version: int) -> float:
        """Counts a request; returns when it was."""
        self._requests.labels(api, str(version)).inc()
        return time.monotonic()

    def ended(self, api: str, began: float, error: int | None) -> None:
        """Counts an answer, with the error at its top if it has one."""
        self._seconds.labels(api).observe(time.monotonic() - began)
        if error is not None:
            self._errors.labels(api, _ERROR_NAMES.get(error, str(error))).inc()

    def passed(self, direction: str, size: int) -> None:
        """Counts bytes that were passed on."""
        self._passed_bytes.labels(direction).inc(size)


class _StatusCollector(Collector):
    def __init__(self, status: Callable[[], GatewayStatus | None]) -> None:
        self._status = status

    def collect(self) -> Iterable[Metric]:
        """Returns what the gateway is doing now."""
        status = self._status()
        if status is None:
            return
        yield GaugeMetricFamily(
            "kafka_server_socketservermetrics_connection_count", "Open connections.", status.connections
        )
        for name, count in status.authentications.items():
            yield CounterMetricFamily(f"kafka_server_socketservermetrics_{name}", "Authentications by SASL.", count)
        yield GaugeMetricFamily("muster_gateway_unanswered", "On their way to the coordinator.", status.unanswered)
        yield CounterMetricFamily("muster_gateway_appends", "Group commits to the request log.", status.appends)
        yield CounterMetricFamily("muster_gateway_rows", "Rows appended to the request log.", status.rows)
        yield CounterMetricFamily("muster_gateway_timed_out", "Requests that got no answer in time.", status.timed_out)
        yield CounterMetricFamily("muster_gateway_shed", "Requests dropped before the log.", status.shed)
        yield CounterMetricFamily(
            "muster_gateway_withdrawn",
            "Members made to leave whose clients went before they had an id.",
            status.withdrawn,
        )
        closed = CounterMetricFamily("muster_gateway_closed", "Closed connections by the reason.", labels=["reason"])
        for reason, count in status.closed.items():
            closed.add_metric([reason], count)
        yield closed


class MeasuredHandler:
    """A handler whose requests are counted."""

    def __init__(self, handler: Handler, metrics: GatewayMetrics) -> None:
        self._handler = handler
        self._metrics = metrics

    def is_served(self, api: str | None, version: int) -> bool:
        """See `Handler.is_served`."""
        return self._handler.is_served(api, version)

    def __call__(self, incoming: Incoming) -> Started:
        """See `Handler.__call__`."""
        api = incoming.header.api or str(incoming.header.api_key)
        began = self._metrics.began(api, incoming.header.api_version)
        started = self._handler(incoming)
        answer: asyncio.Future[MakeBody] = then(started.answer, partial(self._counted, api, began))
        return started._replace(answer=answer)

    def _counted(self, api: str, began: float, body: Mapping[str, Any]) -> Mapping[str, Any]:
        self._metrics.ended(api, began, body.get("errorCode"))
        return body


class MeasuredPassage:
    """A passage whose requests and bytes are counted."""

    def __init__(self, passage: Passage, metrics: GatewayMetrics) -> None:
        self._passage = passage
        self._metrics = metrics

    async def pass_on(self, header: RequestHeader, frame: bytes, principal: str | None, host: str) -> Passed | None:
        """See `Passage.pass_on`."""
        metrics = self._metrics
        at = time.monotonic()
        passed = await self._passage.pass_on(header, frame, principal, host)
        if passed is None:
            return None
        api = header.api or str(header.api_key)
        metrics.began(api, header.api_version)
        metrics.passed("in", len(frame))
        answer = passed.answer
        if answer is None:
            return passed

        async def counted(write: Write) -> None:
            async def write_counted(data: bytes) -> None:
                metrics.passed("out", len(data))
                await write(data)

            await answer(write_counted)
            metrics.ended(api, at, None)

        return Passed(counted)

    def close(self) -> None:
        """See `Passage.close`."""
        self._passage.close()
