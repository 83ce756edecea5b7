"""What the rest of a consumer, which consumes, asks of a member: leaders of partitions, and a close of its sessions.

A member consumes nothing. But a consumer does, and asks for metadata while it knows no leader of a partition that it
could fetch from (AbstractFetch.prepareFetchRequests), and at its close it waits for its fetch sessions to be closed.
"""

from __future__ import annotations

from coordinator_udf.members.classic.context import Context
from coordinator_udf.members.classic.flow import Flow
from coordinator_udf.members.timers import Timer


class FetchPositions:
    """The positions of the assigned partitions, as far as they concern the member."""

    def __init__(self, context: Context, *, enabled: bool) -> None:
        """Takes part only if ``enabled``: else nothing is ever fetched."""
        self._context = context
        self._enabled = enabled
        self._sessions: set[str] = set()
        self._seen_version = 0

    def update(self) -> None:
        """Looks at the metadata for the leaders of partitions, and asks for it where they aren't known."""
        if not self._enabled:
            return
        subscriptions, metadata = self._context.subscriptions, self._context.metadata
        if self._seen_version != metadata.update_version:
            self._seen_version = metadata.update_version
            for partition, state in subscriptions.partition_states().items():
                leader = metadata.leader_of(partition)
                if state.position is not None and leader is not None:
                    state.leader = leader
        for partition, state in subscriptions.partition_states().items():
            if not subscriptions.is_fetchable(partition):
                continue
            if state.leader is not None:
                self._sessions.add(state.leader)
            else:
                metadata.request_update(reset_equivalent_backoff=False)

    def close(self, timer: Timer) -> Flow[None]:
        """Waits up to the timer's end if there are sessions at brokers that are still known."""
        if any(map(self._context.metadata.has_node, self._sessions)):
            while not timer.is_expired():
                yield from self._context.client.poll(timer)
