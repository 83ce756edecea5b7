"""Finds what a member sends that no client of Kafka's would: what can't be simulated, for nothing tells why it does.

A heartbeat or SyncGroup has the generation or epoch that its member was told last, and a member joins once until it is
told that it has to again.
"""

from __future__ import annotations

from collections.abc import Iterator

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.simulation.what_if.processes import Process

#: What a coordinator refuses that a client of Kafka's never sends.
_NEVER_SENT = frozenset({Errors.INVALID_REQUEST, Errors.INVALID_GROUP_ID, Errors.INCONSISTENT_GROUP_PROTOCOL})


def strange_requests(process: Process) -> Iterator[str]:
    """Yields in words, once at most, that a process sends what doesn't follow from what it was told."""
    odd = sum(_is_odd(process.entries[:place], entry) for place, entry in enumerate(process.entries))
    if odd:
        yield (
            f"why {process.client_id} ({process.run}) sends {odd} of {len(process.entries)} requests that don't follow "
            "from what it was told: no client of Kafka's does"
        )


def _is_odd(before: list[Entry], entry: Entry) -> bool:
    if (entry.response or {}).get("errorCode") in _NEVER_SENT:
        return True
    if entry.api in {"Heartbeat", "SyncGroup"}:
        return entry.request.get("generationId") not in _told(before, entry, "generationId")
    if entry.api == "ConsumerGroupHeartbeat" and entry.request.get("memberEpoch", 0) > 0:
        return entry.request["memberEpoch"] not in _told(before, entry, "memberEpoch")
    return False


def _told(before: list[Entry], entry: Entry, field: str) -> set[int]:
    """Returns the last two generations or epochs that a member had been told: answers cross requests on their way."""
    told = [
        body[field]
        for earlier in before
        if not (body := earlier.response or {}).get("errorCode")
        and field in body
        and earlier.request.get("memberId") in {entry.request.get("memberId"), ""}
    ]
    return set(list(dict.fromkeys(reversed(told)))[:2])
