"""The application's rebalance callbacks: one at a time, and the caller waits for its end.

Source: ConsumerRebalanceListenerInvoker.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator_udf.members.classic.flow import Flow, Wait
from coordinator_udf.members.classic.network_client import NetworkClient
from coordinator_udf.members.exceptions import ERROR_CLASSES, ClientException, illegal_state, kafka_exception
from coordinator_udf.members.inputs import CallbackDone, TopicPartition
from coordinator_udf.members.outputs import Callback, Output

_KAFKA_EXCEPTIONS = frozenset(
    {known.exception for known in ERROR_CLASSES.values()}
    | {"KafkaException", "CommitFailedException", "RetriableCommitFailedException"}
)


def callback_exception(thrown: ClientException) -> ClientException:
    """Returns what a call throws whose callback threw."""
    return kafka_exception("User rebalance callback throws an error", thrown)


def is_kafka_exception(thrown: ClientException) -> bool:
    """Tells whether what a callback threw came from Kafka's client."""
    return thrown.class_name in _KAFKA_EXCEPTIONS


class RebalanceCallbacks:
    """Runs callbacks."""

    def __init__(self, client: NetworkClient, outputs: list[Output]) -> None:
        self._client = client
        self._outputs = outputs
        self._running: str | None = None
        self._thrown: ClientException | None = None

    @property
    def running(self) -> str | None:
        """The method of the callback that the application is in, or None."""
        return self._running

    def revoked(self, partitions: Iterable[TopicPartition]) -> Flow[ClientException | None]:
        """Runs onPartitionsRevoked. Returns what it threw."""
        return (yield from self._invoke("onPartitionsRevoked", partitions))

    def assigned(self, partitions: Iterable[TopicPartition]) -> Flow[ClientException | None]:
        """Runs onPartitionsAssigned. Returns what it threw."""
        return (yield from self._invoke("onPartitionsAssigned", partitions))

    def lost(self, partitions: Iterable[TopicPartition]) -> Flow[ClientException | None]:
        """Runs onPartitionsLost. Returns what it threw."""
        return (yield from self._invoke("onPartitionsLost", partitions))

    def done(self, end: CallbackDone) -> None:
        """Takes the end of the running callback.

        Raises:
            ClientException: another one is running, or none (IllegalStateException).
        """
        if end.method != self._running:
            raise illegal_state(f"the end of {end.method} came while {self._running or 'no callback'} is running")
        self._running = None
        self._thrown = None if end.error is None else ClientException(end.error.class_name, end.error.message)

    def _invoke(self, method: str, partitions: Iterable[TopicPartition]) -> Flow[ClientException | None]:
        self._outputs.append(Callback(method, tuple(sorted(partitions))))
        self._client.progress += 1
        self._running = method
        yield Wait(lambda: self._running is None)
        return self._thrown
