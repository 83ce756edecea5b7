"""Reads the coordinator's settings and topics from a TOML file and from ``name=value`` overrides."""

from __future__ import annotations

import tomllib
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from coordinator_udf.protocol.requests import ZERO_UUID, PartitionCount, Topic, Uuid, is_topic_name
from coordinator_udf.settings.coordinator import Settings, SettingsError

#: The namespace of topic ids that are made from a topic's name where the file gives none.
_TOPIC_NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")


@dataclass(frozen=True, slots=True)
class CoordinatorConfig:
    """What a settings file says: the coordinator's settings, and the topics that exist."""

    settings: Settings
    topics: tuple[Topic, ...] = ()


def load_settings(path: Path | None, overrides: Sequence[str] = (), *, topics_known: bool = False) -> CoordinatorConfig:
    """Reads a TOML file whose keys are Kafka's setting names, with the topics as ``[[topics]]`` tables.

    Args:
        path: the file; None for Kafka's defaults.
        overrides: ``name=value`` texts that win over the file; see `read_pairs`.
        topics_known: whether the topics that exist are known from elsewhere.

    Raises:
        SettingsError: the file can't be read, a name is unknown, or a value is wrong; the message names it.
    """
    values: dict[str, Any] = {}
    topics: tuple[Topic, ...] = ()
    if path is not None:
        try:
            # Some editors begin a file with a byte order mark.
            document = tomllib.loads(path.read_text("utf-8-sig"))
        except FileNotFoundError:
            raise SettingsError(f"there is no settings file {path}") from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise SettingsError(f"settings file {path} can't be read: {error}") from error
        topics = _topics(document.pop("topics", []))
        try:
            values = flatten(document)
        except SettingsError as error:
            raise SettingsError(f"settings file {path}: {error}") from None
    values |= read_pairs(overrides)
    if topics or topics_known:
        # Who says which topics exist means it: as a broker does, refuse offsets of others.
        values.setdefault("offsets.topic.partition.check", True)
    return CoordinatorConfig(Settings.from_kafka(values), topics)


def read_pairs(texts: Iterable[str]) -> dict[str, str]:
    """Returns the settings of a command line, ``name=value`` texts, by their names.

    Raises:
        SettingsError: a text is none, or a name has two values.
    """
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name:
            raise SettingsError(f"{text!r} is not a setting, expected name=value")
        if pairs.setdefault(name, value) != value:
            raise SettingsError(f"{name} is set twice, to {pairs[name]!r} and to {value!r}; leave one out")
    return pairs


def topic_id(name: str) -> str:
    """Returns the id of a topic that was given none: always the same for a name (Kafka's url-safe base64 of a uuid)."""
    return urlsafe_b64encode(uuid.uuid5(_TOPIC_NAMESPACE, name).bytes).decode().rstrip("=")


class _TopicEntry(msgspec.Struct, forbid_unknown_fields=True):
    """One ``[[topics]]`` table."""

    name: str
    partitions: PartitionCount = 1
    id: Uuid | None = None


def _topics(entries: Any) -> tuple[Topic, ...]:
    if not isinstance(entries, list):
        raise SettingsError(f"topics is {entries!r}, expected [[topics]] tables with name and partitions")
    topics: dict[str, Topic] = {}
    for entry in entries:
        try:
            read = msgspec.convert(entry, _TopicEntry)
        except msgspec.ValidationError as error:
            raise SettingsError(
                f"topics: {entry!r} is no topic, expected name, partitions and perhaps id: {error}"
            ) from None
        if not is_topic_name(read.name):
            expected = "1 to 249 letters, digits, dots, dashes and underscores"
            raise SettingsError(f"topics: a name is {read.name!r}, expected {expected}")
        if read.id == ZERO_UUID:
            raise SettingsError(f"topics: the id of {read.name!r} is {read.id}, which stands for none; leave it out")
        if read.name in topics:
            raise SettingsError(f"topics: {read.name!r} stands there twice, expected each topic once")
        topics[read.name] = Topic(name=read.name, partitions=read.partitions, id=read.id or topic_id(read.name))
    if len({topic.id for topic in topics.values()}) < len(topics):
        raise SettingsError("topics: two have the same id, expected an id for each")
    return tuple(topics.values())


def flatten(table: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a TOML document says, by names with dots, however it writes them.

    Raises:
        SettingsError: a name stands there twice.
    """
    flat: dict[str, Any] = {}
    for name, value in _named(table, ""):
        if name in flat:
            raise SettingsError(f"{name} stands there twice, as {flat[name]!r} and as {value!r}; leave one out")
        flat[name] = value
    return flat


def _named(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _named(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
