"""What can be set about a gateway: where it listens and what it allows a client to take."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import Annotated, Final

import msgspec

from coordinator_udf.settings.coordinator import SettingsError


class GatewaySettingsError(SettingsError):
    """A setting of the gateway has a value that it can't work with; the text names it."""


_Count = Annotated[int, msgspec.Meta(ge=1)]
_Size = Annotated[int, msgspec.Meta(ge=0)]
_Milliseconds = Annotated[int, msgspec.Meta(ge=0)]
_Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]

#: The least that a client may send at once: a request with little more than its names fits.
_LEAST_REQUEST_BYTES: Final = 1024


class GroupSetting(msgspec.Struct, frozen=True):
    """A setting that consumer groups have from the coordinator, if they have none of their own.

    Attributes:
        name: its name for a group.
        value: what it is.
        default: what it is by default.
        least: the least value that a group may have for itself.
        most: the greatest one.
    """

    name: str
    value: int
    default: int
    least: int = 0
    most: int = 2**31 - 1

    def bound_name(self, which: str) -> str:
        """Returns the name of the coordinator's setting that is its bound: ``min`` or ``max``."""
        kind, _, rest = self.name.partition(".")
        return f"group.{kind}.{which}.{rest}"


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway's settings. Where Kafka has the same limit the default is Kafka's, unless said otherwise.

    Attributes:
        host: the address to listen on.
        port: the port to listen on; 0 lets the system choose.
        advertised_host: what clients are told to connect to; None for `host`.
        advertised_port: likewise; None for the port listened on.
        node_id: the broker id that clients see.
        cluster_id: the cluster id that clients see.
        gateways: where clients reach all gateways before this log, this one among them; none: there is only this one.
        max_connections: further ones are closed at once.
        max_request_bytes: a longer frame closes its connection (Kafka: socket.request.max.bytes, 100 MiB).
        queued_bytes_max: memory for requests that are not yet in the log, four of the largest; beyond it reading waits.
        max_in_flight_per_connection: unanswered requests of one connection; beyond it its reading waits.
        max_in_flight: unanswered requests of all connections; beyond it reading waits.
        unanswered_rows_max: rows that the log takes while the coordinator has not answered those before; further ones
            wait here, where they can still be dropped. About what it answers in half a second.
        idle_timeout_ms: a connection without a request for so long is closed (connections.max.idle.ms).
        frame_timeout_ms: a frame that was begun and doesn't end within this time closes its connection: after as long
            as clients wait for an answer (request.timeout.ms).
        write_timeout_ms: a client that takes no answer for so long is disconnected; likewise.
        request_timeout_ms: how long the coordinator may take; a JoinGroup and a SyncGroup get the rebalance timeout on
            top, as they wait for others.
        loading_hold_ms: how long a request waits for a coordinator that loads before it is told so; less than clients'
            shortest request timeouts (5 s).
        append_linger_ms: how long a group of requests is gathered before it is appended to the log: half makes twice
            the durable writes, of some milliseconds each, and answers come 12 ms earlier.
        append_rows_max: rows of one append at the most.
        client_assignors: whether the coordinator asks members to compute assignments
            (group.consumer.client.assignors.enable).
        classic_extensions: whether it serves classic groups the extensions of 2015
            (group.classic.client.extensions.enable).
        of_groups: the settings that consumer groups have from the coordinator, as clients are told.
    """

    host: str = "127.0.0.1"
    port: _Port = 9092
    advertised_host: str | None = None
    advertised_port: _Port | None = None
    node_id: _Size = 1
    cluster_id: str = "muster"
    gateways: tuple[tuple[str, int], ...] = ()
    max_connections: _Count = 10_000
    max_request_bytes: Annotated[int, msgspec.Meta(ge=_LEAST_REQUEST_BYTES)] = 16 * 1024 * 1024
    queued_bytes_max: _Size = 64 * 1024 * 1024
    max_in_flight_per_connection: _Count = 64
    max_in_flight: _Count = 20_000
    unanswered_rows_max: _Count = 10_000
    idle_timeout_ms: _Milliseconds = 600_000
    frame_timeout_ms: _Milliseconds = 30_000
    write_timeout_ms: _Milliseconds = 30_000
    request_timeout_ms: _Milliseconds = 30_000
    loading_hold_ms: _Milliseconds = 3_000
    append_linger_ms: _Milliseconds = 25
    append_rows_max: _Count = 5_000
    client_assignors: bool = False
    classic_extensions: bool = False
    of_groups: tuple[GroupSetting, ...] = ()

    @property
    def reads_extensions(self) -> bool:
        """Whether the coordinator looks at fields of requests that Kafka's haven't got."""
        return self.client_assignors or self.classic_extensions

    def __post_init__(self) -> None:
        for field in msgspec.structs.fields(self):
            value = getattr(self, field.name)
            try:
                msgspec.convert(value, field.type)
            except msgspec.ValidationError as error:
                raise GatewaySettingsError(f"{field.name} is {value!r}: {error}") from None
        if self.max_request_bytes > self.queued_bytes_max:
            raise GatewaySettingsError(
                f"max_request_bytes is {self.max_request_bytes}, expected at most queued_bytes_max "
                f"({self.queued_bytes_max}): a request that can't be queued would wait for ever"
            )


def parse_address(text: str) -> tuple[str, int]:
    """Returns the host and port of ``HOST:PORT``; an IPv6 address stands in brackets.

    Raises:
        GatewaySettingsError: it isn't of that form.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        raise GatewaySettingsError(f"address is {text!r}, expected HOST:PORT such as 127.0.0.1:9092")
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_wildcard(host: str) -> bool:
    """Returns whether a host stands for all addresses of a machine: one listens there, and connects to none."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def plain_address(host: str) -> str:
    """Returns an address as Java has it: one of IPv4 plainly, also where it came through a socket of IPv6."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    return str(address.ipv4_mapped or host) if isinstance(address, IPv6Address) else host
