"""The background's loop: events of the application, request managers, network (ConsumerNetworkThread.runOnce).

Kafka runs it in a thread of its own. Here it runs after each input until nothing happens any more.
"""

from __future__ import annotations

from collections.abc import Callable

from coordinator_udf.members.consumer.application_events import (
    ApplicationEvent,
    ApplicationEventProcessor,
    CompletableEvent,
)
from coordinator_udf.members.consumer.background_events import BackgroundEvents
from coordinator_udf.members.consumer.commit_request_manager import CommitRequestManager
from coordinator_udf.members.consumer.computation_request_manager import ComputationRequestManager
from coordinator_udf.members.consumer.coordinator_request_manager import CoordinatorRequestManager
from coordinator_udf.members.consumer.fetch_request_manager import FetchRequestManager
from coordinator_udf.members.consumer.heartbeat_request_manager import HeartbeatRequestManager
from coordinator_udf.members.consumer.membership_manager import MembershipManager
from coordinator_udf.members.consumer.network_client import NetworkClient
from coordinator_udf.members.consumer.states import MemberState
from coordinator_udf.members.exceptions import ClientException, timeout_exception
from coordinator_udf.members.metadata import ConsumerMetadata
from coordinator_udf.members.timers import Clock

#: How long the background sleeps at most (ConsumerNetworkThread.MAX_POLL_TIMEOUT_MS).
MAX_POLL_TIMEOUT_MS = 5_000

#: A background that still finds something to do after so many rounds goes on at its next deadline, a millisecond later.
_MAX_ROUNDS = 100

#: What has happened, what the application is yet to take, the member's state, and the time.
_Stand = tuple[int, int, MemberState, int]


class NetworkThread:
    """A member's background.

    Attributes:
        is_running: whether the loop still runs; a closing member only waits for the network.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        network: NetworkClient,
        metadata: ConsumerMetadata,
        coordinators: CoordinatorRequestManager,
        commits: CommitRequestManager,
        heartbeats: HeartbeatRequestManager,
        computation: ComputationRequestManager,
        membership: MembershipManager,
        fetches: FetchRequestManager,
        processor: ApplicationEventProcessor,
        events: BackgroundEvents,
        on_error: Callable[[ClientException], None],
    ) -> None:
        """``on_error`` is told what a round threw, which Kafka's thread only logs."""
        self._clock = clock
        self._network = network
        self._metadata = metadata
        self._coordinators = coordinators
        self._commits = commits
        self._heartbeats = heartbeats
        self._computation = computation
        self._membership = membership
        self._fetches = fetches
        self._processor = processor
        self._background_events = events
        self._on_error = on_error
        self._application_events: list[ApplicationEvent] = []
        self._tracked: list[CompletableEvent] = []
        self.is_running = True
        self._deadline_ms = clock.now_ms
        #: How it stood when a round last did nothing: as long as it stands so, another one does nothing either.
        self._quiet: _Stand | None = None

    def add(self, event: ApplicationEvent) -> None:
        """Takes an event of the application and does all that can be done now."""
        self._application_events.append(event)
        self.settle()

    def settle(self) -> None:
        """Runs until nothing happens any more."""
        if not self.is_running:
            return
        after = self._stand()
        if not self._application_events and after == self._quiet:
            return
        for _ in range(_MAX_ROUNDS):
            before = after
            try:
                self.run_once()
            except ClientException as error:
                self._on_error(error)
            after = self._stand()
            if before[0] + before[1] == after[0] + after[1] and not self._application_events:
                break
        self._quiet = after if before == after and not self._application_events else None
        self._deadline_ms = self._clock.now_ms + max(1, self._network.poll_timeout_ms)

    def _stand(self) -> _Stand:
        events = len(self._background_events)
        return self._network.progress, events, self._membership.state, self._clock.now_ms

    def run_once(self) -> None:
        """Does one round.

        Raises:
            ClientException: a request manager failed; the rest of the round is left out.
        """
        if self._application_events:
            self._process_application_events()
        now_ms = self._clock.now_ms
        wait_ms = MAX_POLL_TIMEOUT_MS
        for manager in (self._coordinators, self._commits, self._heartbeats, self._computation):
            result = manager.poll(now_ms)
            if result.requests:
                self._network.add(result.requests)
            wait_ms = min(wait_ms, result.wait_ms)
        self._membership.poll()
        self._fetches.poll()
        self._network.poll(wait_ms)
        self._commits.on_poll_done()
        self._heartbeats.on_poll_done()
        if self._tracked:
            self._reap_expired_events()

    def next_deadline_ms(self) -> int:
        """Returns when something is to be done next without any input."""
        deadline_ms = self._deadline_ms
        if (
            self._coordinators.coordinator is not None
            and not self._membership.should_skip_heartbeat()
            and not self._membership.is_leaving_group()
        ):
            deadline_ms = min(deadline_ms, self._heartbeats.poll_timer.deadline_ms)
        metadata_ms = self._metadata.next_update_ms(self._clock.now_ms)
        return deadline_ms if metadata_ms is None else min(deadline_ms, metadata_ms)

    def goes_round(self) -> bool:
        """Tells whether Java's loop would go round without waiting, though nothing comes of it."""
        return self.is_running and (self._coordinators.goes_round() or self._heartbeats.goes_round())

    def stop(self) -> bool:
        """Ends the loop, and has what is still to be sent at the close sent with the next poll of the network.

        Returns whether there is anything to send or to wait for.
        """
        self.is_running = False
        self._network.add(self._heartbeats.poll_on_close().requests)
        return self._network.has_pending() or self._fetches.has_sessions()

    def _process_application_events(self) -> None:
        events, self._application_events = self._application_events, []
        for event in events:
            if isinstance(event, CompletableEvent):
                self._tracked.append(event)
            try:
                self._processor.process(event)
            except ClientException as error:
                self._on_error(error)

    def _reap_expired_events(self) -> None:
        """Ends the events whose deadline is over (CompletableEventReaper)."""
        tracked, self._tracked = self._tracked, []
        for event in tracked:
            if event.future.is_done():
                continue
            if self._clock.now_ms < event.deadline_ms:
                self._tracked.append(event)
                continue
            event.future.complete_exceptionally(timeout_exception(f"{type(event).__name__} is past its deadline"))
