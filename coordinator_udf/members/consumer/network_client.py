"""Requests on their way out and answers on their way in (NetworkClientDelegate, and the network client below it).

A connection is the driver's affair: a request is out the moment it is made, if a broker is known to send it to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from coordinator_udf.members.consumer.answers import check_answer
from coordinator_udf.members.consumer.futures import CompletableFuture
from coordinator_udf.members.exceptions import ClientException, disconnect_exception, timeout_exception
from coordinator_udf.members.inputs import Metadata
from coordinator_udf.members.metadata import ConsumerMetadata
from coordinator_udf.members.outputs import MetadataRequest, Output, Request, Unsendable
from coordinator_udf.members.timers import FOREVER_MS, Clock, Timer

Body = Mapping[str, Any]


class RequestBuilder(msgspec.Struct, frozen=True):
    """A request before its version is known.

    Attributes:
        build: makes the body of a version; raises `ClientException` (UnsupportedVersionException) where it can't.
    """

    api: str
    oldest_version: int
    latest_version: int
    build: Callable[[int], dict[str, Any]]


@dataclass(slots=True)
class UnsentRequest:
    """A request that waits to be sent.

    Attributes:
        node: the connection it goes to, or None for any broker's.
        answer: its body, or why there is none.
        completed_ms: when the answer came.
    """

    builder: RequestBuilder
    node: str | None
    answer: CompletableFuture[Body] = field(default_factory=CompletableFuture)
    completed_ms: int = 0

    def fail(self, now_ms: int, error: ClientException) -> None:
        """Completes without an answer."""
        self.completed_ms = now_ms
        self.answer.complete_exceptionally(error)

    def succeed(self, now_ms: int, body: Body) -> None:
        """Completes with its answer."""
        self.completed_ms = now_ms
        self.answer.complete(body)


class PollResult(msgspec.Struct, frozen=True):
    """What a request manager wants sent, and how long it has nothing more to do, in milliseconds."""

    requests: tuple[UnsentRequest, ...] = ()
    wait_ms: int = FOREVER_MS


EMPTY = PollResult()


class NetworkClient:
    """A member's requests, in flight and not.

    Attributes:
        progress: counts what has happened, so that one can tell whether anything did.
        poll_timeout_ms: how long the last poll would have waited.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        metadata: ConsumerMetadata,
        max_versions: Mapping[str, int],
        request_timeout_ms: int,
        retry_backoff_ms: int,
        emit: Callable[[Output], None],
    ) -> None:
        self._clock = clock
        self._metadata = metadata
        self._max_versions = max_versions
        self._request_timeout_ms = request_timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._emit = emit
        self._unsent: list[tuple[UnsentRequest, Timer]] = []
        self._in_flight: dict[int, tuple[str, UnsentRequest]] = {}
        self._arrived: list[Callable[[], None]] = []
        self._next_req = 0
        self._closed = False
        self.progress = 0
        self.poll_timeout_ms = 0

    # ---- out

    def add(self, requests: Iterable[UnsentRequest]) -> None:
        """Takes requests to be sent with the next poll."""
        for request in requests:
            self._unsent.append((request, Timer(self._clock, self._request_timeout_ms)))

    def poll(self, timeout_ms: int, *, closing: bool = False) -> None:
        """Sends what can be sent, asks for metadata if that is due, and handles the answers that have arrived."""
        self.start_poll(timeout_ms)
        self.finish_poll(closing=closing)

    def start_poll(self, timeout_ms: int) -> None:
        """Sends what can be sent, and asks for metadata if that is due."""
        if self._unsent:
            self._try_send()
        self.poll_timeout_ms = min(self._retry_backoff_ms, timeout_ms) if self._unsent else timeout_ms
        if self._metadata.quiet_until_ms <= self._clock.now_ms:
            self._ask_for_metadata()

    def finish_poll(self, *, closing: bool = False) -> None:
        """Handles the answers that have arrived; when closing, gives up what no broker is known for."""
        if self._arrived:
            arrived, self._arrived = self._arrived, []
            for handle in arrived:
                self.progress += 1
                handle()
        if closing:
            given_up = [request for request, _ in self._unsent if request.node is None]
            self._unsent = [(request, timer) for request, timer in self._unsent if request.node is not None]
            for request in given_up:
                request.fail(self._clock.now_ms, ClientException("NetworkException", None, retriable=True))

    def has_pending(self) -> bool:
        """Tells whether a request is unsent or unanswered."""
        return bool(self._in_flight or self._unsent)

    def _try_send(self) -> None:
        waiting, self._unsent = self._unsent, []
        for request, timer in waiting:
            timer.update()
            if timer.is_expired():
                error = timeout_exception(f"Failed to send request after {self._request_timeout_ms} ms.")
                request.fail(self._clock.now_ms, error)
                continue
            node = request.node or self._any_broker()
            if node is None:
                self._unsent.append((request, timer))
            else:
                self._send(request, node, timer.remaining_ms())

    def _any_broker(self) -> str | None:
        brokers = self._metadata.brokers
        return f"broker-{min(brokers)}" if brokers else None

    def _send(self, request: UnsentRequest, node: str, timeout_ms: int) -> None:
        self.progress += 1
        builder = request.builder
        version = min(builder.latest_version, self._max_versions.get(builder.api, builder.latest_version))
        try:
            if version < builder.oldest_version:
                raise ClientException("UnsupportedVersionException", f"The node does not support {builder.api}")
            body = builder.build(version)
        except ClientException as error:
            refused = error
            now_ms = self._clock.now_ms
            self._arrived.append(lambda: request.fail(now_ms, refused))
            self._emit(Unsendable(builder.api, error.message or ""))
            return
        req = self._next_req
        self._next_req += 1
        self._in_flight[req] = (node, request)
        self._emit(Request(req, node, builder.api, version, timeout_ms, body))

    # ---- in

    def respond(self, req: int, body: Body) -> bool:
        """Takes the answer to a request, to be handled in the next poll. Returns whether the request was in flight.

        Raises:
            BadRequest: the answer lacks something; the request stays in flight.
        """
        found = self._in_flight.get(req)
        if found is None:
            return False
        check_answer(found[1].builder.api, body)
        del self._in_flight[req]
        request, now_ms = found[1], self._clock.now_ms
        self._arrived.append(lambda: request.succeed(now_ms, body))
        self.progress += 1
        return True

    def disconnect(self, node: str) -> bool:
        """Takes the loss of a connection, with all in flight there. Returns whether there was anything."""
        lost = [req for req, (to, _) in self._in_flight.items() if to == node]
        now_ms = self._clock.now_ms
        for req in lost:
            self._fail_later(self._in_flight.pop(req)[1], now_ms)
            self.progress += 1
        return bool(lost)

    def _fail_later(self, request: UnsentRequest, now_ms: int) -> None:
        self._arrived.append(lambda: request.fail(now_ms, disconnect_exception()))

    def has_arrived(self) -> bool:
        """Tells whether an answer waits to be handled."""
        return bool(self._arrived)

    # ---- metadata

    def update_metadata(self, told: Metadata) -> bool:
        """Takes the metadata that was asked for. Returns whether any was."""
        taken = self._metadata.take(told, self._clock.now_ms)
        self.progress += taken
        return taken

    def _ask_for_metadata(self) -> None:
        if not self._closed and (query := self._metadata.ask(self._clock.now_ms)) is not None:
            self.progress += 1
            self._emit(MetadataRequest(query.topics, query.topic_ids))

    def close(self) -> None:
        """Sends nothing any more."""
        self._closed = True
