"""Which request goes where: answered here at once, held back for a while, or sent to the coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from coordinator_udf.gateway.apis import cluster, partitions
from coordinator_udf.gateway.server.connection import Incoming, MakeBody, Started
from coordinator_udf.gateway.server.pending_requests import WAITING, Call, Coordinator
from coordinator_udf.gateway.topics import TopicCatalog
from coordinator_udf.gateway.versions import LOCAL, is_served
from coordinator_udf.protocol.errors import Errors


class Dispatcher:
    """Starts requests. ``catalog`` may be set to another one at any time, in the loop."""

    def __init__(self, coordinator: Coordinator, node: cluster.Node, catalog: TopicCatalog) -> None:
        self._coordinator = coordinator
        self._node = node
        self.catalog = catalog

    def __call__(self, incoming: Incoming) -> Started:
        """Starts one request whose API and version are served, or an ApiVersions of whatever version."""
        # Only this is kept of the request while it waits: `incoming` has its body, which is many times larger.
        header, read_again = incoming.header, incoming.read_again
        api, version = header.api or "", header.api_version
        if not is_served(api, version):
            return Started(_later(partial(cluster.api_versions, 0, Errors.UNSUPPORTED_VERSION), 0), 0, False)
        if api == "Fetch":
            wait_ms = partitions.fetch_wait_ms(incoming.body, self.catalog)
            return Started(_later(lambda: self._local(api, version, read_again()), wait_ms), version, True)
        if api in LOCAL:
            return Started(_later(lambda: self._local(api, version, read_again()), 0), version, False)
        call = Call(api, version, header.client_id, incoming.host, incoming.body)
        waits = api in WAITING
        # A request that waits for others must not keep memory from those others.
        on_log = incoming.held.release if waits else _nothing
        return Started(self._coordinator.call(call, read_again, on_log), version, waits)

    def _local(self, api: str, version: int, body: Mapping[str, Any]) -> Mapping[str, Any]:
        answers: dict[str, Callable[[], Mapping[str, Any]]] = {
            "ApiVersions": lambda: cluster.api_versions(version),
            "Metadata": lambda: cluster.metadata(version, body, self._node, self.catalog),
            "FindCoordinator": lambda: cluster.find_coordinator(version, body, self._node),
            "DescribeCluster": lambda: cluster.describe_cluster(version, body, self._node),
            "ListOffsets": lambda: partitions.list_offsets(version, body, self.catalog),
            "Fetch": lambda: partitions.fetch(version, body, self.catalog),
            "OffsetForLeaderEpoch": lambda: partitions.offset_for_leader_epoch(version, body, self.catalog),
        }
        return answers[api]()


def _nothing() -> None:
    return None


def _later(make_body: MakeBody, delay_ms: int) -> asyncio.Future[MakeBody]:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[MakeBody] = loop.create_future()
    if delay_ms <= 0:
        answer.set_result(make_body)
    else:
        timer = loop.call_later(delay_ms / 1000, _set, answer, make_body)
        answer.add_done_callback(lambda _: timer.cancel())
    return answer


def _set(answer: asyncio.Future[MakeBody], make_body: MakeBody) -> None:
    if not answer.done():
        answer.set_result(make_body)
