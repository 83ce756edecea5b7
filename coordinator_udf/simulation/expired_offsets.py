"""Whether Kafka would have deleted committed offsets: their retention was over, and nobody was there who needs them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from coordinator_udf.groups.decisions import PLACES, Row
from coordinator_udf.members.inputs import Subscribe, TopicPartition
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.violation import Violation

_RECORD = PLACES["records"]
_TRANSITION = PLACES["transitions"]


class _Deleted(NamedTuple):
    """A committed offset that the coordinator deleted by a record."""

    ts_ms: int
    group_id: str
    partition: TopicPartition
    committed_ms: int


def deleted_too_early(history: History) -> Iterator[Violation]:
    """Yields the offsets that the coordinator deleted though their topics were there and their retention wasn't over.

    Told from what applications were told and which states groups had, and not from what decided it (KIP-211): what a
    member owns stays, and in a classic group that is empty all stays that long since it is.
    """
    told = {(commit.group_id, commit.partition) for commit in history.lost}
    for one in _deleted(history):
        if (one.group_id, one.partition) in told:
            continue
        topic = one.partition.topic
        is_gone = any(name == topic and one.committed_ms <= at_ms <= one.ts_ms for at_ms, name in history.deleted)
        if not is_gone and not _may_go(history, one):
            age_ms = one.ts_ms - one.committed_ms
            detail = f"what was committed of {topic}-{one.partition.partition} {age_ms} ms ago was deleted"
            yield Violation(one.ts_ms, one.group_id, "lost commit", detail)


def _deleted(history: History) -> Iterator[_Deleted]:
    # Most worlds have none.
    deleted_ms = [row[_RECORD["ts"]] for row in _offsets(history) if row[_RECORD["body"]] is None]
    if not deleted_ms:
        return
    committed_ms = {}
    for row in _offsets(history):
        ts_ms, group_id, topic, partition, body = (
            row[_RECORD[name]] for name in ("ts", "group_id", "topic", "topic_partition", "body")
        )
        place = group_id, TopicPartition(topic, partition)
        if body is not None:
            committed_ms[place] = ts_ms
        elif place in committed_ms:
            yield _Deleted(ts_ms, *place, committed_ms.pop(place))


def _offsets(history: History) -> Iterator[Row]:
    for decided in history.decisions:
        for row in decided.records:
            if row[_RECORD["record_type"]] == "OffsetCommit":
                yield row


def _may_go(history: History, one: _Deleted) -> bool:
    if one.ts_ms - one.committed_ms < history.retention_ms:
        return False
    empty_ms = _empty_since_ms(history, one.group_id, one.ts_ms)
    if empty_ms is None:
        return not _has_owner(history, one)
    # In a group of KIP-848 it counts from the commit, also where the group has been empty for less.
    return _had_kip_848(history, one) or one.ts_ms - empty_ms >= history.retention_ms


def _empty_since_ms(history: History, group_id: str, ts_ms: int) -> int | None:
    """Returns since when a group has had no members at a time; None if it has some."""
    since_ms = None
    for row in history.transitions():
        if row[_TRANSITION["group_id"]] != group_id or row[_TRANSITION["ts"]] > ts_ms:
            continue
        if row[_TRANSITION["to_state"]] not in {"Empty", "Dead"}:
            since_ms = None
        elif since_ms is None:
            since_ms = row[_TRANSITION["ts"]]
    return since_ms


def _had_kip_848(history: History, one: _Deleted) -> bool:
    return any(
        event.process in history.kip_848
        for event in history.events
        if event.group_id == one.group_id and event.ts_ms <= one.ts_ms
    )


def _has_owner(history: History, one: _Deleted) -> bool:
    """Tells whether an application of a group owns a partition, and the coordinator hasn't removed its member."""
    owners: dict[str, int] = {}
    for event in history.events:
        if event.group_id != one.group_id or event.ts_ms > one.ts_ms:
            continue
        if event.event == "assigned" and one.partition in event.partitions:
            owners[event.process] = event.ts_ms
        elif event.event in {"start", "close", "closed", "crash"} or one.partition in event.partitions:
            owners.pop(event.process, None)
    ended = (*history.removals, *history.dismissals, *history.replacements)
    removed = {(history.process_of.get(it.member_id), it.ts_ms) for it in ended if it.ts_ms <= one.ts_ms}
    return any(
        _wants(history, process, one.partition.topic)
        and _is_member(history, process, one.ts_ms)
        and not any(name == process and ts_ms >= given_ms for name, ts_ms in removed)
        for process, given_ms in owners.items()
    )


def _is_member(history: History, process: str, ts_ms: int) -> bool:
    """Tells whether a process's member has not left by itself, of which its application hears only when it polls."""
    known = history.membership_at(process, ts_ms)
    return known is not None and known.number > 0


def _wants(history: History, process: str, topic: str) -> bool:
    """Tells whether a topic is among those that a process subscribed to last; a pattern may match any."""
    last = history.subscribed.get(process)
    return not isinstance(last, Subscribe) or topic in last.topics
