"""Timers that a broker got to when it no longer led its shards: what they write fails, and changes nothing.

A broker that hangs is missed by the controller. When it goes on, its timers of meanwhile are due at once, and may come
before it unloads its shards, but after it heard that they aren't its own: then a member whose session is over stays in
its group's records, and has a new session where they are loaded. That of a classic group is removed without a record,
so it comes back as well, and nothing can be told by it.

Source: CoordinatorRuntime.EventBasedCoordinatorTimer, which tries again half a second later what could not be written;
by then the shard is unloaded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from coordinator_udf.protocol.partitioner import partition_for
from coordinator_udf.replay.inputs.broker_log.losses import TOLD_US, Control, LoggedAvailability
from coordinator_udf.replay.inputs.broker_log.moments import RequestMoment, Silence


class _Loss(NamedTuple):
    """When a shard was lost (us), and before which request that stands."""

    lost_us: int
    number: int


class _Due(NamedTuple):
    """A group of the consumer protocol that a session of a member ended in during a silence."""

    silence: Silence
    partition: int
    group_id: str


#: The shards that were lost right after a silence.
_Losses = Mapping[Silence, Mapping[int, _Loss]]


def keep_whose_timers_failed(
    requests: Sequence[RequestMoment],
    partitions: int,
    silences: Sequence[Silence],
    consumer_session_ms: int,
    found: LoggedAvailability,
) -> None:
    """Lets no session end in silences after which shards were lost, if a member was there later whose own did.

    Args:
        requests: the log in order.
        partitions: the number of shards.
        silences: of the log, in order.
        consumer_session_ms: the session timeout of members of the consumer protocol.
        found: its control rows are changed.
    """
    lost = _lost_after(silences, found)
    if not lost:
        return
    due: dict[_Due, None] = {}
    outlived: set[Silence] = set()
    for each, is_there in _ended(requests, partitions, lost, consumer_session_ms * 1_000):
        due[each] = None
        if is_there:
            outlived.add(each.silence)
    _put_off(requests, partitions, lost, [each for each in due if each.silence in outlived], found)


def _lost_after(silences: Sequence[Silence], found: LoggedAvailability) -> _Losses:
    lost: defaultdict[Silence, dict[int, _Loss]] = defaultdict(dict)
    for (number, partition), controls in found.controls.items():
        if controls[0].api != "Unload":
            continue
        loss = _Loss(controls[0].log_ts * 1_000, number)
        place = bisect_right(silences, loss.lost_us + 999, key=lambda silence: silence.end_us) - 1
        if place >= 0 and loss.lost_us - silences[place].end_us <= TOLD_US:
            of_silence = lost[silences[place]]
            of_silence[partition] = min(of_silence.get(partition, loss), loss)
    return lost


def _ended(
    requests: Sequence[RequestMoment], partitions: int, lost: _Losses, session_us: int
) -> Iterator[tuple[_Due, bool]]:
    """Yields where sessions ended in a silence, and whether that of a member did that is there later."""
    heard_us: dict[str, tuple[str, int]] = {}
    silences = sorted(lost)
    for entry in requests:
        group_id = entry.findings[0][0] if entry.findings else None
        while silences and entry.arrived_us >= silences[0].end_us:
            silence = silences.pop(0)
            for of_member, since_us in heard_us.values():
                partition = partition_for(of_member, partitions)
                loss = lost[silence].get(partition)
                if loss and silence.start_us <= since_us + session_us <= loss.lost_us:
                    yield _Due(silence, partition, of_member), False
        if group_id is None:
            continue
        partition = partition_for(group_id, partitions)
        for member_id in entry.stayed:
            if member_id not in heard_us:
                continue
            since_us = heard_us[member_id][1]
            for silence, shards in lost.items():
                loss = shards.get(partition)
                if loss and since_us <= silence.start_us <= since_us + session_us <= loss.lost_us < entry.arrived_us:
                    yield _Due(silence, partition, group_id), True
            if not (entry.peopled or entry.is_commit):
                # Who is described isn't heard.
                heard_us[member_id] = group_id, entry.log_ts * 1_000
        if entry.joined is not None and entry.joined[1] is None:
            heard_us[entry.joined[0]] = group_id, entry.log_ts * 1_000


def _put_off(
    requests: Sequence[RequestMoment], partitions: int, lost: _Losses, due: Iterable[_Due], found: LoggedAvailability
) -> None:
    """Puts timers of groups off until their shards are lost."""
    groups: defaultdict[tuple[Silence, int], list[str]] = defaultdict(list)
    for silence, partition, group_id in due:
        groups[silence, partition].append(group_id)
    for (silence, partition), group_ids in groups.items():
        at_ms = silence.start_us // 1_000
        until_ms = lost[silence][partition].lost_us // 1_000 + 1
        behind = (each for each in requests if each.arrived_us >= silence.end_us)
        first = next(each.number for each in behind if partition in each.of_shards(partitions))
        bodies = ({"groupId": group_id, "untilMs": until_ms} for group_id in sorted(group_ids))
        rows = [Control("DelayTimers", at_ms, body) for body in bodies]
        found.controls[first, partition] = rows + found.controls.get((first, partition), [])
