"""The coordinator's settings under Kafka's names (GroupCoordinatorConfig), with Kafka 4.3.1's defaults and ranges.

Everything that a setting is stands here once: name, type, range, default, and what conf/coordinator.toml says of it
(scripts/write_settings).
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec

from coordinator_udf.assignors import UnknownAssignorError, configured_assignors
from coordinator_udf.user_errors import InputError

_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
#: So many settings whose names are like an unknown one are named: those of one family (min, max, default) fit.
_MOST_NEAR: Final = 3


class SettingsError(InputError, ValueError):
    """A setting that doesn't exist or can't have this value."""


class MigrationPolicy(StrEnum):
    """Which groups with members may change their kind (Kafka's ConsumerGroupMigrationPolicy)."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"


def _number(least: int, doc: str, most: int = _INT_MAX) -> msgspec.Meta:
    return msgspec.Meta(ge=least, le=most, description=doc)


def _doc(doc: str) -> msgspec.Meta:
    return msgspec.Meta(description=doc)


class Settings(msgspec.Struct, frozen=True):
    """All that changes what a coordinator answers.

    A field's name is Kafka's with ``_`` for ``.``; its unit stands last in it. A text that begins with "Ours" is of a
    setting without a counterpart in Kafka.
    """

    group_min_session_timeout_ms: Annotated[
        int, _number(0, "The shortest session timeout that a member of a classic group may ask for.")
    ] = 6_000
    group_max_session_timeout_ms: Annotated[
        int, _number(0, "The longest session timeout that a member of a classic group may ask for.")
    ] = 1_800_000
    group_initial_rebalance_delay_ms: Annotated[
        int, _number(0, "How long the first rebalance of an empty classic group waits for more members.")
    ] = 3_000
    group_new_member_join_timeout_ms: Annotated[
        int,
        _number(
            0,
            "Ours: how long a member that was told its id may take to come back with it, and a new member to join a "
            "rebalance that goes on. In Kafka it is a constant.",
        ),
    ] = 300_000
    group_max_size: Annotated[int, _number(1, "The most members of a classic group.")] = _INT_MAX
    group_classic_client_extensions_enable: Annotated[
        bool,
        _doc(
            "Ours: whether members of classic groups that ask for it are served the extensions of the proposal of "
            "2015: an error of the leader that reaches all members, and a new assignment without a new join round."
        ),
    ] = False
    group_metadata_max_bytes: Annotated[
        int,
        _number(
            0,
            "Ours: the greatest size of what one request writes, in bytes; a group that is larger can't be stored. In "
            "Kafka it is the max.message.bytes of __consumer_offsets.",
        ),
    ] = 1_048_588
    offset_metadata_max_bytes: Annotated[
        int, _number(0, "The greatest size of the metadata that a client commits with an offset, in characters.")
    ] = 4_096
    offsets_retention_minutes: Annotated[
        int, _number(1, "How long the offsets of a group without members are kept.")
    ] = 10_080
    offsets_retention_check_interval_ms: Annotated[
        int, _number(1, "How often expired offsets are looked for.", _LONG_MAX)
    ] = 600_000
    offsets_topic_partition_check: Annotated[
        bool,
        _doc(
            "Ours: whether commits and deletions of offsets of partitions that don't exist are refused with "
            "UNKNOWN_TOPIC_OR_PARTITION, as a broker does before its coordinator sees them. Where [[topics]] below "
            "says what exists they are, unless this says otherwise."
        ),
    ] = False
    group_consumer_session_timeout_ms: Annotated[
        int, _number(1, "The session timeout of the members of a consumer group (KIP-848).")
    ] = 45_000
    group_consumer_min_session_timeout_ms: Annotated[
        int, _number(1, "The shortest session timeout that a consumer group may have for itself.")
    ] = 45_000
    group_consumer_max_session_timeout_ms: Annotated[
        int, _number(1, "The longest session timeout that a consumer group may have for itself.")
    ] = 60_000
    group_consumer_heartbeat_interval_ms: Annotated[
        int, _number(1, "How often the members of a consumer group are told to send heartbeats.")
    ] = 5_000
    group_consumer_min_heartbeat_interval_ms: Annotated[
        int, _number(1, "The shortest heartbeat interval that a consumer group may have for itself.")
    ] = 5_000
    group_consumer_max_heartbeat_interval_ms: Annotated[
        int, _number(1, "The longest heartbeat interval that a consumer group may have for itself.")
    ] = 15_000
    group_consumer_max_size: Annotated[int, _number(1, "The most members of a consumer group.")] = _INT_MAX
    group_consumer_assignors: Annotated[
        tuple[str, ...],
        _doc(
            "The assignors on the coordinator; the first is taken where members name none. Kafka's own by their names "
            "or classes, others by the full names of their Python classes."
        ),
    ] = ("uniform", "range")
    group_consumer_migration_policy: Annotated[
        MigrationPolicy,
        _doc("Whether a classic group with members becomes a consumer group (upgrade), and the other way (downgrade)."),
    ] = MigrationPolicy.BIDIRECTIONAL
    group_consumer_assignment_interval_ms: Annotated[
        int, _number(0, "The shortest time between two assignments of a consumer group.")
    ] = 1_000
    group_consumer_min_assignment_interval_ms: Annotated[
        int, _number(0, "The shortest assignment interval that a consumer group may have for itself.")
    ] = 0
    group_consumer_max_assignment_interval_ms: Annotated[
        int, _number(0, "The longest assignment interval that a consumer group may have for itself.")
    ] = 15_000
    group_consumer_regex_refresh_interval_ms: Annotated[
        int, _number(10_000, "How often it is looked anew which topics a regular expression matches.")
    ] = 600_000
    group_consumer_client_assignors_enable: Annotated[
        bool,
        _doc(
            "Ours: whether members of a consumer group that can compute its assignment are asked to (KIP-848's "
            "client-side mode, which Kafka has left out; docs/client-side-assignment.md). Clients that know nothing "
            "of it don't notice."
        ),
    ] = False
    log_clock_skew_max_ms: Annotated[
        int,
        _number(
            0,
            "Ours: how far ahead of the log's clock the time of a request may be. What claims more is set back to it.",
        ),
    ] = 5_000

    def __post_init__(self) -> None:
        for low, high in _ORDERED:
            if getattr(self, low) > getattr(self, high):
                raise SettingsError(
                    f"{kafka_name(low)} is {getattr(self, low)}, expected at most {kafka_name(high)}, which is "
                    f"{getattr(self, high)}"
                )
        interval_ms, session_ms = self.group_consumer_heartbeat_interval_ms, self.group_consumer_session_timeout_ms
        if interval_ms >= session_ms:
            raise SettingsError(
                f"group.consumer.heartbeat.interval.ms is {interval_ms}, expected less than "
                f"group.consumer.session.timeout.ms, which is {session_ms}"
            )
        try:
            configured_assignors(self.group_consumer_assignors)
        except UnknownAssignorError as error:
            raise SettingsError(f"group.consumer.assignors is {list(self.group_consumer_assignors)}: {error}") from None

    @property
    def offsets_retention_ms(self) -> int:
        """How long the offsets of an empty group are kept."""
        return self.offsets_retention_minutes * 60_000

    def of_group(self, configs: Mapping[str, Any]) -> dict[str, int]:
        """Returns a consumer group's own settings, put within the coordinator's bounds (GroupConfig.evaluate).

        Args:
            configs: Kafka's names (``consumer.session.timeout.ms``). Settings of other kinds of groups are left out.

        Returns:
            By the names of fields here without ``group_``; in milliseconds.

        Raises:
            SettingsError: a value that is no whole number.
        """
        own = {}
        for name in SETTINGS_OF_GROUPS:
            if name in configs:
                field = name.replace(".", "_")
                least, most = self.bounds_of_groups(name)
                own[field] = min(max(_convert(name, configs[name], int), least), most)
        return own

    def shared_by_groups(self, name: str) -> int:
        """Returns what a setting of `SETTINGS_OF_GROUPS` is for a group that has none of its own; milliseconds."""
        value: int = getattr(self, "group_" + name.replace(".", "_"))
        return value

    def bounds_of_groups(self, name: str) -> tuple[int, int]:
        """Returns the least and the greatest value that a group may have of a setting of `SETTINGS_OF_GROUPS`."""
        least, most = _bounds("group_" + name.replace(".", "_"))
        return getattr(self, least), getattr(self, most)

    def allows_online_upgrade(self) -> bool:
        """Returns whether a classic group with members may become a consumer group (KIP-848)."""
        return self.group_consumer_migration_policy in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    def allows_online_downgrade(self) -> bool:
        """Returns whether a consumer group with members may become a classic group (KIP-848)."""
        return self.group_consumer_migration_policy in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)

    @classmethod
    def from_kafka(cls, values: Mapping[str, Any]) -> Settings:
        """Returns settings from Kafka's names; what is not named has Kafka's default.

        Text is read as the setting's type.

        Raises:
            SettingsError: an unknown name, or a value that the setting can't have; the message names it.
        """
        chosen: dict[str, Any] = {}
        for name, value in values.items():
            field = FIELDS.get(name)
            if field is None:
                near = ", ".join(get_close_matches(name, FIELDS, _MOST_NEAR))
                told = f"did you mean {near}?" if near else "none is near;"
                raise SettingsError(f"unknown setting {name!r}: {told} all are in conf/coordinator.toml")
            chosen[field.name] = _convert(name, value, field.type)
        return cls(**chosen)


def kafka_name(field_name: str) -> str:
    """Returns Kafka's name of a setting: ``group_max_size`` -> ``group.max.size``."""
    return field_name.replace("_", ".")


#: Every setting by Kafka's name.
FIELDS: Final = {kafka_name(field.name): field for field in msgspec.structs.fields(Settings)}

#: What consumer groups may set for themselves, within the coordinator's bounds.
SETTINGS_OF_GROUPS: Final = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
)


def _bounds(field_name: str) -> tuple[str, str]:
    """Returns the names of the fields with a setting's least and greatest value."""
    head, consumer, tail = field_name.partition("consumer_")
    return f"{head}{consumer}min_{tail}", f"{head}{consumer}max_{tail}"


def _in_order() -> list[tuple[str, str]]:
    pairs = [("group_min_session_timeout_ms", "group_max_session_timeout_ms")]
    for name in SETTINGS_OF_GROUPS:
        field = "group_" + name.replace(".", "_")
        least, most = _bounds(field)
        pairs += [(least, most), (least, field), (field, most)]
    return pairs


#: Pairs of fields of which the first is at most the second.
_ORDERED: Final = tuple(_in_order())


class _Kind(StrEnum):
    """What a setting's value is."""

    NUMBER = "a whole number"
    SWITCH = "true or false"
    NAMES = "a list of names"
    POLICY = "one of " + ", ".join(MigrationPolicy)


_KINDS: Final = {int: _Kind.NUMBER, bool: _Kind.SWITCH, tuple[str, ...]: _Kind.NAMES, MigrationPolicy: _Kind.POLICY}


def _kind(type_: Any) -> _Kind:
    return _KINDS[type_.__origin__ if hasattr(type_, "__metadata__") else type_]


def doc(name: str) -> str:
    """Returns what a setting is for, in a sentence or two."""
    (meta,) = FIELDS[name].type.__metadata__
    return str(meta.description)


def expected(name: str) -> str:
    """Returns what the value of a setting may be, in words."""
    return _expected(FIELDS[name].type)


def _expected(type_: Any) -> str:
    kind = _kind(type_)
    if kind is not _Kind.NUMBER or not hasattr(type_, "__metadata__"):
        return kind.value
    (meta,) = type_.__metadata__
    return f"{kind.value} from {meta.ge} to {meta.le}"


def _convert(name: str, value: Any, type_: Any) -> Any:
    """Returns a setting's value, of its type and in its range.

    Raises:
        SettingsError: it isn't.
    """
    try:
        return msgspec.convert(_plain(value, _kind(type_)), type_, strict=False)
    except (msgspec.ValidationError, ValueError):
        raise SettingsError(f"{name} is {value!r}, expected {_expected(type_)}") from None


def _plain(value: Any, kind: _Kind) -> Any:
    """Returns a value of TOML or a command line as msgspec reads it like Kafka: 5.0 or true is no number."""
    if kind is _Kind.NUMBER and (isinstance(value, float) or (isinstance(value, str) and "." in value)):
        raise ValueError(value)
    if kind is _Kind.SWITCH and str(value).lower() not in ("true", "false"):
        raise ValueError(value)
    if kind is _Kind.NAMES and isinstance(value, str):
        return [item.strip() for item in value.split(",")]
    if kind is _Kind.POLICY and isinstance(value, str):
        return value.strip().lower()
    return value
