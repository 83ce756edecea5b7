"""By when a broker's shards had got to what was there: as the requests tell whose answers wait for nobody."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

from coordinator_udf.replay.inputs.broker_log.facts import reaches_shard
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.inputs.broker_log.moments import Silence

_US = 1_000
#: Their answers may wait for other requests.
WAITING = frozenset({"JoinGroup", "SyncGroup"})


class Prompt:
    """The requests to a shard whose answers wait for nobody: they tell by when it got to what was there before them."""

    def __init__(self, entries: Iterable[Entry], handover_ms: int, hangs: Sequence[Silence] = ()) -> None:
        """Takes a shard's requests.

        Args:
            handover_ms: how long a shard that isn't busy may take to get to a request.
            hangs: when the broker hung, in order.
        """
        self._hangs = hangs
        every = sorted(entries, key=_arrived_us)
        self._entries = [entry for entry in every if entry.api not in WAITING and reaches_shard(entry)]
        self._handover_us = handover_ms * _US
        #: The latest answer to any request up to each.
        self._answered_us = list(accumulate((entry.answered_us for entry in self._entries), max))
        self._queued = [entry for entry in every if entry.queue_us > self._handover_us]
        #: By when the broker had got to any of those that it let wait for long, up to each.
        self._got_to_us = list(accumulate((entry.handled_us for entry in self._queued), max))

    def handled_by_us(self, entry: Entry) -> int:
        """By when the shard had handled a request whose answer may have waited."""
        return self._reached_us(entry.arrived_us, entry.handled_us + entry.local_us + self._handover_us)

    def late_ms(self, due_ms: int, usual_ms: int) -> int:
        """By how much what was due at a time may have been late.

        Args:
            usual_ms: by how much it may be on a shard that isn't busy.
        """
        goes_on_ms = self._goes_on_ms(due_ms)
        return max(goes_on_ms, self._reached_us(due_ms * _US, (goes_on_ms + usual_ms) * _US) // _US) - due_ms

    def _goes_on_ms(self, at_ms: int) -> int:
        """Returns a time, or when the broker went on that hung then."""
        place = bisect_left(self._hangs, at_ms * _US, key=_ends_us)
        hung = place < len(self._hangs) and self._hangs[place].start_us <= at_ms * _US
        return self._hangs[place].end_us // _US + 1 if hung else at_ms

    def _reached_us(self, since_us: int, usual_us: int) -> int:
        """By when the shard had got to what had to be done since a time.

        Later than usual, where what arrived meanwhile was answered later than that; or if nothing arrived meanwhile,
        where the shard was still busy with what had come before, or the whole broker got to nothing.
        """
        first = bisect_right(self._entries, since_us, key=_arrived_us)
        last = bisect_right(self._entries, usual_us, lo=first, key=_arrived_us)
        if first < last:
            return max(usual_us, min(other.answered_us for other in self._entries[first:last]))
        return self._while_queued_us(max(usual_us, self._answered_us[first - 1]) if first else usual_us)

    def _while_queued_us(self, reached_us: int) -> int:
        """Returns a time, or a later one if what came before it was still to be taken from the broker's queue then."""
        while True:
            came = bisect_right(self._queued, reached_us, key=_arrived_us)
            if not came or self._got_to_us[came - 1] <= reached_us:
                return reached_us
            reached_us = self._got_to_us[came - 1] + self._handover_us


def _arrived_us(entry: Entry) -> int:
    return entry.arrived_us


def _ends_us(hang: Silence) -> int:
    return hang.end_us
