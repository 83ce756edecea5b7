"""What a person may choose for a replay, as the readers need it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from coordinator_udf.protocol.requests import Topic
from coordinator_udf.settings.coordinator import Settings, kafka_name
from coordinator_udf.settings.file import load_settings


class ReplayOptions(msgspec.Struct, frozen=True):
    """Settings and topics for the inputs that bring none, and the number of shards.

    Args:
        base: the settings of the settings file, or Kafka's defaults.
        overrides: settings from the command line, by Kafka's name; they win over what an input says of itself.
        topics: topics that exist before the log begins.
        partitions: the number of shards for inputs that don't say; None to take what the log tells, else 8.
    """

    base: Settings = Settings()
    overrides: dict[str, str] = {}
    topics: tuple[Topic, ...] = ()
    partitions: int | None = None

    @classmethod
    def load(cls, file: Path | None, overrides: Sequence[str] = (), partitions: int | None = None) -> ReplayOptions:
        """Options from a settings file and ``name=value`` texts.

        Raises:
            SettingsError: the file can't be read, a name is unknown, or a value is wrong.
        """
        config = load_settings(file)
        # Looked at on their own, too, so that a text that is no setting is refused before anything is read.
        load_settings(file, overrides)
        pairs = (override.partition("=") for override in overrides)
        values = {name.strip(): value.strip() for name, _, value in pairs}
        return cls(config.settings, values, config.topics, partitions)

    def settings(self, of_input: Mapping[str, Any] | None = None) -> Settings:
        """The settings of one input: the file's, over them the input's own, over them the command line's.

        Raises:
            SettingsError: an unknown name or a wrong value.
        """
        values = {kafka_name(field.name): getattr(self.base, field.name) for field in dataclasses.fields(self.base)}
        return Settings.from_kafka({**values, **(of_input or {}), **self.overrides})
