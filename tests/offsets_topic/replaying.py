"""What a coordinator knows after replaying the rows of consumer_offsets: the yardstick for compaction and import.

Written after OffsetMetadataManager.replay and replayEndTransactionMarker, record by record, and so quite unlike the
window functions that it judges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

Key = tuple[str, str, int]
Commit = tuple[int, Mapping[str, Any]]


@dataclass
class State:
    offsets: dict[Key, Commit] = field(default_factory=dict)
    pending: dict[int, dict[Key, Commit]] = field(default_factory=dict)
    values: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    def replay(self, row: Mapping[str, Any]) -> None:
        kind = row["record_type"]
        if kind == "EndTxnMarker":
            self._end(row["producer_id"], committed='"committed":true' in row["other_value"])
        elif kind in ("OffsetCommit", "LegacyOffsetCommit"):
            self._commit(row)
        else:
            value = row["group_metadata"] if kind == "GroupMetadata" else row["other_value"]
            if value is None:
                self.values.pop(row["key"], None)
            else:
                self.values[row["key"]] = (row["value_version"], value)

    def _commit(self, row: Mapping[str, Any]) -> None:
        key = (row["group_id"], row["topic"], row["topic_partition"])
        if row["offset_commit"] is None:
            self.offsets.pop(key, None)
            for commits in self.pending.values():
                commits.pop(key, None)
        elif row["producer_id"] is None:
            self.offsets[key] = (row["offset"], row["offset_commit"])
        else:
            self.pending.setdefault(row["producer_id"], {})[key] = (row["offset"], row["offset_commit"])

    def _end(self, producer_id: int, *, committed: bool) -> None:
        for key, commit in self.pending.pop(producer_id, {}).items():
            if committed and (key not in self.offsets or commit[0] > self.offsets[key][0]):
                self.offsets[key] = commit

    def groups(self) -> dict[str, str]:
        """The groups that exist and their type; one of nothing but offsets is a simple, a classic one."""
        found = {group: "Classic" for group, _, _ in self.offsets}
        for key in self.values:
            if key.startswith('{"type":"GroupMetadata"'):
                found[_group(key)] = "Classic"
        for key in self.values:
            if key.startswith('{"type":"ConsumerGroupMetadata"'):
                found[_group(key)] = "Consumer"
        return found

    def known(self) -> tuple[Any, ...]:
        """All that there is to compare; an open transaction without a commit left is as good as none."""
        return self.offsets, {producer: commits for producer, commits in self.pending.items() if commits}, self.values


def replay_shards(rows: Iterable[Mapping[str, Any]]) -> dict[int, State]:
    """The state of each partition after the rows of one source."""
    shards: dict[int, State] = {}
    for row in sorted(rows, key=lambda row: (row["partition"], row["offset"])):
        shards.setdefault(row["partition"], State()).replay(row)
    return shards


def known(rows: Iterable[Mapping[str, Any]]) -> dict[int, tuple[Any, ...]]:
    """All that the coordinator of each partition knows after the rows of one source."""
    return {partition: shard.known() for partition, shard in replay_shards(rows).items()}


def replay(rows: Iterable[Mapping[str, Any]]) -> State:
    """The state of all partitions together, where no group is of two partitions."""
    whole = State()
    for shard in replay_shards(rows).values():
        whole.offsets |= shard.offsets
        whole.values |= shard.values
        for producer, commits in shard.pending.items():
            whole.pending.setdefault(producer, {}).update(commits)
    return whole


def _group(key: str) -> str:
    fields = msgspec.json.decode(key, type=dict[str, Any])
    return str(fields.get("group", fields.get("groupId")))
