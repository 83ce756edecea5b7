"""When a shard was served, loading, or not the broker's: adopted from what was answered, as no request explains it.

A request answered NOT_COORDINATOR found its shard not owned, one answered COORDINATOR_LOAD_IN_PROGRESS found it
loading, any other answer found it served. Where that changes, control rows are put before the request. Where the whole
log was silent before a shard is found lost, the shard was lost when the silence began, as the broker stopped then.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from coordinator_udf.replay.inputs.broker_log.facts import LOST, ShardFinding
from coordinator_udf.replay.inputs.broker_log.losses import (
    Control,
    LoggedAvailability,
    Loss,
    Seen,
    load_when_lists_say_so,
    lose_those_that_sent_members_away,
    restart_the_rest,
    restart_those_that_nobody_asked,
    survived,
)
from coordinator_udf.replay.inputs.broker_log.moments import (
    SILENCE_US,
    TOLD_US,
    RequestMoment,
    Silence,
    silence_before,
    silences_of,
)

#: How long a broker may take to load its shards.
_LONGEST_LOAD_US = 10_000_000
#: A broker of which nothing is heard for so long may be missed by the controller (broker.session.timeout.ms, 9 s by
#: default): half and double say the same of the logs that were recorded for it.
_MISSED_US = 4_000_000
#: The control rows that bring a shard from one to the other. A shard that is served again has lost what no record
#: holds (sessions, waiting members), so it goes through a load of what it wrote itself.
_STEPS: dict[tuple[ShardFinding, ShardFinding], tuple[str, ...]] = {
    (ShardFinding.SERVED, ShardFinding.NOT_OURS): ("Unload",),
    (ShardFinding.SERVED, ShardFinding.LOADING): ("Unload", "LoadGroup"),
    (ShardFinding.NOT_OURS, ShardFinding.LOADING): ("LoadGroup",),
    (ShardFinding.LOADING, ShardFinding.NOT_OURS): ("Unload",),
    (ShardFinding.NOT_OURS, ShardFinding.SERVED): ("Failover",),
    (ShardFinding.LOADING, ShardFinding.SERVED): ("Failover",),
}


class _Absences:
    """The times in which shards weren't served, by what was answered."""

    def __init__(self) -> None:
        #: By shard, since when (us); and until when, those that are over.
        self._since_us: dict[int, int] = {}
        self._over: list[tuple[int, int, int]] = []

    def note(self, partition: int, entry: RequestMoment, *, is_served: bool) -> None:
        """Takes note of an answer by which a shard is served, or isn't."""
        if not is_served:
            self._since_us.setdefault(partition, entry.arrived_us)
        elif partition in self._since_us:
            self._over.append((partition, self._since_us.pop(partition), entry.answered_us))

    def during(self, silence: Silence) -> Iterator[int]:
        """Yields the shards that weren't served from before a silence until after it."""
        for partition, since_us, until_us in self._over:
            if since_us <= silence.start_us and silence.end_us <= until_us:
                yield partition
        yield from (partition for partition, since_us in self._since_us.items() if since_us <= silence.start_us)


@dataclass
class _Shard:
    """What answers told of a shard so far; times in microseconds but where the name says otherwise."""

    service: ShardFinding = ShardFinding.SERVED
    #: Whether an answer was a served shard's, and when the last of them was sent.
    was_served: bool = False
    served_us: int = 0
    #: When what it said was handled (ms).
    served_ms: int = 0
    #: When the last answers were sent by which it wasn't served, and by which it may have been loading.
    loading_us: int = 0
    unsure_us: int = 0
    #: When it was lost (ms), until it is served again.
    lost_ms: int | None = None

    def note(self, entry: RequestMoment, finding: ShardFinding) -> None:
        """Takes note of an answer whose finding `service` has already."""
        if finding in LOST:
            self.loading_us = max(self.loading_us, entry.answered_us)
        elif finding is ShardFinding.SERVED_OR_LOADING:
            self.unsure_us = max(self.unsure_us, entry.answered_us)
        elif finding is ShardFinding.SERVED:
            # Whatever it was before, it is served now.
            self.served_us, self.served_ms, self.was_served = entry.answered_us, entry.log_ts, True


class _Changes:
    """What each shard was from one answer to the next, and the control rows that bring it from one to the other."""

    def __init__(self, partitions: int, silences: Sequence[Silence]) -> None:
        self.found = LoggedAvailability({}, defaultdict(list), set(), {})
        self.seen = Seen(defaultdict(list), [])
        self.absences = _Absences()
        #: Silences in which the broker stopped, with the shards that it lost then.
        self.restarts: dict[Silence, set[int]] = defaultdict(set)
        self.shards = [_Shard() for _ in range(partitions)]
        self._silences = silences
        self._loads_us: list[int] = []

    def note(self, entry: RequestMoment, partition: int, finding: ShardFinding) -> None:
        """Takes note of what an answer tells of a shard."""
        shard = self.shards[partition]
        now = _next(shard.service, finding)
        if now is not shard.service:
            self._change(entry, partition, now)
        if entry.is_sync and finding is ShardFinding.LOADING:
            self.found.loading_syncs.add(entry.number)
        shard.note(entry, finding)
        if finding is ShardFinding.SERVED:
            self.seen.served[partition].append(entry)

    def _change(self, entry: RequestMoment, partition: int, now: ShardFinding) -> None:
        shard = self.shards[partition]
        before = shard.service
        # A shard that was served or loading after a silence was lost later; whether in the silence, too, others tell.
        there_us = max(shard.served_us, shard.unsure_us, shard.loading_us if before is ShardFinding.LOADING else 0)
        silence = silence_before(self._silences, there_us, entry.arrived_us)
        lost_ms = silence.start_us // 1000 if silence else entry.log_ts
        if before is ShardFinding.SERVED and not silence:
            lost_ms = self._lost_ms(entry, shard)
        if before is ShardFinding.SERVED and shard.was_served:
            self.found.losses[partition].append(lost_ms)
            shard.lost_ms = lost_ms
            if silence:
                others = (p for p, other in enumerate(self.shards) if other.service is not before)
                self.restarts[silence] |= {partition, *others}
        since_ms = entry.log_ts
        if now is ShardFinding.SERVED:
            since_ms = self._loaded(entry, shard)
            self._has_again(partition, since_ms)
        self.found.controls[entry.number, partition] = [
            Control(api, lost_ms if api == "Unload" else since_ms) for api in _STEPS[before, now]
        ]
        shard.service = now
        self.absences.note(partition, entry, is_served=now is ShardFinding.SERVED)

    def _lost_ms(self, entry: RequestMoment, shard: _Shard) -> int:
        """Returns when a shard was lost (ms) of which an answer tells: with others that were shortly before."""
        others = (each.lost_ms for each in self.shards if each.lost_ms is not None)
        soon = (lost_ms for lost_ms in others if entry.log_ts - lost_ms <= TOLD_US // 1000)
        return min(max(min(soon, default=entry.log_ts), shard.served_ms + 1), entry.log_ts)

    def _loaded(self, entry: RequestMoment, shard: _Shard) -> int:
        """Returns when a shard was loaded (ms) of which an answer tells that it is served."""
        was_loading = shard.service is ShardFinding.LOADING and shard.unsure_us <= shard.loading_us
        since_ms = _loaded_ms(shard.loading_us, shard.unsure_us, entry, self._loads_us, was_loading=was_loading)
        self._loads_us.append(entry.handled_by_us)
        return since_ms

    def _has_again(self, partition: int, since_ms: int) -> None:
        shard = self.shards[partition]
        if shard.lost_ms is not None:
            self.seen.losses.append(Loss(partition, shard.lost_ms, since_ms))
            shard.lost_ms = None

    def load_at_list(self, partition: int, entry: RequestMoment, since_ms: int) -> None:
        """Has a shard loaded of which only a list of its broker tells that it is."""
        self.found.controls[entry.number, partition] = [Control("Failover", since_ms)]
        self._has_again(partition, since_ms)
        self.absences.note(partition, entry, is_served=True)


def availability(requests: Sequence[RequestMoment], partitions: int, consumer_session_ms: int) -> LoggedAvailability:
    """Follows each shard through a log's requests in order.

    Args:
        requests: the log in order.
        partitions: the number of shards.
        consumer_session_ms: the session timeout of members of the consumer protocol.
    """
    silences = silences_of(requests)
    changes = _Changes(partitions, silences)
    for entry, partition, finding in _believable(requests, partitions, silences):
        changes.note(entry, partition, finding)
    for partition, entry, since_ms in _listed_loading(requests, [shard.service for shard in changes.shards]):
        changes.load_at_list(partition, entry, since_ms)
    for silence in survived(requests, silences, consumer_session_ms):
        changes.restarts.setdefault(silence, set()).update(changes.absences.during(silence))
    found, seen = changes.found, changes.seen
    restart_the_rest(requests, partitions, changes.restarts, found)
    restart_those_that_nobody_asked(seen, found)
    lose_those_that_sent_members_away(requests, partitions, silences, seen, found)
    load_when_lists_say_so(requests, found)
    return found


def _listed_loading(
    requests: Sequence[RequestMoment], service: Sequence[ShardFinding]
) -> Iterator[tuple[int, RequestMoment, int]]:
    """Yields the shards that nobody asked any more after they were loading, with the first list that its broker gave.

    And by when it had said last that it was loading the shard (ms).

    Source: GroupCoordinatorService.listGroups, which fails while a shard is loading.

    Args:
        service: what each shard was at last.
    """
    loading = {partition for partition, finding in enumerate(service) if finding is ShardFinding.LOADING}
    asked: dict[int, RequestMoment] = {}
    for entry in requests if loading else ():
        told = entry.of_shards(len(service))
        asked |= {partition: entry for partition in loading if told.get(partition) is ShardFinding.LOADING}
    for partition, last in sorted(asked.items()):
        lists = (each for each in requests if each.is_list and each.broker == last.broker)
        first = next((each for each in lists if each.arrived_us >= last.answered_us), None)
        if first is not None:
            yield partition, first, last.answered_us // 1000 + 1


def _believable(
    requests: Sequence[RequestMoment], partitions: int, silences: Sequence[Silence]
) -> Iterator[tuple[RequestMoment, int, ShardFinding]]:
    """Yields what answers tell of shards, but for an answer that alone among others says otherwise.

    A shard isn't lost and loaded again for one answer, unless nothing happened before or after it, or its broker hung
    before: that is missed, and loses all shards. Nor is it loaded and lost again, unless others were lost then.
    """
    told = [(entry, *found) for entry in requests for found in entry.of_shards(partitions).items()]
    there_again_us, next_lost = _what_follows(told)
    long_ones = [silence for silence in silences if silence.length_us >= _MISSED_US]
    flaps = _flaps(told, silences)
    before: dict[int, tuple[ShardFinding, int]] = {}
    lost_before: dict[int, ShardFinding] = {}
    for place, (entry, partition, finding) in enumerate(told):
        known = before.get(partition)
        again_us = there_again_us[place]
        if finding in LOST and again_us is not None and known is not None and known[0] not in LOST:
            since_us = _before_hang_us(long_ones, known[1], entry.arrived_us)
            is_quiet = silence_before(silences, since_us, entry.arrived_us) or silence_before(
                silences, entry.answered_us, again_us
            )
            if is_quiet is None:
                continue
        if finding is ShardFinding.SERVED and partition in lost_before:
            following = next_lost[place]
            # After a load a shard may be somebody else's.
            kinds = following and (lost_before[partition], following.finding)
            if following and kinds != (ShardFinding.LOADING, ShardFinding.NOT_OURS):
                is_silent = silence_before(silences, entry.answered_us, following.arrived_us) is not None
                if not is_silent and not _has_flap(flaps, partition, entry.arrived_us, following.arrived_us):
                    continue
        yield entry, partition, finding
        if finding not in {ShardFinding.NOTHING, ShardFinding.SERVED_OR_LOADING}:
            before[partition] = finding, entry.answered_us
        if finding in LOST:
            lost_before[partition] = finding
        elif finding is ShardFinding.SERVED:
            lost_before.pop(partition, None)


Told = tuple[RequestMoment, int, ShardFinding]


class _Lost(NamedTuple):
    """What is told of a shard next, as how it is lost; and when that was asked (us)."""

    finding: ShardFinding
    arrived_us: int


def _before_hang_us(silences: Sequence[Silence], known_us: int, lost_us: int) -> int:
    """Returns a time, or when the silence began in which a broker may have hung whose shard was lost shortly after."""
    place = bisect_right(silences, lost_us, key=lambda silence: silence.end_us) - 1
    is_short = place >= 0 and lost_us - silences[place].end_us <= TOLD_US
    return min(known_us, silences[place].start_us) if is_short else known_us


def _what_follows(told: Sequence[Told]) -> tuple[list[int | None], list[_Lost | None]]:
    """Returns what follows each that is told of a shard.

    When a shard was asked that is there in what is told of it next (us), None if it isn't; and how it is lost, if the
    next sure one says so.
    """
    following: dict[int, _Lost] = {}
    certain: dict[int, _Lost | None] = {}
    there_again_us: list[int | None] = [None] * len(told)
    next_lost: list[_Lost | None] = [None] * len(told)
    for place in range(len(told) - 1, -1, -1):
        entry, partition, finding = told[place]
        if finding is ShardFinding.NOTHING:
            continue
        after = following.get(partition)
        there_again_us[place] = after.arrived_us if after is not None and after.finding not in LOST else None
        next_lost[place] = certain.get(partition)
        following[partition] = _Lost(finding, entry.arrived_us)
        if finding in LOST:
            certain[partition] = _Lost(finding, entry.arrived_us)
        elif finding is ShardFinding.SERVED:
            certain[partition] = None
    return there_again_us, next_lost


class _Flap(NamedTuple):
    """Between which times (us) a shard was lost that had been served more than once."""

    partition: int
    served_us: int
    lost_us: int


def _flaps(told: Sequence[Told], silences: Sequence[Silence]) -> list[_Flap]:
    served: dict[int, list[int]] = defaultdict(list)
    found: list[_Flap] = []
    for entry, partition, finding in told:
        if finding is ShardFinding.SERVED:
            served[partition].append(entry.answered_us)
        elif finding in LOST:
            times = served.pop(partition, [])
            if len(times) > 1 and silence_before(silences, times[-1], entry.arrived_us) is None:
                found.append(_Flap(partition, times[-1], entry.arrived_us))
    return found


def _has_flap(flaps: Sequence[_Flap], partition: int, served_us: int, lost_us: int) -> bool:
    """Returns whether another shard was lost in that time as well."""
    return any(f.partition != partition and f.served_us <= lost_us and f.lost_us >= served_us for f in flaps)


def _loaded_ms(
    loading_us: int, unsure_us: int, entry: RequestMoment, others_us: Sequence[int], *, was_loading: bool
) -> int:
    """Returns when a shard was loaded: between the last answer that it wasn't and the first that it was.

    Members' sessions begin then: what begins early may be late, but what begins late can't be early. So it is taken to
    be right after the first, unless answers between them leave open what it was. Where nobody asked for long, and
    nothing says that it was loaded soon, it may have been another broker's until it was asked for.

    Args:
        unsure_us: the last of those.
        others_us: when other shards were first seen to be loaded; a broker that starts loads them one after the other.
        was_loading: whether the broker said that it was loading the shard.
    """
    between_us = entry.handled_by_us - loading_us
    first_us = min((us for us in others_us if us > loading_us), default=entry.handled_by_us)
    is_soon = was_loading or min(between_us, first_us - loading_us) <= _LONGEST_LOAD_US
    if between_us <= 0 or not is_soon:
        return entry.log_ts
    if between_us > SILENCE_US or unsure_us <= loading_us:
        return min(entry.log_ts, loading_us // 1000 + 1)
    return min(entry.log_ts, min(first_us, loading_us + between_us // 2) // 1000)


def _next(service: ShardFinding, finding: ShardFinding) -> ShardFinding:
    """Returns what a shard is after an answer, if it was this before."""
    if finding is ShardFinding.NOTHING:
        return service
    if finding is ShardFinding.SERVED_OR_LOADING:
        return ShardFinding.SERVED if service is ShardFinding.SERVED else ShardFinding.LOADING
    return finding
