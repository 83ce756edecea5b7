"""What the background wants of the application's thread: callbacks to run, errors to throw (BackgroundEvent).

The application takes them in its next poll. What a callback's end means for the member waits for the event's future.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from coordinator_udf.members.consumer.futures import CompletableFuture
from coordinator_udf.members.exceptions import ClientException
from coordinator_udf.members.inputs import TopicPartition


class CallbackMethod(StrEnum):
    """The methods of ConsumerRebalanceListener."""

    ON_PARTITIONS_ASSIGNED = "onPartitionsAssigned"
    ON_PARTITIONS_REVOKED = "onPartitionsRevoked"
    ON_PARTITIONS_LOST = "onPartitionsLost"


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """An error for the application's poll to throw."""

    error: ClientException


@dataclass(frozen=True, slots=True)
class PartitionsRemovedEvent:
    """Partitions to give up: the callback to run for them."""

    method: CallbackMethod
    partitions: tuple[TopicPartition, ...]
    future: CompletableFuture[None] = field(default_factory=CompletableFuture)


@dataclass(frozen=True, slots=True)
class PartitionsAssignedEvent:
    """An assignment to put into effect, and the callback to run for what is new in it."""

    assigned: tuple[TopicPartition, ...]
    added: tuple[TopicPartition, ...]
    future: CompletableFuture[None] = field(default_factory=CompletableFuture)


BackgroundEvent = ErrorEvent | PartitionsRemovedEvent | PartitionsAssignedEvent


class BackgroundEvents:
    """The queue from the background to the application."""

    def __init__(self) -> None:
        self._queue: list[BackgroundEvent] = []

    def __len__(self) -> int:
        return len(self._queue)

    def drain(self) -> list[BackgroundEvent]:
        """Returns the events that are there, and leaves none."""
        events, self._queue = self._queue, []
        return events

    def add_error(self, error: ClientException) -> None:
        """Has the application's poll throw an error."""
        self._queue.append(ErrorEvent(error))

    def remove(self, method: CallbackMethod, partitions: Iterable[TopicPartition]) -> CompletableFuture[None]:
        """Has a callback run for partitions to give up, if there are any. Returns its end."""
        event = PartitionsRemovedEvent(method, tuple(sorted(partitions)))
        if not event.partitions:
            return CompletableFuture.completed(None)
        self._queue.append(event)
        return event.future

    def assign(self, assigned: Iterable[TopicPartition], added: Iterable[TopicPartition]) -> CompletableFuture[None]:
        """Has an assignment put into effect and onPartitionsAssigned run, for nothing new too. Returns its end."""
        event = PartitionsAssignedEvent(tuple(sorted(assigned)), tuple(sorted(added)))
        self._queue.append(event)
        return event.future
