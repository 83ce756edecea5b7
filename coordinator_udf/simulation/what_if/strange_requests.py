"""Finds what a member sends that no client of Kafka's would: what can't be simulated, for nothing tells why it does.

A heartbeat or SyncGroup has the generation or epoch that its member was told last, and a member joins once until it is
told that it has to again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.simulation.what_if.processes import LoggedProcess

#: What a coordinator refuses that a client of Kafka's never sends.
_NEVER_SENT = frozenset({Errors.INVALID_REQUEST, Errors.INVALID_GROUP_ID, Errors.INCONSISTENT_GROUP_PROTOCOL})

#: So many of the last values a request may have: an answer with the newest may be on its way when it goes out.
_CROSSING = 2


def strange_requests(process: LoggedProcess) -> Iterator[str]:
    """Yields in words, once at most, that a process sends what doesn't follow from what it was told."""
    told, odd = _Told(), 0
    for entry in process.entries:
        odd += _is_odd(told, entry) and (told.has_told or not process.is_older)
        told.note(entry)
    if odd:
        yield (
            f"why {process.name} ({process.run}) sends {odd} of {len(process.entries)} requests that don't follow "
            "from what it was told: no client of Kafka's does"
        )


class _Told:
    """The last two generations and epochs that each member was told: answers cross requests on their way."""

    def __init__(self) -> None:
        #: By field and member: each value with the number of the answer that told it last.
        self._last: defaultdict[tuple[str, str | None], dict[int, int]] = defaultdict(dict)
        self._answers = 0

    @property
    def has_told(self) -> bool:
        """Whether any generation or epoch was told: one that is older than its log was told its own before."""
        return any(self._last.values())

    def note(self, entry: Entry) -> None:
        """Takes over what a request was answered."""
        body = entry.response or {}
        if body.get("errorCode"):
            return
        self._answers += 1
        for field in body.keys() & {"generationId", "memberEpoch"}:
            last = self._last[field, entry.request.get("memberId")]
            last.pop(body[field], None)
            last[body[field]] = self._answers
            if len(last) > _CROSSING:
                del last[next(iter(last))]

    def last(self, entry: Entry, field: str) -> list[int]:
        """Returns the last values that a request's member had been told, also when it had no id yet."""
        of_member, of_none = self._last[field, entry.request.get("memberId")], self._last[field, ""]
        numbers = {value: max(of_member.get(value, 0), of_none.get(value, 0)) for value in of_member | of_none}
        return sorted(numbers, key=numbers.__getitem__)[-_CROSSING:]


def _is_odd(told: _Told, entry: Entry) -> bool:
    if (entry.response or {}).get("errorCode") in _NEVER_SENT:
        return True
    if entry.api in {"Heartbeat", "SyncGroup"}:
        return entry.request.get("generationId") not in told.last(entry, "generationId")
    if entry.api == "ConsumerGroupHeartbeat" and entry.request.get("memberEpoch", 0) > 0:
        return entry.request["memberEpoch"] not in told.last(entry, "memberEpoch")
    return False
