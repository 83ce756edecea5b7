"""A gateway in front of a real cluster, its coordinator in the test's process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coordinator_udf.gateway.security.load import Security
from coordinator_udf.gateway.settings import parse_address
from coordinator_udf.gateway.upstream.settings import UpstreamSettings
from coordinator_udf.gateway.upstream.watch import UpstreamCluster
from tests.gateway.in_process import Front

#: Sessions short enough for a crash to be seen in seconds.
FAST = {
    "group.min.session.timeout.ms": 1_000,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 500,
    "offsets.topic.partition.check": True,
}


def cluster_at(*addresses: str, security: Security | None = None) -> UpstreamCluster:
    """The cluster with brokers at these addresses; its brokers are reached at any free ports of the gateway."""
    settings = UpstreamSettings(
        bootstrap=tuple(parse_address(address) for address in addresses),
        first_broker_port=None,
        refresh_ms=200,
        tls=None if security is None else security.upstream_tls(),
        credentials=None if security is None else security.upstream_credentials(),
    )
    cluster = UpstreamCluster(settings)
    cluster.look_first()
    return cluster


def front_of(path: Path, *addresses: str, **more: Any) -> Front:
    """A gateway in front of the cluster with brokers at these addresses."""
    cluster = cluster_at(*addresses, security=more.get("security"))
    settings = {**FAST, **more.pop("settings", {})}
    return Front(path, cluster.state.topics, cluster=cluster, settings=settings, **more)
