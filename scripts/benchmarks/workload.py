"""Requests of groups that live: who joins, syncs, beats and commits, as columns of the request log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from coordinator_udf.protocol.log_row import Request
from coordinator_udf.protocol.partitioner import partition_for

#: Log time at which every workload begins, milliseconds.
START_MS = 1_700_000_000_000
SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 300_000

# A consumer's subscription to the topic t0, and an assignment of its partition 0, in base64.
_SUBSCRIPTION = "AAMAAAABAAJ0MP////8AAAAA/////w=="
_ASSIGNMENT = "AAEAAAABAAJ0MAAAAAEAAAABAAAAAA=="

_encode = msgspec.json.Encoder().encode

Columns = dict[str, list[Any]]


@dataclass(slots=True)
class Group:
    """A group whose first member leads. The session timeout is in milliseconds."""

    group_id: str
    partition: int
    member_ids: list[str]
    generation_id: int = 0
    session_timeout_ms: int = SESSION_TIMEOUT_MS


@dataclass(slots=True)
class Rows:
    """Rows of one shard, as columns that grow.

    Attributes:
        next_offset: the offset of the next row.
    """

    partition: int
    next_offset: int = 0
    columns: Columns = field(default_factory=lambda: {name: [] for name in Request._fields})

    def add(self, api: str, version: int, log_ts: int, **fields: Any) -> None:
        """Adds a request."""
        row = Request(
            self.partition, self.next_offset, log_ts, f"{self.partition}-{self.next_offset}", api, version,
            client_id="consumer", client_host="/10.0.0.1", parts=1, **fields,
        )  # fmt: skip
        self.next_offset += 1
        for name, value in zip(Request._fields, row, strict=True):
            self.columns[name].append(value)

    def take(self) -> Columns:
        """Returns the rows that were added since the last call."""
        columns = self.columns
        self.columns = {name: [] for name in Request._fields}
        return columns


def make_groups(groups: int, members: int, shards: int) -> list[list[Group]]:
    """Returns groups by the shard that they belong to."""
    by_shard: list[list[Group]] = [[] for _ in range(shards)]
    for number in range(groups):
        group_id = f"bench-group-{number}"
        partition = partition_for(group_id, shards)
        ids = [f"consumer-{number:06d}-{i:04d}-4a53-8c7e-{number:012d}" for i in range(members)]
        by_shard[partition].append(Group(group_id, partition, ids))
    return by_shard


def add_new_members(rows: Rows, groups: Sequence[Group], ts: int) -> None:
    """Has every member of new groups ask for its id and join with it, as clients since 2.2 do."""
    for group in groups:
        for member_id in group.member_ids:
            asks = {"group_id": group.group_id, "member_id": "", "proposed_member_id": member_id}
            rows.add("JoinGroup", 9, ts, **asks, body=_join(group, ""))
        for member_id in group.member_ids:
            rows.add("JoinGroup", 9, ts, group_id=group.group_id, member_id=member_id, body=_join(group, member_id))


def add_joins(rows: Rows, group: Group, ts: int) -> None:
    """Has all members of a stable group join again, the leader first: that begins a rebalance."""
    for member_id in group.member_ids:
        rows.add("JoinGroup", 9, ts, group_id=group.group_id, member_id=member_id, body=_join(group, member_id))


def add_syncs(rows: Rows, group: Group, ts: int) -> None:
    """Has all members of a group sync in the generation that follows; the leader brings the assignment."""
    group.generation_id += 1
    for member_id in group.member_ids:
        leads = member_id == group.member_ids[0]
        rows.add(
            "SyncGroup", 5, ts, group_id=group.group_id, member_id=member_id,
            generation_or_epoch=group.generation_id, body=_sync(group, member_id, leads),
        )  # fmt: skip


def add_heartbeats(rows: Rows, groups: Sequence[Group], ts: int, spread_ms: int) -> None:
    """Adds one heartbeat of each member, evenly over the given time."""
    beats = sum(len(group.member_ids) for group in groups)
    number = 0
    for group in groups:
        for member_id in group.member_ids:
            rows.add(
                "Heartbeat", 4, ts + number * spread_ms // beats, group_id=group.group_id, member_id=member_id,
                generation_or_epoch=group.generation_id,
            )  # fmt: skip
            number += 1


def add_commits(rows: Rows, groups: Sequence[Group], ts: int, offset: int) -> None:
    """Commits one partition for each member."""
    for group in groups:
        for index, member_id in enumerate(group.member_ids):
            rows.add(
                "OffsetCommit", 8, ts, group_id=group.group_id, member_id=member_id,
                generation_or_epoch=group.generation_id, body=commit_body(group, member_id, index, offset),
            )  # fmt: skip


def life(rows: Rows, groups: Sequence[Group]) -> Iterator[Columns]:
    """Yields the calls that make new groups stable; they take six seconds of log time."""
    add_new_members(rows, groups, START_MS)
    yield rows.take()
    # Past the initial delay twice: it is prolonged where members came meanwhile.
    for seconds in (3, 6):
        rows.add("Tick", 0, START_MS + seconds * 1_000)
    for group in groups:
        add_syncs(rows, group, START_MS + 6_000)
    yield rows.take()


def _join(group: Group, member_id: str) -> str:
    body = {
        "groupId": group.group_id,
        "sessionTimeoutMs": group.session_timeout_ms,
        "rebalanceTimeoutMs": REBALANCE_TIMEOUT_MS,
        "memberId": member_id,
        "groupInstanceId": None,
        "protocolType": "consumer",
        "protocols": [{"name": "range", "metadata": _SUBSCRIPTION}],
        "reason": None,
    }
    return _encode(body).decode()


def _sync(group: Group, member_id: str, leads: bool) -> str:
    assignments = [{"memberId": one, "assignment": _ASSIGNMENT} for one in group.member_ids] if leads else []
    body = {
        "groupId": group.group_id,
        "generationId": group.generation_id,
        "memberId": member_id,
        "groupInstanceId": None,
        "protocolType": "consumer",
        "protocolName": "range",
        "assignments": assignments,
    }
    return _encode(body).decode()


def commit_body(group: Group, member_id: str, partition: int, offset: int) -> str:
    """Returns an OffsetCommit of one partition of the topic t0."""
    committed = {
        "partitionIndex": partition,
        "committedOffset": offset,
        "committedLeaderEpoch": -1,
        "committedMetadata": "",
    }
    body = {
        "groupId": group.group_id,
        "generationIdOrMemberEpoch": group.generation_id,
        "memberId": member_id,
        "groupInstanceId": None,
        "topics": [{"name": "t0", "partitions": [committed]}],
    }
    return _encode(body).decode()
