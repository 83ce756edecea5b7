"""What must hold of everything that a coordinator ever did, kills and all, by its tables."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from deltalake import DeltaTable

from coordinator_udf.background import BackgroundThread
from coordinator_udf.protocol.consumer_protocol import decode_assignment
from tests.gateway.wire import Wire

#: Group, topic, partition, offset.
Commit = tuple[str, str, int, int]
_CURRENT = "ConsumerGroupCurrentMemberAssignment"


@dataclass(frozen=True)
class Attempt:
    """A commit of one offset for several partitions, in one request; whether it was acknowledged."""

    places: tuple[tuple[str, int], ...]
    offset: int
    acknowledged: bool


class Committer:
    """Commits for a group without members, one offset after the other, whatever happens to the other side.

    Args:
        seed: of which partitions are in which commit.
    """

    def __init__(self, address: str, group: str, places: Iterable[tuple[str, int]], seed: int) -> None:
        self._port = int(address.rpartition(":")[2])
        self.group = group
        self._places = sorted(places)
        self._random = random.Random(seed)
        self.attempts: list[Attempt] = []
        self._thread = BackgroundThread(self._run, "committer")

    def __enter__(self) -> Committer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.stop()

    def is_heard_since(self, attempt: int) -> bool:
        """Whether a commit was acknowledged, of those from an attempt's number on."""
        return any(later.acknowledged for later in self.attempts[attempt:])

    def _run(self, stop: threading.Event) -> None:
        wire: Wire | None = None
        while not stop.is_set():
            places = tuple(self._random.sample(self._places, self._random.randint(2, len(self._places))))
            offset = len(self.attempts) + 1
            acknowledged = False
            try:
                wire = wire or Wire(self._port, 5)
                acknowledged = self._commit(wire, places, offset)
            except (OSError, EOFError):
                # Nobody is there, or nobody said whether it is done.
                if wire is not None:
                    wire.socket.close()
                wire = None
            self.attempts.append(Attempt(places, offset, acknowledged))
            stop.wait(0.1)

    def _commit(self, wire: Wire, places: Iterable[tuple[str, int]], offset: int) -> bool:
        topics: dict[str, list[dict[str, Any]]] = {}
        for topic, partition in places:
            place = {"partitionIndex": partition, "committedOffset": offset, "committedLeaderEpoch": -1}
            topics.setdefault(topic, []).append({**place, "committedMetadata": ""})
        answered = wire.ask(
            "OffsetCommit",
            8,
            {
                "groupId": self.group,
                "generationIdOrMemberEpoch": -1,
                "memberId": "",
                "groupInstanceId": None,
                "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
            },
        )
        codes = {partition["errorCode"] for topic in answered["topics"] for partition in topic["partitions"]}
        assert len(codes) == 1, codes
        return codes == {0}


def assert_commits_are_whole(rows: Iterable[Mapping[str, Any]], committer: Committer) -> int:
    """Of each commit all partitions are there or none, all if it was acknowledged; how many were acknowledged."""
    stored: defaultdict[int, set[tuple[str, int]]] = defaultdict(set)
    for row in rows:
        if row["record_type"] == "OffsetCommit" and row["group_id"] == committer.group:
            stored[row["offset_commit"]["offset"]].add((row["topic"], row["topic_partition"]))
    for attempt in committer.attempts:
        found = stored.pop(attempt.offset, set())
        assert found in (set(), set(attempt.places)), (attempt, found)
        assert found or not attempt.acknowledged, f"acknowledged, and not in the table: {attempt}"
    assert not stored, f"nobody committed {sorted(stored)}"
    return sum(attempt.acknowledged for attempt in committer.attempts)


def records(tables: Path) -> list[dict[str, Any]]:
    """The offsets topic, each partition in its order."""
    rows: list[dict[str, Any]] = DeltaTable(str(tables / "consumer_offsets")).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def checked_records(tables: Path, acknowledged: Iterable[Commit]) -> tuple[list[dict[str, Any]], int]:
    """The offsets topic in which each number is once and every acknowledged commit; how many owners were looked at."""
    found = records(tables)
    assert_each_number_once(found)
    assert_commits_are_there(found, acknowledged)
    return found, assert_one_owner(found)


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
