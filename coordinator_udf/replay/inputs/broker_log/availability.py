"""When a shard was served, loading, or not the broker's: adopted from what was answered, as no request explains it.

A request answered NOT_COORDINATOR found its shard not owned, one answered COORDINATOR_LOAD_IN_PROGRESS found it
loading, any other answer found it served. Where that changes, control rows are put before the request. Where the whole
log was silent before a shard is found lost, the shard was lost when the silence began, as the broker stopped then.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from sys import intern
from typing import NamedTuple

from coordinator_udf.protocol.partitioner import partition_for
from coordinator_udf.replay.inputs.broker_log.facts import LOST, Finding, findings
from coordinator_udf.replay.inputs.broker_log.line import Entry

#: How long nothing at all may happen in a log before that is a silence.
_SILENCE_US = 1_000_000

#: The control rows that bring a shard from one to the other. A shard that is served again has lost what no record
#: holds (sessions, waiting members), so it goes through a load of what it wrote itself.
_STEPS: dict[tuple[Finding, Finding], tuple[str, ...]] = {
    (Finding.SERVED, Finding.NOT_OURS): ("Unload",),
    (Finding.SERVED, Finding.LOADING): ("Unload", "LoadGroup"),
    (Finding.NOT_OURS, Finding.LOADING): ("LoadGroup",),
    (Finding.LOADING, Finding.NOT_OURS): ("Unload",),
    (Finding.NOT_OURS, Finding.SERVED): ("Failover",),
    (Finding.LOADING, Finding.SERVED): ("Failover",),
}


class Control(NamedTuple):
    """A control row to put on a shard."""

    api: str
    log_ts: int


class Moment(NamedTuple):
    """A request of the log: when it came, was handled and answered, and what its answer tells of shards.

    Attributes:
        findings: by group, in the order of the answer.
    """

    number: int
    connection: str
    arrived_us: int
    answered_us: int
    handled_by_us: int
    log_ts: int
    findings: tuple[tuple[str, Finding], ...]

    @classmethod
    def of(cls, entry: Entry) -> Moment:
        """Returns the moment of an entry."""
        times = entry.arrived_us, entry.answered_us, entry.handled_by_us, entry.log_ts
        return cls(entry.number, intern(entry.connection), *times, tuple(findings(entry)))

    def of_shards(self, partitions: int) -> dict[int, Finding]:
        """Returns what the answer tells of each shard; of several groups of one shard, what the first one tells."""
        found: dict[int, Finding] = {}
        for group_id, finding in self.findings:
            found.setdefault(partition_for(group_id, partitions), finding)
        return found


class Silence(NamedTuple):
    """A time in which nothing arrived and nothing was answered; in microseconds."""

    start_us: int
    end_us: int


class Availability(NamedTuple):
    """The control rows to put before a request's row, by (entry number, partition), and when shards were lost."""

    controls: dict[tuple[int, int], list[Control]]
    #: By partition, when the broker lost the shard, in ms: what it had loaded afterwards, the log doesn't tell.
    losses: dict[int, list[int]]


def availability(requests: Sequence[Moment], partitions: int) -> Availability:
    """Follows each shard through a log's requests in order.

    Args:
        requests: the log in order.
        partitions: the number of shards.
    """
    found = Availability({}, defaultdict(list))
    service = [Finding.SERVED] * partitions
    was_served = [False] * partitions
    served_us = [0] * partitions
    loading_us = [0] * partitions
    loads_us: list[int] = []
    silences = silences_of(requests)
    restarts: dict[Silence, set[int]] = defaultdict(set)
    for entry, partition, finding in _believable(requests, partitions, silences):
        before = service[partition]
        now = _next(before, finding)
        if now is not before:
            silence = _silence_before(silences, served_us[partition], entry.arrived_us)
            lost_ms = silence.start_us // 1000 if silence else entry.log_ts
            if before is Finding.SERVED and was_served[partition]:
                found.losses[partition].append(lost_ms)
                if silence:
                    restarts[silence] |= {partition, *(p for p in range(partitions) if service[p] is not before)}
            since_ms = entry.log_ts
            if now is Finding.SERVED:
                since_ms = _loaded_ms(loading_us[partition], entry, loads_us)
                loads_us.append(entry.handled_by_us)
            found.controls[entry.number, partition] = [
                Control(api, lost_ms if api == "Unload" else since_ms) for api in _STEPS[before, now]
            ]
            service[partition] = now
        if finding in LOST:
            loading_us[partition] = max(loading_us[partition], entry.answered_us)
        if now is Finding.SERVED and finding is Finding.SERVED:
            served_us[partition] = entry.answered_us
            was_served[partition] = True
    _restart_the_rest(requests, partitions, restarts, found)
    return found


def _believable(
    requests: Sequence[Moment], partitions: int, silences: Sequence[Silence]
) -> Iterator[tuple[Moment, int, Finding]]:
    """Yields what answers tell of shards, but for an answer that alone among others says that a shard was lost."""
    told = [(entry, *found) for entry in requests for found in entry.of_shards(partitions).items()]
    following: dict[int, Finding] = {}
    is_last: list[bool] = [False] * len(told)
    for place in range(len(told) - 1, -1, -1):
        _, partition, finding = told[place]
        if finding is Finding.NOTHING:
            continue
        is_last[place] = following.get(partition, finding) not in LOST
        following[partition] = finding
    before: dict[int, tuple[Finding, int]] = {}
    for place, (entry, partition, finding) in enumerate(told):
        known = before.get(partition)
        alone = finding in LOST and is_last[place] and known is not None and known[0] not in LOST
        if alone and known is not None and _silence_before(silences, known[1], entry.arrived_us) is None:
            continue
        yield entry, partition, finding
        if finding is not Finding.NOTHING:
            before[partition] = finding, entry.answered_us


def _loaded_ms(loading_us: int, entry: Moment, others_us: Sequence[int]) -> int:
    """Returns when a shard was loaded: between the last answer that it wasn't and the first that it was.

    Args:
        others_us: when other shards were first seen to be loaded; a broker that starts loads them one after the other.
    """
    between_us = entry.handled_by_us - loading_us
    if not 0 < between_us <= _SILENCE_US:
        return entry.log_ts
    first_us = min((us for us in others_us if us > loading_us), default=entry.handled_by_us)
    return min(entry.log_ts, min(first_us, loading_us + between_us // 2) // 1000)


def _next(service: Finding, finding: Finding) -> Finding:
    """Returns what a shard is after an answer, if it was this before."""
    if finding is Finding.NOTHING:
        return service
    if finding is Finding.SERVED_OR_LOADING:
        return Finding.SERVED if service is Finding.SERVED else Finding.LOADING
    return finding


def _restart_the_rest(
    requests: Sequence[Moment], partitions: int, restarts: dict[Silence, set[int]], found: Availability
) -> None:
    """Counts a silence that no connection outlived as a restart: shards that nobody asked then were lost, too."""
    for silence, lost in restarts.items():
        before = {entry.connection for entry in requests if entry.arrived_us <= silence.start_us}
        after = [entry for entry in requests if entry.arrived_us >= silence.end_us]
        if any(entry.connection in before for entry in after):
            continue
        missing = set(range(partitions)) - lost
        for entry in after:
            for partition in entry.of_shards(partitions):
                if partition in missing:
                    missing.discard(partition)
                    rows = [Control("Unload", silence.start_us // 1000), Control("Failover", entry.log_ts)]
                    found.controls[entry.number, partition] = rows + found.controls.get((entry.number, partition), [])
                    found.losses[partition].append(silence.start_us // 1000)
            if not missing:
                break


def silences_of(requests: Sequence[Moment]) -> list[Silence]:
    """When nothing at all happened in a log for a second or longer."""
    moments = sorted({moment for entry in requests for moment in (entry.arrived_us, entry.answered_us)})
    return [Silence(start, end) for start, end in pairwise(moments) if end - start >= _SILENCE_US]


def _silence_before(silences: Sequence[Silence], served_us: int, arrived_us: int) -> Silence | None:
    """Returns the last silence between a shard's last served request and another one."""
    place = bisect_right(silences, arrived_us, key=lambda silence: silence.end_us) - 1
    return silences[place] if place >= 0 and silences[place].start_us >= served_us else None
