"""Which partitions a balancing has moved from whom to whom (AbstractStickyAssignor.PartitionMovements)."""

from __future__ import annotations

from coordinator_udf.java_order.maps import JavaMap
from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.protocol.partitioner import java_hash

#: From and to.
_Pair = tuple[str, str]


def _spread(partition: TopicPartition) -> int:
    """Returns the hash of a TopicPartition, as a HashMap spreads it."""
    value = (31 * (31 + partition.partition) + java_hash(partition.topic)) & 0xFFFFFFFF
    return value ^ (value >> 16)


class PartitionMovements:
    """Keeps a partition from being moved where moving another one back would do."""

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[_Pair, JavaMap[TopicPartition, None]]] = {}
        self._pairs: dict[TopicPartition, _Pair] = {}

    def move(self, partition: TopicPartition, old: str, new: str) -> None:
        """Takes note of a move; moves of one partition after another are one, and back is none."""
        if partition not in self._pairs:
            self._add(partition, (old, new))
            return
        source, _ = self._remove(partition)
        if source != new:
            self._add(partition, (source, new))

    def actual(self, partition: TopicPartition, old: str, new: str) -> TopicPartition:
        """Returns the partition of the same topic that is to be moved in the place of this one."""
        of_topic = self._by_topic.get(partition.topic)
        if of_topic is None:
            return partition
        source = self._pairs[partition][0] if partition in self._pairs else old
        reverse = of_topic.get((new, source))
        return partition if reverse is None else next(iter(reverse.walk()))

    def _add(self, partition: TopicPartition, pair: _Pair) -> None:
        self._pairs[partition] = pair
        of_topic = self._by_topic.setdefault(partition.topic, {})
        of_topic.setdefault(pair, JavaMap(_spread)).put(partition, None)

    def _remove(self, partition: TopicPartition) -> _Pair:
        pair = self._pairs.pop(partition)
        of_topic = self._by_topic[partition.topic]
        del of_topic[pair].entries[partition]
        if not of_topic[pair].entries:
            del of_topic[pair]
        if not of_topic:
            del self._by_topic[partition.topic]
        return pair
