"""A call of the application, as a generator that yields what it waits for (ConsumerUtils.getResult)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import msgspec

from coordinator_udf.members.consumer.background_events import CallbackMethod
from coordinator_udf.members.consumer.futures import CompletableFuture
from coordinator_udf.members.exceptions import ClientException, as_kafka_exception
from coordinator_udf.members.timers import FOREVER_MS


class Wait(msgspec.Struct, frozen=True):
    """What a call waits for: until ``done``, at most until the deadline. A callback waits for its `CallbackDone`."""

    done: Callable[[], bool]
    deadline_ms: int = FOREVER_MS
    callback: CallbackMethod | None = None


Call = Generator[Wait, None, None]


def result_of(future: CompletableFuture[Any]) -> None:
    """Throws what a future failed with, as ConsumerUtils.getResult does: IllegalStateException as it is."""
    try:
        future.result()
    except ClientException as error:
        if error.class_name == "IllegalStateException":
            raise
        raise as_kafka_exception(error) from error


def result_unless_late(future: CompletableFuture[Any]) -> None:
    """Throws what a future failed with, if it wasn't only late."""
    try:
        result_of(future)
    except ClientException as error:
        if error.class_name != "TimeoutException":
            raise
