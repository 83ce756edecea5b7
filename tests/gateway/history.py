"""What must hold of everything that a coordinator ever did, kills and all, by its tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from deltalake import DeltaTable

from coordinator_udf.protocol.consumer_protocol import decode_assignment

#: Group, topic, partition, offset.
Commit = tuple[str, str, int, int]
_CURRENT = "ConsumerGroupCurrentMemberAssignment"


def records(tables: Path) -> list[dict[str, Any]]:
    """The offsets topic, each partition in its order."""
    rows: list[dict[str, Any]] = DeltaTable(str(tables / "consumer_offsets")).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def assert_each_number_once(rows: Iterable[Mapping[str, Any]]) -> None:
    places = [(row["partition"], row["offset"]) for row in rows]
    assert len(places) == len(set(places))


def assert_commits_are_there(rows: Iterable[Mapping[str, Any]], acknowledged: Iterable[Commit]) -> None:
    stored = {
        (row["group_id"], row["topic"], row["topic_partition"], row["offset_commit"]["offset"])
        for row in rows
        if row["record_type"] == "OffsetCommit" and row["offset_commit"] is not None
    }
    lost = set(acknowledged) - stored
    assert not lost, f"acknowledged, and not in the table: {sorted(lost)}"


def assert_one_owner(rows: Iterable[Mapping[str, Any]]) -> int:
    """No partition has two owners in a generation, or at any moment of a consumer group; how many were looked at."""
    owned: dict[str, dict[str, set[tuple[str, int]]]] = {}
    looked_at = 0
    for row in rows:
        if row["record_type"] == "GroupMetadata" and row["group_metadata"] is not None:
            places = [
                (topic, number)
                for member in row["group_metadata"]["members"] or ()
                if member["assignment"]
                for topic, numbers in decode_assignment(member["assignment"]).partitions.items()
                for number in numbers
            ]
            assert len(places) == len(set(places)), row
            looked_at += 1
        elif row["record_type"] == _CURRENT:
            group = owned.setdefault(row["group_id"], {})
            value = msgspec.json.decode(row["other_value"]) if row["other_value"] else {}
            group[row["member_id"]] = {
                (topic["topicId"], number)
                for field in ("assignedPartitions", "partitionsPendingRevocation")
                for topic in value.get(field) or ()
                for number in topic["partitions"]
            }
            held = [place for places in group.values() for place in places]
            assert len(held) == len(set(held)), row
            looked_at += 1
    return looked_at
