"""A member's settings: Kafka's consumer properties with their defaults and bounds (ConsumerConfig)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, field

from coordinator_udf.protocol.errors import BadRequest

NotNegative = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]

#: The default of metadata.max.age.ms.
METADATA_MAX_AGE_MS: Final = 300_000
_DEFAULT_STRATEGIES = (
    "org.apache.kafka.clients.consumer.RangeAssignor",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
)
_LISTS = ("partition.assignment.strategy", "group.local.assignors")


class MemberConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The properties that a group's member looks at. Times in milliseconds.

    Attributes:
        client_extensions: ours: whether a classic member uses the extensions of docs/client-extensions.md.
        max_versions: the highest version allowed of an API by its name; the newest known where it isn't named.
    """

    group_id: Annotated[str, Meta(min_length=1)] = field(name="group.id")
    group_instance_id: str | None = field(name="group.instance.id", default=None)
    group_protocol: Literal["classic", "consumer"] = field(name="group.protocol", default="classic")
    group_remote_assignor: str | None = field(name="group.remote.assignor", default=None)
    client_rack: str = field(name="client.rack", default="")
    enable_auto_commit: bool = field(name="enable.auto.commit", default=True)
    auto_commit_interval_ms: NotNegative = field(name="auto.commit.interval.ms", default=5_000)
    session_timeout_ms: Positive = field(name="session.timeout.ms", default=45_000)
    heartbeat_interval_ms: Positive = field(name="heartbeat.interval.ms", default=3_000)
    max_poll_interval_ms: Positive = field(name="max.poll.interval.ms", default=300_000)
    metadata_max_age_ms: NotNegative = field(name="metadata.max.age.ms", default=METADATA_MAX_AGE_MS)
    request_timeout_ms: NotNegative = field(name="request.timeout.ms", default=30_000)
    default_api_timeout_ms: NotNegative = field(name="default.api.timeout.ms", default=60_000)
    retry_backoff_ms: NotNegative = field(name="retry.backoff.ms", default=100)
    retry_backoff_max_ms: NotNegative = field(name="retry.backoff.max.ms", default=1_000)
    exclude_internal_topics: bool = field(name="exclude.internal.topics", default=True)
    partition_assignment_strategy: tuple[str, ...] = field(
        name="partition.assignment.strategy", default=_DEFAULT_STRATEGIES
    )
    client_extensions: bool = field(name="classic.client.extensions.enable", default=False)
    #: The assignors that compute where the coordinator lets members do it (KIP-848's client-side mode).
    group_local_assignors: tuple[str, ...] = field(name="group.local.assignors", default=())
    max_versions: dict[str, int] = field(name="maxVersions", default_factory=dict)

    @classmethod
    def parse(cls, properties: Mapping[str, Any]) -> MemberConfig:
        """Reads properties by Kafka's names; numbers may be texts and lists comma-separated, unknown names are ignored.

        Raises:
            BadRequest: a value is missing, of another type or out of bounds.
        """
        read = dict(properties)
        for name in _LISTS:
            if isinstance(read.get(name), str):
                read[name] = [part.strip() for part in read[name].split(",") if part.strip()]
        try:
            config = msgspec.convert(read, cls, strict=False)
        except msgspec.ValidationError as error:
            raise BadRequest("the member's properties", read, str(error)) from error
        if config.group_protocol == "classic" and config.heartbeat_interval_ms >= config.session_timeout_ms:
            raise BadRequest("heartbeat.interval.ms", config.heartbeat_interval_ms, "less than session.timeout.ms")
        return config
