"""What a person may choose for a replay, as the readers need it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from coordinator_udf.protocol.requests import Topic
from coordinator_udf.settings.coordinator import FIELDS, Settings
from coordinator_udf.settings.file import load_settings, read_pairs
from coordinator_udf.user_errors import InputError


class ReplayOptions(msgspec.Struct, frozen=True):
    """Settings and topics for the inputs that bring none, and the number of shards.

    Args:
        base: the settings of the settings file, or Kafka's defaults.
        overrides: settings from the command line, by Kafka's name; they win over what an input says of itself.
        topics: topics that exist before the log begins.
        time_zone: the time zone of times in logs that name none.
        state: dumps of __consumer_offsets, files or directories of them, or a folder of tables, with which a broker's
            request log begins.
        partitions: the number of shards for inputs that don't say; None to take what the log tells, else 8.
    """

    base: Settings = Settings()
    overrides: dict[str, str] = {}
    topics: tuple[Topic, ...] = ()
    partitions: int | None = None
    time_zone: str = "UTC"
    state: tuple[Path, ...] = ()

    @classmethod
    def load(
        cls,
        file: Path | None,
        overrides: Sequence[str] = (),
        partitions: int | None = None,
        time_zone: str = "UTC",
        state: Sequence[Path] = (),
    ) -> ReplayOptions:
        """Makes options of a settings file and ``name=value`` texts.

        Raises:
            SettingsError: the file can't be read, a name is unknown, or a value is wrong.
            InputError: there is no such time zone.
        """
        config = load_settings(file)
        # Looked at on their own, too, so that a text that is no setting is refused before anything is read.
        load_settings(file, overrides)
        options = cls(config.settings, read_pairs(overrides), config.topics, partitions, time_zone, tuple(state))
        options.zone()
        return options

    def zone(self) -> tzinfo:
        """Returns the time zone of times in logs that name none.

        Raises:
            InputError: there is no such time zone.
        """
        try:
            if re.fullmatch(r"[+-]\d\d:?\d\d", self.time_zone):
                return datetime.strptime(self.time_zone, "%z").tzinfo or UTC
            return UTC if self.time_zone == "UTC" else ZoneInfo(self.time_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            message = f"there is no time zone {self.time_zone!r}; expected a name such as Europe/Berlin, UTC or -04:00"
            raise InputError(message) from error

    def settings(self, of_input: Mapping[str, Any] | None = None) -> Settings:
        """Returns the settings of one input: the file's, over them the input's own, over them the command line's.

        Raises:
            SettingsError: an unknown name or a wrong value.
        """
        values = {name: getattr(self.base, field.name) for name, field in FIELDS.items()}
        return Settings.from_kafka({**values, **(of_input or {}), **self.overrides})
