"""Opens a request log that can be appended to, wherever it is."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.log.kafka.appender import KafkaLog
from coordinator_udf.log.kafka.place import KafkaPlace, is_kafka, parse_place
from coordinator_udf.log.kafka.security import PLAINTEXT, KafkaSecurity

#: A request log that can be appended to.
AppendableLog = EmbeddedLog | KafkaLog


@dataclass(frozen=True, slots=True)
class LogPlace:
    """A request log that is to be appended to.

    Attributes:
        text: the path of an embedded log, or ``kafka://HOST:PORT,.../TOPIC``.
        security: how that topic's brokers are spoken to.
    """

    text: str
    security: KafkaSecurity = PLAINTEXT

    @property
    def kafka(self) -> KafkaPlace | None:
        """The topic; None for an embedded log.

        Raises:
            LogError: it is meant to be one and isn't of that form.
        """
        return parse_place(self.text, self.security) if is_kafka(self.text) else None

    def is_there(self) -> bool:
        """Returns whether it can be opened: a topic always; an embedded log's file is made by its first coordinator."""
        return is_kafka(self.text) or Path(self.text).is_file()

    def open(self) -> AppendableLog:
        """Opens it.

        Raises:
            LogError: it isn't there, or can't be used.
        """
        place = self.kafka
        return EmbeddedLog.open(Path(self.text)) if place is None else KafkaLog.open(place)


def hold_gateway_lock(log: AppendableLog) -> AbstractContextManager[None]:
    """Tells a coordinator, for as long as the context lasts, that somebody takes requests for its log.

    For a topic nobody keeps account of that.
    """
    return log.hold_gateway_lock() if isinstance(log, EmbeddedLog) else nullcontext()
