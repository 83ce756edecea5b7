"""What the gateway answers on its own, or has its coordinator answer, where a cluster is behind it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from coordinator_udf.gateway.apis import cluster as answers
from coordinator_udf.gateway.apis.sasl import SASL_APIS, refuse_sasl
from coordinator_udf.gateway.config_requests import ConfigRequests
from coordinator_udf.gateway.peers import Peers
from coordinator_udf.gateway.security.authorizer import Authorizer
from coordinator_udf.gateway.server.dispatch import at_once, coordinated
from coordinator_udf.gateway.server.interfaces import Incoming, Started
from coordinator_udf.gateway.server.pending_requests import PendingRequests
from coordinator_udf.gateway.upstream.passing import DESCRIBE_TOPIC_PARTITIONS, told_features, told_ranges
from coordinator_udf.gateway.upstream.ports import BrokerPorts
from coordinator_udf.gateway.upstream.settings_requests import SETTINGS_APIS
from coordinator_udf.gateway.upstream.watch import UpstreamCluster
from coordinator_udf.gateway.versions import LOCAL
from coordinator_udf.gateway.versions import coordinated as coordinated_apis
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.partitioner import partition_for

_LOCAL = {"ApiVersions": (0, 4), "FindCoordinator": (0, 6), **SASL_APIS}


class UpstreamDispatcher:
    """Starts requests that are not passed on."""

    def __init__(
        self,
        pending: PendingRequests,
        cluster: UpstreamCluster,
        ports: BrokerPorts,
        *,
        client_assignors: bool = False,
        peers: Peers | None = None,
        authorizer: Authorizer | None = None,
        of_groups: ConfigRequests,
    ) -> None:
        self._of_groups = of_groups
        self._pending = pending
        self._cluster = cluster
        self._ports = ports
        self._peers = peers
        self._authorizer = authorizer
        #: What is served here, by API.
        settings = {api: LOCAL[api] for api in SETTINGS_APIS.values()}
        self._served = {**coordinated_apis(client_assignors=client_assignors), **_LOCAL, **settings}

    def is_served(self, api: str | None, version: int) -> bool:
        """See `Handler.is_served`."""
        first, last = self._served.get(api or "", (0, -1))
        return first <= version <= last

    def __call__(self, incoming: Incoming) -> Started:
        """See `Handler.__call__`."""
        api, version = incoming.header.api or "", incoming.header.api_version
        if api == "ApiVersions":
            known = self.is_served(api, version)
            said, error = (0, Errors.UNSUPPORTED_VERSION)
            if known:
                said, error = version, answers.software_error(version, incoming.body)
            return Started(at_once(partial(self._api_versions, said, error)), said, False)
        if api == "FindCoordinator":
            body = self._find_coordinator(version, incoming.body)
            return Started(at_once(lambda: body), version, False)
        if api in SASL_APIS:
            return Started(at_once(partial(refuse_sasl, api, version)), version, False)
        if api in SETTINGS_APIS.values():
            return Started(self._of_groups.start(api, version, incoming.body), version, False)
        return coordinated(self._pending, incoming)

    def _api_versions(self, version: int, error: Errors) -> Mapping[str, Any]:
        served = self._cluster.served
        ranges = told_ranges(served, self._served)
        if self._authorizer is not None and self._authorizer.has_rules:
            # Clients ask for topics by Metadata then, of whose answer everybody gets what they may see.
            ranges.pop(DESCRIBE_TOPIC_PARTITIONS, None)
        return answers.api_versions(version, error, ranges, told_features(served))

    def _find_coordinator(self, version: int, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Spreads the groups over the gateways, or over this one's ports: all of them lead to the coordinator."""
        if self._peers is not None:
            return answers.find_coordinator(version, request, self._peers.node_for)
        brokers = self._cluster.state.brokers

        def node(group_id: str) -> answers.Node:
            broker = brokers[partition_for(group_id, len(brokers))]
            host, port = self._ports.address(broker.node_id)
            return answers.Node(broker.node_id, host, port, self._cluster.state.cluster_id or "")

        return answers.find_coordinator(version, request, node)
