"""Where a request log is that is a Kafka topic: ``kafka://HOST:PORT,HOST:PORT/TOPIC``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from coordinator_udf.log.kafka.security import PLAINTEXT, KafkaSecurity
from coordinator_udf.user_errors import InputError

_SCHEME: Final = "kafka://"
#: What Kafka takes for a topic's name, with room for what the topic of answers is called by.
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
_BROKER: Final = re.compile(r"[^,/\s]+:[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class KafkaPlace:
    """The topics of a request log, and how their brokers are spoken to.

    Attributes:
        bootstrap: some of the brokers, ``HOST:PORT,...``.
        topic: the requests.
    """

    bootstrap: str
    topic: str
    security: KafkaSecurity = field(default=PLAINTEXT, repr=False)

    @property
    def answers(self) -> str:
        """The topic in which answers go back to gateways."""
        return f"{self.topic}-answers"

    def __str__(self) -> str:
        return f"{_SCHEME}{self.bootstrap}/{self.topic}"


def is_kafka(place: str) -> bool:
    """Returns whether a request log's place is a Kafka topic."""
    return place.startswith(_SCHEME)


def parse_place(text: str, security: KafkaSecurity = PLAINTEXT) -> KafkaPlace:
    """Reads the place of a request log.

    Raises:
        InputError: it isn't one of a Kafka topic.
    """
    brokers, _, topic = text.removeprefix(_SCHEME).partition("/")
    if not is_kafka(text) or not _TOPIC.fullmatch(topic) or not all(map(_BROKER.fullmatch, brokers.split(","))):
        raise InputError(f"the request log is {text!r}, expected kafka://HOST:PORT,HOST:PORT/TOPIC")
    return KafkaPlace(brokers, topic, security)
