"""What a person says about a gateway on a command line, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from coordinator_udf.gateway.security.load import Security
from coordinator_udf.gateway.settings import (
    GatewaySettings,
    GatewaySettingsError,
    GroupSetting,
    is_wildcard,
    parse_address,
)
from coordinator_udf.gateway.upstream.settings import UpstreamSettings, parse_bootstrap
from coordinator_udf.gateway.upstream.watch import UpstreamCluster
from coordinator_udf.settings.coordinator import SETTINGS_OF_GROUPS, Settings
from coordinator_udf.settings.file import CoordinatorConfig


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """What a person says about a gateway on a command line.

    Attributes:
        listen: where clients connect, ``HOST:PORT``.
        advertise: what clients are told to connect to, if not that.
        config: the settings file whose topics are served; it is read again whenever it is written to.
        upstream: the cluster that the topics and their records are of, ``HOST:PORT,...``.
        gateways: where clients reach all gateways before this log, ``HOST:PORT,...``; this one is among them.
        security: the file that says who may come in, and how the cluster is spoken to.
        broker_ports: the gateway's port for that cluster's broker 0; by default the one after that listened on.
        request_timeout_ms: how long the coordinator may take to answer.
        delete_topics: whether topics go that the settings file no longer names, with the offsets committed for them.
    """

    listen: str
    advertise: str | None = None
    config: Path | None = None
    upstream: str | None = None
    broker_ports: int | None = None
    security: Path | None = None
    gateways: str | None = None
    request_timeout_ms: int = 30_000
    delete_topics: bool = False

    def settings(self) -> GatewaySettings:
        """Returns the gateway's settings.

        Raises:
            GatewaySettingsError: an address isn't one, or none that clients can connect to.
        """
        host, port = parse_address(self.listen)
        advertised: tuple[str | None, int | None] = (None, None)
        if self.advertise is not None:
            advertised = parse_address(self.advertise)
        told = advertised[0] or host
        if is_wildcard(told):
            # As Kafka refuses it of advertised.listeners.
            said = f"--listen is {self.listen}" if self.advertise is None else f"--advertise is {self.advertise}"
            raise GatewaySettingsError(
                f"{said}: clients can't connect to {told}; --advertise HOST:PORT says where they can"
            )
        return GatewaySettings(
            host=host,
            port=port,
            advertised_host=advertised[0],
            advertised_port=advertised[1],
            request_timeout_ms=self.request_timeout_ms,
            gateways=() if self.gateways is None else parse_bootstrap(self.gateways),
        )

    def load_security(self) -> Security | None:
        """Returns who may come in; None where everybody may.

        Raises:
            GatewaySettingsError: a file can't be used.
        """
        return None if self.security is None else Security(self.security)

    def cluster(self, security: Security | None) -> UpstreamCluster | None:
        """Returns the cluster behind the gateway, looked at once; None where there is none.

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
        """Returns the configuration with the topics of the cluster, if there is one.

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


def with_coordinators(settings: GatewaySettings, coordinators: Settings) -> GatewaySettings:
    """Returns a gateway's settings with what follows from those of its coordinator."""
    default = Settings()
    of_groups = tuple(
        GroupSetting(
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
def address_in_words(options: GatewayOptions) -> Iterator[None]:
    """Tells of an address that can't be listened on within the context.

    Raises:
        GatewaySettingsError: for an OSError.
    """
    try:
        yield
    except OSError as error:
        raise GatewaySettingsError(f"can't listen on {options.listen}: {error}; choose another --listen") from error
