"""Which request goes where: answered here at once, held back for a while, or sent to the coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from coordinator_udf.gateway.apis import cluster, partitions
from coordinator_udf.gateway.codec import RequestHeader
from coordinator_udf.gateway.server.connection import Started
from coordinator_udf.gateway.server.coordinator import WAITING, Call, Coordinator
from coordinator_udf.gateway.server.limits import Held
from coordinator_udf.gateway.topics import TopicCatalog
from coordinator_udf.gateway.versions import is_served
from coordinator_udf.protocol.errors import Errors


class Dispatcher:
    """Starts requests. ``catalog`` may be set to another one at any time, in the loop."""

    def __init__(self, coordinator: Coordinator, node: cluster.Node, catalog: TopicCatalog) -> None:
        self._coordinator = coordinator
        self._node = node
        self.catalog = catalog

    def __call__(self, header: RequestHeader, body: Mapping[str, Any], host: str, held: Held) -> Started:
        """Starts one request whose API and version are served (or an ApiVersions of whatever version)."""
        api, version = header.api or "", header.api_version
        if api == "ApiVersions" and not is_served(api, version):
            held.release()
            return Started(_done(cluster.api_versions(0, Errors.UNSUPPORTED_VERSION)), 0, False)
        if api == "Fetch":
            held.release()
            delayed = partitions.fetch(version, body, self.catalog)
            return Started(_later(delayed.body, delayed.delay_ms), version, True)
        local = self._local(api, version, body)
        if local is not None:
            held.release()
            return Started(_done(local), version, False)
        waits = api in WAITING
        call = Call(api, version, header.client_id, host, body)
        # A request that waits for others must not keep its bytes from those others.
        answer = self._coordinator.call(call, held.release if waits else _nothing)
        answer.add_done_callback(lambda _: held.release())
        return Started(answer, version, waits)

    def _local(self, api: str, version: int, body: Mapping[str, Any]) -> dict[str, Any] | None:
        answers: dict[str, Callable[[], dict[str, Any]]] = {
            "ApiVersions": lambda: cluster.api_versions(version),
            "Metadata": lambda: cluster.metadata(version, body, self._node, self.catalog),
            "FindCoordinator": lambda: cluster.find_coordinator(version, body, self._node),
            "DescribeCluster": lambda: cluster.describe_cluster(version, body, self._node),
            "ListOffsets": lambda: partitions.list_offsets(version, body, self.catalog),
            "OffsetForLeaderEpoch": lambda: partitions.offset_for_leader_epoch(version, body, self.catalog),
        }
        found = answers.get(api)
        return None if found is None else found()


def _nothing() -> None:
    return None


def _done(body: Mapping[str, Any]) -> asyncio.Future[Mapping[str, Any]]:
    return _later(body, 0)


def _later(body: Mapping[str, Any], delay_ms: int) -> asyncio.Future[Mapping[str, Any]]:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Mapping[str, Any]] = loop.create_future()
    if delay_ms <= 0:
        answer.set_result(body)
    else:
        timer = loop.call_later(delay_ms / 1000, _set, answer, body)
        answer.add_done_callback(lambda _: timer.cancel())
    return answer


def _set(answer: asyncio.Future[Mapping[str, Any]], body: Mapping[str, Any]) -> None:
    if not answer.done():
        answer.set_result(body)
