"""Which request goes where: answered here at once, held back for a while, or sent to the coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from coordinator_udf.gateway.apis import cluster, partitions, produce, topic_admin
from coordinator_udf.gateway.apis.alter_configs import ALTERATIONS
from coordinator_udf.gateway.apis.refused_changes import CHANGES, refuse_change
from coordinator_udf.gateway.apis.sasl import refuse_sasl
from coordinator_udf.gateway.config_requests import ConfigRequests
from coordinator_udf.gateway.group_configs import GroupConfigStore
from coordinator_udf.gateway.partition_ends import PartitionEnds
from coordinator_udf.gateway.peers import Peers
from coordinator_udf.gateway.server.calls import WAITING, Call
from coordinator_udf.gateway.server.interfaces import Closed, Incoming, MakeBody, Started
from coordinator_udf.gateway.server.pending_requests import PendingRequests
from coordinator_udf.gateway.settings import GroupSetting
from coordinator_udf.gateway.topic_store import Decide, TopicStore
from coordinator_udf.gateway.versions import LOCAL, advertised, is_served
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.wire.schema import KEYS_BY_NAME


class Dispatcher:
    """Starts requests.

    Args:
        group_configs: the settings that clients give to groups; None where the log keeps neither those nor topics.
    """

    def __init__(
        self,
        pending: PendingRequests,
        node: cluster.Node,
        topics: TopicStore,
        ends: PartitionEnds,
        *,
        group_configs: GroupConfigStore | None,
        client_assignors: bool = False,
        peers: Peers | None = None,
        of_groups: Sequence[GroupSetting] = (),
    ) -> None:
        self._peers = peers
        self._pending = pending
        self._node = node
        self._topics = topics
        self._ends = ends
        self._keeps_changes = group_configs is not None
        self._configs = ConfigRequests(group_configs, of_groups, node, lambda: topics.catalog)
        self._client_assignors = client_assignors
        told = advertised(client_assignors=client_assignors)
        self._ranges = {KEYS_BY_NAME[name]: bounds for name, bounds in told.items()}

    def __call__(self, incoming: Incoming) -> Started:
        """Starts one request whose API and version are served, or an ApiVersions of whatever version."""
        # Only this is kept of the request while it waits: `incoming` has its body, which is many times larger.
        header, read_again = incoming.header, incoming.read_again
        api, version = header.api or "", header.api_version
        if not self.is_served(api, version):
            told = partial(cluster.api_versions, 0, Errors.UNSUPPORTED_VERSION, self._ranges)
            return Started(at_once(told), 0, False)
        if api == "Fetch":
            wait_ms = partitions.fetch_wait_ms(incoming.body, self._topics.catalog)

            def fetched() -> Mapping[str, Any]:
                return self._local(api, version, read_again())

            answer = _later(fetched, wait_ms)
            return Started(answer, version, True, cut_short=partial(_set, answer, fetched))
        if api == "Produce" and not produce.is_answered(incoming.body):
            raise Closed(f"a Produce that wants no answer: {produce.REFUSAL}")
        if api in CHANGES and not self._keeps_changes:
            return Started(at_once(partial(refuse_change, api, version, incoming.body)), version, False)
        if api in ALTERATIONS:
            return Started(self._configs.start(api, version, incoming.body), version, False)
        if api in CHANGES:
            change = partial(self._change, api, version, incoming.body)
            return Started(asyncio.get_running_loop().run_in_executor(None, change), version, False)
        if api in LOCAL:
            return Started(_later(lambda: self._local(api, version, read_again()), 0), version, False)
        return coordinated(self._pending, incoming)

    def is_served(self, api: str | None, version: int) -> bool:
        """See `Handler.is_served`."""
        return is_served(api, version, client_assignors=self._client_assignors)

    def _local(self, api: str, version: int, body: Mapping[str, Any]) -> Mapping[str, Any]:
        catalog, ends, node = self._topics.catalog, self._ends, self._node
        nodes = () if self._peers is None else self._peers.live()
        node_for = (lambda _: node) if self._peers is None else self._peers.node_for
        answers: dict[str, Callable[[], Mapping[str, Any]]] = {
            "ApiVersions": lambda: cluster.api_versions(version, cluster.software_error(version, body), self._ranges),
            "Metadata": lambda: cluster.metadata(version, body, node, catalog, nodes),
            "FindCoordinator": lambda: cluster.find_coordinator(version, body, node_for),
            "DescribeCluster": lambda: cluster.describe_cluster(version, body, node, nodes),
            "ListOffsets": lambda: partitions.list_offsets(version, body, catalog, ends),
            "Fetch": lambda: partitions.fetch(version, body, catalog, ends),
            "OffsetForLeaderEpoch": lambda: partitions.offset_for_leader_epoch(version, body, catalog),
            "Produce": lambda: produce.produce(version, body, catalog),
            "SaslHandshake": lambda: refuse_sasl(api, version),
            "SaslAuthenticate": lambda: refuse_sasl(api, version),
            "DescribeConfigs": lambda: self._configs.answer(api, version, body),
            "ListConfigResources": lambda: self._configs.answer(api, version, body),
        }
        return answers[api]()

    def _change(self, api: str, version: int, body: Mapping[str, Any]) -> MakeBody:
        """Changes topics, in a thread that may wait for the log."""
        changes: dict[str, Decide[Mapping[str, Any]]] = {
            "CreateTopics": partial(topic_admin.create_topics, version, body, self._node.node_id),
            "CreatePartitions": partial(topic_admin.create_partitions, version, body),
            "DeleteTopics": partial(topic_admin.delete_topics, version, body),
        }
        answered = self._topics.change(changes[api])
        return lambda: answered


def coordinated(pending: PendingRequests, incoming: Incoming) -> Started:
    """Sends a request to the coordinator."""
    header = incoming.header
    api, version = header.api or "", header.api_version
    call = Call(api, version, header.client_id, incoming.host, incoming.body, incoming.lane, incoming.principal)
    waits = api in WAITING
    # A request that waits for others must not keep memory from those others.
    on_log = incoming.held.release if waits else _nothing
    return Started(pending.call(call, incoming.read_again, on_log), version, waits)


def at_once(make_body: MakeBody) -> asyncio.Future[MakeBody]:
    """Returns an answer that is there already."""
    return _later(make_body, 0)


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
