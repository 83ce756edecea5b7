"""The clients of a request log's brokers: confluent-kafka, an extra dependency: ``pip install '.[kafka]'``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from coordinator_udf.log.file import LogError
from coordinator_udf.log.kafka.place import KafkaPlace

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient

#: The longest record: a request of a gateway (16 MiB) whose bytes are base64 (21.4 MiB), or an answer with as many
#: assignments. With half requests that a gateway has taken don't fit; double matters only where max_request_bytes is
#: raised.
RECORD_BYTES_MAX: Final = 32 * 1024 * 1024

#: How long a record may take to be on all replicas that are in sync, in milliseconds. After that nobody knows whether
#: it is, and its request's client is told to ask again: less than a client's own patience (30 s by default).
DELIVERY_TIMEOUT_MS: Final = 10_000


#: How long a record waits for others, in milliseconds; gateways have gathered their requests before (append_linger_ms,
#: 25 ms), whose rows go to several partitions.
_LINGER_MS: Final = 2


class BrokerError(LogError):
    """The brokers of a request log can't do now what they are asked for."""


def producer(place: KafkaPlace, more: Mapping[str, str | int] | None = None) -> Producer:
    """Returns an idempotent producer: records are written once, in order, and acknowledged by all in-sync replicas."""
    from confluent_kafka import Producer

    return Producer(
        {
            **_shared(place),
            "enable.idempotence": True,
            "acks": "all",
            # Rows come in groups, each row a record: a moment is enough for those of a partition to go together.
            "linger.ms": _LINGER_MS,
            "message.timeout.ms": DELIVERY_TIMEOUT_MS,
            "message.max.bytes": RECORD_BYTES_MAX,
            "compression.type": "lz4",
            **(more or {}),
        }
    )


def consumer(place: KafkaPlace) -> Consumer:
    """Returns a consumer that is given its partitions; it commits nothing."""
    from confluent_kafka import Consumer

    return Consumer(
        {
            **_shared(place),
            "group.id": "muster",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            "enable.partition.eof": True,
        }
    )


def admin(place: KafkaPlace, on_error: Callable[[KafkaError], None] | None = None) -> AdminClient:
    """Returns a client that administers topics; when polled it says what is wrong with its connections."""
    from confluent_kafka.admin import AdminClient

    settings = _shared(place)
    if on_error is not None:
        settings["error_cb"] = on_error
    return AdminClient(settings)


def exception() -> type[Exception]:
    """Returns what the clients raise."""
    from confluent_kafka import KafkaException

    return KafkaException


def _shared(place: KafkaPlace) -> dict[str, Any]:
    try:
        import confluent_kafka  # noqa: F401
    except ImportError as error:
        raise LogError(f"a Kafka topic as the request log needs confluent-kafka: {error}") from error
    return {
        "bootstrap.servers": place.bootstrap,
        "client.id": "muster",
        # What a client can't do for a while it goes on trying, with a line each time; whoever uses it says it once.
        "log_level": 2,
        "reconnect.backoff.max.ms": 1_000,
        "socket.timeout.ms": DELIVERY_TIMEOUT_MS,
        **place.security.of_librdkafka(),
    }
