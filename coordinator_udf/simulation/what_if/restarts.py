"""Restarts of the broker in a log: when it was away, when each group was loaded again, and who came back when.

A silence that no connection outlived, though a process did, is one in which the broker was away. When a group's
coordinator was lost, and loaded again, answers tell.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.replay.inputs.broker_log.facts import LOST, ShardFinding
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.inputs.broker_log.moments import RequestMoment, not_outlived, silences_of
from coordinator_udf.simulation.plan import Failover, Refusal
from coordinator_udf.simulation.what_if.processes import LoggedProcess, arrived_ms, error_codes
from coordinator_udf.simulation.what_if.properties import accepted_session_ms

#: A coordinator that was lost for the last time and loaded so long apart was loaded in the middle, else at the end.
_LOADS_WITHIN_MS = 1_000
#: What a coordinator says to a member that it doesn't know, or not as one of that generation.
_REFUSALS = frozenset({Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION})


class _Sight(NamedTuple):
    """What an answer tells of a group's coordinator, and when its request was handled, in milliseconds."""

    ts_ms: float
    is_lost: bool


class Restarts:
    """The restarts of a log's broker, and how long each group had no coordinator."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        """Looks for them in a log's requests."""
        self._came_ms: dict[str, list[float]] = defaultdict(list)
        for entry in sorted(entries, key=arrived_ms):
            self._came_ms[entry.client_id or ""].append(arrived_ms(entry))
        moments = sorted(map(RequestMoment.of, entries), key=lambda moment: moment.handled_by_us)
        self._sights: dict[str, list[_Sight]] = defaultdict(list)
        for moment in moments:
            for group_id, finding in moment.findings:
                if finding is ShardFinding.SERVED or finding in LOST:
                    self._sights[group_id].append(_Sight(moment.handled_by_us / 1000, finding in LOST))
        self._silences = list(not_outlived(moments, silences_of(moments)))

    def between(self, since_ms: float, until_ms: float) -> bool:
        """Tells whether the broker was away in all of a time or in part of it."""
        return any(since_ms * 1000 < one.end_us and one.start_us < until_ms * 1000 for one in self._silences)

    def refusals(self, process: LoggedProcess) -> Iterator[Refusal]:
        """Yields when a process could not connect, from the time of that, in milliseconds since the epoch."""
        is_alone = process.name == process.client_id
        times_ms = self._came_ms[process.client_id] if is_alone else list(map(arrived_ms, process.entries))
        for silence in self._silences:
            start_ms = silence.start_us / 1000
            place = bisect_right(times_ms, start_ms)
            if arrived_ms(process.entries[0]) <= start_ms < arrived_ms(process.entries[-1]) and place < len(times_ms):
                yield Refusal(round(start_ms), max(1, round(times_ms[place] - start_ms)))

    def failovers(self, group_id: str, begin_ms: int, end_ms: int) -> Iterator[Failover]:
        """Yields when a group's coordinator was away, from the time of that, in milliseconds since the epoch.

        That is as answers tell; in a restart of which they tell nothing, until the first of them. If the first of all
        found it away, it had been so from the beginning; if the last did, it is away until the end.
        """
        gone_ms: float | None = None
        last: _Sight | None = None
        sights = self._sights[group_id]
        for place, sight in enumerate(sights):
            restarted_ms = None if last is None else self._restarted_ms(last.ts_ms, sight.ts_ms)
            if gone_ms is None and restarted_ms is not None:
                gone_ms = restarted_ms
            elif last is None and sight.is_lost:
                gone_ms = begin_ms
            elif gone_ms is None and sight.is_lost and (place + 1 == len(sights) or sights[place + 1].is_lost):
                # One alone was under way when it was no longer so.
                gone_ms = sight.ts_ms
            if gone_ms is not None and not sight.is_lost:
                back_ms = sight.ts_ms
                if last is not None and last.is_lost and back_ms - last.ts_ms <= _LOADS_WITHIN_MS:
                    back_ms = (back_ms + last.ts_ms) / 2
                yield Failover(round(gone_ms), max(1, int(back_ms - gone_ms)), node=0)
                gone_ms = None
            last = sight
        if gone_ms is not None:
            yield Failover(round(gone_ms), max(1, round(end_ms - gone_ms)), node=0)

    def _restarted_ms(self, since_ms: float, until_ms: float) -> float | None:
        """Returns when the broker went that was away in a time; None if it wasn't."""
        return next((one.start_us / 1000 for one in self._silences if since_ms <= one.start_us / 1000 < until_ms), None)


def lost_states(processes: Sequence[LoggedProcess], failovers: Sequence[Failover]) -> Iterator[str]:
    """Yields in words where a coordinator that was loaded again no longer knew members that it had before.

    Their sessions begin anew then, so nobody can have been expelled; a broker that is killed may lose what it had not
    written of its log.

    Args:
        failovers: from their times, in milliseconds since the epoch.
    """
    for failover in failovers:
        back_ms = failover.at_ms + failover.down_ms
        forgotten = [process.name for process in processes if _is_forgotten(process, failover.at_ms, back_ms)]
        if forgotten:
            back = datetime.fromtimestamp(back_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
            yield (
                f"what the coordinator that was there again at {back} had lost: it knew no more of the membership of "
                f"{', '.join(sorted(set(forgotten)))}, which is simulated as if it did"
            )


def _is_forgotten(process: LoggedProcess, gone_ms: float, back_ms: float) -> bool:
    session_ms = accepted_session_ms(process)
    before = {entry.request.get("memberId") for entry in process.entries if arrived_ms(entry) < gone_ms} - {"", None}
    return session_ms is not None and any(
        entry.request.get("memberId") in before and not _REFUSALS.isdisjoint(error_codes(entry.response or {}))
        for entry in process.entries
        if back_ms <= arrived_ms(entry) < back_ms + session_ms
    )
