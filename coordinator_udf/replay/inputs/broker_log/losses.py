"""Shards that a broker lost while nobody asked them: by what others, or members that waited, were told."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from coordinator_udf.protocol.partitioner import partition_for
from coordinator_udf.replay.inputs.broker_log.facts import ShardFinding
from coordinator_udf.replay.inputs.broker_log.moments import (
    SILENCE_US,
    RequestMoment,
    Silence,
    not_outlived,
    silences_within,
)

#: So many shards must have been lost for another to have been lost as well that nobody asked then.
_WITNESSES = 2

#: How long a broker may take from when it gives a shard up to when it has loaded it again, in milliseconds: half and
#: double say the same of the logs that were recorded for it.
_LONGEST_RESTART_MS = 60_000


class Control(NamedTuple):
    """A control row to put on a shard."""

    api: str
    log_ts: int


class LoggedAvailability(NamedTuple):
    """The control rows to put before a request's row, by (entry number, partition), and when shards were lost."""

    controls: dict[tuple[int, int], list[Control]]
    #: By partition, when the broker lost the shard, in ms: what it had loaded afterwards, the log doesn't tell.
    losses: dict[int, list[int]]
    #: The SyncGroup requests that found their shard loading. Kafka's newer coordinator says so, where its older one and
    #: ours tell the member to join again; either way nothing changes.
    loading_syncs: set[int]
    #: By partition, when it was lost of which nobody asked anything any more (ms).
    lost_at_end: dict[int, int]


class _Known(NamedTuple):
    """A member: when the coordinator told it last that it is one, and its session timeout (us)."""

    since_us: int
    session_us: int


def survived(
    requests: Sequence[RequestMoment], silences: Sequence[Silence], consumer_session_ms: int
) -> Iterator[Silence]:
    """Yields silences longer than the session of a member that was still one after them.

    The coordinator would have removed it. One that has loaded the group begins the session anew, even if nobody asked
    before the shard was loaded.

    Args:
        consumer_session_ms: the session timeout of members of the consumer protocol.
    """
    known: dict[str, _Known] = {}
    of_group: defaultdict[str | None, set[str]] = defaultdict(set)
    #: Groups that have members of which the log doesn't tell how they joined.
    older: set[str] = set()
    for entry in requests if silences else ():
        group_id = entry.findings[0][0] if entry.findings else None
        stayed = {member_id: known[member_id] for member_id in entry.stayed if member_id in known}
        if group_id is not None and len(stayed) < len(entry.stayed):
            older.add(group_id)
        if entry.joined is not None:
            member_id, session_ms = entry.joined
            if member_id in known and session_ms is not None:
                stayed[member_id] = known[member_id]
            session_us = 1_000 * (consumer_session_ms if session_ms is None else session_ms)
            known[member_id] = _Known(entry.answered_us, session_us)
            of_group[group_id].add(member_id)
        for each in stayed.values():
            yield from _outlived([each], entry, silences)
        for peopled in entry.peopled:
            own = [known[member_id] for member_id in of_group.get(peopled, ())]
            if own and peopled not in older:
                yield from _outlived(own, entry, silences)
        if not entry.peopled:
            # Who is described isn't heard.
            known |= {member_id: each._replace(since_us=entry.answered_us) for member_id, each in stayed.items()}


def _outlived(members: Sequence[_Known], entry: RequestMoment, silences: Sequence[Silence]) -> Iterator[Silence]:
    """Yields the silences since all of some members were heard that were longer than any of their sessions."""
    session_us = max(each.session_us for each in members)
    since = silences_within(silences, max(each.since_us for each in members), entry.arrived_us)
    yield from (silence for silence in since if silence.length_us > session_us)


def restart_the_rest(
    requests: Sequence[RequestMoment], partitions: int, restarts: dict[Silence, set[int]], found: LoggedAvailability
) -> None:
    """Counts a silence that no connection outlived as a restart: shards that nobody asked then were lost, too."""
    # Its rows are put before those of the silences after it.
    for silence in sorted(not_outlived(requests, restarts), reverse=True):
        missing = set(range(partitions)) - restarts[silence]
        for entry in (each for each in requests if each.arrived_us >= silence.end_us):
            for partition, finding in entry.of_shards(partitions).items():
                if partition in missing:
                    missing.discard(partition)
                    # Sessions that are taken to begin early may be late, but not the other way round.
                    loaded_ms = min(entry.log_ts, silence.end_us // 1000)
                    rows = [Control("Unload", silence.start_us // 1000), Control("Failover", loaded_ms)]
                    if finding is ShardFinding.SERVED_OR_LOADING:
                        rows.insert(1, Control("LoadGroup", loaded_ms))
                    found.controls[entry.number, partition] = rows + found.controls.get((entry.number, partition), [])
                    insort(found.losses[partition], silence.start_us // 1000)
            if not missing:
                break


class Loss(NamedTuple):
    """When a shard was found lost, and loaded (ms)."""

    partition: int
    lost_ms: int
    loaded_ms: int


class Seen(NamedTuple):
    """By shard the requests that found it served; and the losses of all shards, in order."""

    served: dict[int, list[RequestMoment]]
    losses: list[Loss]


def restart_those_that_nobody_asked(seen: Seen, found: LoggedAvailability) -> None:
    """Has a shard lost as well where all others were that were asked while nobody asked it."""
    for partition, served in seen.served.items():
        places = {bisect_right(served, loss.lost_ms * 1000, key=_arrived_us) for loss in seen.losses}
        for place in sorted(places - {0, len(served)}):
            before, after = served[place - 1 : place + 1]
            if after.arrived_us - before.answered_us < SILENCE_US or (after.number, partition) in found.controls:
                continue
            begin_ms, end_ms = before.answered_us // 1000, after.arrived_us // 1000
            losses = [loss for loss in seen.losses if loss.loaded_ms > begin_ms and loss.lost_ms < end_ms]
            inside = [loss for loss in losses if loss.lost_ms > begin_ms and loss.loaded_ms <= end_ms]
            lost = {loss.partition for loss in losses}
            if not inside or len(lost) < _WITNESSES or _is_served_by_another(seen, {partition, *lost}, before, after):
                continue
            first_ms, last_ms = min(loss.lost_ms for loss in inside), max(loss.loaded_ms for loss in inside)
            found.controls[after.number, partition] = [Control("Unload", first_ms), Control("Failover", last_ms)]
            insort(found.losses[partition], first_ms)


def _arrived_us(moment: RequestMoment) -> int:
    return moment.arrived_us


def _is_served_by_another(seen: Seen, known: Collection[int], before: RequestMoment, after: RequestMoment) -> bool:
    """Returns whether a shard that isn't known to have been lost was served in that time."""
    return any(
        before.answered_us < moment.arrived_us < after.arrived_us
        for partition, served in seen.served.items()
        if partition not in known
        for moment in served
    )


def lose_those_that_sent_members_away(
    requests: Sequence[RequestMoment],
    partitions: int,
    silences: Sequence[Silence],
    seen: Seen,
    found: LoggedAvailability,
) -> None:
    """Has a shard lost when members that waited in one of its groups were told so, where nobody else was.

    It is loaded again with others that were lost then, or when the silence after it ends.
    """
    for entry in requests:
        if entry.sent_away is None:
            continue
        partition = partition_for(entry.sent_away, partitions)
        lost_ms = entry.answered_us // 1000
        until_ms = lost_ms + _LONGEST_RESTART_MS
        if any(entry.arrived_us // 1000 <= loss_ms <= until_ms for loss_ms in found.losses[partition]):
            continue
        behind = (each for each in requests if each.arrived_us >= entry.answered_us)
        after = next((each for each in behind if each.is_list or partition in each.of_shards(partitions)), None)
        insort(found.losses[partition], lost_ms)
        if after is None:
            found.lost_at_end[partition] = lost_ms
            continue
        others_ms = [loss.loaded_ms for loss in seen.losses if lost_ms <= loss.loaded_ms <= until_ms]
        still_ms = [each.end_us // 1000 for each in silences if entry.answered_us <= each.start_us + SILENCE_US]
        loaded_ms = min([after.log_ts, max(others_ms, default=still_ms[0] if still_ms else after.log_ts)])
        rows = [Control("Unload", lost_ms), Control("Failover", max(loaded_ms, lost_ms + 1))]
        found.controls[after.number, partition] = rows + found.controls.get((after.number, partition), [])


def load_when_lists_say_so(requests: Sequence[RequestMoment], found: LoggedAvailability) -> None:
    """Has a shard that was lost loading when a list was refused because one was, of which nobody else was told.

    Source: GroupCoordinatorService.listGroups, which fails while a shard is loading.
    """
    if not any(entry.is_refused_list for entry in requests):
        return
    shards: dict[int, list[int]] = defaultdict(list)
    for number, partition in found.controls:
        shards[number].append(partition)
    back: dict[int, list[RequestMoment]] = defaultdict(list)
    for entry in requests:
        for partition in shards.get(entry.number, ()):
            if found.controls[entry.number, partition][0].api == "Failover":
                back[partition].append(entry)
    last: dict[int, str] = {}
    for entry in requests:
        for partition in shards.get(entry.number, ()):
            last[partition] = found.controls[entry.number, partition][-1].api
        if not entry.is_refused_list or "LoadGroup" in last.values():
            continue
        for partition in sorted(partition for partition, api in last.items() if api == "Unload"):
            first = next((each for each in back[partition] if each.arrived_us >= entry.arrived_us), None)
            if first is not None:
                found.controls[entry.number, partition] = [Control("LoadGroup", entry.log_ts)]
                _not_before(found.controls, (first.number, partition), entry.answered_us // 1000 + 1)
                last[partition] = "LoadGroup"
                break


def _not_before(controls: dict[tuple[int, int], list[Control]], key: tuple[int, int], at_ms: int) -> None:
    controls[key] = [control._replace(log_ts=max(control.log_ts, at_ms)) for control in controls[key]]
