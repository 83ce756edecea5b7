"""When groups became of KIP-848 or classic, and whose partitions the coordinator forgets by that."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict

from coordinator_udf.simulation.history import History

_CLASSIC, _CONSUMER = "GroupMetadata", "ConsumerGroupMetadata"


class TypeChanges:
    """The times in which groups that had been of KIP-848 were classic, before they were of KIP-848 again.

    A group that becomes classic has its members with what they were to have next (ConsumerGroup's downgrade makes a
    ClassicGroup of the target assignment), and takes that for what they have when it is of KIP-848 again. Classic
    members that join again in between say what they have.
    """

    def __init__(self, history: History) -> None:
        self._classic_ms = _times_as_classic(history)
        self._memberships: dict[str, list[int]] = defaultdict(list)
        for one in history.memberships:
            self._memberships[one.process].append(one.ts_ms)

    def forgot(self, group_id: str, process: str, given_ms: int, ts_ms: int) -> bool:
        """Tells whether a group's coordinator may have forgotten what a process has.

        Args:
            given_ms: when the process was given that, in milliseconds since the epoch.
            ts_ms: by when; the process still has it.
        """
        known_ms = self._memberships[process]
        return any(
            given_ms <= from_ms and to_ms <= ts_ms and bisect_left(known_ms, from_ms) == bisect_left(known_ms, ts_ms)
            for from_ms, to_ms in self._classic_ms.get(group_id, ())
        )


def _times_as_classic(history: History) -> dict[str, list[tuple[int, int]]]:
    """Returns from when to when each group was classic between two times of KIP-848, in the order of time."""
    times: dict[str, list[tuple[int, int]]] = defaultdict(list)
    ended: dict[tuple[str, str], int] = {}
    since_ms: dict[str, int] = {}
    for ts_ms, group_id, record_type, _, value in history.records((_CLASSIC, _CONSUMER)):
        if value is None:
            ended[group_id, record_type] = ts_ms
        elif record_type == _CLASSIC and ended.get((group_id, _CONSUMER)) == ts_ms:
            since_ms[group_id] = ts_ms
        elif record_type == _CONSUMER and ended.get((group_id, _CLASSIC)) == ts_ms and group_id in since_ms:
            times[group_id].append((since_ms.pop(group_id), ts_ms))
    return times
