"""Requests on their way out and answers on their way in (ConsumerNetworkClient, and the network client below it).

A connection is the driver's affair: a request is out the moment that the client polls. Answers are handled inside of
`poll` too, whoever calls it, in the order in which they came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from coordinator_udf.members.classic.flow import Flow, Wait
from coordinator_udf.members.classic.request_future import RequestFuture
from coordinator_udf.members.classic.requests import RequestBuilder
from coordinator_udf.members.config import MemberConfig
from coordinator_udf.members.exceptions import ClientException, disconnect_exception
from coordinator_udf.members.inputs import Metadata
from coordinator_udf.members.metadata import ConsumerMetadata
from coordinator_udf.members.outputs import Hangup, MetadataRequest, Output, Request, Unsendable
from coordinator_udf.members.timers import Clock, Timer, deadline_after

Body = Mapping[str, Any]

#: As long as a poll waits at most for something to do (ConsumerNetworkClient.MAX_POLL_TIMEOUT_MS).
_MAX_POLL_TIMEOUT_MS = 5_000


class _Sent(msgspec.Struct):
    """A request with its connection. What came of it is in ``body`` or ``error``."""

    node: str
    builder: RequestBuilder
    timeout_ms: int
    future: RequestFuture[Body] = msgspec.field(default_factory=RequestFuture)
    body: Body | None = None
    error: ClientException | None = None


class NetworkClient:
    """A member's requests.

    Attributes:
        progress: counts what has happened, so that one can tell whether anything did.
        depth: how many polls are waiting inside of each other; while one is, no other takes answers.
    """

    def __init__(self, config: MemberConfig, clock: Clock, metadata: ConsumerMetadata, outputs: list[Output]) -> None:
        self._config = config
        self._clock = clock
        self._metadata = metadata
        self._outputs = outputs
        self._max_wait_ms = min(config.heartbeat_interval_ms, _MAX_POLL_TIMEOUT_MS)
        self._unsent: dict[str, list[_Sent]] = {}
        self._in_flight: dict[int, _Sent] = {}
        self._arrived: deque[_Sent] = deque()
        self._completed: deque[_Sent] = deque()
        self._disconnects: deque[str] = deque()
        self._woken = False
        self._next_req = 0
        self.progress = 0
        self.depth = 0

    # ---- what the rest of the member asks for

    def send(self, node: str, builder: RequestBuilder, timeout_ms: int | None = None) -> RequestFuture[Body]:
        """Has a request sent in the next poll."""
        sent = _Sent(node, builder, self._config.request_timeout_ms if timeout_ms is None else timeout_ms)
        self._unsent.setdefault(node, []).append(sent)
        self._woken = True
        return sent.future

    def least_loaded_node(self) -> str | None:
        """Returns the connection to a broker that anything may be asked of, or None."""
        brokers = self._metadata.brokers
        return f"broker-{min(brokers)}" if brokers else None

    def disconnect_async(self, node: str) -> None:
        """Has the connection to a node dropped in the next poll."""
        self._disconnects.append(node)
        self._woken = True

    def has_pending_requests(self, node: str) -> bool:
        """Tells whether anything is unsent or unanswered at a node."""
        return bool(self._unsent.get(node)) or any(sent.node == node for sent in self._in_flight.values())

    @property
    def metadata_deadline_ms(self) -> int | None:
        """When metadata will be asked for next; None while an answer is awaited."""
        return self._metadata.next_update_ms(self._clock.now_ms)

    # ---- what comes from the network

    def respond(self, req: int, body: Body) -> bool:
        """Takes the answer to a request. Returns False if it isn't in flight any more."""
        sent = self._in_flight.pop(req, None)
        if sent is None:
            return False
        sent.body = body
        self._arrived.append(sent)
        self.progress += 1
        return True

    def lose(self, node: str) -> bool:
        """Fails what is in flight at a node. Returns False if nothing is."""
        lost = [req for req, sent in self._in_flight.items() if sent.node == node]
        for req in lost:
            sent = self._in_flight.pop(req)
            sent.error = disconnect_exception()
            self._arrived.append(sent)
            self.progress += 1
        return bool(lost)

    def give_metadata(self, told: Metadata) -> bool:
        """Takes the answer to the last metadata request. Returns False if there is none under way."""
        taken = self._metadata.take(told, self._clock.now_ms)
        self.progress += taken
        return taken

    # ---- polling

    def poll(self, timer: Timer | None, condition: Callable[[], bool] | None = None) -> Flow[None]:
        """Sends what is unsent, and handles answers; waits for one up to the timer's end while ``condition`` holds.

        Args:
            timer: None doesn't wait.

        Raises:
            ClientException: of an answer's handler.
        """
        if self._completed:
            yield from self._fire_completed()
        if self._disconnects:
            self._handle_disconnects()
        if self._unsent:
            self._send_unsent()
        timeout_ms = 0 if timer is None else timer.remaining_ms()
        if timeout_ms:
            waits = not self._completed and (condition is None or condition())
            timeout_ms = self._longest_wait_ms(timeout_ms) if waits else 0
        if self._metadata.quiet_until_ms <= self._clock.now_ms:
            self._ask_for_metadata()
        if timeout_ms and not self._arrived:
            yield from self._wait(timeout_ms)
        while self._arrived:
            self._completed.append(self._arrived.popleft())
            self.progress += 1
        if timer is not None:
            timer.update()
        if self._unsent:
            self._send_unsent()
        if self._completed:
            yield from self._fire_completed()

    def has_work(self) -> bool:
        """Tells whether a poll that doesn't wait would do anything."""
        if self._arrived or self._unsent or self._completed or self._disconnects:
            return True
        now_ms = self._clock.now_ms
        return self._metadata.quiet_until_ms <= now_ms and self._metadata.is_due(now_ms)

    def poll_no_wakeup(self) -> Flow[None]:
        """Sends what is unsent and handles what has come, without waiting.

        To look first whether there is any work (`has_work`) costs less than a generator that finds none.
        """
        return self.poll(None)

    def poll_for(self, future: RequestFuture[Any], timer: Timer) -> Flow[bool]:
        """Polls until a future is done or the timer over, once at least. Returns whether it is done."""
        while True:
            yield from self.poll(timer, future.should_block)
            if future.is_done or timer.is_expired():
                return future.is_done

    def await_metadata_update(self, timer: Timer) -> Flow[bool]:
        """Asks for metadata and polls until it is here or the timer over. Returns whether it is here."""
        version = self._metadata.update_version
        self._metadata.request_update(reset_equivalent_backoff=False)
        while True:
            yield from self.poll(timer)
            if self._metadata.update_version != version or timer.is_expired():
                return self._metadata.update_version > version

    def ensure_fresh_metadata(self, timer: Timer) -> Flow[bool]:
        """Waits for metadata if an update is wanted or due. Returns False if the timer was over before it came."""
        if self._metadata.update_requested or self._metadata.time_to_next_update_ms(timer.seen_ms) == 0:
            return (yield from self.await_metadata_update(timer))
        return True

    def await_pending_requests(self, node: str, timer: Timer) -> Flow[None]:
        """Polls until nothing is unsent or unanswered at a node, or the timer over."""
        while self.has_pending_requests(node) and not timer.is_expired():
            yield from self.poll(timer)

    def _handle_disconnects(self) -> None:
        while self._disconnects:
            node = self._disconnects.popleft()
            for sent in self._unsent.pop(node, ()):
                sent.error = disconnect_exception()
                self._completed.append(sent)
            reqs = tuple(req for req, sent in self._in_flight.items() if sent.node == node)
            self._outputs.append(Hangup(node, reqs))
            self.lose(node)

    def _send_unsent(self) -> None:
        unsent, self._unsent = self._unsent, {}
        for requests in unsent.values():
            for request in requests:
                self._send(request)

    def _send(self, sent: _Sent) -> None:
        self.progress += 1
        builder = sent.builder
        version = min(builder.latest_version, self._config.max_versions.get(builder.api, builder.latest_version))
        try:
            body = builder.body(version)
        except ClientException as error:
            sent.error = error
            self._arrived.append(sent)
            self._outputs.append(Unsendable(builder.api, error.message or ""))
            return
        req = self._next_req
        self._next_req += 1
        self._in_flight[req] = sent
        self._outputs.append(Request(req, sent.node, builder.api, version, sent.timeout_ms, body))

    def _ask_for_metadata(self) -> None:
        if (query := self._metadata.ask(self._clock.now_ms)) is not None:
            self.progress += 1
            self._outputs.append(MetadataRequest(query.topics, query.topic_ids))

    def _longest_wait_ms(self, timeout_ms: int) -> int:
        timeout_ms = min(timeout_ms, self._max_wait_ms)
        return timeout_ms if self._in_flight else min(timeout_ms, self._config.retry_backoff_ms)

    def _wait(self, timeout_ms: int) -> Flow[None]:
        """Waits for an answer, for metadata, or until somebody has something to send."""
        version = self._metadata.update_version
        self._woken = False
        self.depth += 1
        yield Wait(
            lambda: bool(self._arrived) or self._woken or self._metadata.update_version != version,
            deadline_after(self._clock.now_ms, timeout_ms),
        )
        self.depth -= 1

    def _fire_completed(self) -> Flow[None]:
        """Handles what is complete, which something is."""
        while self._completed:
            sent = self._completed.popleft()
            if sent.error is not None:
                yield from sent.future.fail(sent.error)
            else:
                yield from sent.future.complete(sent.body or {})
        self._woken = True
