"""The committed offsets of a shard's groups, those of open transactions among them. State and how records change it.

Source: OffsetMetadataManager (Offsets, OpenTransactions, replay, replayEndTransactionMarker).
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping

import msgspec

from coordinator_udf.protocol.requests import ZERO_UUID


class CommittedOffset(msgspec.Struct, frozen=True, array_like=True):
    """An offset as it was committed. Timestamps in milliseconds; -1 is no leader epoch, None no expiry of its own."""

    record_offset: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int | None = None
    topic_id: str = ZERO_UUID


#: Topic -> partition -> offset.
TopicOffsets = dict[str, dict[int, CommittedOffset]]


class OffsetStore:
    """All committed offsets, and the pending ones of each producer's open transaction."""

    def __init__(self) -> None:
        self.committed: MutableMapping[str, TopicOffsets] = {}
        #: Producer id -> group -> topic -> partition -> offset.
        self.pending: dict[int, dict[str, TopicOffsets]] = {}

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """Returns the committed offset of a partition; None if there is none."""
        return self.committed.get(group_id, {}).get(topic, {}).get(partition)

    def put(self, group_id: str, topic: str, partition: int, value: CommittedOffset) -> None:
        """Applies an OffsetCommit record that is in no transaction."""
        self.committed.setdefault(group_id, {}).setdefault(topic, {})[partition] = value

    def put_pending(self, producer_id: int, group_id: str, topic: str, partition: int, value: CommittedOffset) -> None:
        """Applies an OffsetCommit record of an open transaction."""
        groups = self.pending.setdefault(producer_id, {})
        groups.setdefault(group_id, {}).setdefault(topic, {})[partition] = value

    def delete(self, group_id: str, topic: str, partition: int) -> None:
        """Applies a tombstone: neither a committed offset nor a pending one is left."""
        _drop(self.committed, group_id, topic, partition)
        for groups in self.pending.values():
            _drop(groups, group_id, topic, partition)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Applies a transaction's marker. An offset committed after the pending one stays."""
        groups = self.pending.pop(producer_id, None)
        if groups is None or not committed:
            return
        for group_id, topics in groups.items():
            for topic, partitions in topics.items():
                for partition, value in partitions.items():
                    known = self.get(group_id, topic, partition)
                    if known is None or value.record_offset > known.record_offset:
                        self.put(group_id, topic, partition, value)

    def pending_partitions(self, group_id: str) -> set[tuple[str, int]]:
        """Returns the partitions of a group for which a transaction is open."""
        return {
            (topic, partition)
            for groups in self.pending.values()
            for topic, partitions in groups.get(group_id, {}).items()
            for partition in partitions
        }

    def all_pending(self) -> Iterator[tuple[str, str, int, CommittedOffset]]:
        """Yields every pending offset with its group, topic and partition."""
        for groups in self.pending.values():
            for group_id, topics in groups.items():
                for topic, partitions in topics.items():
                    for partition, value in partitions.items():
                        yield group_id, topic, partition, value


def _drop(groups: MutableMapping[str, TopicOffsets], group_id: str, topic: str, partition: int) -> None:
    topics = groups.get(group_id)
    if topics is None or topic not in topics:
        return
    topics[topic].pop(partition, None)
    if not topics[topic]:
        del topics[topic]
    if not topics:
        del groups[group_id]
