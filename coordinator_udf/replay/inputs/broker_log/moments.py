"""When the requests of a log came and were answered, and when nothing did."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from sys import intern
from typing import Any, NamedTuple

import numpy as np

from coordinator_udf.groups.model.classic_states import ClassicGroupState
from coordinator_udf.groups.model.consumer import ConsumerGroupState
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.partitioner import partition_for
from coordinator_udf.replay.inputs.broker_log.facts import ShardFinding, findings, member_that_waited, waited_until_loss
from coordinator_udf.replay.inputs.broker_log.line import Entry

#: How long nothing at all may happen in a log before that is a silence, in microseconds. Measured with 14 recorded logs
#: (tests/conformance/test_broker_logs.py): with half and with double every answer is judged as with this.
SILENCE_US = 1_000_000

#: A broker that was missed while it hung is told so, and loses its shards, within this time: half and double say the
#: same of the logs that were recorded for it.
TOLD_US = 5_000_000

#: What members ask besides, of which an answer without an error says that they are members.
_OF_MEMBERS = frozenset({"Heartbeat", "SyncGroup", "OffsetCommit", "ConsumerGroupHeartbeat"})
#: What describes the members of groups.
_DESCRIBING = frozenset({"DescribeGroups", "ConsumerGroupDescribe"})
#: The states of groups that have members.
_PEOPLED = frozenset({*ClassicGroupState, *ConsumerGroupState}) - {"Empty", "Dead"}


class RequestMoment(NamedTuple):
    """A request of the log: when it came, was handled and answered, and what its answer tells of shards.

    Attributes:
        findings: by group, in the order of the answer; of a list the groups that it has, for their shards are served.
        is_sync: whether it is a SyncGroup.
        is_list: whether it is a ListGroups that was answered without an error: no shard was loading then.
        is_refused_list: whether it is one that was told that a shard was loading.
        sent_away: the group in which a member waited until its shard was lost, if one did.
        joined: the id of a member that a group took in, or a classic group again, and its session timeout (ms); of
            groups of the consumer protocol None, for it is the broker's.
        stayed: the ids of members that there are by an answer, which another request was accepted of, or that are
            described.
        peopled: the groups that are listed, or described, as having members.
    """

    number: int
    connection: str
    arrived_us: int
    answered_us: int
    handled_by_us: int
    log_ts: int
    findings: tuple[tuple[str, ShardFinding], ...]
    is_sync: bool
    is_list: bool
    is_refused_list: bool
    sent_away: str | None
    joined: tuple[str, int | None] | None
    stayed: tuple[str, ...]
    peopled: tuple[str, ...]

    @classmethod
    def of(cls, entry: Entry) -> RequestMoment:
        """Returns the moment of an entry."""
        times = entry.arrived_us, entry.answered_us, entry.handled_by_us, entry.log_ts
        is_sync = entry.api == "SyncGroup"
        listed = entry.response if entry.api == "ListGroups" else None
        is_list = listed is not None and not listed.get("errorCode")
        return cls(
            entry.number,
            intern(entry.connection),
            *times,
            _listed(listed) if listed is not None and is_list else tuple(findings(entry)),
            is_sync,
            is_list,
            listed is not None and listed.get("errorCode") == Errors.COORDINATOR_LOAD_IN_PROGRESS,
            _sent_away(entry),
            _joined(entry),
            tuple(map(intern, _stayed(entry))),
            tuple(map(intern, _peopled(entry))),
        )

    @property
    def broker(self) -> str:
        """The address at which the broker was asked."""
        return self.connection.partition("-")[0]

    def of_shards(self, partitions: int) -> dict[int, ShardFinding]:
        """Returns what the answer tells of each shard; of several groups of one shard, what the first one tells."""
        return _shards_of_list(self.findings, partitions) if self.is_list else _shards_of(self.findings, partitions)


#: What is told of groups.
_Findings = tuple[tuple[str, ShardFinding], ...]


def _shards_of(found: _Findings, partitions: int) -> dict[int, ShardFinding]:
    of_shards: dict[int, ShardFinding] = {}
    for group_id, finding in found:
        of_shards.setdefault(partition_for(group_id, partitions), finding)
    return of_shards


# Lists are long, and mostly like the one before.
_shards_of_list = lru_cache(maxsize=16)(_shards_of)


def _listed(answer: Mapping[str, Any]) -> _Findings:
    return _all_served(tuple(group["groupId"] for group in answer.get("groups") or ()))


@lru_cache(maxsize=16)
def _all_served(group_ids: tuple[str, ...]) -> _Findings:
    return tuple((group_id, ShardFinding.SERVED) for group_id in group_ids)


def _sent_away(entry: Entry) -> str | None:
    error = None if entry.response is None else entry.response.get("errorCode")
    return entry.request.get("groupId") if error and waited_until_loss(entry, error) else None


def _joined(entry: Entry) -> tuple[str, int | None] | None:
    answer = entry.response
    if answer is None or answer.get("errorCode"):
        return None
    if entry.api == "ConsumerGroupHeartbeat" and not entry.request["memberEpoch"]:
        return intern(answer["memberId"]), None
    # Only a classic group names a leader; a consumer group takes in whoever comes with an id that it doesn't know.
    if entry.api == "JoinGroup" and answer["leader"]:
        return intern(answer["memberId"]), entry.request["sessionTimeoutMs"]
    return None


def _stayed(entry: Entry) -> Iterator[str]:
    answer, request = entry.response, entry.request
    if (waited := member_that_waited(entry)) is not None:
        yield waited
    if answer is None or answer.get("errorCode"):
        return
    if entry.api in _DESCRIBING:
        yield from (member["memberId"] for group in answer.get("groups") or () for member in group["members"])
    if entry.api not in _OF_MEMBERS or (entry.api == "ConsumerGroupHeartbeat" and request["memberEpoch"] <= 0):
        return
    of_partitions = (told.get("errorCode") for topic in answer.get("topics") or () for told in topic["partitions"])
    if request.get("memberId") and not any(of_partitions):
        yield request["memberId"]


def _peopled(entry: Entry) -> Iterator[str]:
    if entry.response is None or entry.api not in {"ListGroups", *_DESCRIBING}:
        return
    for group in entry.response.get("groups") or ():
        if group.get("groupState") in _PEOPLED:
            yield group["groupId"]


class Silence(NamedTuple):
    """A time in which nothing arrived and nothing was answered; in microseconds."""

    start_us: int
    end_us: int

    @property
    def length_us(self) -> int:
        """How long it was."""
        return self.end_us - self.start_us


def silences_of(requests: Iterable[RequestMoment | Entry]) -> list[Silence]:
    """Returns when nothing at all happened in a log for a second or longer."""
    moments_us = np.fromiter((us for each in requests for us in (each.arrived_us, each.answered_us)), np.int64)
    moments_us.sort()
    begins = np.flatnonzero(np.diff(moments_us) >= SILENCE_US)
    return [Silence(int(moments_us[place]), int(moments_us[place + 1])) for place in begins]


def silences_within(silences: Sequence[Silence], start_us: int, end_us: int) -> Sequence[Silence]:
    """Returns the silences that are wholly between two times."""
    first = bisect_left(silences, start_us, key=lambda silence: silence.start_us)
    last = bisect_right(silences, end_us, lo=first, key=lambda silence: silence.end_us)
    return silences[first:last]


def not_outlived(requests: Sequence[RequestMoment], silences: Iterable[Silence]) -> Iterator[Silence]:
    """Yields the silences after which there are requests, and nothing on a connection from before."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for entry in requests:
        name = entry.connection
        first[name] = min(first.get(name, entry.arrived_us), entry.arrived_us)
        last[name] = max(last.get(name, entry.answered_us), entry.answered_us)
    for silence in silences:
        begun = [name for name, first_us in first.items() if first_us <= silence.start_us]
        if begun and len(begun) < len(first) and all(last[name] <= silence.start_us for name in begun):
            yield silence


def silence_before(silences: Sequence[Silence], served_us: int, arrived_us: int) -> Silence | None:
    """Returns the last silence between a shard's last served request and another one."""
    place = bisect_right(silences, arrived_us, key=lambda silence: silence.end_us) - 1
    return silences[place] if place >= 0 and silences[place].start_us >= served_us else None
