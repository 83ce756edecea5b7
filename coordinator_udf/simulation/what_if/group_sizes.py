"""How many members a group may have, of a log in which somebody was refused because it was full."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.simulation.what_if.processes import LoggedProcess, arrived_ms


def size_settings(processes: Iterable[LoggedProcess]) -> dict[str, Any]:
    """Returns the settings that refused members of a group (GROUP_MAX_SIZE_REACHED), under Kafka's names."""
    entries = sorted((entry for process in processes for entry in process.entries), key=arrived_ms)
    settings: dict[str, Any] = {}
    if any(_is_refused(entry) for entry in entries if entry.api == "JoinGroup"):
        settings["group.max.size"] = max(1, _largest_generation(entries))
    full = list(_sizes_when_refused(entries))
    if full:
        settings["group.consumer.max.size"] = max(1, min(full))
    return settings


def _is_refused(entry: Entry) -> bool:
    return (entry.response or {}).get("errorCode") == Errors.GROUP_MAX_SIZE_REACHED


def _largest_generation(entries: Iterable[Entry]) -> int:
    """Returns how many members a generation had at most: a group that refuses others has been full.

    Numbers begin anew with a group that is made again. Who joins twice, also as the next process of a static member,
    has one place.
    """
    members: dict[tuple[int, int], set[str]] = defaultdict(set)
    life, number = 0, 0
    for entry in entries:
        if entry.api == "JoinGroup" and entry.response and not entry.response["errorCode"]:
            life += entry.response["generationId"] < number
            number = entry.response["generationId"]
            members[life, number].add(entry.request.get("groupInstanceId") or entry.response["memberId"])
    return max(map(len, members.values()), default=0)


def _sizes_when_refused(entries: Sequence[Entry]) -> Iterable[int]:
    """Yields how many members of KIP-848 there were each time that one was refused.

    One whose session is over counts as long as the log doesn't say that it has left: the least of all is right.
    """
    members: set[str] = set()
    for entry in entries:
        if entry.api != "ConsumerGroupHeartbeat":
            continue
        body = entry.response or {"errorCode": -1}
        if _is_refused(entry):
            yield len(members)
        elif entry.request.get("memberEpoch") == -1:
            members.discard(entry.request["memberId"])
        elif not body["errorCode"]:
            members.add(body.get("memberId") or entry.request["memberId"])
