"""What a broker's answers say of the time between two assignments of a consumer group (KIP-1263).

A member that joins is told the epoch of the assignment that there is then. It changes the group's epoch, so where it is
told an assignment that was there before, the interval was not over; and two assignments within a time say that the
interval is no longer.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.replay.explain.expiry_bounds import MOST, Bound
from coordinator_udf.replay.inputs.broker_log.line import Entry

INTERVAL: Final = "group.consumer.assignment.interval.ms"

_US: Final = 1_000
#: By so much the time of a line may be later than the answer was sent, in milliseconds.
_LATE_MS: Final = 50


class _Joined(NamedTuple):
    """When a member joined (ms), and the epoch of the assignment that there was then."""

    arrived_ms: int
    epoch: int


@dataclass(slots=True)
class _Group:
    """What is known of a group's assignments, by epoch: by when each was made, and after when (ms).

    Attributes:
        epochs: those of which the latter is known, in order.
    """

    made_by_ms: dict[int, int] = field(default_factory=dict)
    made_after_ms: dict[int, int] = field(default_factory=dict)
    epochs: list[int] = field(default_factory=list)
    joined: _Joined | None = None


class Assignments:
    """The assignments of consumer groups, as heartbeats are told them."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._members: set[str] = set()

    def note(self, entry: Entry, answer: Mapping[str, Any]) -> Iterator[Bound]:
        """Yields what a ConsumerGroupHeartbeat says, with those before it."""
        request, epoch, member_id = entry.request, answer.get("memberEpoch"), answer.get("memberId")
        if answer.get("errorCode") != Errors.NONE or not isinstance(epoch, int) or epoch <= 0 or not member_id:
            return
        group_id = str(request.get("groupId"))
        group = self._groups.setdefault(group_id, _Group())
        joined: _Joined | None = None
        if request.get("memberEpoch") == 0 and not request.get("instanceId") and member_id not in self._members:
            joined = _Joined(entry.arrived_us // _US, epoch)
            if group.joined is not None and epoch < group.joined.epoch:
                group = self._groups[group_id] = _Group()
        self._members.add(member_id)
        made_by_ms = group.made_by_ms.get(epoch)
        if made_by_ms is None:
            yield from _not_longer(group, entry, epoch)
        elif joined is not None and request.get("subscribedTopicNames"):
            least_ms = joined.arrived_ms - made_by_ms - _LATE_MS
            if least_ms > 0:
                yield Bound(entry.log_ts, INTERVAL, least_ms, MOST)
        group.joined = joined or group.joined


def _not_longer(group: _Group, entry: Entry, epoch: int) -> Iterator[Bound]:
    """Notes a new assignment; what it says with the one before."""
    by_ms = group.made_by_ms[epoch] = entry.answered_us // _US
    place = bisect_left(group.epochs, epoch)
    if place:
        earlier = group.epochs[place - 1]
        yield Bound(entry.log_ts, INTERVAL, 0, max(by_ms - group.made_after_ms[earlier] + _LATE_MS, 0))
    if group.joined is not None and group.joined.epoch < epoch:
        if epoch not in group.made_after_ms:
            insort(group.epochs, epoch)
        group.made_after_ms[epoch] = group.joined.arrived_ms
