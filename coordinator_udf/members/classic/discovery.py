"""Finding the group's coordinator, and giving it up (AbstractCoordinator.ensureCoordinatorReady and what it calls)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coordinator_udf.members.classic import requests
from coordinator_udf.members.classic.answers import FindCoordinatorAnswer, read_answer
from coordinator_udf.members.classic.context import Context
from coordinator_udf.members.classic.flow import Flow, sleep
from coordinator_udf.members.classic.request_future import RequestFuture
from coordinator_udf.members.exceptions import ClientException, exception_for
from coordinator_udf.members.timers import Timer
from coordinator_udf.protocol.errors import Errors


class CoordinatorDiscovery:
    """Which broker coordinates the group, as far as the member knows.

    Attributes:
        coordinator: the connection to the coordinator, or None while it is unknown.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.coordinator: str | None = None
        self._lookup: RequestFuture[None] | None = None
        self._fatal: ClientException | None = None

    @property
    def is_looking(self) -> bool:
        """Whether a lookup is under way, or failed and not cleared."""
        return self._lookup is not None

    def clear_lookup(self) -> None:
        """Forgets a lookup, so that the next one asks again."""
        self._lookup = None

    def ensure_ready(self, timer: Timer) -> Flow[bool]:
        """Looks the coordinator up if it is unknown, up to the timer's end. Returns whether it is known.

        Raises:
            ClientException: of an error that another attempt would meet again.
        """
        attempts = 0
        while self.coordinator is None:
            if self._fatal is not None:
                fatal, self._fatal = self._fatal, None
                raise fatal
            lookup = yield from self.look_up()
            if not (yield from self._context.client.poll_for(lookup, timer)):
                break
            if lookup.failed_retriably:
                yield from sleep(timer, self._context.clock, self._context.backoff.backoff_ms(attempts))
                attempts += 1
                yield from self._context.client.await_metadata_update(timer)
            self.clear_lookup()
            if lookup.exception is not None and not lookup.failed_retriably:
                raise lookup.exception
            if timer.is_expired():
                break
        return self.coordinator is not None

    def look_up(self) -> Flow[RequestFuture[None]]:
        """Asks for the coordinator, unless that is under way."""
        if self._lookup is not None:
            return self._lookup
        node = self._context.client.least_loaded_node()
        if node is None:
            return RequestFuture.failure(
                ClientException("NoAvailableBrokersException", "No brokers available", retriable=True)
            )
        found: RequestFuture[None] = RequestFuture()
        self._lookup = found
        answer = self._context.client.send(node, requests.find_coordinator(self._context.config.group_id))

        def answered(body: Mapping[str, Any]) -> Flow[None]:
            yield from self._answered(body, found)

        def failed(error: ClientException) -> Flow[None]:
            if not error.retriable:
                # Whoever looked it up, the application's next call is told.
                self._fatal = error
            yield from found.fail(error)

        yield from answer.listen(answered, failed)
        return found

    def mark_unknown(self, *, is_disconnected: bool = False) -> None:
        """Gives the coordinator up, and what is in flight on its connection with it."""
        if self.coordinator is None:
            return
        old, self.coordinator = self.coordinator, None
        if not is_disconnected:
            self._context.client.disconnect_async(old)

    def _answered(self, body: Mapping[str, Any], found: RequestFuture[None]) -> Flow[None]:
        try:
            answer = read_answer(body, FindCoordinatorAnswer).found()
        except ClientException as error:
            yield from found.fail(error)
            return
        if answer.error_code == Errors.NONE:
            self.coordinator = f"coordinator-{answer.node_id}"
            self._context.heartbeat.reset_session()
            yield from found.complete(None)
        else:
            yield from found.fail(exception_for(answer.error_code))
