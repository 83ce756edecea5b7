"""What a broker's answers tell of the shards that gave them: served, loading, or not the broker's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.partitioner import DEFAULT_PARTITIONS, partition_for
from coordinator_udf.protocol.requests import SPANNING
from coordinator_udf.replay.inputs.broker_log.line import GROUP_APIS, Entry
from coordinator_udf.replay.judge.compare import coordinator_error

#: A JoinGroup or SyncGroup that waited this long, in microseconds, until its shard was said to be another broker's was
#: answered by what happened later, not by what it found. Measured with 14 recorded logs
#: (tests/conformance/test_broker_logs.py): with half and with double every answer is judged as with this.
_WAITED_US = 500_000
#: One whose answer names the member was surely in its group: a broker that has the shard no more names none (those
#: before 4.0 repeat the id that they were sent, but at once).
_NAMED_US = 2_000
#: The numbers of shards that are looked at where a log doesn't tell its own.
_CANDIDATES = range(1, 101)
#: As many shards as a group id's hash has values: a group's place among them is the hash itself.
_ALL_HASHES = 2**31


class ShardFinding(Enum):
    """What an answer tells of the shard that gave it."""

    SERVED = "served"
    LOADING = "loading"
    NOT_OURS = "not ours"
    #: Served or loading: a loading coordinator answers heartbeats as if all were well, and has members sync again.
    SERVED_OR_LOADING = "served or loading"
    NOTHING = "nothing"


#: What is found where a shard is lost.
LOST = frozenset({ShardFinding.LOADING, ShardFinding.NOT_OURS})
_FOUND: dict[int, ShardFinding] = {
    Errors.NOT_COORDINATOR: ShardFinding.NOT_OURS,
    Errors.COORDINATOR_LOAD_IN_PROGRESS: ShardFinding.LOADING,
}
#: What is refused before the coordinator looks at its shards says nothing of them.
_EARLY = frozenset(
    {
        Errors.INVALID_GROUP_ID,
        Errors.INVALID_SESSION_TIMEOUT,
        Errors.INVALID_REQUEST,
        Errors.UNSUPPORTED_VERSION,
        Errors.UNSUPPORTED_ASSIGNOR,
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.UNKNOWN_TOPIC_ID,
    }
)


def findings(entry: Entry) -> Iterator[tuple[str, ShardFinding]]:
    """Yields what an entry's answer tells, by the groups that it was asked about."""
    if entry.response is None or entry.api not in GROUP_APIS or entry.api == "ListGroups":
        return
    spanning = entry.api in SPANNING or entry.api == "ConsumerGroupDescribe"
    if not spanning or (entry.api == "OffsetFetch" and "groups" not in entry.response):
        group_id = entry.request.get("groupId")
        if isinstance(group_id, str):
            yield group_id, _finding(entry, coordinator_error(entry.response))
        return
    groups: list[dict[str, Any]] = [*(entry.response.get("groups") or ()), *(entry.response.get("results") or ())]
    for group in groups:
        if "errorCode" in group:
            yield group["groupId"], _finding(entry, group["errorCode"])


def reaches_shard(entry: Entry) -> bool:
    """Returns whether an answer was given by a shard, and not before one had the request in hands."""
    return any(finding is not ShardFinding.NOTHING for _, finding in findings(entry))


def likely_partitions(found: Iterable[tuple[str, ShardFinding]]) -> int:
    """Returns the number of shards that contradicts the answers least; Kafka's default if it is one.

    Groups of one shard are lost and served together. With a wrong number, groups share a shard that don't in truth,
    and it seems lost more often than each of them.

    Args:
        found: what answers tell, by group, in the order of the log.
    """
    telling = [
        (partition_for(group_id, _ALL_HASHES), finding in LOST)
        for group_id, finding in found
        if finding in LOST or finding is ShardFinding.SERVED
    ]
    if not any(is_lost for _, is_lost in telling):
        return DEFAULT_PARTITIONS
    places, lost = (np.array(column, dtype=np.int64) for column in zip(*telling, strict=True))
    groups, own = np.unique(_losses(places, lost), return_counts=True)
    contradictions = {
        count: len(_losses(np.remainder(places, count), lost)) - _most_of_a_group(groups, own, count)
        for count in _CANDIDATES
    }
    return min(contradictions, key=lambda count: (contradictions[count], count != DEFAULT_PARTITIONS, -count))


def _most_of_a_group(groups: NDArray[np.int64], own: NDArray[np.int64], partitions: int) -> int:
    """Returns how often shards are lost if each is as often as that of its groups which is so most often."""
    most = np.zeros(partitions, np.int64)
    np.maximum.at(most, np.remainder(groups, partitions), own)
    return int(most.sum())


def _losses(shards: NDArray[np.int64], lost: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the shards that were lost when they were served before, or not asked; each as often as it was."""
    by_shard = np.argsort(shards, kind="stable")
    shards, lost = shards[by_shard], lost[by_shard]
    goes_on = np.diff(shards, prepend=-1) == 0
    was_lost = np.where(goes_on, np.roll(lost, 1), 0)
    found: NDArray[np.int64] = shards[(lost == 1) & (was_lost == 0)]
    return found


def waited_until_loss(entry: Entry, error: int) -> bool:
    """Returns whether a request waited in its group until the shard was lost, which is all that it is told."""
    may_wait = error == Errors.NOT_COORDINATOR and entry.api in {"JoinGroup", "SyncGroup"}
    return may_wait and entry.remote_us > (_NAMED_US if _names_member(entry) else _WAITED_US)


def member_that_waited(entry: Entry) -> str | None:
    """Returns the id of a member that came back to its group, and waited in it until the shard was lost.

    Source: GroupMetadataManager.onUnloaded, which answers who waits in a group with the member's id.
    """
    has_waited = _names_member(entry) and waited_until_loss(entry, coordinator_error(entry.response or {}))
    return entry.request["memberId"] or None if has_waited else None


def _names_member(entry: Entry) -> bool:
    return entry.api == "JoinGroup" and entry.response is not None and bool(entry.response.get("memberId"))


def _finding(entry: Entry, error: int) -> ShardFinding:
    found = _FOUND.get(error)
    if found is not None:
        if not waited_until_loss(entry, error):
            return found
        return ShardFinding.SERVED if _names_member(entry) else ShardFinding.NOTHING
    if entry.api == "Heartbeat" and error == Errors.NONE:
        return ShardFinding.SERVED_OR_LOADING
    if entry.api == "SyncGroup" and error == Errors.REBALANCE_IN_PROGRESS:
        return ShardFinding.SERVED_OR_LOADING
    return ShardFinding.NOTHING if error in _EARLY else ShardFinding.SERVED
