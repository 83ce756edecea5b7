"""What a broker's answers say of its settings: each bounds one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.replay.explain.assignment_bounds import Assignments
from coordinator_udf.replay.explain.delay_bounds import InitialDelays
from coordinator_udf.replay.explain.expiry_bounds import MOST, Bound, Offsets
from coordinator_udf.replay.explain.session_bounds import Sessions
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.inputs.broker_log.undecided import LogFacts
from coordinator_udf.settings.coordinator import Settings

SIZE: Final = "group.max.size"
#: How many members a group had that took one more, and one that took no more.
JOINED, FULL = f"{SIZE}, joined", f"{SIZE}, refused"

#: Session timeouts that are refused below Kafka's default of the shortest are taken to be too short, others too long.
_SHORT_SESSION_MS: Final = Settings().group_min_session_timeout_ms
_CAPACITY: Final = re.compile(r"maximum capacity of (\d+) members")


def bounds_of(facts: LogFacts) -> Iterator[Bound]:
    """Yields what the answers of a log say of settings, or those of some shards of it."""
    known = list(facts.entries.values())
    mixed = {
        str(entry.request.get("groupId"))
        for entry in known
        if entry.api == "ConsumerGroupHeartbeat" and entry.response and entry.response.get("errorCode") == Errors.NONE
    }
    sizes: dict[str, int] = {}
    assignments, delays = Assignments(), InitialDelays()
    sessions, offsets = Sessions(facts.was_lost), Offsets(facts.deleted_topics, mixed)
    for entry in known:
        if entry.response is None:
            continue
        if entry.api == "JoinGroup":
            yield from _of_session(entry, entry.response)
            # A group that was one of KIP-848 for a while has that protocol's limits, and no initial delay.
            if entry.request.get("groupId") not in mixed:
                yield from _of_join(entry, entry.response, sizes)
                delays.note(entry, entry.response)
        elif entry.api == "ConsumerGroupHeartbeat":
            yield from _of_heartbeat(entry, entry.response)
            yield from sessions.note(entry, entry.response)
            yield from assignments.note(entry, entry.response)
        elif entry.api == "ConsumerGroupDescribe":
            for group in entry.response.get("groups") or ():
                yield from sessions.note_described(entry, group)
        elif entry.api == "LeaveGroup":
            sessions.forget(entry.request)
        elif entry.api == "OffsetCommit":
            yield from _of_commit(entry, entry.response)
        yield from offsets.note(entry, entry.response)
    yield from delays.bounds()


def _of_session(entry: Entry, answer: dict[str, Any]) -> Iterator[Bound]:
    error = answer.get("errorCode")
    session_ms = entry.request.get("sessionTimeoutMs")
    shortest, longest = "group.min.session.timeout.ms", "group.max.session.timeout.ms"
    ts = entry.log_ts
    if isinstance(session_ms, int) and error in {Errors.NONE, Errors.MEMBER_ID_REQUIRED}:
        yield Bound(ts, shortest, 0, session_ms)
        yield Bound(ts, longest, session_ms, MOST)
    elif isinstance(session_ms, int) and error == Errors.INVALID_SESSION_TIMEOUT:
        is_short = session_ms < _SHORT_SESSION_MS
        yield Bound(ts, shortest, session_ms + 1, MOST) if is_short else Bound(ts, longest, 0, max(session_ms - 1, 0))


def _of_join(entry: Entry, answer: dict[str, Any], sizes: dict[str, int]) -> Iterator[Bound]:
    """Yields what an answer to a member of a classic group says.

    ``sizes`` are the groups' numbers of members so far.
    """
    error, ts = answer.get("errorCode"), entry.log_ts
    members = answer.get("members") or ()
    group_id = str(entry.request.get("groupId"))
    sizes[group_id] = len(members) or sizes.get(group_id, 0)
    if error == Errors.NONE and members:
        yield Bound(ts, JOINED, len(members), MOST)
    elif error == Errors.GROUP_MAX_SIZE_REACHED:
        yield Bound(ts, FULL, sizes[group_id], sizes[group_id])


def _of_heartbeat(entry: Entry, answer: dict[str, Any]) -> Iterator[Bound]:
    interval_ms = answer.get("heartbeatIntervalMs")
    if answer.get("errorCode") == Errors.NONE and isinstance(interval_ms, int) and interval_ms > 0:
        yield Bound(entry.log_ts, "group.consumer.heartbeat.interval.ms", interval_ms, interval_ms)
    full = _CAPACITY.search(answer.get("errorMessage") or "")
    if full is not None:
        yield Bound(entry.log_ts, "group.consumer.max.size", int(full[1]), int(full[1]))


def _of_commit(entry: Entry, answer: dict[str, Any]) -> Iterator[Bound]:
    asked = {
        (topic.get("name") or topic.get("topicId"), partition["partitionIndex"]): partition
        for topic in entry.request.get("topics") or ()
        for partition in topic.get("partitions") or ()
    }
    for topic in answer.get("topics") or ():
        for told in topic.get("partitions") or ():
            partition = asked.get((topic.get("name") or topic.get("topicId"), told["partitionIndex"]), {})
            length = len(partition.get("committedMetadata") or "")
            if told.get("errorCode") == Errors.NONE:
                if length:
                    yield Bound(entry.log_ts, "offset.metadata.max.bytes", length, MOST)
            elif told.get("errorCode") == Errors.OFFSET_METADATA_TOO_LARGE and length:
                yield Bound(entry.log_ts, "offset.metadata.max.bytes", 0, length - 1)
