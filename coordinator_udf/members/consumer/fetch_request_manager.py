"""What of fetching shows in a member's membership: when it asks for metadata, and whom its close waits for.

Nothing is fetched here. Source: PositionsValidator, FetchRequestManager and AbstractFetch.
"""

from __future__ import annotations

from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.members.metadata import ConsumerMetadata
from coordinator_udf.members.subscription_state import SubscriptionState


class FetchRequestManager:
    """Looks at the assigned partitions' leaders after each poll of the application."""

    def __init__(self, subscriptions: SubscriptionState, metadata: ConsumerMetadata, *, enabled: bool) -> None:
        """Takes part only if ``enabled``: else nothing is ever fetched."""
        self._subscriptions = subscriptions
        self._metadata = metadata
        self._enabled = enabled
        self._seen_version = -1
        self._pending = False
        self._sessions: set[str] = set()

    def create_fetch_requests(self) -> None:
        """Has the next `poll` look at the leaders, once every partition has a position."""
        if not self._enabled:
            return
        partitions = self._subscriptions.partition_states()
        if self._seen_version != self._metadata.update_version:
            self._seen_version = self._metadata.update_version
            for partition, state in partitions.items():
                state.leader = self._leader(partition, state.leader)
        if all(state.position is not None for state in partitions.values()):
            self._pending = True

    def _leader(self, partition: TopicPartition, before: str | None) -> str | None:
        leader = self._metadata.leader_of(partition)
        return before if leader is None else leader

    def poll(self) -> None:
        """Fetches from the leaders of the partitions to consume of; wants metadata where one isn't known."""
        if not self._pending:
            return
        self._pending = False
        for partition, state in self._subscriptions.partition_states().items():
            if not self._subscriptions.is_fetchable(partition):
                continue
            if state.leader is None:
                self._metadata.request_update(reset_equivalent_backoff=False)
            else:
                self._sessions.add(state.leader)

    def has_sessions(self) -> bool:
        """Tells whether a node is still there that was ever fetched from: close has to end the session with it."""
        return any(self._metadata.has_node(node) for node in self._sessions)
