"""The coordinator's settings under Kafka's names (GroupCoordinatorConfig), with Kafka 4.3.1's defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coordinator_udf.user_errors import UserError


class SettingsError(UserError, ValueError):
    """A setting that doesn't exist or can't have this value."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All that changes what a coordinator answers.

    A field's name is Kafka's with ``_`` for ``.``; its unit stands last in it. The ones marked "ours" have no
    counterpart in Kafka.
    """

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_new_member_join_timeout_ms: int = 300_000
    group_max_size: int = 2_147_483_647
    #: Ours: the greatest size of one group's record in bytes, key and value. In Kafka it is the offsets topic's
    #: max.message.bytes that limits it.
    group_metadata_max_bytes: int = 1_048_588
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    #: Ours: whether commits and deletions of offsets of partitions that don't exist are refused with
    #: UNKNOWN_TOPIC_OR_PARTITION, as a broker's request handler does before the coordinator sees them.
    offsets_topic_partition_check: bool = False
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    group_consumer_max_size: int = 2_147_483_647
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_assignment_interval_ms: int = 1_000
    group_consumer_min_assignment_interval_ms: int = 0
    group_consumer_max_assignment_interval_ms: int = 15_000
    group_consumer_assignor_offload_enable: bool = True
    group_consumer_regex_refresh_interval_ms: int = 600_000
    #: Ours: how far ahead of the log's newest row an appender's clock may be, in milliseconds.
    log_clock_skew_max_ms: int = 5_000

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int) and not isinstance(value, bool) and value < 0:
                raise SettingsError(f"{kafka_name(field.name)} is {value}, expected a number of at least 0")
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise SettingsError(
                f"group.min.session.timeout.ms is {self.group_min_session_timeout_ms}, expected at most "
                f"group.max.session.timeout.ms, which is {self.group_max_session_timeout_ms}"
            )
        if self.offsets_retention_minutes < 1 or self.offsets_retention_check_interval_ms < 1:
            raise SettingsError("offsets.retention.minutes and offsets.retention.check.interval.ms must be at least 1")

    @property
    def offsets_retention_ms(self) -> int:
        """How long the offsets of an empty group are kept."""
        return self.offsets_retention_minutes * 60_000

    def of_group(self, configs: Mapping[str, Any]) -> dict[str, int]:
        """A consumer group's own settings, put within the coordinator's bounds (GroupConfig.evaluate).

        Args:
            configs: Kafka's names (``consumer.session.timeout.ms``). Settings of other kinds of groups are left out.

        Returns:
            By the names of fields here without ``group_``; in milliseconds.

        Raises:
            SettingsError: a value that is no whole number.
        """
        own = {}
        for name, (least, most) in self._group_bounds().items():
            if name in configs:
                own[name.replace(".", "_")] = min(max(_read(name, configs[name], 0), least), most)
        return own

    def _group_bounds(self) -> dict[str, tuple[int, int]]:
        return {
            "consumer.session.timeout.ms": (
                self.group_consumer_min_session_timeout_ms,
                self.group_consumer_max_session_timeout_ms,
            ),
            "consumer.heartbeat.interval.ms": (
                self.group_consumer_min_heartbeat_interval_ms,
                self.group_consumer_max_heartbeat_interval_ms,
            ),
            "consumer.assignment.interval.ms": (
                self.group_consumer_min_assignment_interval_ms,
                self.group_consumer_max_assignment_interval_ms,
            ),
        }

    def allows_online_upgrade(self) -> bool:
        """Whether a classic group with members may become a consumer group (KIP-848)."""
        return self.group_consumer_migration_policy.lower() in {"bidirectional", "upgrade"}

    @classmethod
    def from_kafka(cls, values: Mapping[str, Any]) -> Settings:
        """Settings from Kafka's names; what is not named has Kafka's default. Text is read as the setting's type.

        Raises:
            SettingsError: an unknown name, or a value that the setting can't have; the message names it.
        """
        known = {kafka_name(field.name): field for field in dataclasses.fields(cls)}
        chosen: dict[str, Any] = {}
        for name, value in values.items():
            field = known.get(name)
            if field is None:
                raise SettingsError(f"unknown setting {name!r}; known are: {', '.join(sorted(known))}")
            chosen[field.name] = _read(name, value, field.default)
        return cls(**chosen)


def kafka_name(field_name: str) -> str:
    """``group_max_size`` -> ``group.max.size``."""
    return field_name.replace("_", ".")


def _read(name: str, value: Any, default: Any) -> Any:
    if isinstance(default, bool):
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if isinstance(value, bool):
            return value
        raise SettingsError(f"{name} is {value!r}, expected true or false")
    if isinstance(default, int):
        try:
            if isinstance(value, bool | float):
                raise ValueError
            return int(value)
        except (TypeError, ValueError):
            raise SettingsError(f"{name} is {value!r}, expected a whole number") from None
    if isinstance(default, tuple):
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
            raise SettingsError(f"{name} is {value!r}, expected a list of names")
        return tuple(item.strip() for item in items)
    if not isinstance(value, str):
        raise SettingsError(f"{name} is {value!r}, expected text")
    return value
