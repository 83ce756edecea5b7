"""When the requests of a log came and were answered, and when nothing did."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from sys import intern
from typing import NamedTuple

from coordinator_udf.protocol.partitioner import partition_for
from coordinator_udf.replay.inputs.broker_log.facts import ShardFinding, findings, waited_until_loss
from coordinator_udf.replay.inputs.broker_log.line import Entry

#: How long nothing at all may happen in a log before that is a silence, in microseconds. Measured with 14 recorded logs
#: (tests/conformance/test_broker_logs.py): with half and with double every answer is judged as with this.
SILENCE_US = 1_000_000


class RequestMoment(NamedTuple):
    """A request of the log: when it came, was handled and answered, and what its answer tells of shards.

    Attributes:
        findings: by group, in the order of the answer.
        is_sync: whether it is a SyncGroup.
        is_list: whether it is a ListGroups that was answered without an error: no shard was loading then.
        sent_away: the group in which a member waited until its shard was lost, if one did.
        joined: the member id of a JoinGroup that a classic group accepted, and its session timeout (ms).
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
    sent_away: str | None
    joined: tuple[str, int] | None

    @classmethod
    def of(cls, entry: Entry) -> RequestMoment:
        """Returns the moment of an entry."""
        times = entry.arrived_us, entry.answered_us, entry.handled_by_us, entry.log_ts
        is_sync = entry.api == "SyncGroup"
        is_list = entry.api == "ListGroups" and entry.response is not None and not entry.response.get("errorCode")
        joined = _joined(entry) if entry.api == "JoinGroup" else None
        return cls(
            entry.number,
            intern(entry.connection),
            *times,
            tuple(findings(entry)),
            is_sync,
            is_list,
            _sent_away(entry),
            joined,
        )

    @property
    def broker(self) -> str:
        """The address at which the broker was asked."""
        return self.connection.partition("-")[0]

    def of_shards(self, partitions: int) -> dict[int, ShardFinding]:
        """Returns what the answer tells of each shard; of several groups of one shard, what the first one tells."""
        found: dict[int, ShardFinding] = {}
        for group_id, finding in self.findings:
            found.setdefault(partition_for(group_id, partitions), finding)
        return found


def _sent_away(entry: Entry) -> str | None:
    error = None if entry.response is None else entry.response.get("errorCode")
    return entry.request.get("groupId") if error and waited_until_loss(entry, error) else None


def _joined(entry: Entry) -> tuple[str, int] | None:
    # Only a classic group names a leader; a consumer group takes in whoever comes with an id that it doesn't know.
    if entry.response is None or entry.response["errorCode"] or not entry.response["leader"]:
        return None
    return intern(entry.response["memberId"]), entry.request["sessionTimeoutMs"]


class Silence(NamedTuple):
    """A time in which nothing arrived and nothing was answered; in microseconds."""

    start_us: int
    end_us: int


def silences_of(requests: Sequence[RequestMoment]) -> list[Silence]:
    """Returns when nothing at all happened in a log for a second or longer."""
    moments = sorted({moment for entry in requests for moment in (entry.arrived_us, entry.answered_us)})
    return [Silence(start, end) for start, end in pairwise(moments) if end - start >= SILENCE_US]


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
