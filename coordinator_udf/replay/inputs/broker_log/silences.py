"""How long the members of a classic group that are older than a log were silent, which bounds their session timeouts.

A static member is known by its instance id here: it goes on under another member id where its process restarts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from coordinator_udf.replay.inputs.broker_log.line import Entry

#: Kafka's default of session.timeout.ms, the one before KIP-735, and the shortest that brokers allow by default.
_USUAL_MS: Final = (45_000, 10_000, 6_000)
_US: Final = 1_000


class Silences:
    """What the log tells of when each member of a group was heard, and by when it was gone. Times in milliseconds."""

    def __init__(self, began_ms: int) -> None:
        """Begins where the log does: no silence before it counts."""
        self._began_ms = began_ms
        self._heard_ms: dict[str, int] = {}
        self._longest_ms: dict[str, int] = {}
        self._gone_ms: dict[str, int] = {}
        #: Who left, or gave its place to another process, is gone for another reason.
        self._left: set[str] = set()

    def hear(self, member: str, entry: Entry) -> None:
        """Takes note of a request of a member, answered as one that is there: it isn't silent while it waits."""
        silent_ms = entry.log_ts - self._heard_ms.get(member, self._began_ms)
        self._longest_ms[member] = max(self._longest_ms.get(member, 0), silent_ms)
        self._heard_ms[member] = max(entry.log_ts, entry.answered_us // _US)

    def leaves(self, member: str) -> None:
        """Takes note of a member that left."""
        self._left.add(member)

    def is_absent(self, member: str, at_ms: int) -> None:
        """Takes note of a member that isn't there."""
        self._gone_ms.setdefault(member, at_ms)

    def lists(self, present: Collection[str], at_ms: int) -> None:
        """Takes note of all members that are there."""
        for member in self._heard_ms.keys() - present:
            self.is_absent(member, at_ms)
        for member in present:
            self._heard_ms.setdefault(member, self._began_ms)

    def session_ms(self, member: str, others: Sequence[int]) -> int:
        """Returns the likeliest session timeout of a member that doesn't say its own.

        That is the first of those of others and the usual ones that is longer than the member was silent and stayed,
        and over when it was gone; else the longest that was over then.

        Args:
            others: those of members that say theirs.
        """
        likely = (*others, *_USUAL_MS)
        least_ms, most_ms = self._longest_ms.get(member, 0), max(likely)
        if member in self._gone_ms and member not in self._left:
            most_ms = self._gone_ms[member] - self._heard_ms.get(member, self._began_ms)
        return next((each for each in likely if least_ms < each <= most_ms), max(most_ms, least_ms + 1))
