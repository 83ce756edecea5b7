"""The file of --security: Kafka's names for what it has, TOML."""

from __future__ import annotations

import ssl
import tomllib
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from coordinator_udf.gateway.security.sasl import MECHANISMS, OAUTHBEARER, USER_MECHANISMS
from coordinator_udf.gateway.settings import GatewaySettingsError
from coordinator_udf.settings.coordinator import SettingsError
from coordinator_udf.settings.file import flatten

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]

_Count = Annotated[int, msgspec.Meta(ge=1)]
_Milliseconds = Annotated[int, msgspec.Meta(ge=0)]
_Seconds = Annotated[int, msgspec.Meta(ge=0)]


def _field(name: str, default: Any) -> Any:
    return msgspec.field(name=name, default=default)


class Acl(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rule, in Kafka's words.

    Attributes:
        principal: ``User:NAME``, or ``User:*`` for all.
        resource: what kind of thing it is about.
        name: its name; ``*`` for all, and with `pattern` PREFIXED how names begin.
        host: the address from which it holds; ``*`` for any.
    """

    principal: Annotated[str, msgspec.Meta(pattern="^User:.+$")]
    operation: Literal[
        "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION",
        "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE",
    ]  # fmt: skip
    resource: Literal["GROUP", "TOPIC", "CLUSTER", "TRANSACTIONAL_ID"]
    name: Annotated[str, msgspec.Meta(min_length=1)]
    pattern: Literal["LITERAL", "PREFIXED"] = "LITERAL"
    permission: Literal["ALLOW", "DENY"] = "ALLOW"
    host: str = "*"


class Quota(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much a principal may take; ``User:*`` is whoever has no quota of its own."""

    principal: Annotated[str, msgspec.Meta(pattern="^User:.+$")]
    requests_per_second: Annotated[float, msgspec.Meta(gt=0)] | None = None
    connections: _Count | None = None


class SecuritySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the file says. Paths are as in the file; `path` makes them relative to it.

    Attributes:
        strangers_max: connections that have not authenticated yet; for one more one is closed. A TLS
            handshake takes a quarter of a MiB.
        strangers_timeout_ms: how long TLS and SASL may take together.
        failure_delay_ms: how long a wrong password waits for its answer.
        token_bytes_max: the largest frame of who has not authenticated.
        reauthenticate_ms: after how long clients have to authenticate again (KIP-368); 0 for never, or when a token
            ends.
        jwks: where the keys are that tokens are signed with.
        token_skew_s: by how much clocks may differ.
        token_user_claim: the claim of a token that is the user.
    """

    protocol: Protocol = _field("security.protocol", "PLAINTEXT")
    keystore: str | None = _field("ssl.keystore.location", None)
    truststore: str | None = _field("ssl.truststore.location", None)
    client_auth: Literal["none", "requested", "required"] = _field("ssl.client.auth", "none")
    mechanisms: tuple[str, ...] = _field("sasl.enabled.mechanisms", ())
    users: str | None = _field("sasl.users.location", None)
    super_users: tuple[str, ...] = _field("super.users", ())
    allow_without_acl: bool = _field("allow.everyone.if.no.acl.found", False)
    strangers_max: _Count = _field("strangers.max", 300)
    strangers_timeout_ms: _Count = _field("strangers.timeout.ms", 10_000)
    failure_delay_ms: _Milliseconds = _field("connection.failed.authentication.delay.ms", 100)
    token_bytes_max: _Count = _field("sasl.server.max.receive.size", 524_288)
    reauthenticate_ms: _Milliseconds = _field("connections.max.reauth.ms", 0)
    jwks: str | None = _field("sasl.oauthbearer.jwks.endpoint.url", None)
    jwks_refresh_ms: _Count = _field("sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000)
    jwks_truststore: str | None = _field("sasl.oauthbearer.jwks.truststore.location", None)
    token_issuer: str | None = _field("sasl.oauthbearer.expected.issuer", None)
    token_audiences: tuple[str, ...] = _field("sasl.oauthbearer.expected.audience", ())
    token_skew_s: _Seconds = _field("sasl.oauthbearer.clock.skew.seconds", 30)
    token_user_claim: str = _field("sasl.oauthbearer.sub.claim.name", "sub")
    upstream_protocol: Protocol = _field("upstream.security.protocol", "PLAINTEXT")
    upstream_truststore: str | None = _field("upstream.ssl.truststore.location", None)
    upstream_keystore: str | None = _field("upstream.ssl.keystore.location", None)
    upstream_check_host: bool = _field("upstream.ssl.check.hostname", True)
    upstream_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = _field(
        "upstream.sasl.mechanism", "SCRAM-SHA-512"
    )
    upstream_username: str | None = _field("upstream.sasl.username", None)
    upstream_password: str | None = _field("upstream.sasl.password.location", None)
    acls: tuple[Acl, ...] = ()
    quotas: tuple[Quota, ...] = ()

    @property
    def has_tls(self) -> bool:
        """Whether clients speak TLS."""
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def has_sasl(self) -> bool:
        """Whether clients say who they are by SASL."""
        return self.protocol.startswith("SASL_")

    @property
    def user_mechanisms(self) -> tuple[str, ...]:
        """The SASL mechanisms that check passwords of the file of users."""
        return tuple(name for name in self.mechanisms if name in USER_MECHANISMS)

    def check(self) -> None:
        """Checks what belongs together.

        Raises:
            GatewaySettingsError: something is missing, or can't be.
        """
        if len({quota.principal for quota in self.quotas}) < len(self.quotas):
            raise _wrong("quotas", "two of a principal", "one for each")
        if self.has_tls and self.keystore is None:
            raise _wrong("ssl.keystore.location", None, "a PEM file with the gateway's key and certificates")
        if self.client_auth != "none" and (self.truststore is None or not self.has_tls):
            raise _wrong("ssl.client.auth", self.client_auth, "none without SSL and ssl.truststore.location")
        unknown = [name for name in self.mechanisms if name not in MECHANISMS]
        if unknown or (self.has_sasl and not self.mechanisms):
            raise _wrong("sasl.enabled.mechanisms", list(self.mechanisms), f"some of {', '.join(MECHANISMS)}")
        if self.has_sasl and self.user_mechanisms and self.users is None:
            raise _wrong("sasl.users.location", None, "the file that scripts/users makes")
        if self.has_sasl and OAUTHBEARER in self.mechanisms:
            self._check_tokens()
        if self.upstream_protocol.startswith("SASL_") and None in (self.upstream_username, self.upstream_password):
            raise _wrong(
                "upstream.sasl.username and password.location", None, "both, as upstream.security.protocol is SASL"
            )

    def _check_tokens(self) -> None:
        """Refuses settings without issuer or audience, with which anybody's token would do: Kafka only warns."""
        needed = {
            "sasl.oauthbearer.jwks.endpoint.url": (
                self.jwks,
                "where the keys are: https://, file://, or a path",
            ),
            "sasl.oauthbearer.expected.issuer": (self.token_issuer, "who issues tokens: their claim iss"),
            "sasl.oauthbearer.expected.audience": (
                self.token_audiences,
                "the claim aud of tokens for this gateway, one or more",
            ),
        }
        for name, (value, expected) in needed.items():
            if not value:
                raise _wrong(name, value, expected)


_LISTS: Final = ("acls", "quotas")


def read_security(path: Path) -> SecuritySettings:
    """Reads a file of --security.

    Raises:
        GatewaySettingsError: it can't be read, or something in it can't be; the message names it.
    """
    try:
        document = tomllib.loads(path.read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise GatewaySettingsError(f"the file of --security {path} can't be read: {error}") from error
    lists = {name: document.pop(name) for name in _LISTS if name in document}
    try:
        read = msgspec.convert(lists | flatten(document), SecuritySettings)
    except (msgspec.ValidationError, SettingsError) as error:
        raise GatewaySettingsError(f"the file of --security {path}: {error}") from None
    read.check()
    return read


def server_tls(settings: SecuritySettings, directory: Path) -> ssl.SSLContext | None:
    """Makes the TLS context for clients, of TLS 1.2 at least; None without TLS.

    Raises:
        GatewaySettingsError: a file can't be used.
    """
    if not settings.has_tls:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    _load(context, directory, settings.keystore, settings.truststore)
    context.verify_mode = {
        "none": ssl.CERT_NONE,
        "requested": ssl.CERT_OPTIONAL,
        "required": ssl.CERT_REQUIRED,
    }[settings.client_auth]
    return context


def upstream_tls(settings: SecuritySettings, directory: Path) -> ssl.SSLContext | None:
    """Makes the TLS context for brokers of the cluster; None without TLS.

    Raises:
        GatewaySettingsError: a file can't be used.
    """
    if settings.upstream_protocol not in ("SSL", "SASL_SSL"):
        return None
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = settings.upstream_check_host
    _load(context, directory, settings.upstream_keystore, settings.upstream_truststore)
    return context


def _load(context: ssl.SSLContext, directory: Path, keystore: str | None, truststore: str | None) -> None:
    try:
        if keystore is not None:
            context.load_cert_chain(directory / keystore)
        if truststore is not None:
            context.load_verify_locations(directory / truststore)
    except (OSError, ssl.SSLError) as error:
        raise GatewaySettingsError(f"{keystore or ''} {truststore or ''}: can't be used for TLS: {error}") from error


def _wrong(name: str, value: object, expected: str) -> GatewaySettingsError:
    return GatewaySettingsError(f"{name} is {value!r}, expected {expected}")
